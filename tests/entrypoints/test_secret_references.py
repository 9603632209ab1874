# SPDX-License-Identifier: Apache-2.0
"""A secret is read when it is needed, and covered from then on."""

from pathlib import Path

import pytest

from livery.entrypoints.secret_references import SECRET_BYTES_MAX, Secret, SecretMissing
from livery.ports.provided.secret_values import SecretValues


@pytest.mark.case("FC-240")
def test_a_revealed_secret_is_covered_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LIVERY_TEST_TOKEN", "abc-123\n")
    path = tmp_path / "token"
    path.write_text("def-456\n")
    secrets = SecretValues()

    values = [
        Secret(env="LIVERY_TEST_TOKEN").revealed(secrets),
        Secret(file=str(path)).revealed(secrets),
    ]

    assert values == ["abc-123", "def-456"]
    assert secrets.masked("a abc-123 b def-456 max_tokens") == "a *** b *** max_tokens"


def test_a_secret_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LIVERY_TEST_EMPTY", "")
    monkeypatch.setenv("LIVERY_TEST_BLANK", "\r\n")
    files = {
        "empty": b"",
        "binary": b"\xff\xfe",
        "large": b"x" * (SECRET_BYTES_MAX + 1),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def reason(secret: Secret) -> str:
        with pytest.raises(SecretMissing) as caught:
            secret.revealed(SecretValues())
        return caught.value.reason

    assert reason(Secret(env="LIVERY_NO_SUCH")).endswith("is not set")
    assert reason(Secret(env="LIVERY_TEST_EMPTY")).endswith("is empty")
    assert reason(Secret(env="LIVERY_TEST_BLANK")) == "it is empty"
    assert reason(Secret(file=str(tmp_path / "none"))).startswith("there is no file")
    assert reason(Secret(file=str(tmp_path / "empty"))) == "it is empty"
    assert reason(Secret(file=str(tmp_path / "binary"))) == "it is not UTF-8"
    assert reason(Secret(file=str(tmp_path / "large"))).startswith("it is over")


def test_a_reference_is_to_one_place() -> None:
    for wrong in ({}, {"env": "A", "file": "B"}, {"env": ""}):
        with pytest.raises(ValueError, match="one of the two"):
            Secret(**wrong)
