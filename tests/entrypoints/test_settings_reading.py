# SPDX-License-Identifier: Apache-2.0
"""livery.toml is read strictly, and all that is wrong with it is told at once."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import attrs
import pytest

from livery.entrypoints.secret_references import Secret
from livery.entrypoints.setting_words import Range, Seconds
from livery.entrypoints.settings import SandboxSettings, Settings
from livery.entrypoints.settings_reading import (
    FILE_BYTES_MAX,
    SettingsRefused,
    read_settings,
    structured,
)
from livery.entrypoints.strict_converter import Refused, nullable
from livery.entrypoints.toml_places import LINES_MAX, line_of
from livery.ports.required.sandbox_provider import Mount, Network


def read(folder: Path, text: str) -> Settings:
    path = folder / "livery.toml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path).settings


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsRefused) as caught:
        read(folder, text)
    return [line.strip() for line in caught.value.mistakes.splitlines()]


def told(kind: type, content: object, environ: Mapping[str, str] = {}) -> list[str]:
    with pytest.raises(Refused) as caught:
        structured(kind, content, environ=environ)
    return [one.told for one in caught.value.mistakes]


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Settings()


def test_what_the_file_says_is_what_is_asked_of_the_provider(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
        [sandbox.small]
        provider = "docker"
        image = "mine:1"
        workdir = "/w"
        env = {A = "1"}
        user = "1000:1000"
        cpus = 1.5
        memory_mib = 512
        processes_max = 64
        network = "none"
        mounts = [{source = "/a", target = "/b", read_only = false}]
        ports = [8080]
        lifetime_seconds = 90
        create_timeout_seconds = 1.5
        pull_timeout_seconds = 2.5
        ready_timeout_seconds = 3.5
        options = {address = "unix:///x", deep = {anything = [1, 2]}}
        """,
    )

    block = settings.sandbox["small"]
    spec = block.spec(image=block.image, lifetime_seconds=90)
    assert block.provider == "docker"
    assert block.options == {"address": "unix:///x", "deep": {"anything": [1, 2]}}
    assert (spec.image, spec.workdir, spec.env) == ("mine:1", "/w", {"A": "1"})
    assert (spec.user, spec.cpus, spec.memory_mib) == ("1000:1000", 1.5, 512)
    assert (spec.processes_max, spec.network, spec.ports) == (64, Network.NONE, (8080,))
    assert spec.mounts == (Mount(source="/a", target="/b", read_only=False),)
    assert block.lifetime_seconds == 90.0


@pytest.mark.case("FC-250")
@pytest.mark.case("FC-254")
def test_every_mistake_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    told = mistakes(
        tmp_path,
        """[run]
concurency = 3
repeats = 0

[sandbox.docker]
lifetime_seconds = "5m"
mounts = [
  {source = "/a"},
]
[harness.x]
options = 3
[no.such]
""",
    )

    assert told == [
        "line 2: run.concurency: is unknown; did you mean concurrency?",
        "line 3: run.repeats: wants a number at least 1 and at most 1,000, found 0",
        "line 6: sandbox.docker.lifetime_seconds: wants a number, found '5m'"
        ' (or "none")',
        "line 7: sandbox.docker.mounts[0].target: is needed and missing",
        "line 11: harness.x.options: wants a table, found 3",
        "line 12: no: is unknown; known are state, journal, log, run, harness, sandbox,"
        " reaper, model, agent_server, environment_server, resources_server",
    ]


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("utf-8-sig", "it begins with a byte order mark"),
        ("utf-16", "it is UTF-16"),
        ("utf-32", "it is UTF-32"),
        ("utf-16-le", "it holds NUL bytes, as UTF-16 does"),
    ],
)
def test_a_file_in_another_encoding_is_told_how_to_save_it(
    tmp_path: Path, encoding: str, told: str
) -> None:
    path = tmp_path / "livery.toml"
    path.write_bytes("[run]\nconcurrency = 3\n".encode(encoding))

    with pytest.raises(SettingsRefused) as caught:
        read_settings(path)

    advice = "save it as UTF-8 without a byte order mark"
    assert caught.value.mistakes == f"  {told}; {advice}"


@attrs.frozen(kw_only=True)
class _Options:
    """What a plug-in may declare."""

    token: Secret
    words: tuple[str, ...] = ()
    turns_max: Annotated[int, Range(least=1)] | None = 3


@pytest.mark.case("FC-254")
def test_references_that_lead_nowhere_are_told_with_the_other_mistakes() -> None:
    found = told(
        _Options, {"token": {"env": "LIVERY_NO_SUCH"}, "turns_max": 0, "werds": 1}
    )

    assert found == [
        "is unknown; did you mean words?",
        "environment variable LIVERY_NO_SUCH is not set",
        'wants a number at least 1, found 0 (or "none")',
    ]


@pytest.mark.parametrize(
    "given", ["sk-very-secret", {"env": "A", "file": "B"}, {}, {"env": 3}, {"x": "y"}]
)
def test_a_secret_is_a_reference_and_is_never_shown(given: object) -> None:
    (message,) = told(_Options, {"token": given})

    assert '{env = "NAME"} or {file = "PATH"}' in message
    assert "sk-very-secret" not in message


