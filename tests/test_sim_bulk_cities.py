"""A world is built as its size says, of measured or of made-up cities, and runs to the same figures again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.sim.bulk.cities import Globe, Size, build_globe, made_up_cities
from levelcast.sim.bulk.plots import plot_world
from levelcast.sim.bulk.run import Conditions, run_world

SMALL = Size(primaries=8, receivers=80, customers=3_000, regions=5, sources=4)
SHORT = Conditions(0.05, 60, 10)


@pytest.fixture(scope="module")
def globe() -> Globe:
    return build_globe(*made_up_cities(40), SMALL)


def test_groups_are_of_equal_size_and_stand_at_the_two_sites_of_a_region(globe: Globe) -> None:
    assert np.bincount(globe.home).tolist() == [10] * 8
    assert globe.home[:8].tolist() == list(range(8))
    pairs = {frozenset(pair) for pair in globe.regions.sites.tolist()}
    for primary in range(8):
        assert frozenset(globe.city[globe.home == primary].tolist()) in pairs


def test_a_third_layer_has_its_homes_in_the_second_and_stands_at_the_same_two_sites() -> None:
    size = Size(primaries=8, receivers=80, customers=3_000, regions=5, layers=3)
    deep = build_globe(*made_up_cities(40), size)
    assert size.groups == (3, 2)
    assert deep.core(0.05).layer_starts == [0, 8, 32, 80]
    assert np.bincount(deep.home, minlength=80).tolist() == [4] * 8 + [2] * 24 + [0] * 48
    parent = np.where(deep.home >= 8, deep.home[deep.home], deep.home)
    for primary in range(8):
        pair = set(deep.city[np.flatnonzero(parent == primary)].tolist())
        assert pair in [set(sites) for sites in deep.regions.sites.tolist()]
    flat = build_globe(*made_up_cities(40), replace(size, layers=2))
    assert deep.derived(0.05).timing.hold_ns > flat.derived(0.05).timing.hold_ns
    figures = run_world(deep, SHORT).figures()
    assert figures["on_time"] == 1.0
    assert figures["primary_nacks_mean"] < run_world(flat, SHORT).figures()["primary_nacks_mean"]


def test_customers_have_two_lines_at_the_sites_of_their_region_the_nearer_first(globe: Globe) -> None:
    customers = globe.customers
    assert len(customers) == 3_000
    region = np.repeat(np.arange(5), np.diff(customers.starts))
    first, second = globe.city[customers.first], globe.city[customers.second]
    assert (np.sort(np.stack([first, second], axis=1)) == np.sort(globe.regions.sites[region])).all()
    quantile = globe.delays.quantile_ms
    assert (quantile[first, customers.place] <= quantile[second, customers.place]).all()
    load = np.bincount(np.concatenate([customers.first, customers.second]), minlength=80)
    assert load.min() > 0


def test_receivers_stand_within_reach_and_the_timing_follows_from_that() -> None:
    delays, weights = made_up_cities(40)
    near = build_globe(delays, weights, Size(primaries=8, receivers=80, customers=800, regions=5, reach_ms=70.0))
    far = build_globe(delays, weights, Size(primaries=8, receivers=80, customers=800, regions=5))
    assert near.longest_ms <= 70.0 < far.longest_ms
    assert near.derived(0.01).timing.hold_ns < far.derived(0.01).timing.hold_ns
    assert far.derived(0.01).timing.attempts < far.derived(0.1).timing.attempts


def test_a_world_runs_on_time_and_twice_the_same(globe: Globe) -> None:
    figures = run_world(globe, SHORT).figures()
    assert figures == run_world(globe, SHORT).figures()
    assert figures != run_world(globe, Conditions(0.05, 60, 10, seed=2)).figures()
    assert figures["on_time"] == 1.0
    assert figures["releases"] == 60 * 80
    assert figures["hold_ms"] < figures["latency_p50_ms"] < figures["latency_p99_ms"]
    assert figures["by_first_line"] + figures["by_second_line"] + figures["by_repair"] == pytest.approx(1.0)
    assert figures["primary_nacks_busiest"] >= figures["primary_nacks_mean"] > 0


def test_answers_to_secondaries_go_to_no_other_receiver(globe: Globe) -> None:
    figures = run_world(globe, Conditions(0.2, 60, 2)).figures()
    assert figures["answer_copies_per_packet"] < 10
    assert figures["on_time"] == 1.0


def test_latency_is_wait_and_hold_and_line(globe: Globe) -> None:
    run = run_world(globe, SHORT)
    usual = float(np.median(run.core.wait_ms)) + run.hold_ms + run.edge.quantile_ms(0.5)
    assert run.latency_ms(0.5) == pytest.approx(usual, abs=15.0)


def test_plots_are_pictures(globe: Globe, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for path in plot_world([run_world(globe, SHORT)], tmp_path):
        ElementTree.parse(path)


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ({"receivers": 81}, "equal groups"),
        ({"primaries": 2, "receivers": 80}, "equal groups"),
        ({"layers": 4}, "4 layers of 80 receivers"),
        ({"receivers": 16, "layers": 3}, "three receivers or more per primary"),
        ({"regions": 9}, "9 regions for 8 primaries"),
        ({"customers": 3}, "one subscriber per primary"),
        ({"slot_ms": 0.0}, "longer than 0"),
    ],
)
def test_a_size_that_cannot_be_is_refused(size: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Size(**{"primaries": 8, "receivers": 80, "customers": 3_000, "regions": 5, **size})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ratio"):
        Conditions(0.7)
    with pytest.raises(ValueError, match="two slots"):
        Conditions(0.1, 1)


# -- the command ----------------------------------------------------------------------------------------------------

LITTLE = ["--cities", "30", "--primaries", "6", "--receivers", "60", "--regions", "4", "--customers", "600"]
BRIEF = ["--slots", "30", "--follow", "5"]


def test_the_command_prints_a_table_and_json() -> None:
    table = CliRunner().invoke(app, ["world", *LITTLE, *BRIEF])
    assert table.exit_code == 0, table.output
    assert "60 receivers in 8 of 30 cities, 600 subscribers in 4 regions" in table.output
    assert "10% loss" in table.output
    told = json.loads(CliRunner().invoke(app, ["world", *LITTLE, *BRIEF, "--loss", "0.02", "--json"]).stdout)
    assert told["world"]["receivers"] == 60
    assert [run["loss"] for run in told["runs"]] == [0.02]
    assert told["peak_mb"] > 0


def test_the_command_reads_measured_cities(tmp_path: Path) -> None:
    names = [f"town {number}" for number in range(12)]
    rows = [f"{a},{b},{5 * abs(i - k)},1" for i, a in enumerate(names) for k, b in enumerate(names) if a != b]
    (tmp_path / "delays.csv").write_text("\n".join(["from,to,delay_ms,jitter_ms", *rows]), encoding="utf-8")
    (tmp_path / "weights.csv").write_text("city,weight\ntown 3,9\ntown 4,1\n", encoding="utf-8")
    given = ["--delays", str(tmp_path / "delays.csv"), "--weights", str(tmp_path / "weights.csv")]
    done = CliRunner().invoke(app, ["world", *given, *LITTLE, *BRIEF, "--loss", "0.01", "--plots", str(tmp_path / "p")])
    assert done.exit_code == 0, done.output
    assert "60 receivers in 8 of 12 cities" in done.output
    assert (tmp_path / "p" / "world-nacks.svg").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--receivers", "61"], "equal groups"),
        (["--loss", "0.9"], "ratio"),
        (["--reach", "far"], "--reach"),
        (["--reach", "1ms"], "sites"),
        (["--weights", "there.csv"], "--delays"),
    ],
)
def test_a_wrong_command_says_why(more: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["world", *LITTLE, *BRIEF, *more])
    assert done.exit_code == 2
    assert says in done.output
