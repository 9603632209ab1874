# SPDX-License-Identifier: Apache-2.0
"""Cases for `Sandbox.exec`: what goes in and what comes out.

Words, environment, folder, user and input arrive as they were given; outputs
come back byte for byte, bounded and with their true size; how a program ended
is told apart and never read from its output.
"""

import secrets

from ..required.sandbox import (
    DRAIN_SECONDS,
    Command,
    Ended,
    Exited,
    NotStarted,
    Output,
    Signalled,
    shell,
)
from ..required.sandbox_provider import Capability
from .cases import Case, check_cases
from .sandbox_context import (
    MARGIN_SECONDS,
    PATIENCE_SECONDS,
    SandboxContext,
    fresh_folder,
    put,
    run,
)

WORDS = (
    "plain",
    "two words",
    "  leading and trailing  ",
    "",
    "it's",
    'say "so"',
    "back\\slash",
    "new\nline",
    "tab\t",
    "$HOME `id` $(id) ${x}",
    "*",
    "~",
    "-n",
    "--",
    "--help",
    "a;b|c&d>e<f",
    "!history",
    "naïve 文件 🐎",
    "\r",
    "",
)
EXIT_CODES = (0, 1, 2, 3, 7, 42, 63, 64, 100, 124, 125, 126, 127, 128, 254, 255)
SIGNAL_LIKE_CODES = (129, 130, 134, 137, 139, 141, 143)
WRAPPER_WORDS = (
    "Timed out",
    "livery: not started",
    "sandbox lost",
    "sh: 1: exec: not found",
    "OCI runtime exec failed: exec failed: unable to start container process",
    "Error response from daemon: No such container",
    '{"kind": "sandbox_lost"}',
)
WORD_BYTES = 120 * 1024
"""Just below what the kernel takes as one argument or variable."""
WORD_BYTES_TOO_MANY = 200 * 1024


async def words_arrive_one_by_one(context: SandboxContext) -> None:
    """No shell reads the words of a command."""
    script = r'for word in "$@"; do printf "%s\0" "$word"; done'
    ended = await _exec(context, "/bin/sh", "-c", script, "name", *WORDS)

    assert ended.how == Exited(0), ended
    assert ended.stdout.kept.decode().split("\0") == [*WORDS, ""]


async def outputs_are_bytes(context: SandboxContext) -> None:
    """What is no text comes back as it was written, NUL included."""
    noise = bytes(range(256)) + secrets.token_bytes(1000)
    octal = "".join(f"\\{byte:03o}" for byte in b"a\x00b\xff\xfe\xc3")

    assert await run(context, "cat", stdin=noise) == noise
    assert await run(context, f"printf '{octal}'") == b"a\x00b\xff\xfe\xc3"


async def blank_lines_stay(context: SandboxContext) -> None:
    """Lines without anything in them are output too."""
    assert await run(context, r"printf 'a\n\nb\n\n\nc'") == b"a\n\nb\n\n\nc"


async def outputs_are_apart(context: SandboxContext) -> None:
    """Standard output and standard error do not mix."""
    ended = await context.sandbox.exec(
        shell("echo out; echo err >&2; echo out", timeout_seconds=PATIENCE_SECONDS)
    )

    assert ended.how == Exited(0)
    assert ended.stdout.kept == b"out\nout\n"
    assert ended.stderr.kept == b"err\n"


async def input_is_at_its_end(context: SandboxContext) -> None:
    """A command that reads and was given nothing sees the end at once."""
    ended = await context.sandbox.exec(shell("cat; echo end", timeout_seconds=20.0))

    assert ended.how == Exited(0), ended
    assert ended.stdout.kept == b"end\n"


async def input_of_a_mebibyte(context: SandboxContext) -> None:
    """Input larger than any pipe goes in while the output comes out."""
    content = secrets.token_bytes(1024 * 1024)

    ended = await context.sandbox.exec(
        Command(
            argv=("cat",),
            timeout_seconds=PATIENCE_SECONDS,
            stdin=content,
            output_bytes_max=2 * len(content),
        )
    )

    assert ended.how == Exited(0)
    assert ended.stdout.kept == content


async def input_may_be_ignored(context: SandboxContext) -> None:
    """A command need not read what it was given."""
    ended = await context.sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", "exit 5"),
            timeout_seconds=PATIENCE_SECONDS,
            stdin=bytes(1024 * 1024),
        )
    )

    assert ended.how == Exited(5), ended


async def environment_is_laid_over(context: SandboxContext) -> None:
    """Variables arrive with any value; what else is set stays."""
    values = {"LV_ODD": "a b\n\"'$HOME=\\", "LV_EMPTY": "", "LV_WIDE": "文件"}
    script = (
        r'printf "%s|%s|%s|" "$LV_ODD" "${LV_EMPTY-unset}" "$LV_WIDE";'
        r' test -n "$PATH" && echo path'
    )

    ended = await context.sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", script), timeout_seconds=PATIENCE_SECONDS, env=values
        )
    )

    told = "|".join([*values.values(), "path\n"])
    assert ended.stdout.kept.decode() == told, ended


