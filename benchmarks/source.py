"""The data source `levelcast` against Spark reading the same rows from Parquet, and where its time goes.

One tape of trades, one Parquet file with the rows that the source makes of it (zstd, row groups of 128k), `local[1]`,
rows into Spark's sink that keeps nothing. The steps of the source are measured by themselves as well:

Figures are of CPU time, of Spark's Java and of all its Python workers together: on a shared machine wall time says more
about the others. It stands beside it.

- *plan*: Spark asks a Python process for the partitions: it is started, loads the source, looks at the tape and for its
  definitions.
- *look at the tape*: what that process does for us, in this process: the indexes, the definitions.
- *read and convert*: the same code in this process, without Spark: index, bytes, columns.
- *hand over*: a data source that has its Arrow batch ready and only yields it: what it costs to plan, and to bring such
  rows from a Python worker into Spark.
- *hand over nothing*: the same without a row, in as many tasks as the tape has segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.processes import cpu_s
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.protocol.history import GENESIS, Frame, MembershipChange, Tip, make_frame
from levelcast.records import instruments, trades
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire.messages import MemberLife, Membership, Packet
from levelcast.wire.packets import seal

RECORDS = 1_000_000
QUICK = 50
"""A quick run does this many times less."""
PER_SEGMENT = 250_000
PER_FRAME, PER_PACKET = 500, 20
SYMBOLS, VENUES = 500, 13
NARROW = ("sequence", "symbol", "price", "size")
REPEATS = 3
CLOCKS = ((0, "CPU"), (1, "wall"))
SLOT_NS = 5_000_000
START_NS = 1_381_147_200_000_000_000
FIRST = Tip(records=[MembershipChange(0, Membership(0, (MemberLife(1, 1),)))])


def run(options: Options) -> Result:
    """Measure all columns, and four of them."""
    result = Result("source")
    try:
        import pyspark  # noqa: F401

        from levelcast.pipeline.session import spark_session
    except ImportError:
        result.notes.append("pyspark is not installed, so nothing was measured: pip install 'levelcast[spark]'")
        return result
    count = RECORDS // (QUICK if options.quick else 1)
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="source-", dir=options.out) as folder:
        place = Path(folder).absolute()
        tell(f"source: a tape of {count:,} trades")
        make_tape(place / "tape", count)
        with spark_session("local[1]", "levelcast source") as spark:
            _measure(result, spark, place, count, 1 if options.quick else REPEATS)
    return result


def _measure(result: Result, spark: Any, place: Path, count: int, repeats: int) -> None:
    from levelcast.pipeline import register

    register(spark)
    jvm = int(spark.sparkContext._gateway.proc.pid)
    tape, table = str(place / "tape"), str(place / "rows.parquet")
    _write_parquet(place)
    rows: list[tuple[Cell, ...]] = []
    for what, names in (("all columns", None), ("4 columns", NARROW)):
        tell(f"source: {what}")
        reader = spark.read.format("levelcast")
        source = (reader.option("columns", ",".join(names)) if names else reader).load(tape)
        stored = spark.read.parquet(table)
        ready, nothing, batch_bytes = _ready(spark, place, names, count)
        steps: dict[str, Callable[[], object]] = {
            "data source": partial(_sink, source),
            "Parquet": partial(_sink, stored.select(*names) if names else stored),
            "plan": partial(_plan, source),
            "look at the tape": partial(_look, place),
            "read and convert": partial(_in_process, place, names),
            "transfer batches": partial(_sink, ready),
            "transfer nothing": partial(_sink, nothing),
        }
        spent = {name: _least(step, repeats, jvm) for name, step in steps.items()}
        times = {name: used for name, (used, _) in spent.items()}
        rate = {name: count / took / 1e6 for name, took in times.items()}
        result.figures.append(
            Figure(f"{what}: data source", rate["data source"], "million rows/CPU s", "Parquet", rate["Parquet"])
        )
        rows += [(f"{what}: {name}", *took, rate[name]) for name, took in spent.items()]
        result.notes += [_accounts(what, kind, {name: took[n] for name, took in spent.items()}) for n, kind in CLOCKS]
        result.notes.append(f"{what}: a row has {batch_bytes:.0f} bytes in transfer.")
    result.tables.append(Table(f"{count:,} trades", ("what", "CPU s", "wall s", "million rows/CPU s"), rows))


def _accounts(what: str, kind: str, took: dict[str, float]) -> str:
    """Where the time goes. Handing over nothing is Spark's own start of a query and its tasks, which all have."""
    still = took["transfer nothing"]
    parts = {
        "starting a query and its tasks": still,
        "planning, beyond what that has": max(took["plan"] - still, 0.0),
        "reading and converting": took["read and convert"],
        "transfer": max(took["transfer batches"] - still, 0.0),
    }
    told = ", ".join(f"{name} {spent:.2f}" for name, spent in parts.items())
    left = took["data source"] - sum(parts.values())
    return f"{what}: {took['data source']:.2f} {kind} s: {told}; {left:+.2f} is left over."


def _least(work: Callable[[], object], repeats: int, jvm: int) -> tuple[float, float]:
    """The least CPU time of a few runs, and the least wall time, after a run that does not count."""
    work()
    least_cpu_s, wall_s = float("inf"), float("inf")
    for _ in range(repeats):
        begun, used = time.perf_counter(), used_s(jvm)
        work()
        least_cpu_s, wall_s = min(least_cpu_s, used_s(jvm) - used), min(wall_s, time.perf_counter() - begun)
    return least_cpu_s, wall_s