@pytest.mark.case("FC-251")
def test_text_is_no_list_of_letters() -> None:
    environ = {"A": "secret"}

    found = told(_Options, {"token": {"env": "A"}, "words": "ls -l"}, environ)

    assert found == ["wants a list, found 'ls -l'"]


@pytest.mark.case("FC-207")
@pytest.mark.case("FC-256")
@pytest.mark.parametrize(
    "name",
    [field.name for field in attrs.fields(SandboxSettings) if nullable(field.type)],
)
def test_every_setting_that_may_be_absent_can_be_switched_off(
    name: str, tmp_path: Path
) -> None:
    settings = read(tmp_path, f'[sandbox.x]\n{name} = "none"')

    assert getattr(settings.sandbox["x"], name) is None


@pytest.mark.case("FC-256")
def test_none_is_reachable_in_the_other_sections_and_in_options(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        '[run]\nlimit = "none"\n[state]\nfolder = "none"\n[harness.x]\nharness = "none"',
    )
    options = structured(
        _Options, {"token": {"env": "A"}, "turns_max": "none"}, environ={"A": "b"}
    )

    assert settings.run.limit is None
    assert settings.state.folder is None
    assert settings.harness["x"].harness is None
    assert options.turns_max is None


@attrs.frozen(kw_only=True)
class _Duration:
    """One duration."""

    seconds: Seconds


@pytest.mark.case("FC-258")
@pytest.mark.parametrize(
    "given",
    [0, -1, 1e12, float("inf"), float("-inf"), float("nan"), "5m", "1.5", True, [1]],
)
def test_a_duration_is_a_number_of_seconds_within_bounds(given: object) -> None:
    (message,) = told(_Duration, {"seconds": given})

    assert message.startswith("wants a number")


@pytest.mark.case("FC-258")
@pytest.mark.case("FC-259")
@pytest.mark.parametrize(("given", "seconds"), [(60, 60.0), (1.5, 1.5), (0.001, 0.001)])
def test_fractions_of_seconds_stay_what_they_are(given: float, seconds: float) -> None:
    assert structured(_Duration, {"seconds": given}).seconds == seconds


@pytest.mark.case("FC-018")
@pytest.mark.case("FC-260")
def test_each_duration_has_a_name_of_its_own(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
        [sandbox.x]
        create_timeout_seconds = 1
        pull_timeout_seconds = 2
        ready_timeout_seconds = 3
        lifetime_seconds = 4
        [harness.x]
        turn_timeout_seconds = 5
        """,
    )

    spec = settings.sandbox["x"].spec(image=None, lifetime_seconds=4)
    assert spec.create_timeout_seconds == 1
    assert spec.pull_timeout_seconds == 2
    assert spec.ready_timeout_seconds == 3
    assert settings.sandbox["x"].lifetime_seconds == 4
    assert settings.harness["x"].turn_timeout_seconds == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[run", "it is not TOML: "),
        ("a = 1\na = 2", "it is not TOML: "),
        ("a = " + "9" * 5000, "it holds a whole number of too many digits"),
        ("a = " + "[" * 100_000, "it is nested too deeply"),
        ("x" * (FILE_BYTES_MAX + 1), f"it is over {FILE_BYTES_MAX} bytes"),
    ],
)
def test_what_is_no_toml_is_told(tmp_path: Path, text: str, told: str) -> None:
    (message,) = mistakes(tmp_path, text)

    assert message.startswith(told)


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    other = tmp_path / "latin.toml"
    other.write_bytes(b'a = "\xe4"')

    with pytest.raises(SettingsRefused, match="No such file"):
        read_settings(tmp_path / "missing.toml")
    with pytest.raises(SettingsRefused, match="not UTF-8, at byte 5"):
        read_settings(other)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"level": "loud"},
            '"debug" or "info" or "warning" or "error", found \'loud\'',
        ),
        ({"level": 3}, '"debug" or "info" or "warning" or "error", found 3'),
        ({"format": "x" * 99}, "…"),
    ],
)
def test_a_word_is_one_of_those_that_are_known(
    given: dict[str, object], message: str
) -> None:
    (found,) = told(Settings, {"log": given})

    assert message in found


def test_the_environment_of_the_process_is_looked_at(tmp_path: Path) -> None:
    name = next(name for name, value in os.environ.items() if value)
    path = tmp_path / "token"
    path.write_text("t")

    by_name = structured(_Options, {"token": {"env": name}})
    by_file = structured(_Options, {"token": {"file": str(path)}})

    assert by_name.token == Secret(env=name)
    assert by_file.token == Secret(file=str(path))


def test_a_long_file_is_read_without_telling_lines() -> None:
    text = "#\n" * LINES_MAX + "a = 1\n"

    assert line_of(text, ("a",)) is None


def test_a_line_is_found_in_whatever_form_the_key_is_written() -> None:
    text = '# c\na.b = 1\nc = {d = [\n  {e = 2},\n]}\n[[f]]\n"g h" = """\n[x]\n"""\ni = 1\n'

    assert line_of(text, ("a", "b")) == 2
    assert line_of(text, ("c", "d", 0, "e")) == 3
    assert line_of(text, ("f", 0, "g h")) == 7
    assert line_of(text, ("f", 0, "i")) == 10
    assert line_of(text, ("f", 0, "missing")) == 6
    assert line_of(text, ("nowhere",)) is None
