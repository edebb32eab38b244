"""What all peers share: their result, the machine's other load beside it, compiling, and ending what was started.

Wall time alone says little on a shared machine. So a result has the CPU time of every process that took part and
the load that others put on the machine meanwhile.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from levelcast.runtime.cpu_contention import STAT, parse_stat
from levelcast.units import quantile
from levelcast.wire import mold
from levelcast.wire.packets import DATA_OVERHEAD

RECORD_BYTES = 64
"""A trade, as `levelcast.records` has it."""
KSOFTIRQD = "ksoftirqd"
"""The role under which the kernel's own network threads are counted."""

_CORE_HEAD = DATA_OVERHEAD


class Missing(Exception):
    """What keeps a peer from being measured here, in one sentence for a person."""


class Failed(Exception):
    """A peer that is here but did not do what it should, in one sentence for a person."""


def records_in(datagram_bytes: int, record_bytes: int = RECORD_BYTES) -> int:
    """How many records Levelcast puts into a datagram that fits both the ring's framing and the edge's.

    >>> records_in(1_400), records_in(8_900)
    (20, 134)
    """
    core = (datagram_bytes - _CORE_HEAD) // record_bytes
    edge = (datagram_bytes - mold.HEADER_SIZE) // (record_bytes + mold.LENGTH_SIZE)
    if min(core, edge) < 1:
        raise ValueError(f"no record of {record_bytes} bytes fits a datagram of {datagram_bytes}")
    return min(core, edge)


# ---------------------------------------------------------------------------------------------------------
# Results


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One run of one peer. A datagram is a packet on the wire, or a message where the peer has its own framing."""

    name: str
    case: str
    seconds: float
    """From the first send until the slowest customer had everything."""
    datagrams: int
    """Sent by the source. A train counts as its segments."""
    delivered: tuple[int, ...]
    """Datagrams that arrived, customer by customer."""
    records: int
    """Records that arrived at the customer that got the fewest."""
    bytes: int
    """What those records came in, the peer's heads included."""
    cpu_seconds: Mapping[str, float]
    """User and system time by role. ksoftirqd may have worked for others too."""
    other_load: float
    """Cores that others kept busy meanwhile."""
    stolen_load: float = 0.0
    """Cores that the hypervisor gave to other machines meanwhile."""
    delay_us: Mapping[str, float] | None = None
    """p50, p99 and max from send to delivery at light load, over all customers."""
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Over all customers."""
        return self.datagrams * len(self.delivered) - sum(self.delivered)

    @property
    def records_per_s(self) -> float:
        return _ratio(self.records, self.seconds)

    @property
    def datagrams_per_s(self) -> float:
        return _ratio(self.datagrams, self.seconds)

    @property
    def mb_per_s(self) -> float:
        return _ratio(self.bytes, self.seconds) / 1e6

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_seconds.values())

    @property
    def cores(self) -> float:
        """Cores that the run kept busy itself."""
        return _ratio(self.cpu_s, self.seconds)

    @property
    def cpu_us_per_datagram(self) -> float:
        """CPU of all processes together for one datagram of the source."""
        return _ratio(self.cpu_s * 1e6, self.datagrams)

    @property
    def cpu_us_per_record(self) -> float:
        """CPU of all processes together for one record at all customers."""
        return _ratio(self.cpu_s * 1e6, self.records)

    def cpu_of(self, part: str) -> float:
        """CPU seconds of the roles whose name starts with `part`: "receiver" is all receivers."""
        return sum(seconds for role, seconds in self.cpu_seconds.items() if role.startswith(part))

    def as_json(self) -> dict[str, object]:
        derived = (
            "lost",
            "records_per_s",
            "datagrams_per_s",
            "mb_per_s",
            "cpu_s",
            "cores",
            "cpu_us_per_datagram",
            "cpu_us_per_record",
        )
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def _ratio(value: float, by: float) -> float:
    return value / by if by else float("nan")


def percentiles(samples_us: Iterable[float]) -> dict[str, float] | None:
    """p50, p99 and max; None for no samples."""
    ordered = sorted(samples_us)
    if not ordered:
        return None
    return {"p50": quantile(ordered, 0.5), "p99": quantile(ordered, 0.99), "max": ordered[-1]}


# ---------------------------------------------------------------------------------------------------------
# The machine's load


@dataclass(slots=True)
class Load:
    """CPU seconds of the whole machine while a block ran; filled in when the block ends."""

    wall_s: float = 0.0
    busy_s: float = 0.0
    """Everything that ran."""
    own_s: float = 0.0
    """This process, its children that ended, and the processes that were named."""
    ksoftirqd_s: float = 0.0
    """The kernel's network threads, for whomever they worked."""
    stolen_s: float = 0.0
    """What the hypervisor took."""

    @property
    def other_s(self) -> float:
        return max(0.0, self.busy_s - self.own_s - self.ksoftirqd_s)

    @property
    def other_load(self) -> float:
        """Cores that others kept busy."""
        return _ratio(self.other_s, self.wall_s)

    @property
    def stolen_load(self) -> float:
        return _ratio(self.stolen_s, self.wall_s)


