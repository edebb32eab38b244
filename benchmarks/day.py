"""A whole trading day through a ring of real processes, and every trade on every tape compared with the file.

    python -m benchmarks.day --data DATA/us_equities_tick_20131007 [--loss 0.02] [--kill] [--json FILE]

388,417 trades of SPY, BAC, IBM and AIG on 13 venues (7 October 2013) are published as fast as credit allows by one
process, over loopback multicast, to five receivers in five sites with loss on every link between them. With `--kill`
three nodes are killed (SIGKILL) at random moments while the trades come: the receiver whose slot it is, another one and
a reformation server, in random order; each is started again two seconds later. Then it is verified that

1. the tapes of all receivers are byte-identical, and their hash chains hold;
2. every trade of the file is on them exactly once, each venue's in the order of the file, with exact time, price, size
   and condition (the files are read here by the csv module, not by the reader that published them);
3. every symbol is defined before its first trade;
4. `databento-dbn` reads the same values from the segments: three that are rolled, and the one that still grows.

The network is small so that a run takes a minute or two: a slot of 10 ms, 2 ms between any two sites with 1 ms of
jitter, 20 ms to process. Exit code 1 means that something differs, 2 that it could not be run.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import numpy as np

from benchmarks.recovery import token_site
from benchmarks.report import machine_facts, show_contention, show_facts
from benchmarks.room import free_ports
from levelcast.client.replay import Replay
from levelcast.formats.lean import VENUES, lean_files
from levelcast.formats.trade_files import TradeFileError, open_trades
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.network.roles import RECEIVER, REFORMATION
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict, judge
from levelcast.records import RecordArray, trades
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader

DAY = date(2013, 10, 7)
MIDNIGHT_NS = int(datetime(2013, 10, 7, 4, tzinfo=UTC).timestamp()) * 10**9
"""Midnight in New York on that day, which has summer time."""
SYMBOLS = ("SPY", "BAC", "IBM", "AIG")
CITIES = ("new-york", "chicago", "london", "frankfurt", "tokyo")
DOWN_S = 2.0
KILLED = ("token site", "another receiver", "reformation server")
FIELDS = ("ts_event", "price", "size", "condition", "instrument_id")


def network_text(loss: float) -> str:
    """Five receivers, two reformation servers and thirteen floors."""
    chance = SystemRandom()
    port = free_ports()
    parts = [
        '[network]\nname = "one day"\n',
        f'[links]\ndelay = "2ms"\njitter = "1ms"\nloss = {loss}\n',
        '[timing]\nslot = "10ms"\nprocess = "20ms"\n[tape]\nsegment = 100000\n',
    ]
    for number, city in enumerate(CITIES):
        parts.append(
            f'[[site]]\nname = "{city}"\n[[receiver]]\nname = "{city}-1"\nid = {901 + number}\nsite = "{city}"\n'
        )
    for number, city in enumerate(CITIES[:2]):
        parts.append(f'[[reformation]]\nname = "reform-{city}"\nid = {951 + number}\nsite = "{city}"\n')
    listed = ", ".join(f'"{symbol}"' for symbol in SYMBOLS)
    for number, venue in enumerate(VENUES.values(), 1):
        site = CITIES[number % len(CITIES)]
        parts.append(f'[[floor]]\nname = "{venue}"\npublisher = {number}\nsite = "{site}"\nsymbols = [{listed}]\n')
    address = f"239.192.{chance.randint(1, 254)}.{chance.randint(1, 254)}"
    parts.append(f'[core]\naddress = "{address}"\nport = {port}\n')
    return "".join(parts)


# -- running ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    trades: int = 0
    publish_s: float = 0.0
    total_s: float = 0.0
    kills: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=list)
    verdict: ClusterVerdict = field(default_factory=ClusterVerdict)
    contention: CpuContention = field(default_factory=CpuContention)


class Killer:
    """Kills the site of the token, another receiver and a reformation server at random moments; each comes back."""

    def __init__(self, cluster: Cluster, seed: int | None) -> None:
        self.cluster = cluster
        self.done: list[str] = []
        self._random = Random(seed)
        moments = sorted(self._random.uniform(0.05, 0.8) for _ in KILLED) if seed is not None else []
        self._due = list(zip(moments, self._random.sample(KILLED, len(KILLED)), strict=False))
        self._back: list[tuple[float, str]] = []

    @property
    def finished(self) -> bool:
        return not self._due and not self._back

    def step(self, share: float) -> None:
        """`share` of the trades is witnessed."""
        now = time.monotonic()
        if self._back and now >= self._back[0][0]:
            self.cluster.start(self._back.pop(0)[1])
        if self._due and share >= self._due[0][0] and not self._back:
            what = self._due.pop(0)[1]
            name = self._victim(what)
            self.cluster.kill(name)
            self.done.append(f"{name} ({what})")
            self._back.append((now + DOWN_S, name))

    def _victim(self, what: str) -> str:
        receivers = self.cluster.of_role(RECEIVER)
        if what == "reformation server":
            return self._random.choice(self.cluster.of_role(REFORMATION)).place.name
        rings = [member.status["ring"] for member in receivers if member.status.get("ring")]
        site = token_site(max(rings, key=lambda ring: int(ring["start_slot"])), time.time_ns()) if rings else None
        others = [member.place for member in receivers if (member.place.id == site) is (what == "token site")]
        return self._random.choice(others or [member.place for member in receivers]).name


def perform(folder: Path, work: Path, loss: float, seed: int | None, limit_s: float) -> tuple[Network, Outcome]:
    """Start the network, publish everything, wait until it is released everywhere, end."""
    file = work / "network.toml"
    file.write_text(network_text(loss), encoding="utf-8")
    network, outcome = load_network(file), Outcome()
    directory, data = SymbolDirectory(network), work / "data"
    cluster = Cluster(network, file, data, NodeOptions(impair=True), floors=False)
    began = time.monotonic()
    cluster.start_all()
    try:
        killer = Killer(cluster, seed)

        def batches() -> Iterator[RecordArray]:
            return open_trades([folder], directory, format="lean", day=DAY)

        with Replay(network, batches, data=data, impair=True) as replay:
            outcome.trades = replay.survey.records
            began_publishing = time.monotonic()
            for _ in replay.steps():
                cluster.check()
                killer.step(replay.witnessed / replay.survey.records)
                if time.monotonic() - began > limit_s:
                    outcome.problems.append(f"only {replay.witnessed:,} trades were witnessed within {limit_s:.0f} s")
                    break
            outcome.publish_s = time.monotonic() - began_publishing
        horizon_ns = cluster.horizon_ns()
        while not killer.finished or not cluster.complete_upto(horizon_ns):
            killer.step(1.0)
            cluster.check()
            time.sleep(0.05)
            if time.monotonic() - began > limit_s:
                outcome.problems.append(f"not all receivers had released everything within {limit_s:.0f} s")
                break
        outcome.kills = killer.done
    finally:
        outcome.problems += [f"{name} did not end on SIGTERM" for name in cluster.stop()]
    outcome.total_s = time.monotonic() - began
    outcome.contention = cluster.cpu_meter.measure()
    return network, outcome


# -- verifying --------------------------------------------------------------------------------------------


def expected_rows(folder: Path, directory: SymbolDirectory) -> dict[int, list[tuple[int, int, int, int, int]]]:
    """Per publisher: time, price, size, condition and instrument of every trade, by the csv module, sorted by time."""
    rows: dict[int, list[tuple[int, int, int, int, int, int]]] = {}
    for number, path in enumerate(lean_files([folder])):
        instrument = directory.id_of(path.name.split("_")[0].upper())
        with gzip.open(path, "rt", newline="") as lines:
            for ms, price, shares, venue, condition, _ in csv.reader(lines):
                publisher = directory.floor(VENUES[venue]).publisher
                at_ns = MIDNIGHT_NS + int(ms) * 1_000_000
                row = (at_ns, number, int(price) * 100_000, int(shares), int(condition, 16), instrument)
                rows.setdefault(publisher, []).append(row)
    for found in rows.values():
        found.sort(key=lambda row: row[:2])  # stable: rows of one file keep their order
    return {publisher: [(row[0], *row[2:]) for row in found] for publisher, found in rows.items()}


def verify(network: Network, folder: Path, data: Path, outcome: Outcome) -> None:
    """Compare tapes with each other and with the file; every difference is a problem, every check a line."""
    directory = SymbolDirectory(network)
    names = [receiver.name for receiver in network.receivers]
    verdict = judge(data, names)
    outcome.verdict = verdict
    outcome.problems += verdict.problems
    outcome.checks.append(("tapes byte-identical, chains hold", _yes(not verdict.problems)))
    expected = expected_rows(folder, directory)
    differences: list[str] = []
    for name in names:
        differences += compare_with_file(name, data / name, expected, directory)
    outcome.problems += differences
    outcome.checks.append(("every trade once, per venue in order, exact", _yes(not differences)))
    count, differences = compare_with_dbn(data / names[0])
    outcome.problems += differences
    outcome.checks.append((f"databento-dbn reads the same {count:,} trades", _yes(not differences)))


def _yes(good: bool) -> str:
    return "yes" if good else "NO"


def compare_with_file(
    name: str, tape: Path, expected: dict[int, list[tuple[int, int, int, int, int]]], directory: SymbolDirectory
) -> list[str]:
    """What is wrong with the trades of one receiver, in sentences."""
    problems: list[str] = []
    found: dict[int, list[RecordArray]] = {}
    defined: set[tuple[int, int]] = set()
    for frame in TapeReader(tape_directory(tape)).frames():
        for batch in frame.batches():
            pairs = set(
                zip(batch.records["publisher_id"].tolist(), batch.records["instrument_id"].tolist(), strict=True)
            )
            if batch.kind.name == "instrument":
                defined |= pairs
                continue
            if not pairs <= defined:
                problems.append(f"{name}: slot {frame.line.slot} has a trade whose symbol is not defined before it")
            for publisher in {pair[0] for pair in pairs}:
                mine = batch.records[batch.records["publisher_id"] == publisher]
                found.setdefault(publisher, []).append(mine.copy())
    for publisher in sorted(set(found) | set(expected)):
        floor = directory.floor_of(publisher).name
        rows = expected.get(publisher, [])
        mine = np.concatenate(found[publisher]) if publisher in found else trades(0)
        if len(mine) != len(rows):
            problems.append(f"{name}: {floor} has {len(mine):,} trades on the tape and {len(rows):,} in the file")
            continue
        columns = np.array(rows, np.int64).T
        for column, title in zip(columns, FIELDS, strict=True):
            wrong = np.flatnonzero(mine[title].astype(np.int64) != column)
            if len(wrong):
                problems.append(f"{name}: {floor} differs in {title}, first at its trade {int(wrong[0]) + 1:,}")
    return problems


def compare_with_dbn(tape: Path) -> tuple[int, list[str]]:
    """How many trades `databento-dbn` finds in a tape's segments, and where it reads something else."""
    import databento_dbn as dbn

    ours = [
        batch.records
        for frame in TapeReader(tape_directory(tape)).frames()
        for batch in frame.batches()
        if batch.kind.name == "trade"
    ]
    records = np.concatenate(ours)
    theirs: list[Any] = []
    for path in sorted([*(tape / "tape").glob("*.dbn"), *(tape / "tape").glob("*.dbn.active")]):
        decoder = dbn.DBNDecoder()
        content = path.read_bytes()
        for at in range(0, len(content), 1 << 20):
            decoder.write(content[at : at + (1 << 20)])
            theirs += [record for record in decoder.decode() if isinstance(record, dbn.TradeMsg)]
    if len(theirs) != len(records):
        return len(theirs), [f"databento-dbn finds {len(theirs):,} trades, and {len(records):,} are there"]
    problems = []
    for title in ("ts_event", "price", "size", "instrument_id", "publisher_id", "sequence", "ts_recv"):
        other = np.array([getattr(record, title) for record in theirs], np.int64)
        if not np.array_equal(records[title].astype(np.int64), other):
            problems.append(f"databento-dbn reads another {title}")
    return len(theirs), problems


