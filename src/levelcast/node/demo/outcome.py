"""Evaluate a demo: compare the tapes, and compute release statistics from the logs and the status of the nodes.

- *late*: by protocol, as `levelcast.runtime.lateness` defines it, with the delays of tokens subtracted.
- *delay*: the scheduling delay of the releases on time.
- *latency*: from the trade's own time at its floor to its release. Replayed trades are old, so theirs counts from the
  timestamp of the token that ordered them.
- `behind`, the lag: after the first receiver that released the slot. For a receiver that was killed, only releases on
  time count: those that it missed during the outage are unrelated to release skew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from levelcast.network.roles import RECEIVER
from levelcast.node.demo.run import FloorLine, Show
from levelcast.node.demo.subscribers import DemoSubscriber
from levelcast.node.verdict import (
    ReceiverFigures,
    TapeTrades,
    floor_problem,
    judge,
    latencies_ns,
    read_trades,
    three_quantiles,
)
from levelcast.records import TRADE, RecordArray
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import Nanoseconds, first_entries, is_late, read_together, scheduling_ns


@dataclass(frozen=True, slots=True)
class ReceiverLine:
    """One receiver's line of the table."""

    name: str
    records: int
    """On its tape."""
    on_time: int
    late: int
    delay_ns: tuple[int, int]
    """Scheduling delay: median and p99."""
    latency_ns: tuple[int, int]
    """Median and p99."""
    behind_ns: tuple[int, int]
    """Median and p99."""
    requests: int
    lost: int
    """Datagrams to this receiver that were dropped by injected loss."""
    edge_packets: int
    generation: str
    kills: int
    chain: str


@dataclass(slots=True)
class DemoOutcome:
    """Results printed at the end."""

    receivers: list[ReceiverLine] = field(default_factory=list)
    floors: list[FloorLine] = field(default_factory=list)
    customers: list[DemoSubscriber] = field(default_factory=list)
    spread_ns: tuple[int, int, int] = (0, 0, 0)
    """From the first to the last release of a slot: median, p99, largest."""
    delay_ns: tuple[int, int, int] = (0, 0, 0)
    """Scheduling delay over all receivers: median, p99, largest."""
    frames: int = 0
    trades: int = 0
    """On every tape; the other records on it define symbols."""
    kept_back: int = 0
    """Trades in the journals of floors that were stopped early."""
    problems: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Reasons why the run was stopped before its end (`ClusterVerdict`)."""
    load: float = 0.0
    """Load average of the last minute: processes that needed a core of this machine."""
    cores: int = 1
    realtime: bool = True
    """True if receivers had real-time priority."""
    contention: CpuContention = field(default_factory=CpuContention)
    """Stolen CPU time and CPU pressure from the opening of the floors to the end."""

    @property
    def identical(self) -> bool:
        return not self.problems and not self.unfinished

    @property
    def published(self) -> int:
        return sum(floor.published for floor in self.floors)


def assess(show: Show, *, replayed: bool = False) -> DemoOutcome:
    """Evaluate the files of the nodes after they have exited."""
    cluster = show.cluster
    contention = cluster.cpu_meter.measure()  # before the tapes are read
    names = [member.place.name for member in cluster.of_role(RECEIVER)]
    verdict = judge(cluster.data, names, unfinished=show.problems)
    outcome = DemoOutcome(floors=show.floors(), customers=show.customers.all, contention=contention)
    outcome.problems, outcome.unfinished = verdict.problems, verdict.unfinished
    outcome.load, outcome.cores, outcome.realtime = os.getloadavg()[0], os.cpu_count() or 1, show.realtime
    if len(verdict.receivers) < len(names):
        return outcome
    outcome.frames = verdict.receivers[0].frames
    try:
        trades = read_trades(cluster.data / names[0], "ts_recv" if replayed else "ts_event")
        logs = read_together({name: cluster.data / name / "releases" for name in names})
    except TapeError as error:
        outcome.problems.append(str(error))
        return outcome
    outcome.trades = len(trades.slots)
    killed = {name for name in names if cluster.members[name].kills}
    behind, spreads = _evenness(logs, killed)
    outcome.spread_ns = three_quantiles(spreads)
    outcome.delay_ns = three_quantiles(np.concatenate([_delays(log) for log in logs.values()]))
    for figures in verdict.receivers:
        name = figures.name
        outcome.receivers.append(_line(show, figures, logs[name], trades, behind[name]))
    _check_floors(show, trades, outcome)
    _check_customers(outcome, verdict.receivers[0].records)
    return outcome


def _line(
    show: Show, figures: ReceiverFigures, log: RecordArray, trades: TapeTrades, behind: Nanoseconds
) -> ReceiverLine:
    member, lives, name = show.cluster.members[figures.name], show.lives, figures.name
    late = is_late(log)
    return ReceiverLine(
        name,
        figures.records,
        int(log["records"][~late].sum()),
        int(log["records"][late].sum()),
        three_quantiles(_delays(log))[:2],
        three_quantiles(latencies_ns(log, trades))[:2],
        three_quantiles(behind)[:2],
        lives.total(name, "requests"),
        lives.total(name, "lost_on_purpose"),
        lives.edge_packets(name),
        str(member.status.get("generation", "0")),
        member.kills,
        figures.chain,
    )


def _delays(log: RecordArray) -> Nanoseconds:
    """Return the scheduling delay of every slot that was on time."""
    entries = first_entries(log)
    return scheduling_ns(entries[~is_late(entries)])


def _evenness(logs: Mapping[str, RecordArray], killed: set[str]) -> tuple[dict[str, Nanoseconds], Nanoseconds]:
    """Return each receiver's lag after the first one per slot, and the spread of all receivers per slot."""
    released: dict[int, dict[str, int]] = {}
    for name, log in logs.items():
        counted = first_entries(log)
        counted = counted[~is_late(counted)] if name in killed else counted
        for slot, at_ns in zip(counted["slot"].tolist(), counted["released_ns"].tolist(), strict=True):
            released.setdefault(slot, {})[name] = at_ns
    behind: dict[str, list[int]] = {name: [] for name in logs}
    spreads = []
    for at in released.values():
        first = min(at.values())
        for name, at_ns in at.items():
            behind[name].append(at_ns - first)
        if len(at) >= len(logs) - len(killed) > 1:
            spreads.append(max(at.values()) - first)
    return {name: np.array(values, np.int64) for name, values in behind.items()}, np.array(spreads, np.int64)