async def environment_ends_with_the_command(context: SandboxContext) -> None:
    """A variable of one command is not seen by the next."""
    await context.sandbox.exec(
        Command(argv=("true",), timeout_seconds=PATIENCE_SECONDS, env={"LV_ONCE": "1"})
    )

    assert await run(context, 'echo "${LV_ONCE-unset}"') == b"unset\n"


async def the_folder_is_kept(context: SandboxContext) -> None:
    """A command runs in `workdir`, or in the folder that it asks for."""
    sandbox, folder = context.sandbox, await fresh_folder(context)
    await put(context, f"{folder}/in a folder/mark", b"here")

    for cwd in (f"{folder}/in a folder", f"{sandbox.workdir}/{folder}/in a folder"):
        ended = await sandbox.exec(
            Command(argv=("cat", "mark"), cwd=cwd, timeout_seconds=PATIENCE_SECONDS)
        )
        assert ended.stdout.kept == b"here", ended
    assert await run(context, f"cat '{folder}/in a folder/mark'") == b"here"


async def a_missing_folder_starts_nothing(context: SandboxContext) -> None:
    """A command whose folder is not there did not run."""
    for cwd in ("no-such-folder", "/no/such/folder"):
        ended = await context.sandbox.exec(
            Command(argv=("true",), cwd=cwd, timeout_seconds=PATIENCE_SECONDS)
        )
        assert isinstance(ended.how, NotStarted), ended


async def a_missing_program_starts_nothing(context: SandboxContext) -> None:
    """A program that is not there, or cannot be run, did not run."""
    folder = await fresh_folder(context)
    await put(context, f"{folder}/plain", b"text")
    plain = f"{context.sandbox.workdir}/{folder}/plain"

    for program in ("livery-no-such-program", "/no/such/program", plain):
        ended = await _exec(context, program)
        assert isinstance(ended.how, NotStarted), ended
        assert ended.how.reason


async def words_near_the_limit(context: SandboxContext) -> None:
    """Long arguments and variables arrive whole; too long ones start nothing."""
    long = "x" * WORD_BYTES
    script = 'cat >/dev/null; printf %s "$@" "$LV_LONG" | wc -c'

    ended = await context.sandbox.exec(
        Command(
            argv=("/bin/sh", "-c", script, "name", *[long] * 6),
            env={"LV_LONG": long},
            timeout_seconds=PATIENCE_SECONDS,
        )
    )
    too_long = await _exec(context, "/bin/echo", "x" * WORD_BYTES_TOO_MANY)

    assert ended.stdout.kept.split() == [str(7 * WORD_BYTES).encode()], ended.how
    assert isinstance(too_long.how, NotStarted), too_long.how


async def a_shell_is_there(context: SandboxContext) -> None:
    """Scripts run whether or not there is a bash, and a lack of it is told."""
    ended = await _exec(context, "bash", "-c", "echo bash")

    assert await run(context, "echo $0") == b"/bin/sh\n"
    if isinstance(ended.how, NotStarted):
        assert "bash" in ended.how.reason
    else:
        assert (ended.how, ended.stdout.kept) == (Exited(0), b"bash\n")


async def exit_statuses(context: SandboxContext) -> None:
    """Every status comes back as it is."""
    for code in EXIT_CODES:
        ended = await _exec(context, "/bin/sh", "-c", f"exit {code}")
        assert ended.how == Exited(code), ended


async def exit_statuses_like_signals(context: SandboxContext) -> None:
    """A program that ends itself with a status above 128 was not signalled."""
    for code in SIGNAL_LIKE_CODES:
        ended = await _exec(context, "/bin/sh", "-c", f"exit {code}")
        assert ended.how == Exited(code), ended


async def a_signal_death_is_one(context: SandboxContext) -> None:
    """A program that a signal ended did not time out, whatever the signal."""
    for name, number in (("KILL", 9), ("TERM", 15), ("ABRT", 6)):
        ended = await _exec(context, "/bin/sh", "-c", f"echo on; kill -{name} $$")
        assert ended.how == Signalled(number), ended
        assert ended.stdout.kept == b"on\n"


async def a_signal_to_the_own_group(context: SandboxContext) -> None:
    """A command that signals its group hits itself and nothing of ours."""
    ended = await _exec(context, "/bin/sh", "-c", "kill -KILL 0; sleep 60")

    assert ended.how == Signalled(9), ended
    assert await run(context, "echo on") == b"on\n"


