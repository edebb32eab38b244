"""Two layers of receivers, `kill -9` of any of them, and what customers notice: `python -m benchmarks.receivers`.

Five primaries, ten secondaries, two reformation servers, one floor that sends 10,000 records a second in packets of 21,
and twenty customers of all grades, each in a region with two lines from two receivers. A receiver or server is killed
at random and started again a second later on its directory; the next one when the network is whole again: one ring of
all primaries, every secondary following it and counted by its primary.

What must hold; exit code 1 if it does not:

| promise                  | is |
|--------------------------|----|
| tapes                    | all fifteen are sound and identical, with every packet of the floor once and in order |
| guaranteed customers     | have every record of the tape, in its order, and no other (sequences, hash of all bytes) |
| latest only              | has the newest trade of every instrument, and none went back |
| nobody else is disturbed | a secondary or a server that is killed causes no ring: the primaries' generation stays |

What is measured beside that: how far behind their instants the others released while a secondary was down, against the
time when nothing was; how long until a ring released again after a primary's death; how long until everything was whole
again; and the longest that a customer heard nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random, SystemRandom
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.campaign import conduct
from benchmarks.receivers_customers import Found
from benchmarks.recovery import Fault, FloorClaim, eras_of, floor_problems, measure, read_content
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import free_ports
from benchmarks.way import SYMBOLS, Speaker, listed, speaking, stop, wait_for
from levelcast.edge.subscriber.delivery import Grade
from levelcast.errors import NetError
from levelcast.network import load_network
from levelcast.network.roles import RECEIVER, SECONDARY
from levelcast.node.cluster import Cluster, ClusterNode
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge, three_quantiles
from levelcast.records import RTYPE_TRADE, RecordArray
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import read_releases
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from levelcast.units import quantile

DOWN_S = 1.0
GAP_S = (0.5, 1.5)
"""From a network that is whole again to the next kill."""
WHOLE_LIMIT_S = 60.0
SETTLE_S = 60.0
FRESH_NS = 2_000_000_000
PER_PROCESS = 10
"""Customers that share a process."""
GRADES = (Grade.GUARANTEED, Grade.GUARANTEED, Grade.BEST_EFFORT, Grade.LATEST_ONLY)
FLOOR = "XBEN"

_NETWORK = """\
[network]
name = "two layers of receivers"

[links]
delay = "200us"

[timing]
slot = "20ms"
late = "20ms"
attempts = 3
process = "20ms"

[core]
address = "{address}.1"
port = {port}
rate = "4MB"

