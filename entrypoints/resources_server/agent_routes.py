# SPDX-License-Identifier: Apache-2.0
"""The routes that an agent may reach, with its session's token.

To whoever looks from inside a sandbox this is an ordinary company's API: nothing here
names an episode, a grader or what serves it.
"""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

import attrs
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ...domain.digests import Json
from ...domain.resources_sessions import ResourcesSessionId
from ...ports.provided.secret_values import SecretValues
from ...ports.required.apps import ToolRefused
from ..http_serving.answering import Answer, Answering, Asked
from ..http_serving.bodies import read_body
from ..http_serving.session_cookies import SessionCookies
from .bodies import CALL
from .calls import GuardedCalls
from .documentation import API, FILES, documentation


@attrs.frozen(kw_only=True)
class AgentRoutes:
    """The handlers, behind the one guard."""

    calls: GuardedCalls
    cookies: SessionCookies
    body_bytes_max: int
    secrets: SecretValues

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes by token: endpoints, their documentation, files."""
        plain = Answering(
            cookies=None, body_bytes_max=self.body_bytes_max, secrets=self.secrets
        )
        return [
            Route(API, plain(self._documentation), methods=["GET"]),
            Route(f"{API}/{{app}}/{{action}}", plain(self._endpoint), methods=["POST"]),
            Route(f"{FILES}/{{path:path}}", plain(self._read), methods=["GET"]),
            Route(f"{FILES}/{{path:path}}", plain(self._save), methods=["PUT"]),
        ]

    def direct(self) -> Sequence[BaseRoute]:
        """Return the route of a granted tool, by token or by the session's cookie.

        It takes whatever other routes leave, so it comes last.
        """
        known = Answering(
            cookies=self.cookies,
            body_bytes_max=self.body_bytes_max,
            secrets=self.secrets,
        )
        return [Route("/{tool}", known(self._tool), methods=["POST"])]

    async def _documentation(self, asked: Asked) -> Answer:
        session = self.calls.session_of(asked.request)
        tools = self.calls.tools(session)
        return Answer(JSONResponse(documentation(tools, self.calls.tokens.header)))

    async def _endpoint(self, asked: Asked) -> Answer:
        session = self.calls.session_of(asked.request)
        words = asked.request.path_params
        name = f"{words['app']}_{words['action']}".replace("-", "_")
        return await self._called(session, name, asked)

    async def _tool(self, asked: Asked) -> Answer:
        session = self.calls.tokens.session(asked.visitor.session)
        if session is None:
            session = self.calls.session_of(asked.request)
        return await self._called(session, asked.request.path_params["tool"], asked)

    async def _called(
        self, session: ResourcesSessionId, name: str, asked: Asked
    ) -> Answer:
        arguments = read_body(asked.body or b"{}", CALL)
        result = await self.calls.call(session, name, arguments)
        return Answer(JSONResponse(result.words))

    async def _read(self, asked: Asked) -> Answer:
        session = self.calls.session_of(asked.request)
        content = await self.calls.read(session, _path(asked))
        return Answer(Response(content, media_type="application/octet-stream"))

    async def _save(self, asked: Asked) -> Answer:
        session = self.calls.session_of(asked.request)
        path = _path(asked)
        await self.calls.save(session, path, asked.body)
        return Answer(JSONResponse({"saved": [path]}))


def _path(asked: Asked) -> str:
    """Return the path of a file.

    Raises:
        ToolRefused: It is no text. As one with question marks it would be that of
            another file.
    """
    try:
        unquote_to_bytes(asked.request.scope.get("raw_path") or b"").decode()
    except UnicodeDecodeError as error:
        raise ToolRefused("The path is not UTF-8, percent-encoded.") from error
    return str(asked.request.path_params["path"])


def to_text(words: Json) -> str:
    """Return a result as text for a model."""
    if isinstance(words, str):
        return words
    return json.dumps(words, ensure_ascii=False, indent=1)


def error_words(status: int, kind: str, detail: str) -> Mapping[str, Json]:
    """Return what a failed call tells where there is no status line."""
    return {"status": status, "kind": kind, "detail": detail}