async def words_of_wrappers_are_words(context: SandboxContext) -> None:
    """What a command prints never says how it ended."""
    for word in WRAPPER_WORDS:
        script = 'printf "%s\\n" "$1"; printf "%s\\n" "$1" >&2; exit 1'
        ended = await _exec(context, "/bin/sh", "-c", script, "name", word)
        assert ended.how == Exited(1), ended
        assert ended.stdout.kept == ended.stderr.kept == f"{word}\n".encode()


async def output_is_bounded(context: SandboxContext) -> None:
    """The first and the last half are kept, and the true size is told."""
    content = b"".join(b"%07d\n" % number for number in range(25_000))

    for bound in (1000, 1001, len(content) - 1):
        kept = await _cat(context, content, bound)
        assert kept.size == len(content)
        assert bound - 1 <= len(kept.head) + len(kept.tail) <= bound
        assert abs(len(kept.head) - len(kept.tail)) <= 1
        assert content.startswith(kept.head)
        assert content.endswith(kept.tail)
    whole = await _cat(context, content, len(content))
    assert (whole.kept, whole.dropped) == (content, 0)


async def the_duration_is_told(context: SandboxContext) -> None:
    """The time that a command took is the program's, not the wait's."""
    ended = await _exec(context, "sleep", "1")

    assert ended.how == Exited(0)
    assert 0.9 <= ended.duration_seconds <= 1.0 + DRAIN_SECONDS + MARGIN_SECONDS


async def another_user(context: SandboxContext) -> None:
    """A command runs as the user that it asks for."""
    assert context.other_user is not None
    uid = context.other_user.partition(":")[0]

    ended = await context.sandbox.exec(
        Command(
            argv=("id", "-u"),
            user=context.other_user,
            timeout_seconds=PATIENCE_SECONDS,
        )
    )

    assert ended.stdout.kept.split() == [uid.encode()], ended


async def an_unknown_user_starts_nothing(context: SandboxContext) -> None:
    """A command whose user is not known did not run."""
    ended = await context.sandbox.exec(
        Command(argv=("true",), user="livery-nobody", timeout_seconds=PATIENCE_SECONDS)
    )

    assert isinstance(ended.how, NotStarted), ended


async def _exec(context: SandboxContext, *argv: str) -> Ended:
    return await context.sandbox.exec(
        Command(argv=argv, timeout_seconds=PATIENCE_SECONDS)
    )


async def _cat(context: SandboxContext, content: bytes, bound: int) -> Output:
    ended = await context.sandbox.exec(
        Command(
            argv=("cat",),
            stdin=content,
            timeout_seconds=PATIENCE_SECONDS,
            output_bytes_max=bound,
        )
    )
    assert ended.how == Exited(0), ended.how
    return ended.stdout


_USERS = frozenset({Capability.USERS})

CASES: tuple[Case[SandboxContext], ...] = check_cases(
    (
        Case(name="words arrive one by one", run=words_arrive_one_by_one),
        Case(name="outputs are bytes", run=outputs_are_bytes, field_cases=("FC-041",)),
        Case(name="blank lines stay", run=blank_lines_stay),
        Case(name="outputs are apart", run=outputs_are_apart),
        Case(
            name="input is at its end", run=input_is_at_its_end, field_cases=("FC-033",)
        ),
        Case(name="input of a mebibyte", run=input_of_a_mebibyte),
        Case(name="input may be ignored", run=input_may_be_ignored),
        Case(name="the environment is laid over", run=environment_is_laid_over),
        Case(
            name="the environment ends with the command",
            run=environment_ends_with_the_command,
        ),
        Case(name="the folder is kept", run=the_folder_is_kept),
        Case(
            name="a missing folder starts nothing", run=a_missing_folder_starts_nothing
        ),
        Case(
            name="a missing program starts nothing",
            run=a_missing_program_starts_nothing,
        ),
        Case(name="words near the limit", run=words_near_the_limit),
        Case(name="a shell is there", run=a_shell_is_there, field_cases=("FC-052",)),
        Case(name="exit statuses", run=exit_statuses),
        Case(name="exit statuses like signals", run=exit_statuses_like_signals),
        Case(
            name="a signal death is one",
            run=a_signal_death_is_one,
            field_cases=("FC-027",),
        ),
        Case(
            name="a signal to the own group",
            run=a_signal_to_the_own_group,
            field_cases=("FC-171",),
        ),
        Case(
            name="words of wrappers are words",
            run=words_of_wrappers_are_words,
            field_cases=("FC-056",),
        ),
        Case(name="output is bounded", run=output_is_bounded, field_cases=("FC-042",)),
        Case(name="the duration is told", run=the_duration_is_told),
        Case(
            name="another user",
            run=another_user,
            needs=_USERS,
            hooks=frozenset({"other_user"}),
        ),
        Case(
            name="an unknown user starts nothing",
            run=an_unknown_user_starts_nothing,
        ),
    )
)