"""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    primaries: int = 5
    secondaries: int = 10
    servers: int = 2
    customers: int = 20
    times: int = 20
    rate: float = 10_000.0
    seed: int = 1

    @property
    def regions(self) -> int:
        """As many as there are pairs of receivers: each is covered by two of them at least."""
        return max(1, (self.primaries + self.secondaries) // 2)


QUICK = Scale(primaries=3, secondaries=3, servers=2, customers=4, times=2, rate=2000.0)


def network_text(scale: Scale, address: str, port: int) -> str:
    """The network file: a site for each region, the receivers dealt out over them, and two kinds of homes."""
    receivers = [f"primary-{i}" for i in range(1, scale.primaries + 1)]
    receivers += [f"secondary-{i}" for i in range(1, scale.secondaries + 1)]
    parts = [_NETWORK.format(address=address, port=port)]
    for number in range(scale.regions):
        parts.append(f'[[site]]\nname = "site-{number}"\nregion = "region-{number}"\n')
        for place, line in enumerate("ab"):
            at = f'address = "{address}.{2 + 2 * number + place}"\nport = {port + 8 + 2 * number + place}'
            name = f'name = "region-{number}{line}"\nregion = "region-{number}"\nline = "{line}"'
            parts.append(f"[[edge.group]]\n{name}\n{at}\n")
    for index, name in enumerate(receivers):
        site = f'site = "site-{index % scale.regions}"'
        if index < scale.primaries:
            parts.append(f'[[receiver]]\nname = "{name}"\nid = {101 + index}\n{site}\n')
        else:
            home = receivers[(index - scale.primaries) % scale.primaries]
            parts.append(f'[[secondary]]\nname = "{name}"\nid = {301 + index}\n{site}\nhome = "{home}"\n')
    parts += [
        f'[[reformation]]\nname = "reform-{number + 1}"\nid = {201 + number}\nsite = "site-0"\n'
        for number in range(scale.servers)
    ]
    parts.append(f'[[floor]]\nname = "{FLOOR}"\npublisher = 1\nsite = "site-0"\nsymbols = {listed(SYMBOLS)}\n')
    return "\n".join(parts)


def write_network(scale: Scale, directory: Path) -> Path:
    """A network file with groups and ports that nobody else has."""
    chance = SystemRandom()
    port = free_ports()
    path = directory / "network.toml"
    address = f"239.{chance.randint(193, 250)}.{chance.randint(1, 254)}"
    path.write_text(network_text(scale, address, port), encoding="utf-8")
    return path


# -- killing -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Kill:
    """One `kill -9`: of whom and when (wall clock), and what followed."""

    name: str
    role: str
    at_ns: int
    ring_before: str
    started_ns: int = 0
    spoke_ns: int = 0
    """When the process that was started again said its first word: until then it is Python that starts."""
    whole_ns: int = 0
    """When the network was whole again."""
    ring_after: str = ""
    over_ms: float | None = None
    """Of a primary: until a slot of the next ring was released anywhere."""

    @property
    def disturbed(self) -> bool:
        """Whether the ring noticed one that is not of it."""
        return self.role != "receiver" and self.ring_after != self.ring_before


def ring_of(cluster: Cluster) -> str:
    """The generation that the primaries are in; all of them if they are not in one."""
    return " ".join(sorted({str(each.status.get("generation")) for each in cluster.of_role(RECEIVER)}))


def is_whole(cluster: Cluster, now: int) -> bool:
    """One ring of all primaries, releasing; every secondary follows it and is counted by a primary."""
    members = list(cluster.members.values())
    if not all(member.running and member.status for member in members):
        return False
    primaries = {each.place.name: each.status for each in cluster.of_role(RECEIVER)}
    if len({said["generation"] for said in primaries.values()}) != 1:
        return False
    if not all(said["state"] == "ACTIVE" and len(said["members"]) == len(primaries) for said in primaries.values()):
        return False
    for member in cluster.of_role(SECONDARY):
        said = member.status
        covers = primaries.get(said["primary"] or "", {}).get("group", {}).get("members", {})
        if said["state"] != "FOLLOWS" or not covers.get(member.place.name, {}).get("counts"):
            return False
    return all(now - each.status["complete_upto_ns"] < FRESH_NS for each in cluster.releasing)


class Campaign:
    """The kills against a running cluster, one after the other. `step` is called all the time."""

    def __init__(self, cluster: Cluster, times: int, rng: Random) -> None:
        self.kills: list[Kill] = []
        self.problems: list[str] = []
        self.done = False
        self._cluster = cluster
        self._times = times
        self._rng = rng
        self._since_s = time.monotonic()
        self._strike_s: float | None = None

    def step(self) -> None:
        now_s, now = time.monotonic(), time.time_ns()
        kill = self.kills[-1] if self.kills else None
        if kill is not None and not kill.started_ns:
            if now_s - self._since_s >= DOWN_S:
                self._cluster.start(kill.name)
                kill.started_ns, self._since_s = now, now_s
        elif self._strike_s is None:
            self._wait_until_whole(kill, now_s, now)
        elif now_s >= self._strike_s:
            self._strike_s = None
            self.done = len(self.kills) >= self._times
            if not self.done:
                self._strike(now)

    def _wait_until_whole(self, kill: Kill | None, now_s: float, now: int) -> None:
        if kill is not None and not kill.spoke_ns and self._cluster.members[kill.name].status:
            kill.spoke_ns = now
        if is_whole(self._cluster, now):
            self._strike_s = now_s + self._rng.uniform(*GAP_S)
            if kill is not None:
                kill.whole_ns, kill.ring_after = now, ring_of(self._cluster)
                tell(f"  {kill.name}: recovered {(now - kill.started_ns) / 1e9:.1f} s after its start")
        elif now_s - self._since_s > WHOLE_LIMIT_S:
            who = f"the failure of {kill.name}" if kill is not None else "the start"
            self.problems.append(f"the network has not recovered {WHOLE_LIMIT_S:.0f} s after {who}")
            self.done = True

    def _strike(self, now: int) -> None:
        member = self._rng.choice(list(self._cluster.members.values()))
        self._cluster.kill(member.place.name)
        self.kills.append(Kill(member.place.name, member.place.role.name, now, ring_of_others(self._cluster, member)))
        self._since_s = time.monotonic()


def ring_of_others(cluster: Cluster, dead: ClusterNode) -> str:
    """The generation that the primaries were in when one died, as they said last."""
    said = {str(each.status.get("generation")) for each in cluster.of_role(RECEIVER) if each is not dead}
    return " ".join(sorted(said))


# -- the run -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    scale: Scale
    kills: list[Kill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    customers: list[Found] = field(default_factory=list)
    records: int = 0
    packets: int = 0
    traded_s: float = 0.0
    behind_ns: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By what was going on: how far behind their instants those who were not struck released."""
    releases: dict[str, int] = field(default_factory=dict)
    silence_ms: dict[str, list[float]] = field(default_factory=dict)
    """By what was going on: the longest that each customer heard nothing."""
    cpu_s: float = 0.0
    load: str = ""


