"""The stream into the lake: bars close by the tape's slots, and kill -9 changes nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from levelcast.protocol.history import Frame
from levelcast.records import trades
from levelcast.wire.messages import Packet
from tests.spark_parts import spark
from tests.tape_parts import FIRST, T0, frame_of_packets, tip_after
from tests.test_pipeline_input_tapes import write

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.derive.bars import bars, complete
from levelcast.pipeline.input.load import read_pieces
from levelcast.pipeline.jobs import stream
from levelcast.pipeline.jobs.load import load_pieces
from levelcast.pipeline.jobs.refresh import refresh
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.schema import DAY_NS
from levelcast.pipeline.lake.tables import TABLES

__all__ = ["spark"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[1]
S = 1_000_000_000


def traded(count: int, every_ns: int, seed: int = 1) -> list[Frame]:
    """Frames of a few trades each, now and then a bust or a correction of an earlier one."""
    rng, tip = Random(seed), FIRST.copy()
    frames: list[Frame] = []
    number = 0
    for at in range(count):
        batch = trades(rng.randint(1, 4))
        for record in batch:
            number += 1
            record["publisher_id"], record["instrument_id"] = rng.randint(1, 2), rng.randint(1, 3)
            record["ts_event"], record["price"], record["size"] = T0, rng.randint(1, 10**12), rng.randint(1, 500)
            record["trade_id"] = number
            if number > 20 and rng.random() < 0.05:
                record["action"], record["trade_id"] = rng.choice((b"C", b"M")), number - rng.randint(1, 20)
        slot = tip.slot + 1
        packet = Packet(201, 1, at + 1, len(batch), batch.tobytes())
        frame = frame_of_packets(slot, T0 + slot * every_ns, tip.next_sequence, [packet], tip.chain)
        tip.append(frame)
        frames.append(frame)
    return frames


def content(lake: Lake, name: str) -> list[str]:
    rows = lake.arrow(name).to_pylist() if lake.has(name) else []
    return sorted(str({key: value for key, value in row.items() if key != "source"}) for row in rows)


def by_batch(spark: Any, tape: Path, place: Path) -> Lake:
    lake = Lake.create(place)
    load_pieces(spark, lake, read_pieces(spark, [tape]), str(tape))
    refresh(spark, lake)
    return lake


def same(one: Lake, other: Lake) -> None:
    for name in TABLES:
        assert content(one, name) == content(other, name), name


def follow(spark: Any, lake: Lake, tape: Path, most: int = 60) -> None:
    query, follower = stream.start(spark, lake, [tape], until_now=True, most_records=most)
    query.awaitTermination()
    assert follower.failed is None


def test_bars_close_by_slot_and_end_as_those_of_a_batch_run(spark: Any, tmp_path: Path) -> None:
    frames = traded(40, S // 8)
    write(tmp_path / "a", frames[:20]).close()
    write(tmp_path / "b", frames).close()
    lake = Lake.create(tmp_path / "lake")
    follow(spark, lake, tmp_path / "a")
    upto = min(lake.newest_ns().values())
    assert upto == frames[19].timestamp_ns
    found = lake.read(spark, "bars").filter("interval = '1s' and variant = 'all'")
    assert {row.start_ns for row in found.collect()} == {
        frame.timestamp_ns // S * S for frame in frames[:20] if frame.timestamp_ns // S * S + S <= upto
    }
    whole = bars(lake.read(spark, "trades"), ["1s"]).filter(f"start_ns + {S} <= {upto}").select(*TABLES["bars"].names)
    closed = lake.read(spark, "bars").filter("interval = '1s'")
    assert sorted(map(str, closed.collect())) == sorted(map(str, whole.collect()))
    refresh(spark, lake)  # with the bars that are open
    follow(spark, lake, tmp_path / "b")  # another receiver's tape, which is longer
    refresh(spark, lake)
    same(lake, by_batch(spark, tmp_path / "b", tmp_path / "batch"))


def test_kill_9_in_the_middle_and_again(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "node" / "tape", traded(30, S // 8, seed=2)).close()
    lake = tmp_path / "lake"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "levelcast", "pipeline", "stream", "--input", str(tmp_path / "node"), "--lake", str(lake),
        "--until-now", "--max-records", "20", "--master", "local[1]",
    ]  # fmt: skip
    killed = 0
    for wanted in (2, 4, None):
        process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True, stderr=subprocess.PIPE, text=True
        )
        while wanted is not None and process.poll() is None and versions(lake) < wanted:
            time.sleep(0.05)
        if wanted is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        _, told = process.communicate(timeout=900)
        if wanted is None:
            assert process.returncode == 0, told
            assert re.search(r"batch \d+: [\d,]+ records, stripe 0 to [\d,]+, lag [\d.]+ s", told)
    assert killed == 2
    same(Lake(lake), by_batch(spark, tmp_path / "node", tmp_path / "batch"))


def test_a_stream_over_midnight_ends_as_a_batch_run(spark: Any, tmp_path: Path) -> None:
    """Minutes from seconds, days from minutes; small files are put together meanwhile."""
    frames = quiet_trades(60, 20 * S)
    write(tmp_path / "a", frames[:50]).close()
    write(tmp_path / "b", frames).close()
    lake = Lake.create(tmp_path / "lake")
    follow(spark, lake, tmp_path / "a", most=40)
    stream.compact_small(spark, lake.directory)
    follow(spark, lake, tmp_path / "b", most=40)
    found = {row["interval"]: row["count"] for row in lake.read(spark, "bars").groupBy("interval").count().collect()}
    assert set(found) == {"1s", "1m", "1d"}
    upto = min(lake.newest_ns().values())
    closed = complete(bars(lake.read(spark, "trades")), upto).select(*TABLES["bars"].names)
    assert sorted(map(str, lake.read(spark, "bars").collect())) == sorted(map(str, closed.collect()))
    refresh(spark, lake)
    same(lake, by_batch(spark, tmp_path / "b", tmp_path / "batch"))


def quiet_trades(count: int, every_ns: int) -> list[Frame]:
    """Trades without busts, in frames from shortly before midnight to shortly after."""
    tip, frames = FIRST.copy(), []
    rng = Random(3)
    start = (T0 // DAY_NS + 1) * DAY_NS - count // 2 * every_ns
    for at in range(count):
        batch = trades(3)
        batch["publisher_id"], batch["instrument_id"] = 1, [rng.randint(1, 3) for _ in batch]
        batch["price"], batch["size"] = [rng.randint(1, 10**12) for _ in batch], 5
        packet = Packet(201, 1, at + 1, len(batch), batch.tobytes())
        frame = frame_of_packets(at + 1, start + at * every_ns, tip.next_sequence, [packet], tip.chain)
        tip.append(frame)
        frames.append(frame)
    return frames


def test_a_stream_that_was_killed_makes_no_day_anew(spark: Any, tmp_path: Path) -> None:
    """It goes on behind the bars that are closed; only after a batch run there are open ones to be taken out."""
    write(tmp_path / "a", quiet_trades(20, S // 2)).close()
    lake = Lake.create(tmp_path / "lake")
    follow(spark, lake, tmp_path / "a")
    before = lake.handle("bars").version()
    stream.StreamWriter(spark, lake, "x").begin()
    assert lake.handle("bars").version() == before
    refresh(spark, lake)
    follower = stream.StreamWriter(spark, lake, "x")
    follower.begin()
    assert lake.handle("bars").version() > before + 1
    assert follower.lag_s is not None
    assert follower.lag_s > 0
    closed = complete(bars(lake.read(spark, "trades")), follower.upto_ns).select(*TABLES["bars"].names)
    assert sorted(map(str, lake.read(spark, "bars").collect())) == sorted(map(str, closed.collect()))


def test_a_stream_says_what_retention_took(spark: Any, tmp_path: Path) -> None:
    frames = quiet_trades(20, S // 2)
    write(tmp_path / "a", frames[:5]).close()
    lake = Lake.create(tmp_path / "lake")
    follow(spark, lake, tmp_path / "a")
    write(tmp_path / "b", frames[10:], first=tip_after(frames[:10])).close()
    query, _ = stream.start(spark, lake, [tmp_path / "b"], until_now=True)
    with pytest.raises(Exception, match="retention has removed sequence 16 of stripe 0"):
        query.awaitTermination()


def versions(lake: Path) -> int:
    """How many commits the trades have had: they come before the tape's of the same batch."""
    return len(list((lake / "trades" / "_delta_log").glob("*.json")))
