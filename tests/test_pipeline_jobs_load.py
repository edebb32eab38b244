"""Input into a lake: each table takes what it does not have, bad rows are kept apart, derived tables follow."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelcast.pipeline.input import release_logs
from levelcast.pipeline.input.probes import load_probes
from levelcast.pipeline.jobs import load as jobs_load
from levelcast.pipeline.jobs import refresh as jobs_refresh
from levelcast.pipeline.jobs.load import (
    load_deliveries,
    load_pieces,
    load_releases,
    load_status,
    load_subscriptions,
)
from levelcast.pipeline.jobs.refresh import refresh
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.tables import DELIVERIES, RELEASES, TABLES
from levelcast.storage.release_log import RELEASE, Released, ReleaseLog
from tests.spark_parts import spark
from tests.tape_parts import make_frames
from tests.test_pipeline_input_tapes import write

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.input.load import read_pieces

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(600)

S = 1_000_000_000
T0 = 1_794_787_200 * S


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def keys(spark: Any, lake: Lake, name: str) -> list[tuple[int, int]]:
    return sorted((row.stripe, row.sequence) for row in lake.read(spark, name).select("stripe", "sequence").collect())


def test_a_tape_that_grows_is_loaded_on_from_where_it_was(spark: Any, lake: Lake, tmp_path: Path) -> None:
    frames = make_frames(60, 5)
    write(tmp_path / "a", frames[:20]).close()
    first = load_pieces(spark, lake, read_pieces(spark, [tmp_path / "a"]), "a")
    assert first.rows("tape") == sum(frame.records for frame in frames[:20])
    assert lake.tape_ends() == first.stripes
    write(tmp_path / "b", frames).close()
    second = load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b"]), "b")
    whole = sum(frame.records for frame in frames)
    assert first.rows("tape") + second.rows("tape") == whole
    assert keys(spark, lake, "tape") == [(0, sequence) for sequence in range(1, whole + 1)]
    again = load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b"]), "b")
    assert again.commits == {}
    by_kind = {name: lake.read(spark, name).count() for name in ("trades", "quotes", "orders", "quarantine")}
    held = {row.kind: row["count"] for row in lake.read(spark, "tape").groupBy("kind").count().collect()}
    assert by_kind["trades"] + by_kind["quarantine"] == held["trade"]
    assert by_kind["quotes"] == held["quote"]
    bad = lake.read(spark, "quarantine").collect()
    assert bad
    assert {row.reason for row in bad} == {"a trade without a price"}
    assert json.loads(bad[0].raw)["sequence"] == bad[0].position
    assert {row.source for row in bad} <= {"a", "b"}


@pytest.mark.parametrize("dies_at", ["trades", "quotes", "quarantine", "tape"])
def test_after_a_crash_each_table_takes_what_it_does_not_have(
    spark: Any, tmp_path: Path, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = make_frames(30, 6)
    write(tmp_path / "a", frames[:15]).close()
    write(tmp_path / "b", frames).close()
    lake, sound = Lake.create(tmp_path / "lake"), Lake.create(tmp_path / "sound")
    commit = Lake._commit

    def dies(self: Lake, handle: Any, *arguments: Any, **more: Any) -> bool:
        if handle.metadata().name == dies_at:
            raise KeyboardInterrupt
        return commit(self, handle, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            load_pieces(spark, lake, read_pieces(spark, [tmp_path / "a"]), "x")
    load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b"]), "x")  # it has grown meanwhile
    load_pieces(spark, sound, read_pieces(spark, [tmp_path / "b"]), "x")
    for name in ("tape", "trades", "quotes", "orders", "quarantine"):
        assert _content(lake, name) == _content(sound, name), name


def _content(lake: Lake, name: str) -> list[str]:
    return sorted(map(str, lake.arrow(name).to_pylist())) if lake.has(name) else []


def test_derived_tables_follow_their_bases_and_no_more(
    spark: Any, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = make_frames(40, 7)
    write(tmp_path / "a", frames[:20]).close()
    load_pieces(spark, lake, read_pieces(spark, [tmp_path / "a"]), "a")
    made = refresh(spark, lake)
    assert set(made) == {
        "bars", "last_prices", "venue_share", "rates", "rate_fit", "bbo", "trade_throughs", "instruments", "venues",
    }  # fmt: skip
    assert refresh(spark, lake) == {}
    write(tmp_path / "b", frames).close()
    load_pieces(spark, lake, read_pieces(spark, [tmp_path / "b"]), "b")
    assert "bars" in refresh(spark, lake)
    other = Lake.create(tmp_path / "other")
    load_pieces(spark, other, read_pieces(spark, [tmp_path / "b"]), "b")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # what suits little was for the time of it only
    monkeypatch.setattr(jobs_refresh, "LITTLE_ROWS", 0)  # one after the other, as for much: they are the same
    refresh(spark, other)
    for name in TABLES:
        if name != "quarantine":
            assert _content(lake, name) == _content(other, name), name


def test_what_reads_another_table_waits_for_it_and_a_failure_ends_the_rest() -> None:
    chains = [[each.name for each in chain] for chain in jobs_refresh._chains(jobs_refresh.derivations())]
    assert ["rates", "rate_fit"] in chains
    assert sorted(map(len, chains)) == [1, 1, 1, 1, 1, 2]
    done: list[int] = []
    begun, broken = threading.Event(), threading.Event()

    def breaks() -> None:
        begun.wait(60)
        broken.set()
        raise LakeError("broken")

    def lasts() -> None:
        begun.set()
        broken.wait(60)
        done.append(1)

    with pytest.raises(LakeError, match="broken"):
        jobs_refresh._all_of([breaks, lasts], 2)
    assert done == [1]
    begun.set()
    with pytest.raises(LakeError, match="broken"):
        jobs_refresh._all_of([breaks, partial(done.append, 3)], 1)
    assert done == [1]


def test_releases_are_late_ones_and_histograms(spark: Any, lake: Lake, tmp_path: Path) -> None:
    minute = 60 * S
    for receiver, shift in (("a", 0), ("b", 3_000)):
        log = ReleaseLog(tmp_path / "data" / receiver / "releases")
        on_time = [Released(n, 1, T0 + n * S, T0 + n * S + 1_500 + shift, 4, False) for n in range(1, 71)]
        late = Released(71, 1, T0 + 71 * S, T0 + 72 * S, 9, True)
        log.append([*on_time, late] if receiver == "a" else on_time)
        log.close()
    assert load_releases(spark, lake, [tmp_path / "data"]) is not None
    assert load_releases(spark, lake, [tmp_path / "data" / "a"]) is None
    rows = lake.read(spark, "releases").orderBy("receiver", "kind", "start_ns").collect()
    found = [
        (row.receiver, row.kind, (row.start_ns - T0) // minute, row.low_ns, row.high_ns, row.releases) for row in rows
    ]
    assert found == [
        ("ALL", "spread", 0, 2_000, 5_000, 59),
        ("ALL", "spread", 1, 2_000, 5_000, 11),
        ("a", "delay", 0, 1_000, 2_000, 59),
        ("a", "delay", 1, 1_000, 2_000, 11),
        ("a", "late", 1, S, S, 1),
        ("b", "delay", 0, 2_000, 5_000, 59),
        ("b", "delay", 1, 2_000, 5_000, 11),
    ]
    assert [(row.slot, row.records, row.released_ns) for row in rows if row.kind == "late"] == [(71, 9, T0 + 72 * S)]
    assert sum(row.records for row in rows if row.kind == "delay") == 2 * 70 * 4


def test_several_tasks_read_release_logs_and_find_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for receiver, shift in (("a", 0), ("b", 3_000)):
        log = ReleaseLog(tmp_path / "data" / receiver / "releases", entries_per_file=40)
        for n in range(1, 231 if receiver == "a" else 200):
            log.append([Released(n, 1, T0 + n * S, T0 + n * S + 1_500 + shift * (n % 3), 4, n % 50 == 0)])
        log.close()
    logs = release_logs.find_logs([tmp_path / "data"])
    ranges = release_logs.slot_ranges(logs, {"a": 30}, 100)
    assert len(ranges) == 4
    assert [each.low for each in ranges[1:]] == [each.high + 1 for each in ranges[:-1]]
    one, many = Lake.create(tmp_path / "one"), Lake.create(tmp_path / "many")
    load_releases(spark, one, [tmp_path / "data"])
    monkeypatch.setattr(jobs_load, "ENTRIES_PER_TASK", 100)
    load_releases(spark, many, [tmp_path / "data"])
    assert _content(many, "releases") == _content(one, "releases")
    assert many.all_marks("releases") == one.all_marks("releases") == {"releases/a": 230, "releases/b": 199}
    assert load_releases(spark, many, [tmp_path / "data"]) is None


def test_release_rows_without_a_second_receiver_have_no_spread() -> None:
    log = np.zeros(2, RELEASE)
    log["slot"], log["scheduled_ns"], log["released_ns"], log["records"] = [1, 2], T0, [T0 - 5, T0 + 5], 1
    table = release_logs.release_rows({"a": log})
    assert set(table["kind"].to_pylist()) == {"delay"}
    assert table.schema.names == list(RELEASES.names)
    assert table["high_ns"].to_pylist() == [0, 1_000]


def test_subscriptions_and_status_have_loaders(spark: Any, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "interest.csv").write_text("user,flow\nu,A\nv,A\nu,A\n", encoding="utf-8")
    assert load_subscriptions(spark, lake, tmp_path / "interest.csv").rows == 2
    assert load_subscriptions(spark, lake, tmp_path / "interest.csv").rows == 2
    assert lake.read(spark, "subscriptions").count() == 2
    told: dict[str, Any] = {
        "nodes": {"tokyo-1": {"now_ns": T0, "requests": 3, "late": 0, "edge": {"requests": 7}}, "floor": {"now_ns": T0}}
    }
    (tmp_path / "status.json").write_text(json.dumps(told), encoding="utf-8")
    assert load_status(spark, lake, tmp_path / "status.json").rows == 2
    rows = {row.receiver: row for row in lake.read(spark, "requests").collect()}
    assert (rows["tokyo-1"].requests, rows["tokyo-1"].customer_requests) == (3, 7)
    assert (rows["floor"].requests, str(rows["floor"].day)) == (None, "2026-11-16")
    with pytest.raises(LakeError, match="has no edge with subscribers that deliver together"):
        load_deliveries(spark, lake, tmp_path / "status.json")
    found = dict.fromkeys(DELIVERIES.names, 5) | {"worst": [{"address": "10.0.0.7:42"}, {"address": "10.0.0.8:42"}]}
    told["nodes"]["tokyo-1"]["edge"] = {"together": found}
    (tmp_path / "status.json").write_text(json.dumps(told), encoding="utf-8")
    assert load_deliveries(spark, lake, tmp_path / "status.json").rows == 1
    (row,) = lake.read(spark, "deliveries").collect()
    assert (row.receiver, row.at_ns, row.needed_ns, row.worst) == ("tokyo-1", T0, 5, "10.0.0.7:42")
    (tmp_path / "probes.csv").write_text(
        f"from_site,to_site,at_ns,round_trip_ns,loss_ratio\na,b,{T0},5000,0.01\n", encoding="utf-8"
    )
    assert load_probes(spark, lake, tmp_path / "probes.csv").rows == 1
    with pytest.raises(LakeError, match="not the output of `levelcast status --json`"):
        load_status(spark, lake, tmp_path / "interest.csv")