# -- telling ----------------------------------------------------------------------------------------------


def tell(outcome: Outcome, loss: float) -> None:
    rate = outcome.trades / max(outcome.publish_s, 0.001)
    print(f"{outcome.trades:,} trades of {len(VENUES)} venues, {loss:.0%} loss on every link, {len(CITIES)} receivers")
    print(f"killed and started again: {', '.join(outcome.kills) or 'none'}")
    print(
        f"published and witnessed in {outcome.publish_s:.1f} s, {rate:,.0f} trades/s; "
        f"from start to end {outcome.total_s:.1f} s"
    )
    for line in show_contention(outcome.contention):
        print(line)
    print(f"\n{'receiver':<14}{'records':>10}{'frames':>9}{'late':>10}   release lag, ms (p50 / p99 / max)")
    for each in outcome.verdict.receivers:
        behind = " / ".join(f"{ns / 1e6:.2f}" for ns in each.behind_ns)
        print(f"{each.name:<14}{each.records:>10,}{each.frames:>9,}{each.late:>10,}   {behind}")
    print()
    for what, verdict in outcome.checks:
        print(f"{what:<52}{verdict}")
    for problem in outcome.problems[:20]:
        print(f"- {problem}")


def as_json(outcome: Outcome, loss: float) -> dict[str, Any]:
    return {
        "machine": machine_facts(),
        "contention": asdict(outcome.contention),
        "trades": outcome.trades,
        "loss": loss,
        "kills": outcome.kills,
        "publish_s": round(outcome.publish_s, 3),
        "total_s": round(outcome.total_s, 3),
        "chains": sorted({each.chain for each in outcome.verdict.receivers}),
        "late": {each.name: each.late for each in outcome.verdict.receivers},
        "checks": dict(outcome.checks),
        "problems": outcome.problems,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.day", description="A trading day, verified trade by trade."
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="the directory with <symbol>_trade.csv.gz of 2013-10-07"
    )
    parser.add_argument(
        "--loss", type=float, default=0.02, help="on every link between two sites (default: %(default)s)"
    )
    parser.add_argument("--kill", action="store_true", help="kill the token's site, another receiver and a server")
    parser.add_argument("--seed", type=int, default=1, help="of the kills (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which it is given up")
    parser.add_argument("--json", type=Path, help="write the outcome there")
    chosen = parser.parse_args(arguments)
    print(show_facts(machine_facts()), flush=True)
    with tempfile.TemporaryDirectory(prefix="levelcast-day-") as work:
        try:
            network, outcome = perform(
                chosen.data, Path(work), chosen.loss, chosen.seed if chosen.kill else None, chosen.limit
            )
        except (TradeFileError, OSError) as error:
            print(f"benchmarks.day: {error}", file=sys.stderr)
            return 2
        verify(network, chosen.data, Path(work) / "data", outcome)
    tell(outcome, chosen.loss)
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(as_json(outcome, chosen.loss), indent=2) + "\n", encoding="utf-8")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
