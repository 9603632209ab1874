# SPDX-License-Identifier: Apache-2.0
"""A change of interface is seen."""

from .public_names import LIST, listing


def test_the_public_names_are_the_listed_ones() -> None:
    assert LIST.read_text(encoding="utf-8") == listing(), (
        "the interface changed; when that is meant:"
        " python -m tests.architecture.public_names --write"
    )