def used_s(jvm: int) -> float:
    """What this process and the family of Spark's have used."""
    return time.process_time() + cpu_s(jvm)


def _sink(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _plan(rows: Any) -> None:
    """All that comes before the first task."""
    rows.select("*")._jdf.queryExecution().executedPlan().execute()


def _look(place: Path) -> None:
    from levelcast.pipeline.input.tapes import Tapes

    for stripe in Tapes([place / "tape"]).stripes.values():
        stripe.definitions(stripe.start.sequence, stripe.end.sequence)


def _batches(place: Path, names: tuple[str, ...] | None) -> Iterator[Any]:
    from levelcast.pipeline.input.tape_rows import rows
    from levelcast.pipeline.input.tapes import Tapes

    (stripe,) = Tapes([place / "tape"]).stripes.values()
    known = stripe.definitions(stripe.start.sequence, stripe.end.sequence)
    for piece in stripe.pieces(stripe.start.sequence, stripe.end.sequence):
        yield from rows(piece, known, columns=names)


def _in_process(place: Path, names: tuple[str, ...] | None) -> None:
    for _ in _batches(place, names):
        pass


def _write_parquet(place: Path) -> None:
    import pyarrow.parquet as parquet

    from levelcast.pipeline.lake.schema import arrow_schema

    with parquet.ParquetWriter(place / "rows.parquet", arrow_schema(), compression="zstd") as writer:
        for batch in _batches(place, None):
            writer.write_batch(batch, row_group_size=128 * 1024)


def _ready(spark: Any, place: Path, names: tuple[str, ...] | None, count: int) -> tuple[Any, Any, float]:
    """As many rows as there are trades, the first batch again and again; no rows; how many bytes a row has."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from levelcast.pipeline.lake.schema import spark_schema

    first = next(_batches(place, names))
    path = str(place / "ready.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, first.schema) as writer:
        writer.write_batch(first)
    schema, tasks = spark_schema(names), -(-count // PER_SEGMENT)

    class Ready(DataSource):  # type: ignore[misc, unused-ignore]
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Any:
            return ReadyReader(int(self.options["rows"]))

    class ReadyReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
        def __init__(self, rows: int) -> None:
            self.rows = rows

        def partitions(self) -> Any:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, partition: Any) -> Iterator[Any]:
            with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as reader:
                (batch,) = reader
            for start in range(0, self.rows, batch.num_rows):
                yield batch.slice(0, self.rows - start)

    spark.dataSource.register(Ready)
    reader = spark.read.format("ready")
    rows, nothing = (reader.option("rows", number).load() for number in (count // tasks, 0))
    return rows, nothing, first.nbytes / first.num_rows


def make_tape(directory: Path, count: int, slot_ns: int = SLOT_NS) -> None:
    """Trades of many symbols on a few venues, with their definitions in front; a frame in each slot."""
    writer = TapeWriter.open(directory, FIRST, records_per_segment=PER_SEGMENT)
    writer.extend(_frames(count, slot_ns))
    writer.close()


def _frames(count: int, slot_ns: int) -> Iterator[Frame]:
    rng = np.random.default_rng(1)
    chain, sequence, number, slot = GENESIS, 1, 0, 0
    definitions = instruments(SYMBOLS)
    definitions["instrument_id"] = np.arange(1, SYMBOLS + 1)
    definitions["publisher_id"] = np.arange(SYMBOLS) % VENUES + 1
    definitions["raw_symbol"] = [f"S{i:03}" for i in range(SYMBOLS)]
    definitions["exchange"] = [f"XV{i % VENUES:02}" for i in range(SYMBOLS)]
    batch = trades(PER_FRAME)
    while sequence <= count:
        slot += 1
        now = START_NS + slot * slot_ns
        batch["publisher_id"] = rng.integers(1, VENUES + 1, PER_FRAME)
        batch["instrument_id"] = rng.integers(1, SYMBOLS + 1, PER_FRAME)
        batch["ts_event"] = now - rng.integers(0, SLOT_NS, PER_FRAME).astype(np.uint64)
        batch["price"] = rng.integers(1_000, 50_000, PER_FRAME) * 10_000_000
        batch["size"] = rng.integers(1, 20, PER_FRAME) * 100
        batch["trade_id"] = batch["venue_sequence"] = np.arange(sequence, sequence + PER_FRAME)
        payloads = [batch[i : i + PER_PACKET].tobytes() for i in range(0, PER_FRAME, PER_PACKET)]
        records = [PER_PACKET] * len(payloads)
        if slot == 1:
            told = [definitions[i : i + 2] for i in range(0, SYMBOLS, 2)]
            payloads = [each.tobytes() for each in told] + payloads
            records = [len(each) for each in told] + records
        packets = [
            seal(Packet(1, 1, number + i, n, payload), 0)
            for i, (n, payload) in enumerate(zip(records, payloads, strict=True), 1)
        ]
        frame = make_frame(slot, now, sequence, packets, chain)
        chain, sequence, number = frame.chain, sequence + sum(records), number + len(packets)
        yield frame
