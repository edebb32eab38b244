"""Every job of the pipeline on a standalone cluster against `local[2]`, and with a worker killed in the middle.

    python -m benchmarks.cluster [--kill] [--jobs refresh,sweep] [--scale 10]

The cluster is a master and two workers from the PySpark package on this machine, by loopback, with a core each. Each
way of running has a process and a lake of its own over the same input; then every table is compared, row for row: a
digest of the sorted rows, but for the columns in `CLOCKS`. With `--kill` a third run has one worker and its executor
killed by -9 at 40 % of the time that the job took without, and a new worker before the next job.

Another job is one more line in `JOBS`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.audit_stage import simulate
from benchmarks.campaign import conduct
from benchmarks.processes import kill_family
from benchmarks.report import Cell, Options, Result, Table, tell
from levelcast.network import five_cities, parse_network
from levelcast.sim.history_rows import as_text, code_version, crashed, run_items
from levelcast.sim.parameters import complete

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
WORKERS, CORES, MEMORY = 2, 1, "2g"
STARTS_S = 90.0
KILL_AT = 0.4
CLOCKS = {"sweeps": ("cpu_s",), "plans": ("made_ns", "seconds")}
"""Columns that tell how long the run took, by table: they differ from run to run."""
RECORDS, QUOTES, FILES, HISTORIES, FLOWS, RECORDED_S = 60_000, 60_000, 4, 24, 2_000, 60.0
AUDITED = "tokyo-1"
"""The receiver with a changed byte."""


# -- a cluster --------------------------------------------------------------------------------------------


class Cluster:
    """A master and workers as processes of this machine; they end with the block."""

    def __init__(self, place: Path, workers: int = WORKERS) -> None:
        import pyspark

        self._place, self._wanted = place, workers
        self._class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._port, self._page = free_port(), free_port()

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Cluster:
        self._place.mkdir(parents=True, exist_ok=True)
        try:
            where = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self._page))
            self._master = self._start("master", "master.Master", *where)
            for _ in range(self._wanted):
                self.add_worker()
            self.wait(self._wanted)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, *filter(None, [self._master])):
            kill_family(process.pid)
            process.wait()
        self._workers, self._master = [], None

    def add_worker(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        size = ("--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(self._place / name))
        ports = ("--host", HOST, "--port", str(free_port()), "--webui-port", str(free_port()))
        self._workers.append(self._start(name, "worker.Worker", *size, *ports, self.url))

    def kill_worker(self) -> int:
        """Kill the oldest worker and its executors at once, as a power cut does; its process id."""
        victim = self._workers.pop(0)
        kill_family(victim.pid)
        victim.wait()
        return victim.pid

    def wait(self, workers: int) -> None:
        """Until so many workers are known to the master."""
        deadline = time.monotonic() + STARTS_S
        while time.monotonic() < deadline:
            if self.alive() == workers:
                return
            time.sleep(0.2)
        raise RuntimeError(f"{workers} workers did not register within {STARTS_S:.0f} s: see {self._place}")

    def alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as answer:
                told = json.load(answer)
        except (OSError, ValueError):
            return 0
        return sum(worker["state"] == "ALIVE" for worker in told["workers"])

    def _start(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._place / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(self._class), f"org.apache.spark.deploy.{what}", *arguments],
                env=environment(self._place), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip


def environment(place: Path | None = None) -> dict[str, str]:
    """What processes are started with, and through the cluster's the executors and their Python: this checkout."""
    path = dict.fromkeys([str(ROOT / "src"), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))])
    made = os.environ | {"PYTHONPATH": ":".join(path), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
    if place is not None:
        made |= {"SPARK_LOCAL_DIRS": str(place / "local"), "SPARK_DAEMON_MEMORY": "512m"}
    return made


def driver_settings() -> dict[str, str]:
    """A driver on this machine that executors on this machine reach."""
    return {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST, "spark.executor.memory": "1g"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


# -- jobs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a way of running finds the input, and where its lakes are."""

    inputs: Path
    out: Path

    def lake(self, name: str) -> Any:
        from levelcast.pipeline.lake.lake import Lake

        return Lake.create(self.out / name)


def run_tape(spark: Any, place: Place) -> None:
    """`pipeline run` of a tape."""
    _run(spark, place.lake("tape"), [place.inputs / "tape"], "tape")


def run_files(spark: Any, place: Place) -> None:
    """`pipeline run` of files."""
    _run(spark, place.lake("files"), sorted((place.inputs / "files").glob("*.csv")), "csv")


def _run(spark: Any, lake: Any, paths: list[Path], format: str) -> None:
    from levelcast.pipeline.input.load import load
    from levelcast.pipeline.jobs.refresh import refresh

    load(spark, lake, paths, format, None, None, lambda _: None, "XV00")
    refresh(spark, lake)


def refresh(spark: Any, place: Place) -> None:
    """Every derived table of a market of trades and quotes in which one symbol has 65 %."""
    from levelcast.pipeline.jobs.refresh import refresh

    lake = place.lake("market")
    for name in ("trades", "quotes", "tape"):
        lake.append(name, spark.read.parquet(str(place.inputs / f"{name}.parquet")))
    lake.replace("subscriptions", spark.read.parquet(str(place.inputs / "subscriptions.parquet")).coalesce(1))
    refresh(spark, lake)


def stream(spark: Any, place: Place) -> None:
    """`pipeline stream --until-now`, in batches."""
    from levelcast.pipeline.jobs import stream as streaming

    query, follower = streaming.start(
        spark, place.lake("stream"), [place.inputs / "tape"], until_now=True, most_records=RECORDS // 3
    )
    query.awaitTermination()
    if (failed := follower.failed or query.exception()) is not None:
        raise failed


def compact(spark: Any, place: Place) -> None:
    """`pipeline compact` of many small files."""
    lake = place.lake("small")
    for name in ("trades", "quotes"):
        lake.append(name, spark.read.parquet(str(place.inputs / f"{name}.parquet")).repartition(12, "sequence"))
        lake.compact(spark, name)


def plan(spark: Any, place: Place) -> None:
    """`plan make --engine spark`."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from levelcast.pipeline.channels.spark_plan import plan_on_spark, read_table
    from levelcast.planner.model import Weights

    problem = place.inputs / "problem"
    interest = read_table(spark, problem / "interest.parquet", ("user", "flow"))
    rates = read_table(spark, problem / "rates.parquet", ("flow", "rate"))
    made = plan_on_spark(interest, rates, 60, 6, Weights(), 1)
    (place.out / "plan").mkdir()
    rows = pa.table({"flow": made.flows, "session": made.plan.session, "group": made.plan.flow_group()})
    parquet.write_table(rows, place.out / "plan" / "plan.parquet")
    (place.out / "plan" / "costs.json").write_text(json.dumps(asdict(made.costs)), encoding="utf-8")


def plan_lake(spark: Any, place: Place) -> None:
    """`plan from-lake --engine spark`, the plan recorded in the lake."""
    from benchmarks.planjob import fill
    from levelcast.pipeline.channels import job as channels_job

    lake = place.lake("channels")
    fill(spark, lake, FLOWS)
    made = channels_job.execute(spark, lake, channels_job.PlanRequest(sessions=60, groups=6, spark=True))
    channels_job.record(spark, lake, made)


def sweep(spark: Any, place: Place) -> None:
    """`sweep` into a lake."""
    from levelcast.pipeline.sweep import run as sweeping

    items = [("ring", as_text(complete("ring", {})), seed) for seed in range(HISTORIES)]
    items += [("steady", as_text(complete("steady", {"members": n, "seconds": 2.0})), 1) for n in (3, 5, 7)]
    engine, store = sweeping.SparkEngine(spark, run_items), sweeping.LakeStore(spark, place.lake("sweeps"))
    sweeping.sweep(items, engine, store, code_version(), crashed)


def matrix(spark: Any, place: Place) -> None:
    """`pipeline load probes` and `matrix`."""
    from levelcast.network.measured.file import measured_file
    from levelcast.pipeline.input import probes
    from levelcast.pipeline.matrix.job import measure

    lake = place.lake("network")
    probes.load_probes(spark, lake, place.inputs / "probes.csv")
    measured = measure(spark, lake, None, "worst", 0.99)
    (place.out / "matrix").mkdir()
    text = measured_file(measured, None, "network")
    (place.out / "matrix" / "measured.toml").write_text(text, encoding="utf-8")


def audit(spark: Any, place: Place) -> None:
    """`audit all` of a network's five receivers, of which one has a byte changed."""
    from levelcast.pipeline.audit import run as audit_run
    from levelcast.pipeline.audit.base import Job
    from levelcast.pipeline.audit.inputs import gather

    inputs = gather([place.inputs / "recorded"], parse_network(five_cities()))
    outcome = audit_run.run(audit_run.names_of(audit_run.ALL), Job(spark, inputs))
    (place.out / "audit").mkdir()
    told = {"results": [result.as_json() for result in outcome.results], "not run": outcome.not_run}
    (place.out / "audit" / "all.json").write_text(json.dumps(told, indent=1), encoding="utf-8")


JOBS: dict[str, Callable[[Any, Place], None]] = {
    "run-tape": run_tape,
    "run-files": run_files,
    "refresh": refresh,
    "stream": stream,
    "compact": compact,
    "plan": plan,
    "plan-lake": plan_lake,
    "sweep": sweep,
    "matrix": matrix,
    "audit": audit,
}
"""By name; what a job leaves under its place's `out` is compared: lakes table by table, other files byte by byte."""


# -- input ------------------------------------------------------------------------------------------------


def make_inputs(place: Path, scale: float = 1.0) -> None:
    """The same input for all ways of running."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from benchmarks.source import make_tape
    from levelcast.planner.files import write_problem
    from levelcast.planner.generator import Model, generate

    place.mkdir(parents=True, exist_ok=True)
    make_tape(place / "tape", round(RECORDS * scale))
    simulate(1, RECORDED_S * max(scale, 1 / 4)).write(place / "recorded", records_per_segment=2_000)
    changed = min((place / "recorded" / AUDITED / "tape").glob("*.dbn*"))
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    (place / "files").mkdir()
    rng = np.random.default_rng(7)
    for number in range(FILES):
        rows = round(RECORDS * scale) // 10
        at = 1_794_787_200 * 10**9 + (number * rows + np.arange(rows)) * 10**6
        lines = [
            f"{at[i]},S{rng.integers(50)},{rng.integers(1000, 5000) / 100},{rng.integers(1, 9) * 100}"
            for i in range(rows)
        ]
        text = "\n".join(["ts_event,symbol,price,size", *lines])
        (place / "files" / f"{number}.csv").write_text(text + "\n", encoding="utf-8")
    (place / "probes.csv").write_text("\n".join(_probes(rng, round(20 * scale) + 5)) + "\n", encoding="utf-8")
    trades, quotes = make_market(round(QUOTES * scale) // 3, round(QUOTES * scale))
    for name, rows in (("trades", trades), ("quotes", quotes)):
        parquet.write_table(rows, place / f"{name}.parquet", row_group_size=20_000)
    kind = pa.array(["trade"] * trades.num_rows, pa.string())
    parquet.write_table(trades.append_column("kind", kind), place / "tape.parquet", row_group_size=20_000)
    users = {"user": [f"u{i % 40}" for i in range(400)], "flow": [f"S{i % 97}" for i in range(400)]}
    parquet.write_table(pa.table(users), place / "subscriptions.parquet")
    model = Model(flows=round(FLOWS * scale), users=100, markets=4, share_taken=0.05)
    write_problem(place / "problem", generate(model, 1))


def _probes(rng: Any, each: int) -> Iterator[str]:
    """Probes between six sites, in three hours."""
    yield "from_site,to_site,at_ns,round_trip_ns,loss_ratio"
    for hour in range(3):
        for origin in range(6):
            for to in set(range(6)) - {origin}:
                for number in range(each):
                    at_ns = 1_794_787_200 * 10**9 + hour * 3_600 * 10**9 + number * 10**9 + origin
                    lost = bool(rng.random() < 0.05)
                    round_trip = "" if lost else str(int(20e6 * (1 + abs(origin - to) + rng.random())))
                    yield f"s{origin},s{to},{at_ns},{round_trip},{float(lost)}"


def make_market(trades: int, quotes: int) -> tuple[Any, Any]:
    """Trades and quotes of a day as Arrow tables: `SPY` has 65 % of both, 500 others the rest, on 13 venues."""
    import pyarrow as pa

    rng = np.random.default_rng(11)
    made = []
    day_s = 1_794_787_200
    for count, first in ((trades, 1), (quotes, trades + 1)):
        names = np.array(["SPY", *(f"S{i}" for i in range(500))], object)
        symbol = names[np.where(rng.random(count) < 0.65, 0, rng.integers(1, 501, count))]
        step = 23_400 * 10**9 // max(count, 1)
        venue = np.array([f"V{i}" for i in range(13)], object)[rng.integers(0, 13, count)]
        common = {
            "stripe": pa.array(np.zeros(count, np.int32)),
            "sequence": pa.array(np.arange(first, first + count)),
            "ts_recv": pa.array((day_s + 13 * 3600) * 10**9 + np.arange(count) * step),
            "ts_event": pa.array((day_s + 13 * 3600) * 10**9 + np.arange(count) * step),
            "symbol": pa.array(symbol, pa.string()),
            "venue": pa.array(venue, pa.string()),
            "day": pa.array(np.full(count, day_s // 86_400, np.int32)).cast(pa.date32()),
        }
        middle = 100 * 10**9 + rng.integers(-50, 50, count) * 10**7
        made.append((count, common, middle))
    (count, common, price), (n, quoted, middle) = made
    action = np.where(rng.random(count) < 0.01, np.where(rng.random(count) < 0.5, "C", "M"), "T")
    trade = common | {
        "action": pa.array(action.tolist(), pa.string()),
        "price": pa.array(price),
        "size": pa.array(rng.integers(1, 9, count) * 100),
        "condition": pa.array(np.where(rng.random(count) < 0.1, 32, 0)),
        "trade_id": pa.array(np.where(action == "T", np.arange(count), rng.integers(0, max(count, 1), count))),
    }
    quote = quoted | {
        "side": pa.array(np.array(["N", "B", "A"], object)[rng.integers(0, 3, n)], pa.string()),
        "bid_px": pa.array(middle - 10**7 * rng.integers(0, 3, n)),
        "ask_px": pa.array(middle + 10**7 * rng.integers(0, 3, n)),
        "bid_sz": pa.array(rng.integers(0, 5, n) * 100),
        "ask_sz": pa.array(rng.integers(0, 5, n) * 100),
    }
    return pa.table(trade), pa.table(quote)


# -- comparing --------------------------------------------------------------------------------------------


def digests(out: Path) -> dict[str, str]:
    """What lies there, by name: of every table its rows, and a digest of them in order; of other files their bytes."""
    from blake3 import blake3

    from levelcast.pipeline.lake.lake import MARKER, Lake

    found: dict[str, str] = {}
    for child in sorted(each for each in out.iterdir() if each.is_dir()):
        if not (child / MARKER).exists():
            for path in sorted(each for each in child.rglob("*") if each.is_file()):
                found[f"{child.name}/{path.name}"] = blake3(path.read_bytes()).hexdigest()[:16]
            continue
        lake = Lake(child)
        for name in (state.name for state in lake.states()):
            rows = lake.arrow(name)
            kept = [column for column in sorted(rows.column_names) if column not in CLOCKS.get(name, ())]
            lines = sorted(map(repr, zip(*(rows[column].to_pylist() for column in kept), strict=True)))
            digest = blake3("\n".join(lines).encode()).hexdigest()[:16]
            found[f"{child.name}.{name}"] = f"{len(lines)} rows {digest}"
    return found


# -- the ways of running ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Ran:
    """What a way of running has done: seconds by job, digests, and in which jobs a worker was killed in the middle."""

    seconds: dict[str, float] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    killed: dict[str, bool] = field(default_factory=dict)


def run_jobs(spark: Any, place: Place, names: Sequence[str], cluster: Cluster | None, times: dict[str, float]) -> Ran:
    """Run jobs one after the other; with `times` a worker of the cluster is killed in the middle of each."""
    ran = Ran()
    before: dict[str, str] = {}
    for name in names:
        place.out.mkdir(parents=True, exist_ok=True)
        killer = Killer(spark, cluster, times[name] * KILL_AT) if cluster is not None and name in times else None
        begun = time.perf_counter()
        if killer is None:
            JOBS[name](spark, place)
        else:
            with killer:
                JOBS[name](spark, place)
        ran.seconds[name] = round(time.perf_counter() - begun, 2)
        if killer is not None and cluster is not None:
            ran.killed[name] = killer.struck
            if killer.struck:
                cluster.add_worker()
                cluster.wait(WORKERS)
        now = digests(place.out)
        ran.digests[name] = {key: value for key, value in now.items() if before.get(key) != value}
        before = now
        tell(f"cluster: {name} {ran.seconds[name]:.1f} s" + (", a worker killed" if ran.killed.get(name) else ""))
    return ran


class Killer:
    """Kills a worker once so much time has passed and a task is running."""

    def __init__(self, spark: Any, cluster: Cluster, after_s: float) -> None:
        self._tracker, self._cluster, self._after_s = spark.sparkContext.statusTracker(), cluster, after_s
        self._over = threading.Event()
        self.struck = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        if self._over.wait(self._after_s):
            return
        while not self._over.wait(0.02):
            stages = [self._tracker.getStageInfo(each) for each in self._tracker.getActiveStageIds()]
            if any(stage is not None and stage.numActiveTasks for stage in stages):
                self._cluster.kill_worker()
                self.struck = True
                return


@contextmanager
def way(name: str, place: Path) -> Iterator[tuple[Any, Cluster | None]]:
    """A session on `local[2]`, or on a cluster of its own."""
    from levelcast.pipeline.session import spark_session

    if name == "local":
        with spark_session(f"local[{WORKERS * CORES}]", "levelcast cluster") as spark:
            yield spark, None
        return
    with (
        Cluster(place / "cluster") as cluster,
        spark_session(cluster.url, "levelcast cluster", driver_settings()) as spark,
    ):
        yield spark, cluster


def child(arguments: argparse.Namespace) -> int:
    """One way of running, in a process of its own: Java keeps what it was first started with."""
    place = Place(arguments.place / "inputs", arguments.place / arguments.way / "out")
    times = json.loads(arguments.times)
    with way(arguments.way, arguments.place / arguments.way) as (spark, cluster):
        ran = run_jobs(spark, place, arguments.jobs.split(","), cluster, times)
    told = {"seconds": ran.seconds, "digests": ran.digests, "killed": ran.killed}
    (arguments.place / f"{arguments.way}.json").write_text(json.dumps(told), encoding="utf-8")
    return 0


def run_way(name: str, place: Path, jobs: Sequence[str], times: dict[str, float]) -> Ran:
    command = [sys.executable, "-m", "benchmarks.cluster", "--way", name, "--place", str(place)]
    command += ["--jobs", ",".join(jobs), "--times", json.dumps(times)]
    with (place / f"{name}.log").open("wb") as log:
        done = subprocess.run(command, env=environment(place / name), cwd=ROOT, stderr=log, stdout=log, check=False)
    if done.returncode:
        end = (place / f"{name}.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{name} failed with {done.returncode}:\n{end}")
    return Ran(**json.loads((place / f"{name}.json").read_text(encoding="utf-8")))


def compare(place: Path, jobs: Sequence[str], *, kill: bool, scale: float = 1.0) -> Result:
    """Run all ways and put them side by side."""
    result = Result("cluster")
    make_inputs(place / "inputs", scale)
    tell("cluster: local")
    ways = {"local": run_way("local", place, jobs, {})}
    tell("cluster: master and two workers")
    ways["cluster"] = run_way("cluster", place, jobs, {})
    if kill:
        tell("cluster: a worker killed in each job")
        ways["killed"] = run_way("killed", place, jobs, ways["cluster"].seconds)
    rows: list[tuple[Cell, ...]] = []
    for job in jobs:
        same = all(ran.digests[job] == ways["local"].digests[job] for ran in ways.values())
        struck = "" if not kill else "yes" if ways["killed"].killed.get(job) else "no"
        times = [ran.seconds[job] for ran in ways.values()]
        rows.append((job, len(ways["local"].digests[job]), "identical" if same else "DIFFERENT", *times, struck))
    columns = ("job", "tables", "results", *(f"{name} s" for name in ways), "killed in it")
    result.tables.append(Table("every job, its tables compared row for row", columns, rows))
    apart = [
        f"{job}: {name} is {value} by local, {ran.digests[job].get(name)} by {which}"
        for job in jobs
        for which, ran in ways.items()
        for name, value in ways["local"].digests[job].items()
        if ran.digests[job].get(name) != value
    ]
    result.notes += apart
    result.more["identical"] = not apart
    return result


def run(options: Options) -> Result:
    """All jobs, killed workers included; a quick run has two jobs and little input."""
    from levelcast.pipeline.session import SparkMissing, require_spark

    try:
        require_spark()
    except SparkMissing as error:
        return Result("cluster", notes=[f"{error}; nothing was compared"])
    with TemporaryDirectory(prefix="levelcast-cluster-") as folder:
        if options.quick:
            return compare(Path(folder), ["refresh", "sweep"], kill=True, scale=0.02)
        return compare(Path(folder), list(JOBS), kill=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything is identical."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=compare.__doc__)
    parser.add_argument("--kill", action="store_true", help="once more, with a worker killed in each job")
    parser.add_argument("--jobs", default=",".join(JOBS), help="which ones (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="times as much input (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--times", default="{}", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    jobs = chosen.jobs.split(",")
    if unknown := [name for name in jobs if name not in JOBS]:
        parser.error(f"unknown job {', '.join(unknown)}; use {', '.join(JOBS)}")
    if chosen.way:
        return child(chosen)

    def campaign() -> tuple[Result, bool]:
        with TemporaryDirectory(prefix="levelcast-cluster-") as folder:
            result = compare(Path(folder), jobs, kill=chosen.kill, scale=chosen.scale)
        return result, bool(result.more["identical"])

    return conduct(campaign, Options(out=chosen.out))


if __name__ == "__main__":
    raise SystemExit(main())
