# SPDX-License-Identifier: Apache-2.0
"""Parts of ours whose libraries an extra brings: loaded, or told by what is missing."""

import importlib

import attrs

from .plug_ins import ExtraMissing


@attrs.frozen(kw_only=True)
class ExtraPart:
    """A part that a start loads only where the settings need it."""

    modules: tuple[str, ...]
    """Seen from this package."""
    word: str
    name: str
    extra: str

    def check(self) -> None:
        """Load the part, as a start does; raises `ExtraMissing`."""
        try:
            for module in self.modules:
                importlib.import_module(module, __package__)
        except ImportError as missing:
            library, _, _ = (missing.name or "(unknown)").partition(".")
            if library == "livery":
                raise
            raise ExtraMissing(self.word, self.name, library, self.extra) from missing


POSTGRES = ExtraPart(
    modules=("..adapters.postgres_journal",),
    word="journal",
    name="postgres",
    extra="postgres",
)
GATEWAY = ExtraPart(
    modules=(".model_gateway.opening",), word="gateway to", name="model", extra="server"
)


def server_part(name: str) -> ExtraPart:
    """Return the part that `livery serve NAME` loads."""
    return ExtraPart(
        modules=(f".{name}_server.composition",),
        word="server",
        name=name,
        extra="server",
    )


def apps_part(world: str) -> ExtraPart:
    """Return the part that serves a world's apps to a run."""
    return ExtraPart(
        modules=(".resources_server.composition", ".resources_server.mcp_endpoint"),
        word="world",
        name=world,
        extra="server",
    )
