"""A ring at work with the stream into the lake beside it: how far the lake is behind, and what kill -9 changes.

    python -m benchmarks.live [--rate 100000] [--for 300] [--kills 10] [--seed 1] [--quick]

All on one machine, every part a real process: a floor that sends at the rate, three receivers in a ring over loopback
multicast, and `levelcast pipeline stream` on the directories of all three.

1. *Lag.* For `--for` seconds, from when the stream has caught up with a tape that was there before it. The lag of a
   record is from its timestamp on the tape (`ts_recv`) to the moment at which the commit that has it was to be seen in
   the log; every record of the window counts. In the end the lake has what was published, all of it.
2. *Kills.* A new ring and a new lake at the same rate. At random moments the process group of the stream (driver and
   Java) or a receiver is killed with SIGKILL, and started again on its directory, `--kills` times. When all is drained
   every table is compared, by count and by the sum of the hashes of its rows, with those of one `levelcast pipeline
   run` over the same tapes, which nobody disturbs. Left out is `releases`: it is of each receiver's own clock.

`--for 0` leaves out the first part, `--kills 0` the second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from benchmarks.campaign import conduct
from benchmarks.processes import cpu_s
from benchmarks.report import Figure, Options, Result, Table, tell
from benchmarks.room import free_ports
from benchmarks.way import Case, Speaker, busy_seconds, network_text, speaking, wait_for
from levelcast.extras import ExtraMissing
from levelcast.network import load_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.plots.style import BLUE, RED, canvas

RATE, RUN_S, KILLS = 100_000.0, 300.0, 10
LIMIT_S = 15.0
CASE = Case("live", 9_000, 9_000, trains=True)
CAUGHT_UP_S = 6.0
"""The stream has caught up when its newest record is not older."""
SETTLE_S = 60.0
"""Then it works for so long before the window begins: Java's compiler is at its work meanwhile."""
START_S = 600.0
DRAIN_S = 600.0
BETWEEN_S = (12.0, 40.0)
"""From kill to kill."""
DOWN_S = 2.0
OWN_CLOCK = frozenset({"releases"})
NAMED_BY_INPUT = frozenset({"source"})


class Settings(NamedTuple):
    rate: float = RATE
    run_s: float = RUN_S
    kills: int = KILLS
    seed: int = 1


QUICK = Settings(2_000.0, 6.0, 2)


def run(options: Options, settings: Settings | None = None) -> Result:
    """Both parts."""
    chosen = settings or (QUICK if options.quick else Settings())
    result = Result("live")
    try:
        import deltalake  # noqa: F401
        import duckdb  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as missing:
        result.notes.append(f"nothing was measured ({missing}): pip install 'levelcast[spark]' duckdb")
        return result
    if chosen.run_s > 0:
        with tempfile.TemporaryDirectory(prefix="levelcast-live-") as place:
            _measure_lag(Path(place), chosen, options, result)
    if chosen.kills > 0:
        with tempfile.TemporaryDirectory(prefix="levelcast-live-") as place:
            _campaign(Path(place), chosen, options, result)
    return result


# -- processes --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ring:
    """Three receivers, a reformation server and a floor that sends."""

    cluster: Cluster
    floor: Speaker
    data: Path

    @property
    def inputs(self) -> list[str]:
        names = [member.place.name for member in self.cluster.of_role(RECEIVER)]
        return [argument for name in names for argument in ("--input", str(self.data / name))]

    @property
    def pids(self) -> list[int]:
        running = [member.process.pid for member in self.cluster.members.values() if member.process]
        return [*running, self.floor.process.pid]

    @property
    def published(self) -> int:
        return int(self.floor.said.get("records", 0)) + int(self.floor.said.get("defined", 0))

    def finish(self) -> None:
        """Let the floor come to an end, until every receiver has released what it sent."""
        self.floor.process.send_signal(signal.SIGUSR1)
        wait_for("the floor's last word", self._quiet, DRAIN_S)
        horizon_ns = self.cluster.horizon_ns()
        wait_for("draining the ring", lambda: self.cluster.complete_upto(horizon_ns), DRAIN_S)

    def _quiet(self) -> bool:
        before = self.published
        time.sleep(1.0)
        return self.published == before and not self.floor.said.get("unwitnessed", 1)


