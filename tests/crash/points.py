# SPDX-License-Identifier: Apache-2.0
"""Crash points: before and after each effect that a process has, by name.

They are laid around the methods of adapters' classes once these are loaded, so the
program that runs between them is the shipped one, put together by its own composition
root. What it does to files of its own is told by the interpreter's audit events, which
come before the deed.
"""

import functools
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from livery.adapters.docker_engine.engine import Engine

from .effects import EFFECTS, methods, protocols

_RANDOM: Final = re.compile(r"[-_][A-Za-z0-9_]{8}$|[0-9a-f]{16,}|^\.?\d+-.*")
"""What tells one temporary file, or one process's, from another."""
_OPENED_TO_WRITE: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@attrs.define(kw_only=True)
class Course:
    """The points that a process passes, and what happens at one of them."""

    note: Callable[[str], None]
    fates: Mapping[str, Sequence[Callable[[], None]]] = attrs.field(
        factory=dict[str, Sequence[Callable[[], None]]]
    )
    """What happens at a point; each is passed once."""
    _counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _laid: set[tuple[type, str]] = attrs.field(
        factory=set[tuple[type, str]], init=False
    )

    def passes(self, when: str, effect: str) -> None:
        """Pass the point `when` (before or after) an effect; the n-th has a number."""
        point = f"{when} {effect}"
        self._counts[point] += 1
        if (number := self._counts[point]) > 1:
            point = f"{point} #{number}"
        self.note(point)
        for happen in self.fates.get(point, ()):
            happen()

    def lay(self) -> None:
        """Lay the points around every adapter's class that is loaded."""
        kinds = [
            kind
            for name, module in sorted(sys.modules.items())
            if name.startswith("livery.adapters.")
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if kind.__module__ == name
        ]
        for protocol in protocols():
            for kind in kinds:
                if all(hasattr(kind, name) for name in _all_methods(protocol)):
                    self._lay_around(protocol, kind)
        self._lay_around(Engine, Engine)

    def watch(self, folders: Sequence[Path]) -> None:
        """Pass a point before each deed to a file below these folders."""
        below = tuple(f"{folder}{os.sep}" for folder in folders)

        def heard(event: str, arguments: tuple[Any, ...]) -> None:
            if (found := _DEEDS.get(event)) is None:
                return
            deed, at = found
            path = arguments[at]
            if not isinstance(path, str | Path):
                return
            if event == "open" and not arguments[2] & _OPENED_TO_WRITE:
                return
            name = str(path)
            if name.startswith(below):
                self.passes("before", f"file.{deed} {_told(name, below)}")

        sys.addaudithook(heard)

    def around(self, method: Callable[..., Any], effect: str) -> Callable[..., Any]:
        """Return a method of an adapter with a point before it and one after it."""
        signature, subject = inspect.signature(method), EFFECTS[effect]

        def told(*args: Any, **kwargs: Any) -> str | None:
            about = subject(signature.bind(*args, **kwargs).arguments)
            return None if about is None else f"{effect} {about}".rstrip()

        @functools.wraps(method)
        async def called(*args: Any, **kwargs: Any) -> Any:
            if (name := told(*args, **kwargs)) is None:
                return await method(*args, **kwargs)
            self.passes("before", name)
            answer = await method(*args, **kwargs)
            self.passes("after", name)
            return answer

        @functools.wraps(method)
        @asynccontextmanager
        async def opened(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            self.passes("before", effect)
            context: AbstractAsyncContextManager[Any] = method(*args, **kwargs)
            async with context as inside:
                self.passes("after", effect)
                yield inside

        return called if inspect.iscoroutinefunction(method) else opened

    def _lay_around(self, protocol: type, kind: type) -> None:
        for name in methods(protocol):
            effect = f"{protocol.__name__}.{name}"
            owner = next(one for one in kind.__mro__ if name in vars(one))
            if effect in EFFECTS and (owner, name) not in self._laid:
                self._laid.add((owner, name))
                setattr(owner, name, self.around(vars(owner)[name], effect))


_DEEDS: Final[Mapping[str, tuple[str, int]]] = {
    "open": ("write", 0),
    "os.link": ("link", 1),
    "os.mkdir": ("make", 0),
    "os.remove": ("remove", 0),
    "os.rename": ("rename", 1),
    "os.rmdir": ("remove", 0),
    "os.truncate": ("cut", 0),
    "sqlite3.connect": ("connect", 0),
}
"""What happens to a file, and which argument of the audit event names it."""


def _told(path: str, below: tuple[str, ...]) -> str:
    """A file's name without what differs from run to run."""
    start = next(folder for folder in below if path.startswith(folder))
    return "/".join(
        _RANDOM.sub("", part) or "." for part in path.removeprefix(start).split(os.sep)
    )


def _all_methods(protocol: type) -> list[str]:
    kinds = [kind for kind in protocol.__mro__ if getattr(kind, "_is_protocol", False)]
    return [name for kind in kinds for name in methods(kind)]
