# SPDX-License-Identifier: Apache-2.0
"""The cookie is one that Starlette's middleware reads, and the factory serves."""

from base64 import b64encode
from pathlib import Path

import httpx
import pytest
from itsdangerous import TimestampSigner
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from livery.entrypoints.agent_server.asgi import application
from livery.entrypoints.http_serving.session_cookies import (
    MAX_AGE_SECONDS,
    SessionCookies,
    Visitor,
)
from livery.entrypoints.settings_reading import SettingsRefused

from .processes import Ground
from .scripted import seed

pytestmark = pytest.mark.anyio

COOKIES = SessionCookies("A___b", "secret", key="agent_session_id")


def asked(value: str | None) -> Request:
    headers = [] if value is None else [(b"cookie", f"A___b={value}".encode())]
    return Request({"type": "http", "headers": headers})


def value_of(visitor: Visitor) -> str:
    response = Response()
    COOKIES.set(response, visitor)
    return response.headers["set-cookie"].partition("=")[2].partition(";")[0]


def now() -> int:
    return TimestampSigner("secret").get_timestamp()


def signed_at(at: int) -> str:
    class SignerOfThen(TimestampSigner):
        def get_timestamp(self) -> int:
            return at

    payload = b64encode(b'{"agent_session_id": "s"}')
    return SignerOfThen("secret").sign(payload).decode()


@pytest.mark.case("FC-180")
async def test_starlette_s_middleware_reads_our_cookie() -> None:
    async def told(request: Request) -> JSONResponse:
        return JSONResponse(dict(request.session))

    app = Starlette(
        routes=[Route("/", told)],
        middleware=[
            Middleware(SessionMiddleware, secret_key="secret", session_cookie="A___b")
        ],
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        quoted = f'A___b="{value_of(Visitor("v", "s1"))}"'
        reply = await client.get("/", headers={"cookie": quoted})

    assert reply.json() == {"session_id": "v", "agent_session_id": "s1"}


@pytest.mark.parametrize("quote", ["", '"'])
def test_our_cookie_is_read_again_in_quotes_too(quote: str) -> None:
    value = f"{quote}{value_of(Visitor('v', 's=1'))}{quote}"

    assert COOKIES.read(asked(value)) == Visitor("v", "s=1")


@pytest.mark.parametrize("seconds", [1, 3600], ids=["another host", "a clock set back"])
def test_a_cookie_of_a_clock_that_is_ahead_is_ours_all_the_same(seconds: int) -> None:
    assert COOKIES.read(asked(signed_at(now() + seconds))).session == "s"


def test_a_cookie_that_is_too_old_is_as_good_as_none() -> None:
    young, old = now() - MAX_AGE_SECONDS + 60, now() - MAX_AGE_SECONDS - 60

    assert COOKIES.read(asked(signed_at(young))).session == "s"
    assert COOKIES.read(asked(signed_at(old))).session is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "garbage",
        TimestampSigner("another")
        .sign(b64encode(b'{"agent_session_id": "s"}'))
        .decode(),
        TimestampSigner("secret").sign(b64encode(b"[]")).decode(),
        TimestampSigner("secret").sign(b64encode(b'{"agent_session_id": 1}')).decode(),
        TimestampSigner("secret").sign(b"!").decode(),
    ],
    # A signed value holds its time, and every worker must find the same tests.
    ids=["none", "garbage", "another secret", "a list", "a number", "no base64"],
)
def test_any_other_cookie_is_as_good_as_none(value: str | None) -> None:
    assert COOKIES.read(asked(value)).session is None


async def test_the_application_opens_what_it_stands_on_by_its_lifespan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path)
    settings = ground.folder / "livery.toml"
    # However busy the machine is, what was made is to be given back in time.
    text = settings.read_text()
    settings.write_text(text.replace("grace_seconds = 8", "grace_seconds = 120"))
    monkeypatch.setenv("LIVERY_CONFIG", str(settings))
    monkeypatch.setenv("LIVERY_STATE", str(tmp_path / "state"))
    app = application()

    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://x"
        ) as client:
            reply = await client.post("/v1/agent_sessions", json=seed())

    assert reply.json() == {"agent_session_id": "s1"}, reply.text
    assert reply.headers["set-cookie"].startswith("LiveryAgent___agent=")
    assert list((tmp_path / "state" / "sandboxes").iterdir()) == []


def test_a_settings_file_that_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "livery.toml").write_text("[agent_server]\nport = -1\n")
    monkeypatch.setenv("LIVERY_CONFIG", str(tmp_path / "livery.toml"))

    with pytest.raises(SettingsRefused, match="port"):
        application()
