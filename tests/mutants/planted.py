# SPDX-License-Identifier: Apache-2.0
"""The planted bugs: each one breaks a promise in a way that somebody might.

`catcher` is the state machine that has to find it; without one it is the simulation.
"""

from typing import Final

import attrs

CLAIMS: Final = "tests/domain/test_claims.py::TestClaims"
EPISODES: Final = "tests/domain/test_episodes.py::TestEpisodes"
RESOURCES: Final = "tests/domain/test_resources_sessions.py::TestResourcesSessions"
ONE_SHOT: Final = "tests/domain/test_activations.py::TestOneShotActivations"
STEPWISE: Final = "tests/domain/test_activations.py::TestStepwiseActivations"


@attrs.frozen
class Mutant:
    """One bug: a text of a file, once there, and what stands there instead."""

    name: str
    file: str
    before: str
    after: str
    catcher: str | None = None


PLANTED: Final = (
    Mutant(
        "release-forgets-to-end",
        "ports/provided/release_claim.py",
        "await self.provider.destroy(label)",
        "pass",
    ),
    Mutant(
        "release-is-recorded-before-the-end",
        "ports/provided/release_claim.py",
        """        try:
            await self.provider.destroy(label)
""",
        """        early = NoteReleased(at=self.clock.now())
        await carry_out(self.journal, stream, DECIDER, early, known=standing)
        try:
            await self.provider.destroy(label)
""",
    ),
    Mutant(
        "release-takes-a-failure-for-an-end",
        "ports/provided/release_claim.py",
        """            if after.state.phase is ClaimPhase.RELEASED:
                return  # Another process has seen it gone.
            raise
""",
        """            assert after
""",
    ),
    Mutant(
        "claim-without-an-intent",
        "ports/provided/claim_sandbox.py",
        """            standing = await self._request(label, spec, used_by)
            if""",
        """            await self.provider.create(label, spec)
            standing = await self._request(label, spec, used_by)
            if""",
    ),
    Mutant(
        "reaper-takes-from-the-living",
        "ports/provided/reap_claims.py",
        "if holder is not None and not is_left and await self._alive(holder, look):",
        "if holder is not None and not await self._alive(holder, look):",
    ),
    Mutant(
        "reaper-lists-after-the-journal",
        "ports/provided/reap_claims.py",
        "if sandbox.label.claim not in claims\n",
        "if sandbox.label.claim in claims\n",
    ),
    Mutant(
        "append-without-a-fence",
        "ports/provided/carry_out.py",
        "expected_version=standing.version)",
        "expected_version=(await journal.read(stream)).version)",
    ),
    Mutant(
        "activation-without-an-intent",
        "ports/provided/agent_sessions.py",
        """                raise GrantLost(session=session)
            standing = await self._carry_out(session, activate, known=standing)
""",
        """                raise GrantLost(session=session)
""",
    ),
    Mutant(
        "lost-launch-reply-is-sent-again",
        "ports/provided/supervised_run.py",
        """            return await self._settle(run, "the launch was cut off before it started")
""",
        """            return Launched.STARTED
""",
    ),
    Mutant(
        "close-releases-nothing",
        "ports/provided/give_back_resources.py",
        'await self.release(label, reason="the episode is over", known=known)',
        "pass",
    ),
    Mutant(
        "result-is-told-before-it-is-written",
        "ports/provided/run_episode.py",
        "await self._do(NoteVerified(result=text, at=self._now()))",
        "assert text",
    ),
    Mutant(
        "unclosed-is-called-closed",
        "ports/provided/run_episode.py",
        "return NoteUnclosed(participant=participant, reason=reason, at=self._now())",
        "return NoteClosed(participant=participant, at=self._now())",
    ),
    Mutant(
        "lost-grader-is-a-score",
        "domain/scores.py",
        'return _masked(PROVIDER_UNAVAILABLE, grader.reason or "grader lost")',
        "return Verdict(reward=REWARD_OF_NOTHING)",
    ),
    Mutant(
        "agents-fault-is-masked",
        "domain/scores.py",
        """        return Verdict(
            reward=REWARD_OF_NOTHING,
            failure_reason="the grader was ended before its end mark",
        )
""",
        """        return _masked(VERIFIER_ERROR, "no mark")
""",
    ),
    Mutant(
        "cleanup-closes-one-only",
        "ports/provided/run_episode.py",
        "for each in reversed(owed)",
        "for each in owed[:1]",
    ),
    Mutant(
        "claim-is-lent-to-everybody",
        "domain/claims.py",
        "if claim.borrowers and not (claim.shared and command.shared):",
        "if claim.borrowers and not command.shared:",
        CLAIMS,
    ),
    Mutant(
        "claim-expires-early",
        "domain/claims.py",
        "if claim.expires_at is None or command.at < claim.expires_at:",
        "if claim.expires_at is None:",
        CLAIMS,
    ),
    Mutant(
        "release-keeps-borrowers",
        "domain/claims.py",
        "claim, phase=phase, reason=reason, borrowers=frozenset()",
        "claim, phase=phase, reason=reason",
        CLAIMS,
    ),
    Mutant(
        "activation-starts-twice",
        "domain/activations.py",
        """    if activations.of(command.request) is not None:
        return ()
    blocking""",
        """    blocking""",
        STEPWISE,
    ),
    Mutant(
        "another-request-is-no-conflict",
        "domain/activations.py",
        "if blocking is None and activations.standing and not activations.stepwise:",
        "if blocking is None and activations.stepwise and activations.standing:",
        ONE_SHOT,
    ),
    Mutant(
        "second-ending-replaces-the-first",
        "domain/activations.py",
        """    if standing.ending is not None:
        return ()
    return (
        ActivationEnded""",
        """    return (
        ActivationEnded""",
        ONE_SHOT,
    ),
    Mutant(
        "debt-is-dropped",
        "domain/episodes.py",
        "episode, phase=phase, owed=(*episode.owed, (who, session))",
        "episode, phase=phase, owed=((who, session),)",
        EPISODES,
    ),
    Mutant(
        "turn-ends-twice",
        "domain/episodes.py",
        "return () if known else _follow(episode, command, ended)",
        "return _follow(episode, command, ended)",
        EPISODES,
    ),
    Mutant(
        "paid-debt-is-owed-on",
        "domain/episodes.py",
        "return evolved(episode, phase=phase, owed=_without(episode, who))",
        "return evolved(episode, phase=phase)",
        EPISODES,
    ),
    Mutant(
        "grading-starts-while-the-harness-writes",
        "domain/resources_sessions.py",
        "if command.stillness is None:",
        "if command.stillness is not None:",
        RESOURCES,
    ),
)