@contextmanager
def load_beside(pids: Iterable[int] = ()) -> Iterator[Load]:
    """The machine's load during the block, what is our own apart from what is others'.

    Our own are this process, the children whose end it waits for inside the block, and `pids`, which have to live
    longer than the block.
    """
    pids, load = tuple(pids), Load()
    wall, machine, own, network = time.monotonic(), _machine_cpu(), _own_cpu(pids), _ksoftirqd_cpu()
    try:
        yield load
    finally:
        busy, stolen = _machine_cpu()
        load.wall_s = time.monotonic() - wall
        load.busy_s, load.stolen_s = busy - machine[0], stolen - machine[1]
        load.own_s, load.ksoftirqd_s = _own_cpu(pids) - own, _ksoftirqd_cpu() - network


def cpu_seconds(pid: int) -> float:
    """CPU time of a process since it began, all threads, to the nanosecond; ProcessLookupError if there is none."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) makes of a process id
    except OSError as error:
        raise ProcessLookupError(f"there is no process {pid}") from error


def _machine_cpu() -> tuple[float, float]:
    """Busy and stolen seconds of all cores."""
    times = parse_stat(STAT.read_text(encoding="ascii"))
    return times.busy_s, times.stolen_s


def _own_cpu(pids: Sequence[int]) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + sum(map(cpu_seconds, pids))


def _ksoftirqd_cpu() -> float:
    return sum(map(cpu_seconds, _ksoftirqd()))


@cache
def _ksoftirqd() -> tuple[int, ...]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text(encoding="utf-8").startswith("ksoftirqd/"):
                found.append(int(entry.name))
        except OSError:  # it has just ended
            continue
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------
# Programs


@contextmanager
def compiled(source: Path, *libraries: str, needs: str = "gcc libc6-dev") -> Iterator[Path]:
    """`source` compiled with `cc -O2` into a folder that goes away with the block; `needs` are Debian's packages."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Missing(f"there is no C compiler (cc) to build {source.name} with: apt-get install {needs}")
    with tempfile.TemporaryDirectory(prefix="levelcast-peers-") as folder:
        program = Path(folder) / source.stem
        flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(program), str(source)]
        done = subprocess.run(
            [compiler, *flags, *(f"-l{library}" for library in libraries)], capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            why = next((line for line in done.stderr.splitlines() if "error" in line or "cannot" in line), "no reason")
            raise Missing(f"{source.name} does not compile ({why.strip()}): apt-get install {needs}")
        yield program


def end(process: subprocess.Popen[str], patience_s: float = 5.0) -> None:
    """Kill a process that leads its own session, with its children, and wait for it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(patience_s)
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def started(command: Sequence[str | Path], folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A child with pipes to its three streams, which is killed at the end of the block with all its own."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)
