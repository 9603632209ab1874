# SPDX-License-Identifier: Apache-2.0
"""Puts a provider for NeMo Gym together: state folder, journal, claims, provider."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs

from ...adapters.nemo_gym import (
    GymProvider,
    GymProviderSettings,
    SpecDefaults,
    SpecReader,
    Workshop,
    load_gym,
)
from ...ports.provided.secret_values import SecretValues
from ..composition import claims_of, open_foundation
from ..journal_settings import JournalSettings
from ..plug_ins import Opened, Surroundings
from ..state_folder import open_state_folder, state_path
from .blocks import POLL_SECONDS, ExecBlock, OperationsBlock, ProbeBlock

log = logging.getLogger(__name__)

EXTRA: Final = "nemo-gym"


@attrs.frozen(kw_only=True)
class Making:
    """What a provider for NeMo Gym is made of."""

    name: str
    """NeMo Gym's name for it."""
    block: str
    """The block of `livery.toml`, or the built-in name, that claims carry."""
    state: str | None
    """The state folder; None: the usual one."""
    open: Callable[[Surroundings], Opened]
    defaults: SpecDefaults
    exec: ExecBlock
    probe: ProbeBlock
    operations: OperationsBlock

    def make(self) -> GymProvider:
        """Return the provider; nothing is opened before its first call."""
        self._warn_of_what_has_no_effect()
        return GymProvider(
            GymProviderSettings(
                name=self.name,
                block=self.block,
                default_timeout_s=self.exec.default_timeout_s,
                transfer_timeout_s=self.exec.transfer_timeout_s,
                exec_shell=self.exec.exec_shell,
                output_bytes_max=self.exec.output_bytes_max,
                probe=self.probe.probe,
                close_timeout_s=self.operations.close_timeout_s,
                releases_at_end=self.operations.atexit_cleanup,
            ),
            gym=load_gym(),
            specs=SpecReader(self.defaults),
            open_workshop=self._workshop,
        )

    def _warn_of_what_has_no_effect(self) -> None:
        if not self.operations.close_wait_deleted:
            log.warning(
                "%s: operations.close_wait_deleted is false, and a close waits all the"
                " same: a sandbox counts as released when it was seen gone",
                self.name,
            )
        if self.operations.poll_interval_s != POLL_SECONDS:
            log.warning(
                "%s: operations.poll_interval_s has no effect: a close has its own way"
                " to look",
                self.name,
            )

    @asynccontextmanager
    async def _workshop(self) -> AsyncGenerator[Workshop]:
        secrets = SecretValues()
        state = open_state_folder(state_path(self.state))
        async with open_foundation(state, secrets, JournalSettings()) as foundation:
            surroundings = foundation.surroundings(self.block)
            async with self.open(surroundings) as provider:
                claim, release = claims_of(foundation, provider)
                yield Workshop(
                    provider=provider,
                    claim=claim,
                    release=release,
                    ids=foundation.ids,
                )
