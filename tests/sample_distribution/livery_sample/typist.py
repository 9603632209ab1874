# SPDX-License-Identifier: Apache-2.0
"""The harness `typist` types the same text into a file, whatever it is asked."""

import attrs

from livery.domain.activations import Outcome
from livery.entrypoints.plug_ins import Surroundings, harness_plug_in
from livery.entrypoints.setting_words import Name, doc
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    Launch,
    Observations,
    Place,
    PlacedFile,
    Reading,
)
from livery.ports.required.sandbox_provider import Capabilities


@attrs.frozen(kw_only=True)
class TypistOptions:
    """What `[harness.NAME.options]` can say."""

    text: str = attrs.field(metadata=doc("What is typed."))
    file: Name = attrs.field(default="answer", metadata=doc("Where it is typed."))


@attrs.frozen(kw_only=True)
class TypistHarness:
    """The `Harness` that types."""

    name: str
    options: TypistOptions

    @property
    def stepwise(self) -> bool:
        """One activation is all there is."""
        return False

    @property
    def needs(self) -> Capabilities:
        """Every sandbox holds files."""
        return frozenset()

    def check(self, request: HarnessRequest) -> None:
        """Accept every request."""

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put the text down."""
        content = f"{self.options.text}\n".encode()
        return Launch(files=(PlacedFile(path=self.options.file, content=content),))

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Say that it was typed."""
        outcome = Outcome.CANCELLED if capture.stopped else Outcome.COMPLETED
        return Reading(outcome=outcome, observations=Observations(source=self.name))


def make_typist(surroundings: Surroundings, options: TypistOptions) -> TypistHarness:
    """Return the harness of one block of the settings."""
    return TypistHarness(name=surroundings.name, options=options)


PLUG_IN = harness_plug_in(TypistOptions, make_typist)
