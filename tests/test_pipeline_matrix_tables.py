"""The network matrix: known networks come back out of their probes, and the best helper is not always the nearest."""

from __future__ import annotations

import csv
import math
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from levelcast.network import NetworkError, load_network
from levelcast.network.measured.file import measured_file
from levelcast.network.measured.matrix import Helper, Hour, Shared, expected_ns, helpers_of, missed_too
from levelcast.network.measured.timing import MatrixResult, UnmeasuredError
from levelcast.network.stripe_config import ring_config
from levelcast.pipeline.matrix import job as matrix_job
from levelcast.pipeline.matrix import tables as matrix_tables
from tests.spark_parts import spark

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from levelcast.pipeline.input.probes import load_probes, read_probes
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake

__all__ = ["spark"]

T0 = 1_794_787_200_000_000_000
HOUR = 3_600_000_000_000
MS = 1_000_000
COLUMNS = ("from_site", "to_site", "at_ns", "round_trip_ns", "loss_ratio", "one_way_ns")

Known = dict[tuple[str, str], tuple[float, float, float]]
"""Between two sites: delay and jitter in ms, and one-way loss."""


def probes_of(known: Known, count: int, start_ns: int = T0, seed: int = 1, *, clocks: bool = True) -> list[list[Any]]:
    """Every site sends `count` probes to all others at once."""
    random = Random(seed)
    sites = sorted({site for pair in known for site in pair})
    rows: list[list[Any]] = []
    for place, origin in enumerate(sites):
        for number in range(count):
            at = start_ns + number * (HOUR // count) + place
            for other in sites:
                way = known.get((min(origin, other), max(origin, other)))
                if other == origin or way is None:
                    continue
                delay, jitter, loss = way
                there, back = (int((delay + jitter * random.random()) * MS) for _ in range(2))
                if random.random() < loss or random.random() < loss:
                    rows.append([origin, other, at, None, 1.0, None])
                else:
                    rows.append([origin, other, at, there + back, 0.0, there if clocks else None])
    return rows


def write(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return path


def one_row(found: Any, origin: str, to: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [each.asDict() for each in found.collect()]
    (row,) = [row for row in rows if (row["from_site"], row["to_site"]) == (origin, to)]
    return row


def frame(spark: Any, rows: list[list[Any]]) -> Any:
    return spark.createDataFrame(
        rows, "from_site string, to_site string, at_ns long, round_trip_ns long, loss_ratio double, one_way_ns long"
    )


# -- Spark ------------------------------------------------------------------------------------------------


def test_quantiles_and_loss_of_a_handful_of_probes(spark: Any) -> None:
    rows = [["a", "b", T0 + n, 2 * n * MS, 0.0, None] for n in range(1, 102)]
    rows += [["a", "b", T0 + 200 + n, None, 1.0, None] for n in range(3)] + [
        ["b", "a", T0 + HOUR, 8 * MS, None, 3 * MS]
    ]
    found = matrix_tables.network_matrix(frame(spark, rows))
    row = one_row(found, "a", "b")
    assert (row["probes"], row["answered"], row["tried"], row["lost"]) == (104, 101, 104, 3)
    assert [row[name] // MS for name in ("min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns")] == [1, 51, 91, 100, 101]
    assert row["loss_ratio"] == pytest.approx(1 - math.sqrt(101 / 104))
    assert row["loss_ratio"] < row["loss_upper"] < 0.05
    assert (row["round_trip_ns"], row["enough"], row["both_clocks"], row["start_ns"]) == (102 * MS, True, False, T0)
    other = one_row(found, "b", "a")
    assert (other["p50_ns"], other["loss_ratio"], other["loss_upper"]) == (3 * MS, None, None)
    assert (other["both_clocks"], other["enough"], other["start_ns"]) == (True, False, T0 + HOUR)


def test_approximate_quantiles_are_within_their_rank(spark: Any) -> None:
    rows = [["a", "b", T0 + n, 2 * n, 0.0, None] for n in range(1, 5_001)]
    row = one_row(matrix_tables.matrix_of_probes(frame(spark, rows), exact=False), "a", "b")
    assert [row["p50_ns"], row["p999_ns"]] == pytest.approx([2_500, 4_995], abs=2)


def test_no_loss_among_few_probes_is_no_proof_of_none(spark: Any) -> None:
    rows = [["a", "b", T0 + n, MS, 0.0, None] for n in range(60)]
    row = one_row(matrix_tables.network_matrix(frame(spark, rows)), "a", "b")
    assert row["loss_ratio"] == 0.0
    assert 0.02 < row["loss_upper"] < 0.025


def test_shared_losses_are_of_the_same_probe(spark: Any) -> None:
    rows = [["o", "s", T0, None, 1.0, None], ["o", "h", T0, None, 1.0, None], ["o", "k", T0, 5, 0.0, None]]
    rows += [["o", "s", T0 + 1, None, 1.0, None], ["o", "h", T0 + 1, 5, 0.0, None]]
    rows += [["x", "h", T0 + 1, None, 1.0, None]]
    found = {
        (row.site, row.helper): (row.tried, row.both)
        for row in matrix_tables.shared_losses(frame(spark, rows)).collect()
    }
    assert found == {("s", "h"): (2, 1), ("s", "k"): (1, 0), ("h", "s"): (1, 1), ("h", "k"): (1, 0)}


# -- helpers ----------------------------------------------------------------------------------------------


def helper(site: str, trip_ms: float, answers: float) -> Helper:
    return Helper(site, int(trip_ms * MS), 0.0, 1 - answers, 0, answers, 0.0, False)


def test_the_expected_time_is_that_of_many_tries() -> None:
    order = [helper("a", 10, 0.5), helper("b", 40, 0.9)]
    random, total = Random(3), 0.0
    for _ in range(40_000):
        tries = 0
        while random.random() >= order[tries % 2].answers:
            tries += 1
        total += tries * 100 * MS + order[tries % 2].round_trip_ns
    assert expected_ns(order, 100 * MS) == pytest.approx(total / 40_000, rel=0.02)
    assert expected_ns([helper("a", 10, 0.0)], 100 * MS) == math.inf


def test_the_order_is_the_best_of_all_orders() -> None:
    random = Random(5)
    for _ in range(50):
        helpers = [helper(name, random.uniform(1, 300), random.uniform(0.2, 1)) for name in "abcd"]
        request_ns = int(random.uniform(10, 400)) * MS
        best = min(permutations(helpers), key=lambda order: expected_ns(order, request_ns))
        ranked = sorted(helpers, key=lambda each: each.round_trip_ns + request_ns / each.answers)
        assert expected_ns(ranked, request_ns) == pytest.approx(expected_ns(best, request_ns))


def test_what_both_miss_follows_from_the_probes_that_both_lost() -> None:
    assert missed_too(0.1, 0.1, None) == 0.1
    assert missed_too(0.1, 0.1, Shared(10, 10)) == 0.1  # too few to tell
    assert missed_too(0.1, 0.1, Shared(100, 24)) == 0.1  # chance explains it: 19 are expected
    # Of the tenth that is lost on the way there, half is lost to both together.
    random, tried, both = Random(7), 0, 0
    for _ in range(200_000):
        together = random.random() < 0.05
        lost = [together or random.random() < 0.05 / 0.95 or random.random() < 0.1 for _ in range(2)]
        tried += lost[0]
        both += lost[0] and lost[1]
    truth = (0.05 + 0.95 * (0.05 / 0.95) ** 2) / 0.1
    assert missed_too(0.1, 0.1, Shared(tried, both)) == pytest.approx(truth, rel=0.05)


def row_of(origin: str, to: str, trip_ms: float, loss: float = 0.0, count: int = 1000) -> dict[str, Any]:
    half = int(trip_ms * MS / 2)
    share = 1 - (1 - loss) ** 2
    return {
        **dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), half),
        **{"from_site": origin, "to_site": to, "start_ns": T0, "probes": count, "round_trip_ns": 2 * half},
        **{"answered": round(count * (1 - share)), "tried": count, "lost": count * share},
        **{"loss_ratio": loss, "loss_upper": loss},
    }


def test_a_lossy_neighbour_is_not_the_best_helper() -> None:
    hour = Hour([row_of("s", "near", 10, 0.25), row_of("s", "far", 60, 0.001)], 0.99)
    (first, best), (second, near) = helpers_of(hour, "s", ["near", "far", "s"], 100 * MS)
    assert [(first, best.site, best.nearest), (second, near.site, near.nearest)] == [
        (1, "far", False),
        (2, "near", True),
    ]
    assert best.expected_ns < near.expected_ns
    lossless = Hour([row_of("s", "near", 10), row_of("s", "far", 60)], 0.99)
    assert helpers_of(lossless, "s", ["near", "far"], 100 * MS)[0][1].site == "near"


def test_a_neighbour_that_misses_the_same_is_not_the_best_helper() -> None:
    rows = [row_of("s", "near", 10, 0.001), row_of("s", "far", 60, 0.001)]
    rows += [row_of("o", to, 80, 0.05) for to in ("s", "near", "far")]
    alone = Hour(rows, 0.99)
    assert helpers_of(alone, "s", ["near", "far"], 200 * MS)[0][1].site == "near"
    shared = [{"from_site": "o", "site": "s", "helper": "near", "tried": 100, "both": 50}]
    together = Hour(rows, 0.99, shared)
    (_, best), (_, near) = helpers_of(together, "s", ["near", "far"], 200 * MS)
    assert (best.site, near.site) == ("far", "near")
    assert near.missed > 0.8
    assert near.shared == 100


def test_whose_packets_a_site_misses_decides_what_a_helper_misses() -> None:
    """s misses what o sends, h only what k sends: then h has what s misses. And what h sends itself, it has."""
    rows = [row_of("o", "s", 80, 0.1), row_of("k", "s", 80), row_of("h", "s", 10, 0.1)]
    rows += [row_of("o", "h", 80), row_of("k", "h", 80, 0.4)]
    assert Hour(rows, 0.99).missed("s", "h") == (0.0, 0)
    rows[3] = row_of("o", "h", 80, 0.2)
    assert Hour(rows, 0.99).missed("s", "h")[0] == pytest.approx(0.1)


def test_both_directions_are_one_link_the_worse_of_each() -> None:
    slow = {**row_of("b", "a", 50, 0.1), "min_ns": 9 * MS}
    way = Hour([row_of("a", "b", 20), slow], 0.99).between("b", "a")
    assert way is not None
    assert (way.min_ns, way.late_ns, way.round_trip_ns, way.loss_ratio) == (9 * MS, 25 * MS, 50 * MS, 0.1)


# -- from probes to a network that runs -------------------------------------------------------------------

NETWORK = """\
include = ["measured.toml"]
[network]
name = "planted"
[timing]
slot = "20ms"
[[reformation]]
name = "reform"
id = 11
site = "a"
""" + "".join(
    f'[[site]]\nname = "{name}"\n[[receiver]]\nname = "{name}-1"\nid = {place}\nsite = "{name}"\n'
    for place, name in enumerate("abcd", 1)
)
PLANTED: Known = {
    ("a", "b"): (5.0, 1.0, 0.2),
    ("a", "c"): (20.0, 4.0, 0.002),
    ("a", "d"): (45.0, 10.0, 0.01),
    ("b", "c"): (18.0, 2.0, 0.0),
    ("b", "d"): (60.0, 3.0, 0.03),
    ("c", "d"): (30.0, 6.0, 0.0),
}


@pytest.fixture(scope="module")
def planted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of probes in a lake: the second is slower by half."""
    here = tmp_path_factory.mktemp("planted")
    slower = {pair: (1.5 * delay, jitter, loss) for pair, (delay, jitter, loss) in PLANTED.items()}
    write(here / "probes.csv", probes_of(PLANTED, 2_000) + probes_of(slower, 200, T0 + HOUR, seed=2))
    load_probes(spark, Lake.create(here / "lake"), here / "probes.csv")
    bare = NETWORK.replace('include = ["measured.toml"]\n', "")
    (here / "bare.toml").write_text(bare + '[links]\ndelay = "1ms"\n')
    (here / "network.toml").write_text(NETWORK)
    return here


def measure(spark: Any, here: Path, hour: str, quantile: float = 0.99) -> MatrixResult:
    return matrix_job.measure(spark, Lake(here / "lake"), load_network(here / "bare.toml"), hour, quantile)


def test_a_known_network_comes_back_out_of_its_probes(spark: Any, planted: Path) -> None:
    measured = measure(spark, planted, "2026-11-16T00", 1.0)
    (planted / "measured.toml").write_text(measured_file(measured, load_network(planted / "bare.toml"), "x"))
    network = load_network(planted / "network.toml")
    for (a, b), (delay, jitter, loss) in PLANTED.items():
        link = network.link(a, b)
        # Least and longest of 2,000 uniform delays are within a hundredth of the jitter, but with e^-20.
        assert link.delay_ns / MS == pytest.approx(delay, abs=jitter / 100)
        assert link.quantile_ns / MS == pytest.approx(delay + jitter, abs=jitter / 100 + 0.002)
        # The upper bound holds; it is at most four standard errors of a round trip above.
        width = 4 * math.sqrt((2 * loss * (1 - loss) + 1 / 2_000) / 2_000)
        assert loss - width / 4 <= link.loss_ratio <= loss + width
    assert network.path().delay_between == "b and d"
    assert measured.timed[0].timing is not None
    assert network.timing().late_ns == pytest.approx(measured.timed[0].timing.late_ns, abs=2_000)
    assert network.timing().attempts == measured.timed[0].timing.attempts


def test_the_planted_lossy_neighbour_is_passed_over_by_the_ring(spark: Any, planted: Path) -> None:
    measured = measure(spark, planted, "2026-11-16T00")
    (planted / "measured.toml").write_text(measured_file(measured, load_network(planted / "bare.toml"), "x"))
    network = load_network(planted / "network.toml")
    assert network.helpers["a"][0] == "c"
    assert ring_config(network).nearness[1][0] == 3
    assert ring_config(load_network(planted / "bare.toml")).nearness[1][0] == 2


def test_the_worst_hour_is_the_one_with_the_longest_hold_time(spark: Any, planted: Path) -> None:
    measured = measure(spark, planted, "worst")
    assert (measured.name, measured.hours) == ("2026-11-16T01", 2)
    both = measure(spark, planted, "all")
    assert both.timed[0].hold_ns >= measured.timed[0].hold_ns
    lake = Lake(planted / "lake")
    times = sorted(lake.arrow("network_timing").to_pylist(), key=lambda row: row["start_ns"])
    assert [row["start_ns"] for row in times] == [T0, T0 + HOUR]
    assert times[0]["hold_ns"] < times[1]["hold_ns"] == measured.timed[0].hold_ns
    best = [row for row in lake.arrow("network_helpers").to_pylist() if row["site"] == "a" and row["rank"] == 1]
    assert {row["helper"] for row in best} == {"c"}


def test_half_of_the_round_trip_stands_in_where_clocks_tell_nothing(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "probes.csv", probes_of({("a", "b"): (10.0, 2.0, 0.0)}, 300, clocks=False))
    lake = Lake.create(tmp_path / "lake")
    load_probes(spark, lake, tmp_path / "probes.csv")
    measured = matrix_job.measure(spark, lake, None, "worst", 0.99)
    way = measured.hour.ways["a", "b"]
    assert way.min_ns / MS == pytest.approx(10.0, abs=0.3)
    assert way.late_ns / MS == pytest.approx(12.0, abs=0.3)
    assert measured.timed[0].witnesses == 2


def test_the_timing_can_be_fixed_in_the_file(spark: Any, planted: Path, tmp_path: Path) -> None:
    measured = measure(spark, planted, "worst")
    text = measured_file(measured, load_network(planted / "bare.toml"), "x", fix_timing=True)
    (tmp_path / "measured.toml").write_text(text)
    (tmp_path / "network.toml").write_text(NETWORK)
    timing = measured.timed[0].timing
    assert timing is not None
    assert load_network(tmp_path / "network.toml").timing().hold_ns == timing.hold_ns
    # The number stays what it was measured for: a network that has grown since is told so.
    (tmp_path / "network.toml").write_text(NETWORK.replace('slot = "20ms"', 'slot = "90ms"\nnack_sets = 2'))
    with pytest.raises(NetworkError, match=r"measured.toml:\d+: hold \(Δ_A\) is .* too short"):
        load_network(tmp_path / "network.toml")


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from_site,to_site,at_ns,rtt\n", "line 1 has no column round_trip_ns"),
        ("a,b,1,5,0,\na,b,x,5,0,\n", 'line 3 is not a probe: at_ns is "x", not a time in nanoseconds'),
        ("a,b,1,5,0,\n,b,1,5,0,\n", "line 3 is not a probe: from_site is empty"),
        ("a,b,1,-5,0,\n", 'line 2 is not a probe: round_trip_ns is "-5", not nanoseconds from 0 to an hour'),
        ("a,b,1,5,2,\n", 'line 2 is not a probe: loss_ratio is "2", not a number from 0 to 1'),
        ("a,b,1,,,\n", "line 2 is not a probe: it has neither a time nor a loss"),
    ],
)
def test_a_row_that_is_no_probe_is_named(spark: Any, tmp_path: Path, text: str, told: str) -> None:
    head = "" if "rtt" in text else ",".join(COLUMNS) + "\n"
    (tmp_path / "probes.csv").write_text(head + text)
    with pytest.raises(LakeError) as caught:
        read_probes(spark, tmp_path / "probes.csv")
    assert str(caught.value).startswith(f"{tmp_path / 'probes.csv'}: {told}")


def test_the_same_probes_land_once(spark: Any, planted: Path) -> None:
    with pytest.raises(LakeError, match="already loaded into the lake"):
        load_probes(spark, Lake(planted / "lake"), planted / "probes.csv")


def test_an_hour_without_probes_and_a_lake_without_any(spark: Any, planted: Path, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no probes for the hour 2026-11-17T05; available: 2026-11-16T00, 2026"):
        measure(spark, planted, "2026-11-17T05")
    with pytest.raises(LakeError, match="has neither measured paths nor probes"):
        matrix_job.measure(spark, Lake.create(tmp_path / "lake"), None, "worst", 0.99)


def test_sites_and_pairs_that_do_not_fit_the_network_are_named(spark: Any, planted: Path, tmp_path: Path) -> None:
    bare = (planted / "bare.toml").read_text()
    (tmp_path / "other.toml").write_text(bare.replace('"a"', '"x"').replace('"b"', '"y"'))
    told = matrix_job.measure(spark, Lake(planted / "lake"), load_network(tmp_path / "other.toml"), "all", 0.99)
    assert "the network file does not name a, b: their probes are ignored" in told.remarks
    assert told.hour.sites == ["c", "d"]
    rows = [row_of("p", "q", 10)]
    with pytest.raises(LakeError, match=r"between p, q, but the network file has none of these sites; its sites: a, b"):
        matrix_job.of_network(rows, load_network(planted / "bare.toml"))


def test_a_pair_without_probes_is_named(spark: Any, tmp_path: Path) -> None:
    known = {pair: way for pair, way in PLANTED.items() if pair != ("a", "d")}
    lake = Lake.create(tmp_path / "lake")
    load_probes(spark, lake, write(tmp_path / "probes.csv", probes_of(known, 20)))
    text = NETWORK.replace('include = ["measured.toml"]\n', "")
    pairs = ", ".join(f'{{ between = ["{a}", "{b}"], delay = "1ms" }}' for a, b in PLANTED)
    (tmp_path / "whole.toml").write_text(f"{text}[links]\npairs = [{pairs}]\n")
    measured = matrix_job.measure(spark, lake, load_network(tmp_path / "whole.toml"), "worst", 0.99)
    assert "no probe between a and d: the network file's own links are used" in measured.remarks
    assert any("pairs have fewer than 100 answered probes" in remark for remark in measured.remarks)
    given = '[timing]\nlate = "1s"\nattempts = 3\n'
    (tmp_path / "none.toml").write_text(text.replace("[timing]\n", given))
    with pytest.raises(UnmeasuredError, match=r"no probe between a and d in the hour .*, and the network file has no"):
        matrix_job.measure(spark, lake, load_network(tmp_path / "none.toml"), "worst", 0.99)
