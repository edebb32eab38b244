"""Start-up: CPU time and modules loaded until a program does its first useful thing, each beside its limit.

| figure                | until                                            |
|-----------------------|--------------------------------------------------|
| `import levelcast`    | the interpreter has ended                        |
| a subscriber          | `levelcast.Subscriber` is imported               |
| `levelcast --help`    | the process has ended                            |
| `levelcast node`      | a receiver sends its first datagram              |
| `levelcast demo`      | the floors open (wall time)                      |

CPU time is the minimum of several runs: other programs on the machine only add to it. Set `LEVELCAST_BEFORE` to the
`src` directory of another checkout to measure that one as well and print it in a column of its own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, TemporaryFile

from benchmarks.report import Cell, Figure, Options, Result, Table, tell

LEVELCAST = ["-m", "levelcast"]
NODE = "tokyo-1"
REPEATS, DEMOS = 7, 3
DEMO_LIMIT_S = 5.0
WAIT_S = 60.0
_INTERPRETER = ["-c", "pass"]


@dataclass(frozen=True, slots=True)
class Checkout:
    """One source tree that is measured."""

    name: str
    source: Path

    @contextmanager
    def running(
        self, arguments: list[str], *, stdout: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program on this tree; killed in the end if it still runs."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(self.source), "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@dataclass(frozen=True, slots=True)
class Startup:
    """CPU time and modules of one kind of start."""

    cpu_s: float
    modules: int


def run(options: Options) -> Result:
    """Measure this tree, and the one that `LEVELCAST_BEFORE` names."""
    checkouts = [Checkout("measured", Path(__file__).parents[1] / "src")]
    if before := os.environ.get("LEVELCAST_BEFORE"):
        checkouts.append(Checkout("before", Path(before)))
    repeats, demos = (1, 1) if options.quick else (REPEATS, DEMOS)
    starts: dict[str, tuple[float | None, Callable[[Checkout], Startup]]] = {
        "python -c pass": (None, lambda tree: _until_end(tree, _INTERPRETER, repeats)),
        "import levelcast": (None, lambda tree: _until_end(tree, ["-c", "import levelcast"], repeats)),
        "a subscriber": (None, lambda tree: _until_end(tree, ["-c", "from levelcast import Subscriber"], repeats)),
        "levelcast --help": (0.4, lambda tree: _until_end(tree, [*LEVELCAST, "--help"], repeats)),
        "levelcast node": (0.7, lambda tree: _until_datagram(tree, repeats)),
    }
    result = Result("startup")
    rows: list[tuple[Cell, ...]] = []
    for name, (limit_s, measure) in starts.items():
        tell(f"startup: {name}")
        found = [measure(tree) for tree in checkouts]
        rows.append(
            (name, "" if limit_s is None else limit_s, *(cell for each in found for cell in (each.cpu_s, each.modules)))
        )
        if limit_s is not None:
            result.figures.append(Figure(f"{name}, CPU time", found[0].cpu_s, "s", "limit", limit_s))
    columns = [column for tree in checkouts for column in (f"{tree.name}, s", "modules")]
    result.tables.append(Table("CPU time and modules until ready", ("start", "limit, s", *columns), rows))
    tell("startup: levelcast demo")
    opened = [median(_floors_open_s(tree) for _ in range(demos)) for tree in checkouts]
    result.figures.append(Figure("levelcast demo, floors open after", opened[0], "s", "limit", 5.0))
    result.figures += [
        Figure("levelcast demo, floors open after", opened[0], "s", "before", each) for each in opened[1:]
    ]
    return result


def _until_end(tree: Checkout, arguments: list[str], repeats: int) -> Startup:
    least = float("inf")
    for _ in range(repeats + 1):  # the first run compiles
        with tree.running(arguments) as process:
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # waited for
            least = min(least, usage.ru_utime + usage.ru_stime)
    return Startup(least, _modules(tree, arguments, lambda process: process.wait(WAIT_S)))


def _modules(tree: Checkout, arguments: list[str], wait: Callable[[subprocess.Popen[bytes]], object]) -> int:
    with TemporaryFile() as log, tree.running(["-X", "importtime", *arguments], stderr=log.fileno()) as process:
        wait(process)
        log.seek(0)
        return sum(line.startswith(b"import time:") for line in log) - 1  # the first line is a heading


def _until_datagram(tree: Checkout, repeats: int) -> Startup:
    """A receiver with an empty journal, which asks the reformation servers to be let into the ring."""
    with TemporaryDirectory(prefix="startup-") as folder, _core_group() as (listener, port):
        file, data = Path(folder) / "network.toml", Path(folder) / "data"
        _run(tree, [*LEVELCAST, "init", str(file)])  # the old spelling, which the code to compare with also knows
        text = re.sub(r"(\[core\]\n.*\n)port = \d+", rf"\g<1>port = {port}", file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")
        _join(listener, tomllib.loads(text)["core"]["address"])
        arguments = [*LEVELCAST, "node", "--network", str(file), "--name", NODE, "--data", str(data)]
        _run(tree, [*arguments, "--init", "--for", "1ms"])
        least = float("inf")
        for _ in range(repeats):
            _drain(listener)
            with tree.running(arguments) as process:
                listener.recv(2048)
                least = min(least, _cpu_s(process.pid))
        _drain(listener)
        return Startup(least, _modules(tree, arguments, lambda _: listener.recv(2048)))


def _drain(listener: socket.socket) -> None:
    listener.setblocking(False)
    with suppress(BlockingIOError):
        while listener.recv(2048):
            pass
    listener.settimeout(WAIT_S)


def _run(tree: Checkout, arguments: list[str]) -> None:
    with tree.running(arguments) as process:
        if process.wait(WAIT_S):
            raise SystemExit(f"startup: {' '.join(arguments)} failed on {tree.source}")


@contextmanager
def _core_group() -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", 0))
        yield listener, listener.getsockname()[1]


def _join(listener: socket.socket, group: str) -> None:
    membership = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)


def _cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it


def _floors_open_s(tree: Checkout) -> float:
    begun = time.monotonic()
    with tree.running([*LEVELCAST, "demo", "--for", "1s", "--kill", "none"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if re.search(rb"floors? open", line):
                opened_s = time.monotonic() - begun
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=WAIT_S)
                return opened_s
    raise SystemExit(f"startup: the floors of the demo did not open on {tree.source}")
