# SPDX-License-Identifier: Apache-2.0
"""What bringing a harness's program into containers costs, with transfer forced.

The program is the first that `LIVERY_CLAUDE_CODE` names, else one of about its size.
The floor of an install is a plain copy of the same packed bytes and their
decompression in the same container; both take turns. Over all installs of the run
the program and its packed form are each read once beside the sending, and the peak
of memory is taken while many containers install at once.
"""

import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import attrs

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.docker_engine import DockerSandboxProvider, open_docker_engine
from livery.adapters.host_ports import dial_url
from livery.adapters.local_runtimes import LocalRuntimeSource
from livery.adapters.runtime_cache import Entry, RuntimeCache
from livery.adapters.system_clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.agent_sessions import AgentSessionId, SeedStarted
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.bring_program import BringProgram
from livery.ports.provided.equip_sessions import EquipSessions
from livery.ports.provided.install_runtime import InstallRuntime
from livery.ports.provided.send_parts import PartLanes
from livery.ports.provided.session_grants import SessionGrant
from livery.ports.required.harness import Delivery, RuntimeNeed
from livery.ports.required.sandbox import Command, Sandbox, shell
from livery.ports.required.sandbox_provider import Network, SandboxSpec

from .. import peers
from . import docker as bare
from .docker import new_label

AT_ONCE = 16
ALONE = 4
AGAIN = 10
RATIO_MAX = 1.3
PEAK_MIB_MAX = 64.0
SECOND_MS_MAX = 150.0
PASSES_MAX = 1.05
"""Of program and packed form together, beside what was sent."""
STAND_IN_MIB = 240
MIB = 1024 * 1024
STEP_SECONDS = 600.0


@attrs.frozen(kw_only=True)
class Bound:
    """A figure, and what it may be at most."""

    name: str
    found: float
    most: float
    unit: str

    def told(self) -> str:
        """Return a line for a person."""
        mark = "" if self.found <= self.most else "  ABOVE"
        return f"{self.name:<58}{self.found:9.2f}{self.unit:<4} of {self.most:g}{mark}"


@attrs.frozen(kw_only=True)
class Bench:
    """One process that installs."""

    outfit: EquipSessions
    install: InstallRuntime
    source: LocalRuntimeSource
    cache: RuntimeCache
    program_bytes: int

    async def seed(self, sandbox: Sandbox, name: str) -> str:
        """Bring what a session's seed brings; return how it came."""
        seeded = SeedStarted(
            session=AgentSessionId(name),
            episode=EpisodeId(name),
            request=RequestDigest("bench"),
            stepwise=False,
            at=Instant(time.time()),
        )
        grant = SessionGrant(task=TaskId("bench", name))
        equipment = await self.outfit.bring(seeded, grant, sandbox)
        assert equipment.runtime is not None
        return str(equipment.runtime["came"])


