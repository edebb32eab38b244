"""The data source `levelcast` against Spark reading the same rows from Parquet, and where its time goes.

One tape of trades, one Parquet file with the rows that the source makes of it (zstd, row groups of 128k), `local[1]`,
rows into Spark's sink that keeps nothing. The steps of the source are measured by themselves as well:

Figures are of CPU time, of Spark's Java and of all its Python workers together: on a shared machine wall time says more
about the others. It stands beside it.

- *read and convert*: the same code in this process, without Spark: index, bytes, columns.
- *hand over*: a data source that has its Arrow batch ready and only yields it: what it costs to bring such rows from a
  Python worker into Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.records import instruments, trades
from levelcast.ring.order import GENESIS, Frame, Record, Tip, make_frame
from levelcast.tape.segments import TapeWriter
from levelcast.wire.data import seal
from levelcast.wire.messages import MemberLife, Membership, Packet

RECORDS = 1_000_000
QUICK = 50
"""A quick run does this many times less."""
PER_SEGMENT = 250_000
PER_FRAME, PER_PACKET = 500, 20
SYMBOLS, VENUES = 500, 13
NARROW = ("sequence", "symbol", "price", "size")
REPEATS = 3
SLOT_NS = 5_000_000
START_NS = 1_381_147_200_000_000_000
FIRST = Tip(records=[Record(0, Membership(0, (MemberLife(1, 1),)))])


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
        ready, batch_bytes = _ready(spark, place, names, count)
        steps: dict[str, Callable[[], object]] = {
            "data source": partial(_sink, source),
            "Parquet": partial(_sink, stored.select(*names) if names else stored),
            "read and convert": partial(_in_process, place, names),
            "hand over": partial(_sink, ready),
        }
        spent = {name: _least(step, repeats, jvm) for name, step in steps.items()}
        times = {name: cpu_s for name, (cpu_s, _) in spent.items()}
        rate = {name: count / took / 1e6 for name, took in times.items()}
        result.figures.append(
            Figure(f"{what}: data source", rate["data source"], "million rows/CPU s", "Parquet", rate["Parquet"])
        )
        rows += [(f"{what}: {name}", *took, rate[name]) for name, took in spent.items()]
        whole, converting, handing = (times[name] for name in ("data source", "read and convert", "hand over"))
        result.notes.append(
            f"{what}: of {whole:.2f} CPU s, reading and converting takes {converting:.2f}; handing over the same rows "
            f"ready-made takes {handing:.2f}. A row has {batch_bytes:.0f} bytes on its way."
        )
    result.tables.append(Table(f"{count:,} trades", ("what", "CPU s", "wall s", "million rows/CPU s"), rows))


def _least(work: Callable[[], object], repeats: int, jvm: int) -> tuple[float, float]:
    """The least CPU time of a few runs, and the least wall time, after a run that does not count."""
    work()
    cpu_s, wall_s = float("inf"), float("inf")
    for _ in range(repeats):
        begun, used = time.perf_counter(), _cpu_s(jvm)
        work()
        cpu_s, wall_s = min(cpu_s, _cpu_s(jvm) - used), min(wall_s, time.perf_counter() - begun)
    return cpu_s, wall_s


def _cpu_s(jvm: int) -> float:
    """What this process and the tree of processes under Spark's have used, those that ended included."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        number = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        ticks[number] = sum(map(int, fields[11:15]))
    tree = [jvm]
    for number in tree:
        tree += parents.get(number, [])
    return time.process_time() + sum(ticks.get(number, 0) for number in tree) / os.sysconf("SC_CLK_TCK")


def _sink(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _batches(place: Path, names: tuple[str, ...] | None) -> Iterator[Any]:
    from levelcast.pipeline.tapes import Tapes, rows

    (stripe,) = Tapes([place / "tape"]).stripes.values()
    known = stripe.definitions(stripe.start.sequence, stripe.end.sequence)
    for piece in stripe.pieces(stripe.start.sequence, stripe.end.sequence):
        yield from rows(piece, known, columns=names)


def _in_process(place: Path, names: tuple[str, ...] | None) -> None:
    for _ in _batches(place, names):
        pass


def _write_parquet(place: Path) -> None:
    import pyarrow.parquet as parquet

    from levelcast.pipeline.schema import arrow_schema

    with parquet.ParquetWriter(place / "rows.parquet", arrow_schema(), compression="zstd") as writer:
        for batch in _batches(place, None):
            writer.write_batch(batch, row_group_size=128 * 1024)


def _ready(spark: Any, place: Path, names: tuple[str, ...] | None, count: int) -> tuple[Any, float]:
    """The rows of the first batch again and again, as many as there are trades; and how many bytes one has."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader

    from levelcast.pipeline.schema import spark_schema

    first = next(_batches(place, names))
    path = str(place / "ready.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, first.schema) as writer:
        writer.write_batch(first)
    schema, times = spark_schema(names), count // first.num_rows

    class Ready(DataSource):  # type: ignore[misc, unused-ignore]
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Any:
            return ReadyReader()

    class ReadyReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
        def read(self, partition: Any) -> Iterator[Any]:
            with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as reader:
                (batch,) = reader
            for _ in range(times):
                yield batch

    spark.dataSource.register(Ready)
    return spark.read.format("ready").load(), first.nbytes / first.num_rows


def make_tape(directory: Path, count: int) -> None:
    """Trades of many symbols on a few venues, with their definitions in front."""
    writer = TapeWriter.open(directory, FIRST, records_per_segment=PER_SEGMENT)
    writer.extend(_frames(count))
    writer.close()


def _frames(count: int) -> Iterator[Frame]:
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
        now = START_NS + slot * SLOT_NS
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
