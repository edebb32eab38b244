"""The live benchmark: what it reads from the log, how it compares two lakes, and whom it kills."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.live import Landings, Settings, compare, run, schedule
from benchmarks.report import Options
from levelcast.protocol.history import Frame
from tests.tape_parts import make_frames, tip_after
from tests.test_pipeline_input_tapes import write

pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from levelcast.pipeline.input import tape_to_tables
from levelcast.pipeline.input.tapes import Definitions, Tapes
from levelcast.pipeline.lake.files import File
from levelcast.pipeline.lake.lake import Lake
from tests.spark_parts import need_spark


def load(lake: Lake, tape: Path, frames: list[Frame], first: int = 0) -> None:
    """A tape into a lake, by this process instead of Spark's tasks."""
    write(tape, frames[first:], first=tip_after(frames[:first])).close()
    (stripe,) = Tapes([tape]).stripes.values()

    def files(stages: Mapping[str, Path], attempt: str) -> Mapping[str, list[File]]:
        known: dict[str, dict[int, int]] = {name: {} for name in tape_to_tables.FILED}
        order = tape_to_tables.Order({name: str(stage) for name, stage in stages.items()}, attempt, known, str(tape))
        pieces = stripe.pieces(stripe.start.sequence, stripe.end.sequence)
        done = [tape_to_tables.file_piece(piece, Definitions(), order) for piece in pieces]
        return {name: [file for each in done for file in each.files.get(name, [])] for name in tape_to_tables.FILED}

    with lake.staged_by(tape_to_tables.FILED, files) as made:
        for name, found in made.items():
            if found:
                lake.land(name, found)


def test_the_lag_of_every_record_is_from_its_timestamp_to_the_commit_that_has_it(tmp_path: Path) -> None:
    frames = make_frames(20, 1)
    lake = Lake.create(tmp_path / "lake")
    landings = Landings(lake.directory)
    assert (landings.records, landings.lag_s()) == (0, float("inf"))
    before_ns = time.time_ns()
    load(lake, tmp_path / "a", frames[:10])
    load(lake, tmp_path / "b", frames, 10)
    assert landings.records == sum(frame.records for frame in frames)
    assert len(landings.look()) == 2
    times = np.repeat([frame.timestamp_ns for frame in frames], [frame.records for frame in frames])
    seen = np.array([each.seen_ns for each in landings.found]).repeat([each.records for each in landings.found])
    assert min(seen) > before_ns - 1_000_000_000
    assert landings.lags(0, 2**62) == pytest.approx(np.sort((seen - times) / 1e9))
    at_ns = frames[5].timestamp_ns
    assert len(landings.lags(at_ns, at_ns + 1)) == frames[5].records
    ((_, lag),) = landings.over_time(int(seen[-1]), int(seen[-1]) + 1)
    assert lag == pytest.approx((seen[-1] - times[-1]) / 1e9)


def test_two_lakes_are_equal_by_their_rows_and_not_by_their_files(tmp_path: Path) -> None:
    frames = make_frames(20, 2)
    one, other, short = (Lake.create(tmp_path / name) for name in ("one", "other", "short"))
    load(one, tmp_path / "a", frames[:7])
    load(one, tmp_path / "b", frames, 7)
    load(other, tmp_path / "c", frames)
    load(short, tmp_path / "d", frames[:19])
    found = compare(one.directory, other.directory)
    assert {"tape", "trades", "quarantine"} <= {row[0] for row in found}
    assert {row[3] for row in found} == {"equal"}
    assert found[0][1] == sum(frame.records for frame in frames)
    assert ("tape", "DIFFERENT") in {(row[0], row[3]) for row in compare(one.directory, short.directory)}


def test_half_of_the_kills_are_of_the_stream_and_a_seed_gives_the_same() -> None:
    plan = schedule(Settings(kills=10, seed=3), ["a-1", "b-1"], (2.0, 4.0))
    assert sum(kill.victim == "stream" for kill in plan) == 5
    assert {kill.victim for kill in plan} <= {"stream", "a-1", "b-1"}
    assert all(2.0 <= kill.after_s <= 4.0 for kill in plan)
    assert schedule(Settings(kills=10, seed=3), ["a-1", "b-1"], (2.0, 4.0)) == plan


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_quick_run_kills_a_stream_and_a_receiver_and_all_tables_are_equal(tmp_path: Path) -> None:
    need_spark()
    result = run(Options(quick=True, out=tmp_path))
    figures = {figure.name: figure for figure in result.figures}
    assert figures["records in the lake"].ratio == 1.0
    assert figures["tables equal after the kills"].ratio == 1.0
    assert figures["records in the lake after the kills"].ratio == 1.0
    (table,) = result.tables
    assert {"tape", "trades", "bars", "last_prices", "venue_share", "rates", "instruments", "venues"} <= {
        str(row[0]) for row in table.rows
    }
    assert (tmp_path / "live-lag.svg").exists() or any("matplotlib" in note for note in result.notes)
