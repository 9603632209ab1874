# SPDX-License-Identifier: Apache-2.0
"""Text that could not be used later is refused when it is read, and by the schema."""

from pathlib import Path

import jsonschema
import pytest

from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import structured
from livery.entrypoints.settings_schema import settings_schema
from livery.entrypoints.strict_converter import Refused

from .command_lines import Livery

URLS = ("resources_server", "model")
WRONG = [
    ("agent_server.cookie_name", "a b;c=d"),
    ("agent_server.cookie_name", ""),
    ("agent_server.cookie_name", "a\nb"),
    ("resources_server.cookie_name", "ä"),
    ("resources_server.token_header", "X Token"),
    *((f"{section}.advertised_url", "not a url") for section in URLS),
    *((f"{section}.advertised_url", "ftp://host") for section in URLS),
    *((f"{section}.advertised_url", "http://") for section in URLS),
    *((f"{section}.advertised_url", "http://:80") for section in URLS),
    *((f"{section}.advertised_url", "http://host:port") for section in URLS),
    *((f"{section}.advertised_url", "http://host/?a=b") for section in URLS),
    ("resources_server.guide_file", "../../etc/x"),
    ("resources_server.guide_file", "a/../x"),
    ("resources_server.guide_file", "a/.."),
    ("resources_server.guide_file", "a/"),
    ("resources_server.guide_file", "."),
    ("resources_server.guide_file", "a\0b"),
]
RIGHT = [
    ("agent_server.cookie_name", "LiveryAgent___agent"),
    ("resources_server.token_header", "X-Token"),
    ("resources_server.advertised_url", "http://[::1]:8200/base/"),
    ("resources_server.advertised_url", "https://host.example"),
    ("resources_server.advertised_url", "none"),
    ("model.advertised_url", "HTTP://host:1"),
    ("resources_server.guide_file", "docs/..GUIDE..md"),
    ("resources_server.guide_file", "./.guide"),
    ("resources_server.guide_file", "/opt/guide.md"),
]


def content(key: str, value: str) -> dict[str, dict[str, str]]:
    section, name = key.split(".")
    return {section: {name: value}}


def accepted(given: dict[str, dict[str, str]]) -> bool:
    return jsonschema.Draft202012Validator(settings_schema()).is_valid(given)


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_what_cannot_be_used_is_refused_with_what_would_be_right(
    key: str, value: str
) -> None:
    with pytest.raises(Refused) as caught:
        structured(Settings, content(key, value))

    (mistake,) = caught.value.mistakes
    assert ".".join(map(str, mistake.path)) == key
    assert mistake.told.startswith("wants ")
    assert not accepted(content(key, value))


@pytest.mark.parametrize(("key", "value"), RIGHT)
def test_what_can_be_used_is_taken(key: str, value: str) -> None:
    structured(Settings, content(key, value))

    assert accepted(content(key, value))


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    given = content("resources_server.advertised_url", "http://me:secret@host")

    with pytest.raises(Refused) as caught:
        structured(Settings, given)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("words", [("config", "check"), ("serve", "resources")])
def test_the_commands_tell_the_file_the_line_and_the_key(
    livery: Livery, tmp_path: Path, words: tuple[str, ...]
) -> None:
    text = '[resources_server]\nguide_file = "../../etc/x"\n'
    (tmp_path / "livery.toml").write_text(text, encoding="utf-8")

    ended = livery(*words)

    assert ended.status == 2
    wanted = ["livery.toml", "line 2", "guide_file", "wants a file's path", "etc/x"]
    assert [one for one in wanted if one not in ended.err] == [], ended.err
