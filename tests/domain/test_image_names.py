# SPDX-License-Identifier: Apache-2.0
"""What every registry reads as an image's name is one, and nothing else is."""

import pytest

from livery.domain.image_names import NAME_CHARACTERS_MAX, is_image_name

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        "python",
        "python:3.12-slim",
        "library/python",
        "my__image--x.y/z_1",
        "localhost/x",
        "LOCAL.example:5000/group/name:Tag_1.0",
        "127.0.0.1:5000/x",
        "[::1]:5000/x:1",
        f"python@{DIGEST}",
        f"registry.example/python:3@{DIGEST}",
        DIGEST,
        "a" * NAME_CHARACTERS_MAX,
    ],
)
def test_a_name_is_one(text: str) -> None:
    assert is_image_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " python",
        "python\n",
        "python 3",
        "Python",
        "group/Python",
        "/python",
        "python/",
        "a//b",
        "-python",
        "python:",
        "python:-x",
        "python:" + "1" * 129,
        "python@sha256:12",
        "https://registry.example/python",
        "a___b",
        "a..b",
        "a" * (NAME_CHARACTERS_MAX + 1),
    ],
)
def test_another_text_is_none(text: str) -> None:
    assert not is_image_name(text)