# -- checks -----------------------------------------------------------------------------------------------


def _check_floors(show: Show, trades: TapeTrades, outcome: DemoOutcome) -> None:
    """Check that every published trade is on the tape exactly once, in its floor's order."""
    network = show.cluster.network
    publishers = {floor.name: floor.publisher for floor in network.floors}
    most = network.carriage.packet_bytes // TRADE.itemsize
    for floor in outcome.floors:
        numbers = trades.numbers[trades.publishers == publishers[floor.name]]
        member = show.cluster.members.get(floor.name)
        restarted = member is not None and member.kills > 0
        unsafe = floor.published if outcome.unfinished else floor.unwitnessed * most
        problem = floor_problem(numbers, floor.published, unsafe, restarted=restarted)
        if problem:
            outcome.problems.append(f"{floor.name} {problem}")
        outcome.kept_back += max(0, floor.published - len(numbers))


def _check_customers(outcome: DemoOutcome, records: int) -> None:
    for customer in outcome.customers:
        if customer.error:
            outcome.problems.append(f"the subscriber in {customer.region} has stopped: {customer.error}")
        elif customer.records != records:
            short = outcome.unfinished if outcome.unfinished and customer.records < records else outcome.problems
            short.append(f"the subscriber in {customer.region} has {customer.records:,} of {records:,} records")


def explain_late(outcome: DemoOutcome, kills: Sequence[str]) -> list[str]:
    """Return the fraction on time by protocol, and the reasons for late releases, one line each."""
    others = [line for line in outcome.receivers if line.name not in kills]
    late, records = sum(line.late for line in others), sum(line.on_time + line.late for line in others)
    where = "at the receivers that were not killed" if kills else "at all receivers"
    sentences = [f"On time by protocol: {percent(records - late, records)} {where}."] if records else []
    if late:
        sentences.append("Late: a packet or a token that a frame needs arrived after the scheduled release time.")
    away = [line.name for line in outcome.receivers if line.name in kills and line.late]
    return sentences + [f"Late: {name} was down, and released the missed frames after its restart." for name in away]


def explain_delay(outcome: DemoOutcome) -> str:
    """Describe the scheduling delay, with the load of the machine and the CPU time that it did not get."""
    p50, p99, largest = (f"{ns / 1e6:.2f}" for ns in outcome.delay_ns)
    cores = f"{outcome.cores} core{'s' if outcome.cores > 1 else ''}"
    stolen = outcome.contention.stolen_ratio
    told = "unknown" if stolen is None else f"{100 * stolen:.1f} %"
    priority = "" if outcome.realtime else "; without real-time priority"
    return (
        f"Scheduling delay of the processes: {p50} / {p99} / {largest} ms (p50 / p99 / max); "
        f"load {outcome.load:.1f} on {cores}, stolen CPU time {told}{priority}."
    )


def percent(part: int, whole: int) -> str:
    """Return a percentage; 100 % only if nothing is missing.

    >>> percent(5, 5), percent(99_999, 100_000), percent(1, 8)
    ('100 %', '99.9 %', '12.5 %')
    """
    return "100 %" if part == whole else f"{min(99.9, 100 * part / whole):.1f} %"
