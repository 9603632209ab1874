# SPDX-License-Identifier: Apache-2.0
"""What every test here shares.

Async tests say `pytestmark = pytest.mark.anyio` and run on asyncio. Peers that
are absent are skipped with a reason, or fail when required (`peers.py`). A test
leaves no thread, child process, descriptor, temporary file or task behind
(`leaks.py`); one that must says `@pytest.mark.keeps("threads", reason="…")`.
Which tests stand for which field case is written down (`cases.py`).

Modules beside the tests are imported relatively: `from ..fakes import clock`.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from . import cases, leaks, measured_python, peers
from .cluster.fixtures import cluster, python_pool, running_cluster
from .postgres.fixtures import own_postgres, postgres, running_postgres

__all__ = [
    "cluster",
    "own_postgres",
    "postgres",
    "python_pool",
    "running_cluster",
    "running_postgres",
]

LONG_EXAMPLES = 10_000

settings.register_profile(
    "fast",
    deadline=None,
    max_examples=50,
    stateful_step_count=30,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "ci", parent=settings.get_profile("fast"), max_examples=100, derandomize=False
)
settings.register_profile(
    "long",
    parent=settings.get_profile("fast"),
    max_examples=LONG_EXAMPLES,
    stateful_step_count=50,
)
settings.register_profile(
    "unshrunk",
    parent=settings.get_profile("fast"),
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("ci" if os.environ.get("CI") else "fast")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def test_image() -> str:
    """The image, with `sh` and `python3` in it, that Docker tests use."""
    return peers.image()


@pytest.fixture(scope="session")
def oldest_python() -> Path:
    """The oldest interpreter found that worker scripts must run on."""
    return peers.oldest_python()


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """Keep this process's temporary files apart, so that leaks are ours."""
    tmp_path_factory.getbasetemp()  # Made now, it stays outside of what is watched.
    before = os.environ.get("TMPDIR")
    folder = Path(tempfile.mkdtemp(prefix="lvt-"))
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    yield folder
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    tempfile.tempdir = None
    shutil.rmtree(folder)


@pytest.fixture
def public_path(own_temporary_folder: Path) -> Iterator[Path]:
    """A folder that every user of this machine can reach and write to.

    `tmp_path` is none: pytest keeps its parents to their owner, and takes their
    modes back whenever another pytest starts here.
    """
    own_temporary_folder.chmod(0o711)
    folder = Path(tempfile.mkdtemp(prefix="public-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, own_temporary_folder: Path
) -> Iterator[None]:
    """Fail a test that passes and leaves something of this process behind."""
    kept = frozenset(
        kind for mark in request.node.iter_markers("keeps") for kind in mark.args
    )
    before = leaks.census()
    yield
    surplus = leaks.settled_surplus(before, kept=kept)
    assert not surplus, "the test left behind:\n  " + "\n  ".join(surplus)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--case-results", metavar="FILE", help="write how the case tests ended"
    )


def pytest_configure(config: pytest.Config) -> None:
    if unknown := peers.unknown_required():
        raise pytest.UsageError(
            f"LIVERY_REQUIRE names {', '.join(unknown)};"
            f" known are all, {', '.join(sorted(peers.PROBES))}"
        )
    # With xdist, reports of the workers arrive at the process that has no input.
    path = config.getoption("--case-results")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(cases.Results(Path(path)), "case-results")
    if config.getoption("cov_source", None) and hasattr(config, "workerinput"):
        folder = Path(tempfile.mkdtemp(prefix="lvp-"))
        config.add_cleanup(lambda: shutil.rmtree(folder))
        # Before any module takes it for a default: whoever runs a worker script with
        # this very interpreter runs it measured.
        sys.executable = str(measured_python.make(folder))


def pytest_report_header() -> list[str]:
    absent = [f"{name} ({peers.absence(name)})" for name in peers.PROBES]
    return [
        f"oldest python: {peers.oldest_python()}",
        *(
            f"absent peer: {told}"
            for told, name in zip(absent, peers.PROBES, strict=True)
            if peers.absence(name)
        ),
    ]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    long = config.getoption("--hypothesis-profile", default=None) == "long"
    for item in items:
        item.user_properties += [("case", case) for case in cases.of(item)]
        for name in _peers_of(item):
            if name not in peers.PROBES:
                raise pytest.UsageError(f"{item.nodeid} needs an unknown peer: {name}")
        chosen = getattr(getattr(item, "cls", None), "settings", None)
        if isinstance(chosen, settings):
            item.add_marker("state_machine")
            if long and chosen.max_examples < LONG_EXAMPLES:
                raise pytest.UsageError(
                    f"{item.nodeid} has fewer examples than the long profile:"
                    " leave max_examples to the profiles"
                )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _peers_of(item):
        if reason := peers.absence(name):
            if peers.is_required(name):
                pytest.fail(f"peer {name} is required: {reason}", pytrace=False)
            pytest.skip(f"peer {name}: {reason}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(
    pyfuncitem: pytest.Function,
) -> Generator[None, object, object]:
    if "anyio_backend" in pyfuncitem.funcargs:
        if hypothesis := getattr(pyfuncitem.obj, "hypothesis", None):
            hypothesis.inner_test = leaks.watching_tasks(hypothesis.inner_test)
        else:
            pyfuncitem.obj = leaks.watching_tasks(pyfuncitem.obj)
    return (yield)


def _peers_of(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("peer") for name in mark.args]
