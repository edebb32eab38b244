"""Records a second through the whole way: a floor, three receivers that journal, order, witness and release, three
customers that decode; beside the same processes as a relay in C, bare and one that keeps what it relays on disk.

Every process is a real one, over real multicast on loopback. The cases differ in how packets travel:

| case   | core                              | edge                              |
|--------|-----------------------------------|-----------------------------------|
| plain  | 1,400-byte datagrams, one by one  | the same                          |
| trains | 1,400-byte datagrams, offloaded   | the same                          |
| jumbo  | 8,900-byte datagrams, offloaded   | the same                          |
| large  | the largest datagrams of loopback | the same                          |
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from benchmarks.peers import Failed, Missing, PeerResult, corosync, relay, zeromq
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.way import NAMES, Case, Way, at_work, busy_seconds
from levelcast.records import TRADE
from levelcast.storage.release_log import read_releases
from levelcast.storage.tape.compare import compare
from levelcast.storage.tape.reader import TapeReader
from levelcast.timing.rules import Timing

RELAY = "relay in C"
PUNCTUAL_NS = 1_000_000
QUICK_RATE = 50_000.0
"""A quick look wants to see that everything works, on a machine that may be busy with other things."""
KEEPING = '[tape]\nkeep_bytes = "200MB"\n'
"""As an operator runs it: the disk is bounded, and the kernel gets back the memory that the oldest records had."""


CASES = (
    Case("plain", 1_400, 1_400, trains=False),
    Case("trains", 1_400, 1_400, trains=True),
    Case("jumbo", 8_900, 8_900, trains=True),
    Case("large", 60_000, 65_000, trains=False),
)
RELAYED = ("plain", "trains", "large")
"""The cases that the relay in C has, too."""
SAME_MTU = {"MTU 1,500": "trains", "MTU 9,000": "jumbo"}
"""Corosync's settings, and which of our cases has datagrams of that size."""


@dataclass(slots=True)
class Measured:
    """One case's figures over its window."""

    case: Case
    window_s: float
    records: int
    packets: int
    cpu_s: dict[str, float]
    identical: bool
    gaps: int
    spread_us: tuple[float, float]
    lateness_us: tuple[float, float]
    late_share: float
    extra_us: float
    """From source to release, without Δ_A and half a slot, p50."""
    others_cores: float
    customers_us: tuple[float, float] = (nan, nan)
    """Spread at the customers, p50 and p99, where they noted it."""

    @property
    def records_per_s(self) -> float:
        return self.records / self.window_s

    @property
    def cpu_us_per_packet(self) -> float:
        return sum(self.cpu_s.values()) / max(1, self.packets) * 1e6

    def us_of(self, role: str) -> float:
        """CPU of a role for one packet."""
        return self.cpu_s[role] / max(1, self.packets) * 1e6


# -- one case ---------------------------------------------------------------------------------------------


def measure(
    case: Case, window_s: float, *, rate: float | None = None, warm_s: float = 1.5, arrivals: bool = False
) -> Measured:
    """Run one case for `window_s` after it has warmed up; `arrivals`: the customers note when each slot came."""
    with at_work(case, rate, more=KEEPING, arrivals=arrivals) as way:
        time.sleep(warm_s)
        busy, began_ns = busy_seconds(), time.time_ns()
        spent = way.spend(window_s)
        others = (busy_seconds() - busy - sum(spent.cpu_s.values())) / spent.took_s
        ended_ns = time.time_ns()
        way.end()
        return Measured(
            case,
            spent.took_s,
            spent.records,
            spent.records // case.records,
            spent.cpu_s,
            gaps=sum(int(each.said["gaps"]) for each in way.customers),
            others_cores=others,
            **_judge(way, (began_ns, ended_ns)),
        )


def _judge(way: Way, window: tuple[int, int]) -> dict[str, Any]:
    """What tapes and release logs say of the window. A slot's spread is that of its first byte's departure."""
    data, timing = way.data, way.network.timing()
    differences = compare([data / f"{name}-1" / "tape" for name in NAMES])
    logs = [read_releases(data / f"{name}-1" / "releases") for name in NAMES]
    at = [{int(row["slot"]): int(row["released_ns"]) for row in log} for log in logs]
    due = {int(row["slot"]): int(row["scheduled_ns"]) for row in logs[0]}
    common = [slot for slot in due if window[0] <= due[slot] <= window[1] and all(slot in each for each in at)]
    spread = np.array([max(each[slot] for each in at) - min(each[slot] for each in at) for slot in common])
    behind = np.array([each[slot] - due[slot] for each in at for slot in common])
    return {
        "identical": not any(each.how for each in differences),
        "spread_us": _percentiles(spread),
        "lateness_us": _percentiles(behind),
        "late_share": float((behind > PUNCTUAL_NS).mean()) if len(behind) else float("nan"),
        "extra_us": _extra_us(TapeReader(data / "a-1" / "tape"), timing, at, set(common)),
        "customers_us": _at_customers(way.arrivals(), window),
    }


def _at_customers(arrivals: Sequence[dict[int, int]], window: tuple[int, int]) -> tuple[float, float]:
    """Between the first and the last customer's first byte of a slot."""
    if not arrivals:
        return nan, nan
    common = [slot for slot in arrivals[0] if all(window[0] <= each.get(slot, 0) <= window[1] for each in arrivals)]
    times = [[each[slot] for each in arrivals] for slot in common]
    return _percentiles(np.array([max(each) - min(each) for each in times]))


