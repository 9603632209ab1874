# SPDX-License-Identifier: Apache-2.0
"""Secrets in settings: where they are, never what they are.

A secret stands in `livery.toml` as `{env = "NAME"}` or `{file = "PATH"}`. It is read
when what needs it is opened, and from then on covered wherever text is shown.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import attrs

from ..ports.provided.secret_values import SecretValues
from ..ports.required.faults import Fault

SECRET_BYTES_MAX = 64 * 1024


@attrs.frozen
class SecretMissing(Fault):
    """A secret is not where the settings say."""

    kind: ClassVar[str] = "secret_missing"
    message: ClassVar[str] = "The secret at {where} cannot be read: {reason}."

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class Secret:
    """A reference to a secret; exactly one of the two is set."""

    env: str | None = None
    file: str | None = None

    def __attrs_post_init__(self) -> None:
        """Raise `ValueError` unless there is one reference."""
        if bool(self.env) == bool(self.file):
            raise ValueError('wants {env = "NAME"} or {file = "PATH"}, one of the two')

    @property
    def where(self) -> str:
        """The reference in words."""
        return f"environment variable {self.env}" if self.env else f"file {self.file}"

    def missing(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return why the secret cannot be had, without reading a file."""
        if self.env is not None:
            found = environ.get(self.env)
            if found is None:
                return f"environment variable {self.env} is not set"
            return None if found else f"environment variable {self.env} is empty"
        path = self._path
        return None if path.is_file() else f"there is no file {path}"

    def revealed(self, secrets: SecretValues) -> str:
        """Return the secret, covered by `secrets` from now on.

        Raises:
            SecretMissing: It is not there, empty, or too large to be a secret.
        """
        if reason := self.missing():
            raise SecretMissing(where=self.where, reason=reason)
        value = os.environ[self.env] if self.env is not None else self._read()
        # Whatever wrote it down has often ended the line, and no secret ends in one.
        value = value.rstrip("\r\n")
        if not value:
            raise SecretMissing(where=self.where, reason="it is empty")
        secrets.add(value)
        return value

    @property
    def _path(self) -> Path:
        assert self.file is not None
        return Path(self.file).expanduser()

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                content = file.read(SECRET_BYTES_MAX + 1)
            if len(content) > SECRET_BYTES_MAX:
                raise SecretMissing(
                    where=self.where, reason=f"it is over {SECRET_BYTES_MAX} bytes"
                )
            return content.decode()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SecretMissing(where=self.where, reason=reason) from error
        except UnicodeDecodeError as error:
            raise SecretMissing(where=self.where, reason="it is not UTF-8") from error