def customer_names(scale: Scale) -> list[str]:
    """NAME:REGION:GRADE of each."""
    return [
        f"customer-{i + 1}:region-{i % scale.regions}:{GRADES[i % len(GRADES)].value}" for i in range(scale.customers)
    ]


@contextmanager
def customers_of(scale: Scale, file: Path, out: Path) -> Iterator[list[Speaker]]:
    """The customers at work, some to a process; their findings will be in `out`."""
    names = customer_names(scale)
    with ExitStack() as running:
        speakers = []
        for number, at in enumerate(range(0, len(names), PER_PROCESS)):
            findings = str(out / f"customers-{number}.json")
            those = names[at : at + PER_PROCESS]
            command = [sys.executable, "-m", "benchmarks.receivers_customers", "--network", str(file)]
            process = subprocess.Popen(
                [*command, "--out", findings, *those],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            speaker = Speaker(process)
            reader = Thread(target=speaker.listen, daemon=True)
            reader.start()
            running.callback(reader.join)
            running.callback(stop, process)
            speakers.append(speaker)
        yield speakers


def perform(scale: Scale, base: Path) -> Outcome:
    """Start everything, kill, drain, end in order, and look at what is on the disks."""
    file = write_network(scale, base)
    network = load_network(file)
    data = base / "data"
    cluster = Cluster(network, file, data, NodeOptions(seed=scale.seed), floors=False)
    outcome = Outcome(scale, load=" ".join(f"{each:.1f}" for each in os.getloadavg()))
    campaign = Campaign(cluster, scale.times, Random(f"receivers {scale.seed}"))
    with ExitStack() as running:
        running.callback(cluster.stop)
        cluster.start_all()
        wait_for("the network", lambda: all_there(cluster), SETTLE_S)
        customers = running.enter_context(customers_of(scale, file, base))
        wait_for("starting the subscribers", lambda: all(each.said for each in customers), SETTLE_S)
        arguments = ("pump", "--network", str(file), "--data", str(data), "--rate", str(scale.rate))
        pump = running.enter_context(speaking(*arguments))
        wait_for("the first records", lambda: all(each.said.get("records") for each in customers), SETTLE_S)
        tell(f"{len(cluster.members)} nodes and {scale.customers} subscribers running")
        began = os.times()
        try:
            while not campaign.done:
                campaign.step()
                cluster.check()
                time.sleep(0.05)
        except NetError as error:
            campaign.problems.append(str(error))
        stop(pump.process)
        outcome.problems += campaign.problems
        outcome.problems += _end(cluster, customers)
        used = os.times()
        outcome.cpu_s = used.children_user + used.children_system - began.children_user - began.children_system
        sent = pump.said
    outcome.kills = campaign.kills
    claim = FloorClaim(FLOOR, 1, 1, int(sent.get("witnessed", 0)), 1 << 40)
    examine(outcome, cluster, base, claim)
    return outcome


def all_there(cluster: Cluster) -> bool:
    """Whether every node has spoken, the primaries are in one ring, and every secondary follows it."""
    cluster.check()
    states = {"receiver": "ACTIVE", "secondary": "FOLLOWS"}
    return (
        all(
            member.status and member.status.get("state") == states.get(member.place.role.name)
            for member in cluster.members.values()
        )
        and len({each.status["generation"] for each in cluster.of_role(RECEIVER)}) == 1
    )


def _end(cluster: Cluster, customers: Sequence[Speaker]) -> list[str]:
    """Drain the receivers, end the sessions, wait for the customers, end the nodes. What took too long."""
    horizon_ns = cluster.horizon_ns()
    problems = []

    def waits(what: str, condition: Callable[[], bool]) -> None:
        try:
            wait_for(what, condition, SETTLE_S)
        except RuntimeError as error:
            problems.append(str(error))

    waits("draining", lambda: cluster.complete_upto(horizon_ns))
    for member in cluster.releasing:
        if member.process is not None and member.running:
            member.process.send_signal(signal.SIGUSR1)
    waits("ending the sessions", lambda: all(each.process.poll() is not None for each in customers))
    for each in customers:
        stop(each.process)
    return problems + [f"{name} did not end on SIGTERM and was killed" for name in cluster.stop()]


# -- what is on the disks ----------------------------------------------------------------------------------


def examine(outcome: Outcome, cluster: Cluster, base: Path, claim: FloorClaim) -> None:
    names = [member.place.name for member in cluster.releasing]
    verdict = judge(cluster.data, names, outcome.problems)
    outcome.problems = verdict.problems
    outcome.problems += [
        f"the failure of the {kill.role} {kill.name} disturbed the ring: {kill.ring_before} became {kill.ring_after}"
        for kill in outcome.kills
        if kill.disturbed and kill.whole_ns
    ]
    try:
        content = read_content(cluster.data / names[0])
        logs = {name: read_releases(cluster.data / name / "releases") for name in names}
        tape = read_tape(cluster.data / names[0])
    except TapeError as error:
        outcome.problems.append(str(error))
        return
    outcome.records = content.records
    outcome.packets = sum(len(numbers) for numbers in content.packets.values())
    if len(content.timestamps_ns):
        outcome.traded_s = float(content.timestamps_ns[-1] - content.timestamps_ns[0]) / 1e9
    outcome.problems += floor_problems(content, claim)
    for path in sorted(base.glob("customers-*.json")):
        outcome.customers += [_found(said) for said in json.loads(path.read_text(encoding="utf-8"))]
    if len(outcome.customers) < outcome.scale.customers:
        outcome.problems.append(
            f"{len(outcome.customers)} of {outcome.scale.customers} subscribers reported their results"
        )
    for customer in outcome.customers:
        outcome.problems += customer_problems(customer, tape)
    faults = [Fault("kill", "kill", each.name, each.role, each.at_ns, each.started_ns) for each in outcome.kills]
    measure(faults, eras_of(content.slots, content.timestamps_ns, cluster.network.timing().slot_ns), logs)
    for kill, fault in zip(outcome.kills, faults, strict=True):
        kill.over_ms = fault.over_ns / 1e6 if fault.over_ns is not None and kill.role == "receiver" else None
    _measure_others(outcome, logs)


def _found(said: dict[str, Any]) -> Found:
    return Found(**{**said, "newest": {int(key): value for key, value in said["newest"].items()}})


@dataclass(frozen=True, slots=True)
class Tape:
    """What a customer is held against."""

    records: int
    digest: str
    newest: dict[int, int]


def read_tape(directory: Path) -> Tape:
    """All records of a tape, hashed as they would come to a customer, and the newest trade of each instrument."""
    hashed, records = blake2b(digest_size=16), 0
    newest: dict[int, int] = {}
    for frame in TapeReader(tape_directory(directory)).frames():
        for batch in frame.batches():
            rows = batch.records
            hashed.update(rows.tobytes())
            records += len(rows)
            if batch.kind.rtype == RTYPE_TRADE:
                newest.update(zip(rows["instrument_id"].tolist(), rows["trade_id"].tolist(), strict=True))
    return Tape(records, hashed.hexdigest(), newest)


def customer_problems(found: Found, tape: Tape) -> list[str]:
    """What a customer's grade promised and it did not get."""
    problems = []
    if found.error:
        problems.append(f"{found.name} ended with: {found.error}")
    if found.grade == Grade.GUARANTEED.value:
        if found.jumps or found.lost:
            problems.append(f"{found.name}, guaranteed: {found.jumps} gaps, {found.lost} messages lost")
        elif (found.records, found.digest) != (tape.records, tape.digest):
            problems.append(
                f"{found.name}, guaranteed: {found.records:,} records, not the {tape.records:,} of the tape"
            )
    elif found.grade == Grade.LATEST_ONLY.value:
        if found.back:
            problems.append(
                f"{found.name}, latest only: {found.back} trades arrived after newer ones of the instrument"
            )
        if found.newest != tape.newest and not found.lost:
            wrong = sum(found.newest.get(each) != newest for each, newest in tape.newest.items())
            problems.append(f"{found.name}, latest only: it does not have the newest trade of {wrong} instruments")
    return problems


def _spans(kills: Sequence[Kill], *roles: str) -> list[tuple[int, int]]:
    """From each death to when the network was whole again."""
    return [(kill.at_ns, kill.whole_ns or kill.at_ns) for kill in kills if not roles or kill.role in roles]


def within(times: Numbers, spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(times), bool)
    for begin, end in spans:
        inside |= (times >= begin) & (times <= end)
    return inside


def _measure_others(outcome: Outcome, logs: dict[str, RecordArray]) -> None:
    """Releases of those that were not struck, and silences of customers: in calm, and while somebody was down."""
    kills = outcome.kills
    down = [(kill.at_ns, kill.started_ns or kill.at_ns) for kill in kills if kill.role == "secondary"]
    periods = {
        "all nodes running": (_spans(kills), True),
        "a secondary down": (down, False),
        "kill to recovery of a secondary": (_spans(kills, "secondary"), False),
        "kill to recovery of a server": (_spans(kills, "reformation"), False),
        "kill to recovery of a primary": (_spans(kills, "receiver"), False),
    }
    for period, (spans, outside) in periods.items():
        behind = []
        for name, log in logs.items():
            scheduled = log["scheduled_ns"].astype(np.int64)
            chosen = within(scheduled, spans) ^ outside
            chosen &= ~within(scheduled, [(k.at_ns, k.whole_ns or 1 << 62) for k in kills if k.name == name])
            behind.append((log["released_ns"].astype(np.int64) - scheduled)[chosen])
        together = np.concatenate(behind) if behind else np.zeros(0, np.int64)
        outcome.releases[period] = len(together)
        outcome.behind_ns[period] = three_quantiles(together)
        outcome.silence_ms[period] = sorted(
            longest_silence_ms(np.array(each.came_ns, np.int64), spans, outside=outside) for each in outcome.customers
        )


def longest_silence_ms(came_ns: Numbers, spans: Sequence[tuple[int, int]], *, outside: bool) -> float:
    """The longest time between two batches of which the second came within the spans, or outside of all."""
    if len(came_ns) < 2:
        return 0.0
    chosen = within(came_ns[1:], spans) ^ outside
    return float(np.diff(came_ns)[chosen].max(initial=0)) / 1e6


# -- the report --------------------------------------------------------------------------------------------


def report(outcome: Outcome) -> Result:
    scale = outcome.scale
    result = Result("receivers")
    guaranteed = [each for each in outcome.customers if each.grade == Grade.GUARANTEED.value]
    gaps = sum(each.jumps + each.lost for each in guaranteed)
    result.figures += [
        Figure("gaps at guaranteed subscribers", gaps, "gaps", "kills", len(outcome.kills)),
        Figure("rings formed after the failure of a secondary or server", sum(each.disturbed for each in outcome.kills),
               "rings", "such kills", sum(each.role != "receiver" for each in outcome.kills)),
        Figure("violated guarantees", len(outcome.problems), "guarantees", "kills", len(outcome.kills)),
    ]  # fmt: skip
    result.tables += [_kills_table(outcome), _others_table(outcome), _customers_table(outcome)]
    if outcome.packets and outcome.traded_s:
        result.notes.append(
            f"{outcome.records:,} records in {outcome.packets:,} packets, {outcome.records / outcome.packets:.1f} "
            f"each, {outcome.records / outcome.traded_s:,.0f} records/s; load before {outcome.load}"
        )
    result.notes.append(f"again: {reproduction(scale)}")
    said = "; ".join(outcome.problems) or "all tapes identical and complete, no gap, no other receiver disturbed"
    result.notes.append(f"{'VIOLATED: ' if outcome.problems else ''}{said}")
    return result


def _kills_table(outcome: Outcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for role, name in (("receiver", "primary"), ("secondary", "secondary"), ("reformation", "server")):
        kills = [each for each in outcome.kills if each.role == role]
        starts = sorted((each.spoke_ns - each.started_ns) / 1e9 for each in kills if each.spoke_ns)
        whole = sorted((each.whole_ns - each.spoke_ns) / 1e9 for each in kills if each.whole_ns)
        over = sorted(each.over_ms for each in kills if each.over_ms is not None)
        rings = sum(each.ring_after != each.ring_before for each in kills)
        rows.append((
            name, len(kills), rings, _cell(over, 0.5), _cell(over, 1.0), _cell(starts, 0.5),
            _cell(whole, 0.5), _cell(whole, 1.0),
        ))  # fmt: skip
    return Table(
        "the kills; new ring: kills followed by one; over: from the kill to the next ring's first release; "
        "start: of the process; back: from then to one ring of all and every secondary counted",
        ("killed", "times", "new ring", "over p50 ms", "over max ms", "start p50 s", "back p50 s", "back max s"),
        rows,
    )


def _cell(values: list[float], share: float) -> Cell:
    return quantile(values, share) if values else ""


def _others_table(outcome: Outcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for period, behind in outcome.behind_ns.items():
        silences = outcome.silence_ms[period]
        silence = quantile(silences, 1.0) if silences else 0.0
        rows.append((period, outcome.releases[period], *(ns / 1e6 for ns in behind), silence))
    return Table(
        "release lag of the receivers that were not killed, ms; and the longest time without data at any "
        "subscriber, ms",
        ("period", "releases", "p50", "p99", "max", "outage max"),
        rows,
    )


def _customers_table(outcome: Outcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for grade in Grade:
        those = [each for each in outcome.customers if each.grade == grade.value]
        if those:
            keys = ("missing", "gaps", "requests", "lost", "back")
            sums = [sum(getattr(each, key) for each in those) for key in keys]
            rows.append((grade.value, len(those), min(each.records for each in those), *sums))
    return Table(
        "the subscribers in total; missed: messages not received on one of the two lines; gaps: on neither at first, "
        "and requested; lost: messages given up",
        ("grade", "subscribers", "minimum records", "missed on a line", "gaps", "requests", "lost", "went back"),
        rows,
    )


def reproduction(scale: Scale) -> str:
    return f"python -m benchmarks.receivers --times {scale.times} --rate {scale.rate:g} --seed {scale.seed}"


# -- commands ----------------------------------------------------------------------------------------------


def run(options: Options) -> Result:
    """For `python -m benchmarks receivers`."""
    return campaign(QUICK if options.quick else Scale(), options)[0]


def campaign(scale: Scale, options: Options) -> tuple[Result, bool]:
    """The report, and whether every promise held. The data are kept if one broke."""
    base = Path(tempfile.mkdtemp(prefix="receivers-"))
    try:
        outcome = perform(scale, base)
    except BaseException:
        tell(f"receivers: interrupted, its data are in {base}")
        raise
    if outcome.problems:
        tell(f"receivers: VIOLATED, the data are kept in {base}")
    else:
        shutil.rmtree(base)
    options.out.mkdir(parents=True, exist_ok=True)
    each = {"kills": [asdict(kill) for kill in outcome.kills], "problems": outcome.problems}
    (options.out / "receivers-each.json").write_text(json.dumps(each, indent=1) + "\n", encoding="utf-8")
    return report(outcome), not outcome.problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every promise held; 1: one broke; 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.receivers", description="Kill, check, measure.")
    parser.add_argument("--times", type=int, default=Scale().times, help="kills (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=Scale().rate, help="records/s (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=Scale().seed, help="of moments and victims")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out)
    scale = Scale(times=chosen.times, rate=chosen.rate, seed=chosen.seed)
    return conduct(lambda: campaign(scale, options), options, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
