# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the engine, told apart by type and status.

`EngineRefused` is the engine's own no, for the callers inside this folder to
answer; everything else is a fault of the provider's port already. Texts of the
engine are kept short and are evidence only: a rule reads them where the engine
gives one status to different things.
"""

from collections.abc import Iterator

import attrs
import requests
import urllib3

from ...ports.required.sandbox_provider import (
    CapacityExhausted,
    CreateFailed,
    ImageMissing,
    ProviderForbidden,
    ProviderUnreachable,
    SpecRefused,
)

TEXT_CHARACTERS_MAX = 500
CAUSES_MAX = 16

NO_SPACE = ("no space left on device", "disk quota exceeded")
NO_ROOM = (*NO_SPACE, "address pool", "too many open files", "cannot allocate memory")


@attrs.frozen
class EngineRefused(Exception):
    """The engine answered with an error."""

    status: int
    text: str

    def __str__(self) -> str:
        return f"the engine answers {self.status}: {self.text}"

    def tells(self, *words: str) -> bool:
        """Whether one of `words` is in the engine's text, in whatever case."""
        text = self.text.lower()
        return any(word in text for word in words)


@attrs.frozen(kw_only=True)
class EnginePlace:
    """Which engine it is, for messages."""

    provider: str
    address: str

    def unreachable(self, reason: str) -> ProviderUnreachable:
        """Return the fault that nobody answers, or not in time."""
        return ProviderUnreachable(
            provider=self.provider, address=self.address, reason=reason
        )

    def from_os(self, failure: OSError) -> ProviderUnreachable | ProviderForbidden:
        """Return the fault for what the operating system says of the socket."""
        if isinstance(failure, PermissionError):
            return ProviderForbidden(
                provider=self.provider,
                address=self.address,
                reason="permission denied on the socket",
            )
        if isinstance(failure, FileNotFoundError):
            return self.unreachable("there is no such socket")
        if isinstance(failure, ConnectionRefusedError):
            return self.unreachable("nobody listens there")
        return self.unreachable(failure.strerror or type(failure).__name__)

    def from_library(
        self, failure: Exception, seconds: float
    ) -> ProviderUnreachable | ProviderForbidden:
        """Return the fault for what the `docker` package raised besides an answer."""
        for cause in _causes(failure):
            if isinstance(
                cause, requests.exceptions.Timeout | urllib3.exceptions.ReadTimeoutError
            ):
                return self.unreachable(f"no answer within {seconds:g} s")
            # What `requests` raises is an OSError itself, without a number.
            if isinstance(cause, OSError) and cause.errno is not None:
                return self.from_os(cause)
        text = " ".join(str(failure).split())
        return self.unreachable(text[:TEXT_CHARACTERS_MAX] or type(failure).__name__)

    def forbidden(self, refused: EngineRefused) -> ProviderForbidden:
        """Return the fault for an engine that lets others in, not us."""
        return ProviderForbidden(
            provider=self.provider, address=self.address, reason=refused.text
        )

    def at_odds(
        self, refused: EngineRefused
    ) -> ProviderUnreachable | ProviderForbidden:
        """Return the fault for a no where an answer should be certain."""
        if refused.status in {401, 403}:
            return self.forbidden(refused)
        return self.unreachable(str(refused))

    def from_create(
        self, refused: EngineRefused, *, claim: str, image: str, step: str
    ) -> Exception:
        """Return the fault for a container that the engine would not make."""
        if refused.status in {401, 403}:
            return self.forbidden(refused)
        if refused.status == 404 and refused.tells("no such image", "manifest"):
            return ImageMissing(
                provider=self.provider, image=image, reason=refused.text
            )
        if refused.tells("invalid reference format", "repository name must be"):
            return self._refused("image", f"{image!r} is no name of an image")
        if refused.tells("bind source path does not exist"):
            return self._refused("mounts", refused.text)
        if refused.tells("unable to find user", "no matching entries in passwd"):
            return self._refused("user", refused.text)
        if refused.tells('exec: "/bin/sh"'):
            return self._refused("image", f"{image!r} has no /bin/sh that can be run")
        if refused.tells(*NO_ROOM):
            return CapacityExhausted(provider=self.provider, quota=refused.text)
        if refused.status == 400:
            return self._refused("spec", refused.text)
        return CreateFailed(
            provider=self.provider, claim=claim, step=step, reason=str(refused)
        )

    def _refused(self, field: str, reason: str) -> SpecRefused:
        return SpecRefused(provider=self.provider, field=field, reason=reason)


def to_refused(status: int, text: str) -> EngineRefused:
    """Return the engine's no, with its text on one line and not too long."""
    plain = " ".join(text.split())[:TEXT_CHARACTERS_MAX]
    return EngineRefused(status=status, text=plain or "(without a word)")


def _causes(failure: BaseException) -> Iterator[BaseException]:
    """Yield `failure` and what is known to be behind it.

    `urllib3` keeps the cause in `args` or `reason` instead of the chain.
    """
    waiting: list[BaseException] = [failure]
    seen: set[int] = set()
    for _ in range(CAUSES_MAX):
        while waiting and id(waiting[0]) in seen:
            waiting.pop(0)
        if not waiting:
            return
        cause = waiting.pop(0)
        seen.add(id(cause))
        yield cause
        behind = (cause.__cause__, cause.__context__, getattr(cause, "reason", None))
        waiting += [
            found
            for found in (*behind, *cause.args)
            if isinstance(found, BaseException)
        ]