@contextmanager
def ring_at_work(place: Path, rate: float) -> Iterator[Ring]:
    """From when the floor's first records are on the tapes."""
    with ExitStack() as running:
        file, data = place / "network.toml", place / "data"
        file.write_text(network_text(CASE, free_ports()), encoding="utf-8")
        network = load_network(file)
        cluster = Cluster(network, file, data, NodeOptions(), floors=False)
        running.callback(cluster.stop)
        cluster.start_all()
        receivers = cluster.of_role(RECEIVER)
        wait_for("forming a ring", lambda: all(each.status.get("state") == "ACTIVE" for each in receivers), 60.0)
        arguments = ["--network", str(file), "--data", str(data), "--rate", str(rate), "--market"]
        floor = running.enter_context(speaking("pump", *arguments))
        ring = Ring(cluster, floor, data)
        wait_for("the first records", lambda: all(_has_tape(data / each.place.name) for each in receivers), 60.0)
        yield ring


def _has_tape(node: Path) -> bool:
    return any(path.stat().st_size for path in (node / "tape").glob("*.active"))


class Job:
    """`levelcast pipeline stream` as a process that can be killed and started again."""

    def __init__(self, inputs: Sequence[str], lake: Path, log: Path) -> None:
        self.lake = lake
        self.log = log
        self._command = [sys.executable, "-m", "levelcast", "pipeline", "stream", *inputs, "--lake", str(lake)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log, start_new_session=True)

    def kill(self) -> None:
        """kill -9 of the driver with all of its process group, Java's among them."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"the stream has ended: {_last_line(self.log)}")

    def end(self) -> None:
        """As ^C: the batch under way is finished, and the derived tables are made."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(DRAIN_S):
            raise RuntimeError(f"the stream has not ended well: {_last_line(self.log)}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


# -- what the log says ------------------------------------------------------------------------------------


class Landed(NamedTuple):
    """A commit of `tape` that added records."""

    seen_ns: int
    """When its entry of the log was there."""
    newest_ns: int
    records: int
    files: tuple[str, ...]


class Landings:
    """The commits of `tape`, read as they come."""

    def __init__(self, lake: Path) -> None:
        self._root = lake / "tape"
        self._next = 0
        self.found: list[Landed] = []

    def look(self) -> list[Landed]:
        while (path := self._root / "_delta_log" / f"{self._next:020}.json").exists():
            adds = [json.loads(line)["add"] for line in path.read_text().splitlines() if line.startswith('{"add"')]
            adds = [each for each in adds if each["dataChange"]]
            if adds:
                stats = [json.loads(each["stats"]) for each in adds]
                self.found.append(
                    Landed(
                        path.stat().st_mtime_ns,
                        max(each["maxValues"]["ts_recv"] for each in stats),
                        sum(each["numRecords"] for each in stats),
                        tuple(each["path"] for each in adds),
                    )
                )
            self._next += 1
        return self.found

    @property
    def records(self) -> int:
        return sum(each.records for each in self.look())

    def lag_s(self) -> float:
        """How old the newest record is now."""
        landed = self.look()
        return (time.time_ns() - max(each.newest_ns for each in landed)) / 1e9 if landed else float("inf")

    def lags(self, begin_ns: int, end_ns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The lag of every record of this time, in seconds, sorted."""
        import pyarrow.parquet as parquet

        parts = []
        for each in self.look():
            for file in each.files:
                at = parquet.ParquetFile(self._root / file).read(["ts_recv"])["ts_recv"].to_numpy()
                at = at[(at >= begin_ns) & (at < end_ns)]
                parts.append((each.seen_ns - at) / 1e9)
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0)

    def over_time(self, begin_ns: int, end_ns: int) -> list[tuple[float, float]]:
        """Second by second how old the newest record in the lake was."""
        landed = self.look()
        points = []
        for at in range(begin_ns, end_ns, 1_000_000_000):
            newest = max((each.newest_ns for each in landed if each.seen_ns <= at), default=begin_ns)
            points.append(((at - begin_ns) / 1e9, (at - newest) / 1e9))
        return points


# -- lag --------------------------------------------------------------------------------------------------


def _measure_lag(place: Path, chosen: Settings, options: Options, result: Result) -> None:
    settle_s = 0.0 if options.quick else SETTLE_S
    with ring_at_work(place, chosen.rate) as ring, ExitStack() as held:
        job = Job(ring.inputs, place / "lake", place / "stream.log")
        held.callback(job.stop)
        landings = Landings(job.lake)
        began = time.monotonic()
        job.start()
        tell("live: waiting until the stream has caught up")
        _await("catching up", job, lambda: landings.lag_s() < CAUGHT_UP_S, START_S)
        caught_up_s = time.monotonic() - began
        _pause(settle_s, ring, job)
        tell(f"live: {chosen.run_s:.0f} s at {chosen.rate:,.0f} records/s")
        assert job.process is not None
        begin_ns, from_s, busy = time.time_ns(), time.monotonic(), busy_seconds()
        used = cpu_s(*ring.pids), cpu_s(job.process.pid)
        sent = ring.published
        _pause(chosen.run_s, ring, job)
        end_ns, took_s = time.time_ns(), time.monotonic() - from_s
        ring_cores = (cpu_s(*ring.pids) - used[0]) / took_s
        job_cores = (cpu_s(job.process.pid) - used[1]) / took_s
        others = (busy_seconds() - busy) / took_s - ring_cores - job_cores
        rate = (ring.published - sent) / took_s
        ring.finish()
        published = ring.published
        _await("draining the stream", job, lambda: landings.records >= published, DRAIN_S)
        lags = landings.lags(begin_ns, end_ns)
        commits = [each for each in landings.look() if begin_ns <= each.seen_ns < end_ns]
    points = landings.over_time(begin_ns, end_ns)
    result.figures += [
        Figure("sent", rate, "records/s", "target", chosen.rate),
        Figure("lag of a record, 50 %", float(np.quantile(lags, 0.5)), "s", "limit", LIMIT_S),
        Figure("lag of a record, 99 %", float(np.quantile(lags, 0.99)), "s", "limit at 99 %", LIMIT_S),
        Figure("lag of a record, the longest", float(lags[-1]), "s", "limit", LIMIT_S),
        Figure("records in the lake", float(landings.records), "", "published", float(published)),
    ]
    result.notes.append(
        f"lag: {len(lags):,} records of {took_s:.0f} s in {len(commits)} commits; the stream had caught up "
        f"{caught_up_s:.0f} s after its start and worked for {settle_s:.0f} s before; cores: ring and floor "
        f"{ring_cores:.2f}, stream with Spark {job_cores:.2f}, all else {others:.2f}"
    )
    result.more["lag_over_time"] = [(round(at, 1), round(lag, 2)) for at, lag in points]
    _plot(points, chosen, options, result)


def _await(what: str, job: Job, condition: Callable[[], bool], limit_s: float) -> None:
    """As `wait_for`, and it says what the stream said last."""

    def checked() -> bool:
        job.check()
        time.sleep(0.2)
        return condition()

    try:
        wait_for(what, checked, limit_s)
    except RuntimeError as error:
        raise RuntimeError(f"{error}; last line of the stream: {_last_line(job.log)}") from None


def _pause(seconds: float, ring: Ring, job: Job) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ring.cluster.check()
        job.check()
        time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))


def _plot(points: Sequence[tuple[float, float]], chosen: Settings, options: Options, result: Result) -> None:
    path = options.plot_dir / "live-lag.svg"
    try:
        with canvas(path, 7.5, 3.0) as (_, (axes,)):
            axes.plot([at for at, _ in points], [lag for _, lag in points], color=BLUE, linewidth=1)
            axes.axhline(LIMIT_S, color=RED, linewidth=1)
            axes.annotate("limit", (points[-1][0], LIMIT_S), color=RED, va="bottom", ha="right")
            axes.set_xlabel("seconds")
            axes.set_ylabel("s")
            axes.set_ylim(bottom=0)
            axes.set_title(f"Age of the newest record in the lake, at {chosen.rate:,.0f} records/s")
    except ExtraMissing as missing:
        result.notes.append(str(missing))
        return
    result.plots.append(str(path))


# -- kills ------------------------------------------------------------------------------------------------


class Kill(NamedTuple):
    after_s: float
    """Since the kill before."""
    victim: str


@dataclass(slots=True)
class Outcome:
    """What came of the campaign."""

    kills: list[str] = field(default_factory=list)
    rows: list[tuple[str, int, int, str]] = field(default_factory=list)


def schedule(chosen: Settings, receivers: Sequence[str], between_s: tuple[float, float]) -> list[Kill]:
    """As many of the stream as of receivers, in random order, at random moments."""
    rng = Random(chosen.seed)
    victims = ["stream" if number % 2 else rng.choice(receivers) for number in range(chosen.kills)]
    rng.shuffle(victims)
    return [Kill(rng.uniform(*between_s), victim) for victim in victims]


def _campaign(place: Path, chosen: Settings, options: Options, result: Result) -> None:
    between_s = (6.0, 15.0) if options.quick else BETWEEN_S
    names = [f"{name}-1" for name in "abc"]
    plan = schedule(chosen, names, between_s)
    outcome = Outcome()
    with ring_at_work(place, chosen.rate) as ring, ExitStack() as held:
        job = Job(ring.inputs, place / "lake", place / "stream.log")
        held.callback(job.stop)
        landings = Landings(job.lake)
        job.start()
        _await("the first commit", job, lambda: landings.records > 0, START_S)
        for kill in plan:
            _pause(kill.after_s, ring, job)
            had = landings.records
            if kill.victim == "stream":
                job.kill()
                job.start()
            else:
                ring.cluster.kill(kill.victim)
                time.sleep(DOWN_S)
                ring.cluster.start(kill.victim)
            outcome.kills.append(f"{kill.victim} at {had:,} records")
            tell(f"live: killed {outcome.kills[-1]}")
        ring.finish()
        published = ring.published
        tell(f"live: {published:,} records published; draining")
        _await("draining the stream", job, lambda: landings.records >= published, DRAIN_S)
        job.end()
        inputs = ring.inputs
    tell("live: one undisturbed batch run over the same tapes")
    sound = place / "sound"
    command = [sys.executable, "-m", "levelcast", "pipeline", "run", *inputs, "--lake", str(sound), "--json"]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the batch run has failed: {done.stderr.strip().splitlines()[-1:]}")
    batch_s = time.monotonic() - begun
    outcome.rows = compare(place / "lake", sound)
    equal = sum(1 for row in outcome.rows if row[3] == "equal")
    records = next((row[1] for row in outcome.rows if row[0] == "tape"), 0)
    result.figures += [
        Figure("tables equal after the kills", float(equal), "tables", "compared", float(len(outcome.rows))),
        Figure("records in the lake after the kills", float(records), "", "published", float(published)),
    ]
    result.tables.append(
        Table("after the kills, and by one batch run", ("table", "rows", "by the batch run", "content"),
              [tuple(row) for row in outcome.rows])
    )  # fmt: skip
    result.notes.append(
        f"killed (seed {chosen.seed}): {'; '.join(outcome.kills)}. The batch run over {records:,} records needed "
        f"{batch_s:.0f} s"
    )


def compare(one: Path, other: Path) -> list[tuple[str, int, int, str]]:
    """Every table that one of two lakes has: rows here, rows there, and whether their content is equal."""
    from levelcast.pipeline.lake.lake import Lake
    from levelcast.pipeline.lake.tables import TABLES

    lakes = Lake(one), Lake(other)
    found = []
    for name in TABLES:
        if name in OWN_CLOCK or not any(lake.has(name) for lake in lakes):
            continue
        here, there = (_content(lake, name) for lake in lakes)
        found.append((name, here[0], there[0], "equal" if here == there else "DIFFERENT"))
    return found


def _content(lake: Any, name: str) -> tuple[int, int]:
    """How many rows a table has, and the sum of their hashes."""
    import duckdb

    from levelcast.pipeline.lake.tables import TABLES

    if not lake.has(name) or not lake.files(name):
        return 0, 0
    columns = ", ".join(f'"{each}"' for each in TABLES[name].names if each not in NAMED_BY_INPUT)
    query = f"select count(*), sum(hash(t)::hugeint) from (select {columns} from {lake.duckdb(name)}) t"
    ((count, total),) = duckdb.connect().execute(query).fetchall()
    return int(count), int(total or 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description="The stream into the lake, live.")
    parser.add_argument("--rate", type=float, help=f"records/s (default: {RATE:,.0f})")
    parser.add_argument("--for", dest="run_s", type=float, help=f"seconds of the lag (default: {RUN_S:.0f}; 0: none)")
    parser.add_argument("--kills", type=int, help=f"how many (default: {KILLS}; 0: none)")
    parser.add_argument("--seed", type=int, help="random seed for times and victims of kills (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a minute only, to see that it works")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    given = {name: getattr(chosen, name) for name in Settings._fields if getattr(chosen, name) is not None}
    settings = (QUICK if chosen.quick else Settings())._replace(**given)
    options = Options(quick=chosen.quick, out=chosen.out)

    def campaign() -> tuple[Result, bool]:
        result = run(options, settings)
        return result, not any(row[-1] == "DIFFERENT" for table in result.tables for row in table.rows)

    return conduct(campaign, options)


if __name__ == "__main__":
    sys.exit(main())
