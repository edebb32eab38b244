"""How far the whole way could come: where a receiver's time goes, and what would be left if Python took none.

    python -m benchmarks limits

The way of `throughput` runs with datagrams of 8,900 bytes, and `perf` looks at one receiver meanwhile: the share of the
kernel, of Python's interpreter, of copies (the C library), of our compiled modules and of the hash. Beside it in the
same run: our plain datagrams; the relay in C, bare and one that writes what it relays twice, as journal and tape are;
Corosync, packed in the same MTU. From CPU a byte of all processes follows how many records a second two full cores
could carry:

| bound        | what is left |
|--------------|--------------|
| as it is     | everything |
| no Python    | the receivers' without the interpreter |
| no copies    | the receivers' without the interpreter and the C library |
| the C relay  | the relay that keeps, and the receivers' hash and compiled modules: the work with nothing around it |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import Failed, Missing, PeerResult, corosync, relay
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.throughput import CASES, KEEPING, QUICK_RATE
from benchmarks.way import NAMES, Case, at_work

RECORD_BYTES = 64
WARM_S = 1.5
PLAIN, JUMBO = (next(case for case in CASES if case.name == name) for name in ("plain", "jumbo"))
PARTS = {
    "compiled": r"_core|_mold",
    "hash": r"blake3",
    "kernel": r"\[kernel|\[vdso",
    "copies": r"libc[.-]",
    "Python": r"python",
}
"""What a name of a library tells, in this order: compiled modules have `cpython` in theirs. All else is `other`."""
_LINE = re.compile(r"^\s*([\d.]+)%\s+(\S+)", re.MULTILINE)


def part_of(library: str) -> str:
    return next((part for part, pattern in PARTS.items() if re.search(pattern, library)), "other")


def shares_of(report: str) -> dict[str, float]:
    """Shares by part of what `perf report --sort dso` prints."""
    shares = dict.fromkeys([*PARTS, "other"], 0.0)
    for percent, library in _LINE.findall(report):
        shares[part_of(library)] += float(percent) / 100
    return shares


def profile(pid: int, seconds: float, folder: Path) -> dict[str, float]:
    """Where a process spends its time, by part; raises Missing."""
    data = str(folder / "perf.data")
    record = ["perf", "record", "-q", "-F", "999", "-o", data, "-p", str(pid), "--", "sleep", str(seconds)]
    done = subprocess.run(record, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"perf may not look at processes here: {done.stderr.strip()[:200]}")
    report = ["perf", "report", "-i", data, "--no-children", "-g", "none", "--sort", "dso", "--stdio"]
    return shares_of(subprocess.run(report, capture_output=True, text=True, check=True).stdout)


def measure(
    case: Case, seconds: float, rate: float | None, *, look: bool
) -> tuple[float, dict[str, float], dict[str, float]]:
    """Records a second, CPU ns a byte by role, and the shares of a receiver's time if it is looked at."""
    shares: dict[str, float] = {}
    with at_work(case, rate, more=KEEPING) as way, TemporaryDirectory(prefix="limits-") as folder:

        def look_at_one() -> None:
            shares.update(profile(way.pids[f"{NAMES[0]}-1"], seconds, Path(folder)))

        time.sleep(WARM_S)
        spent = way.spend(seconds, look_at_one if look else None)
        way.end()
    ns = {role: 1e9 * cpu / (spent.records * RECORD_BYTES) for role, cpu in spent.cpu_s.items()}
    return spent.records_per_s, ns, shares


def bounds(ours: Mapping[str, float], shares: Mapping[str, float], kept_ns: float) -> dict[str, float]:
    """CPU ns a byte of all processes, of each bound."""
    whole, receivers = sum(ours.values()), ours["receivers"]
    return {
        "as it is": whole,
        "no Python": whole - receivers * shares["Python"],
        "no copies": whole - receivers * (shares["Python"] + shares["copies"]),
        "the C relay": kept_ns + receivers * (shares["hash"] + shares["compiled"]),
    }


def records_per_s(ns: float, cores: int) -> float:
    return cores * 1e9 / (ns * RECORD_BYTES)


def _ns(peer: PeerResult) -> float:
    return 1e9 * peer.cpu_s / (peer.records * RECORD_BYTES)


def run(options: Options) -> Result:
    """All of it, one after the other."""
    result = Result("limits")
    if shutil.which("perf") is None:
        result.notes.append("perf is not here (Debian: linux-perf); nothing was measured")
        return result
    seconds, rate = (1.0, QUICK_RATE) if options.quick else (6.0, None)
    cores = min(2, os.cpu_count() or 1)
    try:
        tell("limits: plain")
        plain, _, _ = measure(PLAIN, seconds, rate, look=False)
        tell("limits: jumbo, under perf")
        jumbo, ours, shares = measure(JUMBO, seconds, rate, look=True)
    except Missing as why:
        result.notes.append(f"{why}; nothing was measured")
        return result
    tell("limits: the relay in C")
    with relay.build() as program:
        bare, kept = (relay.run("large", seconds, program=program, keep=keep) for keep in (False, True))
    wanted = {"six times plain": 6 * plain}
    if not options.quick:
        tell("limits: Corosync")
        try:
            packed = corosync.run(corosync.Setting("udp", 9_000), seconds, delay=False)
            wanted["Corosync packed, MTU 9,000"] = packed.records_per_s
        except (Missing, Failed) as why:
            result.notes.append(f"Corosync was not measured: {why}")
    wanted["the bare relay's CPU at 0.4"] = records_per_s(_ns(bare) / 0.4, cores)
    each = ours["receivers"] / len(NAMES)
    rows: list[tuple[Cell, ...]] = [(part, share, share * each) for part, share in shares.items()]
    result.tables.append(Table("a receiver's time, 8,900-byte datagrams", ("part", "fraction", "ns per byte"), rows))
    relays = ("relay in C, all processes", _ns(bare)), ("relay in C that keeps, all processes", _ns(kept))
    rows = [*ours.items(), *relays]
    result.tables.append(Table("CPU per byte of records", ("process", "ns"), rows))
    could = {name: records_per_s(ns, cores) for name, ns in bounds(ours, shares, _ns(kept)).items()}
    rows = [*could.items(), *((f"target: {name}", rate_) for name, rate_ in wanted.items())]
    result.tables.append(Table(f"records/s that {cores} full cores could carry", ("bound", "records/s"), rows))
    result.figures.append(Figure("records/s, jumbo", jumbo, "records/s", "all of the cores", could["as it is"]))
    for name, rate_ in wanted.items():
        best = max(could.values())
        result.figures.append(Figure("the best bound", best, "records/s", f"target: {name}", rate_))
    return result