def the_program(folder: Path) -> tuple[Path, str]:
    """Return a program and its version: the real one where one is named."""
    if named := peers.claude_code_programs():
        told = subprocess.run([named[0], "--version"], capture_output=True, check=True)
        return named[0], told.stdout.decode().split(" ")[0]
    path = folder / "claude"
    # As compressible as the real one: a third of it is noise.
    noise = b"".join(
        hashlib.sha512(number.to_bytes(4, "big")).digest() + bytes(128)
        for number in range(STAND_IN_MIB * MIB // 192)
    )
    path.write_bytes(b"#!/bin/sh\necho '1.2.3 (Stand-in)'\nexit 0\n" + noise)
    path.chmod(0o755)
    return path, "1.2.3"


async def opened(folder: Path) -> Bench:
    """Return the process, its program hashed and packed."""
    path, version = the_program(folder)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    cache = RuntimeCache(folder / "cache")
    source = LocalRuntimeSource(path=path, sha256=sha256, cache=cache)
    install = InstallRuntime(
        source=source,
        program=program("runtimes"),
        lanes=PartLanes(),
        clock=SystemClock(),
    )
    need = RuntimeNeed(
        name="claude_code",
        version=version,
        host_path=str(path),
        sha256=sha256,
        delivery=Delivery.TRANSFER,
    )
    bring = BringProgram(need=need, install=install, machine="x86_64")
    outfit = EquipSessions(
        sites={}, artifacts=MemoryArtifactStore(), program=bring, dial=dial_url
    )
    return Bench(
        outfit=outfit,
        install=install,
        source=source,
        cache=cache,
        program_bytes=path.stat().st_size,
    )


@asynccontextmanager
async def boxes(
    provider: DockerSandboxProvider, count: int
) -> AsyncGenerator[list[Sandbox]]:
    """Make containers without a network, and end them."""
    spec = SandboxSpec(image=peers.image(), network=Network.NONE)
    async with AsyncExitStack() as stack:
        found: list[Sandbox] = []
        for _ in range(count):
            label = new_label()
            stack.push_async_callback(provider.destroy, label)
            found.append(await provider.create(label, spec))
        yield found


async def floor(sandbox: Sandbox, packed: bytes) -> float:
    """Copy the packed bytes in and decompress them there; return the seconds."""
    start = time.perf_counter()
    await anyio.to_thread.run_sync(bare.bare_put, str(sandbox.sandbox_id), packed)
    ended = await sandbox.exec(
        shell("gzip -dc < /tmp/bulk > /tmp/plain", timeout_seconds=STEP_SECONDS)
    )
    spent = time.perf_counter() - start
    assert ended.succeeded, ended
    await sandbox.exec(shell("rm /tmp/bulk /tmp/plain", timeout_seconds=60.0))
    return spent


async def compared(
    bench: Bench, provider: DockerSandboxProvider, packed: bytes
) -> Bound:
    """Compare an install with its floor in the same container, in turn."""
    floors, installs = list[float](), list[float]()
    for number in range(ALONE):
        async with boxes(provider, 1) as (sandbox,):
            floors.append(await floor(sandbox, packed))
            start = time.perf_counter()
            came = await bench.seed(sandbox, f"alone-{number}")
            installs.append(time.perf_counter() - start)
            assert came == "transferred", came
    least, took = statistics.median(floors), statistics.median(installs)
    name = f"install {took:.2f} s / copy and decompression {least:.2f} s"
    return Bound(name=name, found=took / least, most=RATIO_MAX, unit="")


async def at_once(bench: Bench, provider: DockerSandboxProvider) -> Bound:
    """Install in many containers at once; return the peak of memory beyond before."""
    async with boxes(provider, AT_ONCE) as found:
        before = in_status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
        async with anyio.create_task_group() as tasks:
            for number, sandbox in enumerate(found):
                tasks.start_soon(bench.seed, sandbox, f"many-{number}")
        peak = (in_status("VmHWM") - before) / MIB
    name = f"peak of memory, {AT_ONCE} installing at once"
    return Bound(name=name, found=peak, most=PEAK_MIB_MAX, unit=" MiB")


async def again(bench: Bench, provider: DockerSandboxProvider) -> tuple[Bound, Bound]:
    """Seed again in a container that has it; what it takes is beyond another seed."""
    async with boxes(provider, 1) as (sandbox,):
        await bench.seed(sandbox, "first")
        sent, times = bench.install.lanes.sent, list[float]()
        for number in range(AGAIN):
            start = time.perf_counter()
            came = await bench.seed(sandbox, f"again-{number}")
            times.append((time.perf_counter() - start) * 1e3)
            assert came == "reused", came
        moved = bench.install.lanes.sent - sent
        python = Command(argv=("python3", "-I", "-S", "-c", ""), timeout_seconds=60.0)
        execs = [await bare.timed(lambda: sandbox.exec(python)) for _ in range(AGAIN)]
    print(
        f"one start of Python in a container: {statistics.median(execs) * 1e3:.0f} ms"
    )
    name = "a second seed beyond one that needs no program"
    return (
        Bound(
            name=name, found=statistics.median(times), most=SECOND_MS_MAX, unit=" ms"
        ),
        Bound(name="parts moved by it", found=moved, most=0, unit=""),
    )


def in_status(word: str) -> int:
    """Return a size of this process that the kernel tells, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{word}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {word}")


def bytes_read() -> int:
    """Return how many bytes this process has read from files until now."""
    words = Path("/proc/self/io").read_text().split()
    return int(words[words.index("rchar:") + 1])


async def measure(folder: Path) -> list[Bound]:
    """Measure everything in one process."""
    bench = await opened(folder)
    async with open_docker_engine() as provider, boxes(provider, 1) as (first,):
        # Packed now, when it is first sent, as it would be in any process.
        before = bytes_read()
        await bench.seed(first, "packing")
        (entry,) = (e for e in bench.cache.entries() if isinstance(e, Entry))
        path = entry.packed
        size = path.stat().st_size
        passes_first = bytes_read() - before - size
        before = bytes_read()
        found = [await at_once(bench, provider)]
        found += await again(bench, provider)
        more = bytes_read() - before - (AT_ONCE + 1) * size
        ratio = await compared(bench, provider, path.read_bytes())
    print(
        f"program {bench.program_bytes / MIB:.0f} MiB, packed {size / MIB:.0f} MiB;"
        f" {1 + AT_ONCE + 1 + ALONE} installs, {AGAIN} seeds that found it"
    )
    both = bench.program_bytes + size
    return [
        ratio,
        *found,
        Bound(
            name="passes over program and packed form, first install",
            # Packing reads the program once more, and hashing reads it once.
            found=passes_first / (both + bench.program_bytes),
            most=PASSES_MAX,
            unit="",
        ),
        Bound(
            name=f"passes over them in the next {AT_ONCE + 1 + AGAIN} seeds",
            found=max(more, 0) / both,
            most=PASSES_MAX - 1,
            unit="",
        ),
    ]


def main() -> int:
    """Print the figures; return 1 when one is above its bound."""
    if reason := peers.absence("docker"):
        print(f"runtimes are not measured: {reason}")
        return 1 if peers.is_required("docker") else 0
    with tempfile.TemporaryDirectory(prefix="livery-bench-") as name:
        found = anyio.run(measure, Path(name))
    for one in found:
        print(one.told(), flush=True)
    return int(any(one.found > one.most for one in found))


if __name__ == "__main__":
    sys.exit(main())
