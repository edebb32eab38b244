"""Measure `levelcast publish --speed max` of a real day: rate, CPU per trade, and the share of each limit.

    python -m benchmarks.publish --data DATA/us_equities_tick_20131007 [--against CHECKOUT] [--rounds 3] [--case NAME]

Five receivers, two reformation servers and thirteen floors (`benchmarks.day`) run as processes over loopback multicast,
started with the `levelcast` command alone. So any version of the code can be measured: `--against` names a second
checkout with compiled modules, which is measured in turn with this one, in the same rounds.

| case         | credit | links                                        | its additional time is the cost of     |
|--------------|--------|----------------------------------------------|----------------------------------------|
| no loss      | 1,024  | as they are                                  |                                        |
| delays       | 1,024  | 2 ms, jitter 1 ms, added by each driver      | holding each datagram in the driver    |
| loss         | 1,024  | the same, and 2 % of datagrams dropped       | repair                                 |
| loss, credit | 64     | the same                                     | waiting for credit                     |

- The rate is trades divided by the time from the first record to the last witness, as the command reports it.
- CPU time of the publishing process is that of the whole command without start-up and reading (`publish_timed`).
- Each figure is the best of the rounds: other load on the machine only slows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.day import CITIES, DAY, SYMBOLS, network_text
from benchmarks.processes import cpu_s
from benchmarks.report import Cell, Figure, Options, Result, Stopwatch, Table, machine_facts, show_facts, tell

HERE = Path(__file__).parent.parent
TIMED = HERE / "benchmarks" / "publish_timed.py"
DATA = "us_equities_tick_20131007"
RING_S = 60.0
"""Longest time for the ring to form."""
PUBLISH_S = 300.0
QUICK_ROWS = 2_000
TARGET_US = 1.0
"""A fifth of what a trade took when each packet was submitted by itself."""


@dataclass(frozen=True, slots=True)
class PublishCase:
    name: str
    credit: int
    impair: bool
    loss: float


CASES = (
    PublishCase("no loss", 1_024, impair=False, loss=0.0),
    PublishCase("delays", 1_024, impair=True, loss=0.0),
    PublishCase("loss", 1_024, impair=True, loss=0.02),
    PublishCase("loss, credit", 64, impair=True, loss=0.02),
)


class Published(NamedTuple):
    """The outcome of one run of the command."""

    trades: int
    seconds: float
    cpu_s: float
    """CPU time of the command, without start-up and reading."""
    ring_cpu_s: float

    @property
    def rate(self) -> float:
        return self.trades / self.seconds

    @property
    def us_per_trade(self) -> float:
        return self.cpu_s / self.trades * 1e6


class Code:
    """The `levelcast` command of one checkout."""

    def __init__(self, name: str, checkout: Path) -> None:
        self.name = name
        path = os.pathsep.join([str(checkout / "src"), str(checkout)])
        self._env = {**os.environ, "PYTHONPATH": path}

    def start(self, *arguments: object, timed: Path | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start the command; `timed` is where `publish_timed` writes its CPU time."""
        program = ["-m", "levelcast"] if timed is None else ["-P", TIMED, timed]
        command = [sys.executable, *map(str, (*program, *arguments))]
        return subprocess.Popen(command, env=self._env, text=True, **options)

    def run(self, *arguments: object, timed: Path | None = None) -> tuple[int, str]:
        """Exit code and output of a command."""
        with self.start(*arguments, timed=timed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            output, _ = process.communicate(timeout=PUBLISH_S)
        return process.returncode, output


@contextmanager
def ring(code: Code, network: Path, data: Path, case: PublishCase) -> Iterator[subprocess.Popen[str]]:
    """Receivers and servers, once they have formed a ring; at the end their tapes are compared."""
    impair = "--impair" if case.impair else "--no-impair"
    log = (data.parent / "up.log").open("w")
    # The network file as an argument is the old spelling, which the code to compare with also knows.
    process = code.start("up", network, "--data", data, "--no-floors", impair, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + RING_S
        names = [word for city in CITIES for word in ("--node", f"{city}-1")]
        while code.run("status", network, *names, "--json")[0]:
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"no ring within {RING_S:.0f} s: {(data.parent / 'up.log').read_text()[-500:]}")
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        ended = process.wait(60)
        log.close()
    if ended:
        raise RuntimeError(f"the tapes differ: {(data.parent / 'up.log').read_text()[-500:]}")


def measure(code: Code, case: PublishCase, folder: Path) -> Published:
    """Publish the files of `folder` once."""
    with tempfile.TemporaryDirectory(prefix="levelcast-publish-") as work:
        network, data, timed = Path(work) / "network.toml", Path(work) / "data", Path(work) / "timed.json"
        network.write_text(network_of(case), encoding="utf-8")
        with ring(code, network, data, case) as process:
            before = cpu_s(process.pid)
            impair = ["--impair"] if case.impair else []
            words = ["publish", "--network", network, "--data", data, "--timeout", "60s", "--json", *impair]
            files = ["--format", "lean", "--date", DAY.isoformat(), folder]
            done, output = code.run(*words, *files, timed=timed)
            ring_cpu_s = cpu_s(process.pid) - before
        outcome, spent = json.loads(output), json.loads(timed.read_text(encoding="utf-8"))
        if done or not outcome["complete"]:
            raise RuntimeError(f"levelcast publish ended with exit code {done}: {output}")
        publish_s = spent["total_s"] - spent["start_s"] - spent["readings"] * spent["reading_s"]
        return Published(outcome["records"], outcome["seconds"], publish_s, ring_cpu_s)


def network_of(case: PublishCase) -> str:
    """The day's network with this credit and a status service."""
    text = network_text(case.loss).replace("[core]\n", f"[core]\ncredit = {case.credit}\n")
    return f"{text}[status]\nport = {20_000 + os.getpid() % 9_000}\n"


def compare(
    codes: Sequence[Code], cases: Sequence[PublishCase], folder: Path, rounds: int
) -> dict[str, dict[str, list[Published]]]:
    """All rounds: by case, then by code."""
    found: dict[str, dict[str, list[Published]]] = {case.name: {code.name: [] for code in codes} for case in cases}
    for number in range(rounds):
        for case in cases:
            for code in codes:
                tell(f"publish: round {number + 1} of {rounds}, {case.name}, {code.name}")
                one = measure(code, case, folder)
                tell(f"  {one.rate:,.0f} trades/s, {one.us_per_trade:.2f} µs of CPU per trade")
                found[case.name][code.name].append(one)
    return found


def head_of(folder: Path, to: Path, rows: int) -> None:
    """Copy the first rows of each file of trades."""
    to.mkdir()
    for symbol in SYMBOLS:
        name = f"{symbol.lower()}_trade.csv.gz"
        with gzip.open(folder / name, "rb") as lines:
            (to / name).write_bytes(gzip.compress(b"".join(next(lines) for _ in range(rows))))


def report(found: dict[str, dict[str, list[Published]]], codes: Sequence[Code]) -> Result:
    result = Result("publish")
    rows: list[tuple[Cell, ...]] = []
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for case, by_code in found.items():
        for code, runs in by_code.items():
            rate, cpu = max(one.rate for one in runs), min(one.us_per_trade for one in runs)
            best[case, code] = rate, cpu
            ring_cpu = min(one.ring_cpu_s / one.trades for one in runs) * 1e6
            rows.append((f"{case}, {code}", rate, cpu, ring_cpu))
    columns = ("case", "trades/s", "publisher, CPU µs/trade", "ring, CPU µs/trade")
    result.tables.append(Table("levelcast publish --speed max, five receivers, thirteen floors", columns, rows))
    own = codes[0].name
    for case in found:
        rate, cpu = best[case, own]
        result.figures.append(Figure(f"CPU, {case}", cpu, "µs/trade", "target", TARGET_US))
        for other in codes[1:]:
            result.figures.append(Figure(f"rate, {case}", rate, "trades/s", other.name, best[case, other.name][0]))
            result.figures.append(Figure(f"CPU, {case}", cpu, "µs/trade", other.name, best[case, other.name][1]))
    result.notes += [line for code in codes for line in limits(code.name, {c: best[c, code.name][0] for c in found})]
    return result


def limits(code: str, rates: dict[str, float]) -> list[str]:
    """The time per trade that each limit adds, from the differences between neighbouring cases."""
    causes = {
        ("no loss", "delays"): "delay and loss added in the driver",
        ("delays", "loss"): "repair",
        ("loss", "loss, credit"): f"credit of {CASES[-1].credit} instead of {CASES[2].credit}",
    }
    last = CASES[-1].name
    return [
        f"{code}: {cause}: {1e6 / rates[worse] - 1e6 / rates[better]:.2f} of {1e6 / rates[last]:.2f} µs per trade"
        for (better, worse), cause in causes.items()
        if {better, worse, last} <= rates.keys()
    ]


def run(options: Options) -> Result:
    """The benchmark of `python -m benchmarks publish`; LEVELCAST_AGAINST names a second checkout."""
    folder = Path(os.environ.get("LEVELCAST_DATA", HERE.parent / "shared" / "data")) / DATA
    if not folder.is_dir():
        return Result("publish", notes=[f"Nothing was measured: LEVELCAST_DATA has no {DATA}."])
    codes = [Code("this", HERE)]
    if other := os.environ.get("LEVELCAST_AGAINST"):
        codes.append(Code("before", Path(other)))
    if not options.quick:
        return report(compare(codes, CASES, folder, 3), codes)
    with tempfile.TemporaryDirectory(prefix="levelcast-publish-") as work:
        head_of(folder, Path(work) / "head", QUICK_ROWS)
        return report(compare(codes, CASES[:1], Path(work) / "head", 1), codes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory with <symbol>_trade.csv.gz of 2013-10-07")
    parser.add_argument("--against", type=Path, help="another checkout with compiled modules, measured in turn")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="(repeatable)")
    parser.add_argument("--only-against", action="store_true", help="measure only the other checkout")
    chosen = parser.parse_args(arguments)
    print(show_facts(machine_facts()), flush=True)
    codes = [] if chosen.only_against else [Code("this", HERE)]
    if chosen.against is not None:
        codes.append(Code("before", chosen.against.resolve()))
    cases = [case for case in CASES if chosen.case is None or case.name in chosen.case]
    with Stopwatch() as watch:
        result = report(compare(codes, cases, chosen.data, chosen.rounds), codes)
    result.set_times(watch)
    print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
