# SPDX-License-Identifier: Apache-2.0
"""Whatever is asked: nothing is a mistake of ours, and no status is undeclared."""

from collections.abc import Iterator

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from livery.adapters.gym_servers.wire_names import AboutAgent
from livery.entrypoints.agent_server.openapi import document

from .processes import Ground, Process

ABOUT = AboutAgent(concurrency=4, stepwise=False)
DOCUMENT = document(ABOUT, measured=True)
EXAMPLES = 25
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
OPERATIONS = [
    (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    ground = Ground(tmp_path_factory.mktemp("any"))
    ground.settle(more="concurrency = 4\nclosed_sessions_max = 50")
    with ground.server() as process:
        yield process


@pytest.fixture(scope="module")
def cookie(server: Process) -> str:
    """The cookie of a session that can be activated."""
    return server.seeded("to-activate")


@pytest.mark.keeps("descriptors", reason="a pool of connections and a server process")
@pytest.mark.keeps("children", reason="the server of the whole module")
@pytest.mark.keeps("threads", reason="a library of schemathesis keeps some")
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_answer_is_always_a_declared_one(
    server: Process, cookie: str, path: str, method: str
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)

    @hypothesis.given(case=schema[path][method].as_strategy())
    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck)
    )
    def check(case: schemathesis.Case) -> None:
        headers = {"Cookie": cookie} if "responses" in path else {}
        with requests.Session() as session:
            reply = case.call(base_url=server.url, session=session, headers=headers)
        case.validate_response(reply, checks=CHECKS)

    check()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/responses", 405), ("POST", "/healthz", 405), ("GET", "/x", 404)],
)
@pytest.mark.keeps("children", reason="the server of the whole module")
@pytest.mark.keeps("descriptors", reason="a pool of connections and a server process")
def test_what_is_not_there_is_said_in_json(
    server: Process, method: str, path: str, status: int
) -> None:
    reply = server.client.request(method, path)

    assert reply.status_code == status
    assert set(reply.json()) == {"detail", "kind"}


def test_the_document_is_the_one_that_is_served(server: Process) -> None:
    assert server.client.get("/openapi.json").json() == DOCUMENT
