# SPDX-License-Identifier: Apache-2.0
"""Claude Code as a harness: what it is given, how it is run, what it left."""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ....domain.activations import Outcome
from ....domain.digests import Json
from ....ports.required.harness import (
    Capture,
    CollectedFile,
    HarnessRequest,
    LastLine,
    Launch,
    Place,
    PlacedFile,
    Reading,
    RequestRefused,
    Run,
    RuntimeNeed,
    Silence,
    ToolTransport,
    Watch,
)
from ....ports.required.sandbox import Output
from ....ports.required.sandbox_provider import Capabilities
from ..requests import ROOT, PromptRequest, to_prompt_request
from .command import Paths, Wanted, argv_of, environment_of
from .config import ClaudeCodeConfig
from .files import HostFileRefused, servers_text, settings_text
from .limits import limits_of
from .observations import observations_of
from .outcomes import verdict_of
from .skills import SkillsRefused, path_of, read_skills
from .stream import read_stream
from .trace import Trace, trace_of
from .transcripts import TRANSCRIPT, merged
from .usage import to_usage

NAME: Final = "claude_code"
SKILLS_REF: Final = "skills_ref"
_PRIVATE: Final = 0o600


@attrs.frozen(kw_only=True)
class ClaudeCodeHarness:
    """The `Harness` of Claude Code in one configuration."""

    config: ClaudeCodeConfig = attrs.field(factory=ClaudeCodeConfig)

    @property
    def name(self) -> str:
        """The short word in configuration, results and messages."""
        return NAME

    @property
    def stepwise(self) -> bool:
        """One activation is one prompt, to its end."""
        return False

    @property
    def needs(self) -> Capabilities:
        """A command and a file are all it needs."""
        return frozenset()

    @property
    def runtime(self) -> RuntimeNeed | None:
        """The program to bring; None: the one on the sandbox's PATH."""
        return self.config.runtime

    @property
    def tool_transports(self) -> frozenset[ToolTransport]:
        """It knows MCP alone."""
        return frozenset({ToolTransport.MCP})

    @property
    def calls_tools_inside(self) -> bool:
        """The program itself calls them."""
        return True

    @property
    def has_own_model(self) -> bool:
        """Whether the configuration names a model server."""
        return self.config.base_url is not None

    def check(self, request: HarnessRequest) -> None:
        """Raise `RequestRefused` with the field for what cannot be honoured."""
        self._asked(request)
        self._check_tools(request)
        self._skills(request, "")

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put down prompt, settings, tool servers and skills, and run the program.

        Raises:
            RequestRefused: As `check` does, or something it needs is not there.
        """
        asked = self._asked(request)
        self._check_tools(request)
        self._check_place(place)
        paths = Paths(scratch=place.scratch, workdir=place.workdir)
        skills = self._skills(request, f"{paths.config}/skills")
        system = "\n\n".join(filter(None, (self.config.system_prompt, asked.system)))
        try:
            settings = settings_text(self.config.settings)
            servers = servers_text(self.config.mcp_config, request.tool_accesses)
        except HostFileRefused as refused:
            raise self._refused(refused.option, refused.reason) from refused
        model = asked.model or self.config.model
        limits = limits_of(self.config, asked.timeout_seconds)
        wanted = Wanted(
            model=model,
            has_system_prompt=bool(system),
            has_servers=servers is not None,
            has_skills=bool(skills),
        )
        texts = {
            paths.prompt: to_standard_input(asked.prompt),
            paths.settings: settings,
            paths.servers: servers,
            paths.system_prompt: system.encode() or None,
        }
        return Launch(
            folders=(paths.scratch, paths.config, paths.temporary),
            files=(
                *(
                    PlacedFile(path=path, content=text, mode=_PRIVATE)
                    for path, text in texts.items()
                    if text is not None
                ),
                *skills,
            ),
            run=Run(
                argv=argv_of(self.config, place, paths, wanted),
                env=environment_of(self.config, place, paths, model, limits),
                timeout_seconds=limits.run,
                stdin_path=paths.prompt,
                watch=Watch(
                    last_line=LastLine(
                        key="type",
                        value="result",
                        seconds=self.config.result_grace_seconds,
                    ),
                    silence=(
                        None
                        if limits.stall is None
                        else Silence(seconds=limits.stall, paths=(paths.transcripts,))
                    ),
                ),
            ),
            collected=(CollectedFile(name=TRANSCRIPT, path=paths.transcript),),
        )

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Read the events, and the transcript where they do not tell everything."""
        prompt = self._asked(request).prompt
        stream = read_stream(capture.stdout)
        written = read_stream(capture.files.get(TRANSCRIPT, Output()))
        trace = trace_of(merged(stream.events, written.events), prompt)
        verdict = verdict_of(
            capture,
            trace,
            max_turns=self.config.max_turns,
            granted=request.tool_accesses,
        )
        usage = to_usage(trace, written.events)
        return Reading(
            outcome=verdict.outcome,
            output=tuple(_answered(trace)),
            usage=usage,
            model=trace.model,
            upstream_failed=verdict.upstream_failed,
            reason="" if verdict.outcome is Outcome.COMPLETED else verdict.reason,
            observations=observations_of(
                NAME,
                capture,
                trace,
                stream,
                verdict,
                granted=request.tool_accesses,
                transcript=written,
                has_usage=usage is not None,
            ),
        )

    def _asked(self, request: HarnessRequest) -> PromptRequest:
        return to_prompt_request(NAME, request, also=frozenset({SKILLS_REF}))

    def _check_tools(self, request: HarnessRequest) -> None:
        for index, access in enumerate(request.tool_accesses):
            if access.required and access.transport is not ToolTransport.MCP:
                raise RequestRefused(
                    harness=NAME,
                    field=f"tool_accesses[{index}].kind",
                    reason="it calls tools over MCP alone, and this access is required",
                )

    def _check_place(self, place: Place) -> None:
        if place.model is None and self.config.base_url is None:
            reason = "nobody grants access to a model, and no anthropic_base_url is set"
            raise self._refused("anthropic_base_url", reason)
        if self.config.runtime is not None and place.runtime_path is None:
            reason = f"{self.config.runtime.name} was not installed in the sandbox"
            raise self._refused("claude_code_version", reason)

    def _skills(self, request: HarnessRequest, target: str) -> tuple[PlacedFile, ...]:
        field = f"{ROOT}.{SKILLS_REF}"
        try:
            named = request.parameters.get(SKILLS_REF)
            folder = path_of(named, self.config.skills_roots)
            if folder is not None:
                return read_skills(folder, target)
        except SkillsRefused as refused:
            raise RequestRefused(
                harness=NAME, field=f"{field}{refused.field}", reason=refused.reason
            ) from refused
        return self._own_skills(target)

    def _own_skills(self, target: str) -> tuple[PlacedFile, ...]:
        if self.config.skills_path is None:
            return ()
        try:
            folder = path_of(
                {"path": self.config.skills_path}, (self.config.skills_path,)
            )
            assert folder is not None, "it was named"
            return read_skills(folder, target)
        except SkillsRefused as refused:
            raise self._refused("skills_path", refused.reason) from refused

    def _refused(self, option: str, reason: str) -> RequestRefused:
        return RequestRefused(harness=NAME, field=f"options.{option}", reason=reason)


def to_standard_input(prompt: str) -> bytes:
    """Return the prompt so that the program takes it for text.

    At its very beginning a slash would make it a command of the program's own.
    """
    return f"\n{prompt}".encode() if prompt.startswith("/") else prompt.encode()


def _answered(trace: Trace) -> Iterator[Mapping[str, Json]]:
    """Tell the items of the root that are the agent's."""
    for item in trace.root.items:
        if item.get("role") != "user":
            yield item