def _extra_us(tape: TapeReader, timing: Timing, at: Sequence[dict[int, int]], slots: set[int]) -> float:
    """The median, over packets and receivers, of release minus `ts_event`, less Δ_A and half a slot."""
    extra: list[int] = []
    for frame in tape.frames():
        if frame.line.slot not in slots:
            continue
        sent = np.unique(np.frombuffer(frame.data(), TRADE)["ts_event"])
        for each in at:
            extra += (each[frame.line.slot] - sent.astype(np.int64) - timing.hold_ns - timing.slot_ns // 2).tolist()
    return float(np.median(extra)) / 1e3 if extra else float("nan")


def _percentiles(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    if not len(values):
        return float("nan"), float("nan")
    return float(np.percentile(values, 50)) / 1e3, float(np.percentile(values, 99)) / 1e3


# -- all of them ------------------------------------------------------------------------------------------


def run(options: Options) -> Result:
    """Our cases and the peers, interleaved, a few rounds."""
    rounds, window_s = (1, 1.0) if options.quick else (3, 4.0)
    most = QUICK_RATE if options.quick else None
    ours: list[Measured] = []
    peers: list[PeerResult] = []
    result = Result("throughput")
    with relay.build() as program:
        for number in range(rounds):
            for case in CASES:
                tell(f"round {number + 1} of {rounds}: {case.name}")
                ours.append(measure(case, window_s, rate=most))
                if case.name in RELAYED:
                    peers += [
                        relay.run(case.name, window_s, packet_bytes=case.core_bytes, program=program, keep=keep)
                        for keep in (False, True)
                    ]
            if not options.quick:
                peers += _others(window_s, result.notes)
    result.tables += [_table_of_ours(ours), _table_of_peers(peers)]
    result.figures += _figures(ours, peers)
    return result


def _others(window_s: float, notes: list[str]) -> list[PeerResult]:
    found: list[PeerResult] = []
    for name, measure_peer in (("Corosync", corosync.run_all), ("ZeroMQ", zeromq.run_all)):
        tell(f"peer: {name}")
        try:
            found += measure_peer(window_s)
        except (Missing, Failed) as why:
            if str(why) not in notes:
                notes.append(f"{name} was not measured: {why}")
    return found


def _table_of_ours(ours: Sequence[Measured]) -> Table:
    columns = (
        "case",
        "records/s",
        "MB/s",
        "CPU µs/packet",
        "floor",
        "receiver",
        "subscriber",
        "own cores",
        "other cores",
        "identical",
        "gaps",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            each.case.name,
            each.records_per_s,
            each.records_per_s * 64 / 1e6,
            each.cpu_us_per_packet,
            each.us_of("floor"),
            each.us_of("receivers") / 3,
            each.us_of("customers") / 3,
            sum(each.cpu_s.values()) / each.window_s,
            each.others_cores,
            "yes" if each.identical else "NO",
            each.gaps,
        )
        for each in ours
    ]
    return Table("Levelcast: one floor, three receivers, three subscribers", columns, rows)


def _table_of_peers(peers: Sequence[PeerResult]) -> Table:
    columns = ("peer", "records/s", "MB/s", "CPU µs/datagram", "own cores", "other cores", "delay p50 µs", "lost")
    rows: list[tuple[Cell, ...]] = [
        (
            f"{each.name}, {each.case}",
            each.records_per_s,
            each.mb_per_s,
            each.cpu_us_per_datagram,
            each.cores,
            each.other_load,
            each.delay_us["p50"] if each.delay_us else "",
            each.lost,
        )
        for each in peers
    ]
    return Table("Peers, in the same run", columns, rows)


def _figures(ours: Sequence[Measured], peers: Sequence[PeerResult]) -> list[Figure]:
    """The best of the rounds on each side: noise on a shared machine only ever slows."""
    rate = {case.name: max(each.records_per_s for each in ours if each.case is case) for case in CASES}
    cpu = {case.name: min(each.cpu_us_per_packet for each in ours if each.case is case) for case in CASES}
    relays = [each for each in peers if each.name == RELAY]
    relayed = {(name, how): [r for r in relays if r.case == name + how] for name in RELAYED for how in ("", ", kept")}
    figures = [
        Figure("records/s in trains", rate["trains"], "records/s", "plain", rate["plain"]),
        Figure("records/s, best case", max(rate.values()), "records/s", "target", 2_000_000),
    ]
    for (name, how), found in relayed.items():
        if found:
            least = min(each.cpu_us_per_datagram for each in found)
            figures.append(Figure(f"CPU of the C relay per datagram, {name}{how}", least, "µs", "Levelcast", cpu[name]))
    by_case: dict[str, float] = {}
    for each in peers:
        if each.name != RELAY:
            key = f"{each.name}, {each.case}"
            by_case[key] = max(by_case.get(key, 0.0), each.records_per_s)
    for key, value in by_case.items():
        figures.append(Figure("records/s, best case", max(rate.values()), "records/s", key, value))
        for mtu, name in SAME_MTU.items():
            if mtu in key:
                figures.append(Figure(f"records/s, {name}", rate[name], "records/s", key, value))
    return figures
