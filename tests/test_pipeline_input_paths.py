"""Paths that nodes have measured, in a lake: each line once, and the matrix that follows from them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from levelcast.node.path_log import DIRECTORY, PathLog
from levelcast.overlay.paths import BUCKET_NS, MINUTE_NS, Paths
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.input.paths import load_paths
from levelcast.pipeline.input.probes import load_probes
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.matrix import job as matrix_job
from levelcast.pipeline.matrix import tables as matrix_tables

__all__ = ["spark"]

MS = 1_000_000
HOUR_NS = 60 * MINUTE_NS
T0 = 500_000 * HOUR_NS
NAMES, SITES = {1: "a-1", 2: "b-1", 3: "c-1"}, {1: "a", 2: "b", 3: "c"}
DELAY_MS = {(1, 2): 10, (2, 1): 14, (1, 3): 40, (3, 1): 41, (2, 3): 30, (3, 2): 30}
LOSS = {(1, 2): 0.0, (2, 1): 0.05, (1, 3): 0.01, (3, 1): 0.01, (2, 3): 0.2, (3, 2): 0.0}


def measure_network(data: Path, beats: int = 3_000) -> dict[tuple[str, str], list[int]]:
    """Let three nodes measure and write for a few minutes; return the delays that arrived, by direction."""
    rng, arrived = Random(3), {}
    for node in NAMES:
        paths = Paths(node, set(NAMES) - {node}, T0)
        for peer in set(NAMES) - {node}:
            delays = []
            for number in range(1, beats + 1):
                sent_ns, delay_ns = T0 + number * 50 * MS, DELAY_MS[peer, node] * MS + rng.randrange(5 * MS)
                if rng.random() >= LOSS[peer, node]:
                    paths.hear_beat(peer, number, sent_ns, sent_ns + delay_ns)
                    delays.append(delay_ns)
            arrived[SITES[peer], SITES[node]] = delays
        log = PathLog(data / NAMES[node] / DIRECTORY, node, NAMES, SITES, T0)
        log.write(paths, T0 + beats * 50 * MS, all_of_it=True)
    return arrived


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], list[int]]]:
    data = tmp_path_factory.mktemp("data")
    return data, measure_network(data)


def test_the_matrix_has_the_delays_and_losses_of_each_direction(
    spark: Any, tmp_path: Path, measured: tuple[Path, dict[tuple[str, str], list[int]]]
) -> None:
    data, arrived = measured
    lake = Lake.create(tmp_path / "lake")
    assert load_paths(spark, lake, data).rows == 6 * 3
    matrix_job.refresh(spark, lake)
    rows = {(row["from_site"], row["to_site"]): row for row in lake.arrow("network_matrix").to_pylist()}
    assert rows.keys() == arrived.keys()
    for pair, delays in arrived.items():
        row = rows[pair]
        assert row["answered"] == len(delays)
        assert row["tried"] == row["answered"] + row["lost"]
        assert 3_000 - 20 <= row["tried"] <= 3_000, "the last ones may still arrive"
        assert row["loss_ratio"] <= row["loss_upper"]
        assert row["min_ns"] == min(delays)
        for name, share in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999), ("max_ns", 1.0)):
            exact = int(np.quantile(delays, share, method="inverted_cdf"))
            assert 0 <= row[name] - exact <= BUCKET_NS
        assert row["round_trip_ns"] == row["p50_ns"] + rows[pair[1], pair[0]]["p50_ns"]
    found = matrix_job.measure(spark, lake, None, "worst", 0.99)
    assert found.helpers["c"][0][1].site == "a", "b loses a fifth"
    assert matrix_job.refresh(spark, lake) == 0


def test_a_line_is_loaded_once_although_files_grow(
    spark: Any, tmp_path: Path, measured: tuple[Path, dict[tuple[str, str], list[int]]]
) -> None:
    lake, (file, *_) = Lake.create(tmp_path / "lake"), sorted(measured[0].glob("**/*.csv"))
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    part = tmp_path / "part.csv"
    part.write_text("".join(lines[:3]), encoding="utf-8")
    assert load_paths(spark, lake, part).rows == 2
    with pytest.raises(LakeError, match=r"part\.csv: all of its 2 lines are already in the lake"):
        load_paths(spark, lake, part)
    part.write_text("".join(lines), encoding="utf-8")
    assert load_paths(spark, lake, part).rows == len(lines) - 3
    assert lake.arrow("paths").num_rows == len(lines) - 1


def test_directions_without_beats_come_from_probes(
    spark: Any, tmp_path: Path, measured: tuple[Path, dict[tuple[str, str], list[int]]]
) -> None:
    lake = Lake.create(tmp_path / "lake")
    probes = tmp_path / "probes.csv"
    text = "from_site,to_site,at_ns,round_trip_ns,loss_ratio\n"
    text += "".join(f"{a},b,{T0 + n * MS},{80 * MS},0\n" for n in range(200) for a in ("a", "d"))
    probes.write_text(text, encoding="utf-8")
    load_probes(spark, lake, probes)
    load_paths(spark, lake, measured[0])
    matrix_job.refresh(spark, lake)
    rows = {(row["from_site"], row["to_site"]): row for row in lake.arrow("network_matrix").to_pylist()}
    assert rows["d", "b"]["p50_ns"] == 40 * MS
    assert rows["a", "b"]["p50_ns"] < 20 * MS, "beats measure more"
    assert len(rows) == 7


def test_what_is_not_a_measured_path_is_refused(spark: Any, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with pytest.raises(LakeError, match=r"has no measured paths; nodes write them to NODE/paths/DAY\.csv"):
        load_paths(spark, lake, tmp_path)
    file = tmp_path / "2026-11-18.csv"
    file.write_text("from_site,to_site\na,b\n", encoding="utf-8")
    with pytest.raises(LakeError, match="line 1 has no column from_node; these are not measured paths"):
        load_paths(spark, lake, file)
    head = "from_site,to_site,from_node,to_node,start_ns,since_ns,heard,lost,bursts,outages,least_ns,delays\n"
    file.write_text(f"{head}a,b,a-1,b-1,{T0},{T0},5,0,0,0,100,12:x\n", encoding="utf-8")
    with pytest.raises(LakeError, match=r"2026-11-18\.csv: the line from a-1 to b-1 of minute \d+ is not a measured"):
        load_paths(spark, lake, file)
    assert not lake.has("paths")


def test_buckets_of_nodes_and_of_the_lake_are_the_same() -> None:
    assert matrix_tables.BUCKET_NS == BUCKET_NS
