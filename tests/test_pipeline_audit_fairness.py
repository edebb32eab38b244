"""The audit *fairness* on simulated days: clean ones pass, a planted fault is found and named, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.audit_stage import Day, simulate
from levelcast.network import five_cities, parse_network
from levelcast.pipeline.audit.base import AuditOptions, Finding, Job, Result
from levelcast.pipeline.audit.fairness import run
from levelcast.pipeline.audit.hypotheses import lower_third, middle
from levelcast.pipeline.audit.inputs import gather
from levelcast.pipeline.audit.release_stats import ENTRIES_PER_TASK, log_units
from levelcast.pipeline.audit.source_wait import Waits, beyond_chance, chance_of
from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import LATE

SECONDS = 40
EUROPE = ("london-1", "frankfurt-1")


@pytest.fixture(scope="module")
def clean() -> Day:
    return simulate(6, SECONDS)


@pytest.fixture
def day(clean: Day) -> Day:
    """The clean day, with logs of its own to plant faults in."""
    return replace(clean, releases={name: rows.copy() for name, rows in clean.releases.items()})


def audit(day: Day, data: Path, **options: float) -> Result:
    day.write(data)
    return run(Job(None, gather([data], day.network), AuditOptions(**options)))  # type: ignore[arg-type]


def only(result: Result) -> Finding:
    assert len(result.findings) == 1, result.findings
    return result.findings[0]


def shift(day: Day, name: str, by_ns: int) -> None:
    rows = day.releases[name]
    rows["released_ns"] = (rows["released_ns"].astype(np.int64) + by_ns).astype(np.uint64)


def test_a_clean_day_passes(day: Day, tmp_path: Path) -> None:
    result = audit(day, tmp_path)
    assert result.passed, result.findings
    assert result.looked_at["tests"] == 16  # 5 receivers, 3 regions, 5 sources, 3 regions of sources
    assert "No receiver released early. No receiver, region or source was treated differently" in result.sentence
    assert not result.remarks
    receivers, spread, sources = result.figures
    assert len(receivers.rows) == len(sources.rows) == 5
    assert spread.rows[0][1] == result.looked_at["slots"] > 700


def test_a_receiver_that_releases_2_ms_early_is_named(day: Day, tmp_path: Path) -> None:
    shift(day, "sydney-1", -2_000_000)
    found = only(audit(day, tmp_path))
    assert (found.kind, found.subject) == ("released early", "sydney-1")
    assert found.slot == int(day.releases["sydney-1"]["slot"][0])
    assert -2_000_000 < (found.value or 0) < -1_800_000


def test_one_early_release_is_enough(day: Day, tmp_path: Path) -> None:
    rows = day.releases["tokyo-1"]
    rows["released_ns"][50] = rows["scheduled_ns"][50] - np.uint64(2_000_000)
    found = only(audit(day, tmp_path))
    assert (found.kind, found.subject, found.value) == ("released early", "tokyo-1", -2_000_000)
    assert found.slot == int(rows["slot"][50])
    assert "released 1 of" in found.says


def test_a_region_that_is_1_ms_late_is_named_as_a_region(day: Day, tmp_path: Path) -> None:
    for name in EUROPE:
        shift(day, name, 1_000_000)
    found = only(audit(day, tmp_path))
    assert (found.kind, found.subject) == ("region late", "europe")
    assert "frankfurt-1, london-1" in found.says
    assert (found.low or 0) < 1_000_000 < (found.high or 0)
    assert (found.p or 1) < 1e-3


def test_one_late_receiver_is_named_and_not_its_region(day: Day, tmp_path: Path) -> None:
    shift(day, "london-1", 2_500_000)
    found = only(audit(day, tmp_path))
    assert (found.kind, found.subject) == ("receiver late", "london-1")


def test_most_receivers_late_does_not_make_the_others_early(day: Day, tmp_path: Path) -> None:
    for name in (*EUROPE, "tokyo-1"):
        shift(day, name, 1_500_000)
    result = audit(day, tmp_path)
    assert {(each.kind, each.subject) for each in result.findings} == {
        ("region late", "europe"),
        ("receiver late", "tokyo-1"),
    }


def test_a_difference_that_is_no_matter_is_no_finding(day: Day, tmp_path: Path) -> None:
    for name in EUROPE:
        shift(day, name, 200_000)
    assert audit(day, tmp_path).passed


def test_all_late_alike_is_fair(day: Day, tmp_path: Path) -> None:
    for name in day.releases:
        shift(day, name, 3_000_000)
    assert audit(day, tmp_path).passed


def test_late_too_often_is_named(day: Day, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = day.releases["new-york-1"]
    rows["flags"][rng.random(len(rows)) < 0.08] = LATE
    found = only(audit(day, tmp_path))
    assert (found.kind, found.subject) == ("late too often", "new-york-1")
    assert 0.01 < (found.low or 0) < (found.value or 0) < (found.high or 1)


def test_a_source_that_is_served_late_is_named(tmp_path: Path) -> None:
    found = only(audit(simulate(6, SECONDS, slow_source="XTKS", slow_ns=30_000_000), tmp_path))
    assert (found.kind, found.subject) == ("source served late", "XTKS")
    assert (found.low or 0) < 30_000_000 < (found.high or 0) + 4_000_000


def test_without_a_network_file_waiting_is_not_judged(day: Day, tmp_path: Path) -> None:
    day.write(tmp_path)
    result = run(Job(None, gather([tmp_path])))
    assert result.passed
    assert any("not judged without --network" in each for each in result.remarks)
    assert result.figures[2].rows[0][1].startswith("source ")


def test_without_links_waiting_is_not_judged(day: Day, tmp_path: Path) -> None:
    day.write(tmp_path)
    result = run(Job(None, gather([tmp_path], replace(day.network, links=None))))
    assert result.passed
    assert any("has no [links]" in each for each in result.remarks)


def test_a_receiver_without_a_log_cannot_be_judged(day: Day, tmp_path: Path) -> None:
    day.write(tmp_path)
    for path in (tmp_path / "tokyo-1" / "releases").iterdir():
        path.unlink()
    with pytest.raises(TapeError, match="release log of tokyo-1 not found"):
        run(Job(None, gather([tmp_path])))


def test_a_receiver_that_was_down_for_a_while_is_compared_where_it_was_there(day: Day, tmp_path: Path) -> None:
    rows = day.releases["tokyo-1"]
    day.releases["tokyo-1"] = np.concatenate((rows[:200], rows[500:]))
    result = audit(day, tmp_path)
    assert result.passed, result.findings
    assert result.looked_at["tests"] == 16


def test_long_logs_are_cut_into_tasks_that_add_up(day: Day, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit(day, tmp_path)
    assert len(log_units(gather([tmp_path]).stripes[0], 0)) == 1
    assert ENTRIES_PER_TASK > 10_000
    monkeypatch.setattr("levelcast.pipeline.audit.release_stats.ENTRIES_PER_TASK", 300)
    assert len(log_units(gather([tmp_path]).stripes[0], 0)) > 10
    assert run(Job(None, gather([tmp_path], day.network))).figures == whole.figures


# -- input against the network file ---------------------------------------------------------------------


def test_a_receiver_of_the_file_without_a_tape_is_missed(day: Day, tmp_path: Path) -> None:
    day.write(tmp_path)
    (tmp_path / "tokyo-1").rename(tmp_path.parent / f"{tmp_path.name}-tokyo")
    with pytest.raises(TapeError, match='"tokyo-1" is a receiver of five cities, but its tape of stripe 0 is missing'):
        gather([tmp_path], day.network)
    inputs = gather([tmp_path], day.network, ["tokyo-1"])
    assert len(inputs.receivers) == 4
    assert inputs.remarks == ["excluded by option: tokyo-1"]


def test_a_network_file_of_other_receivers_is_refused(day: Day, tmp_path: Path) -> None:
    day.write(tmp_path)
    renamed = parse_network(five_cities().replace('name = "tokyo-1"', 'name = "osaka-1"'))
    with pytest.raises(TapeError, match='"osaka-1" is a receiver of five cities'):
        gather([tmp_path], renamed)
    with pytest.raises(TapeError, match='five cities has no receiver "tokyo-1"'):
        gather([tmp_path], renamed, ["osaka-1"])
    renumbered = parse_network(five_cities().replace("id = 104", "id = 144"))
    with pytest.raises(TapeError, match="recorded in another network than five cities: its receivers are 101, 102"):
        gather([tmp_path], renumbered)


# -- the parts ------------------------------------------------------------------------------------------


def test_who_is_on_time_is_told_by_the_lower_third() -> None:
    nan = np.nan
    rows = np.array([[0.0, 9.0, 9.0, 9.0, 0.1], [nan, 3.0, nan, 1.0, nan], [5.0, 6.0, 7.0, nan, nan]])
    assert lower_third(rows).tolist() == [0.1, 1.0, 5.0]
    assert middle(rows).tolist() == [9.0, 0.0, 6.0]


def test_chance_gives_a_floor_beside_the_ring_half_a_slot_and_its_way() -> None:
    text = five_cities().replace("loss = 0.01", "loss = 0.0").replace('jitter = "6ms"', 'jitter = "0ms"')
    network = parse_network(text)
    same = replace(network, links=replace(network.links, pairs={}, default=network.link("tokyo", "tokyo")))  # type: ignore[type-var]
    floor = network.floors[0]
    assert chance_of(same, 0, floor.site).mean_ns == pytest.approx(
        25_000_000, rel=0.01
    )  # 100 µs away from all: half a slot
    assert chance_of(network, 0, floor.site).mean_ns > 50_000_000


def test_where_the_round_begins_is_found_from_the_packets() -> None:
    network = parse_network(five_cities())
    rng = np.random.default_rng(1)
    windows = 4
    found = []
    for floor in network.floors:
        chance = chance_of(network, 0, floor.site)
        assert chance.round == 5
        phase = rng.integers(0, len(chance.wait_ns), 400)
        waits = chance.wait_ns[phase].astype(np.int64)
        left_at = (phase + 0.5) / (len(chance.wait_ns) / chance.round) + 2  # the round begins at slot 2
        slots = np.round(left_at + waits / chance.slot_ns).astype(np.int64)
        exact = (slots - left_at) * chance.slot_ns  # acknowledged at a slot, so a little off the mean
        each = Waits(np.full(windows, 100), np.zeros(windows), beyond=np.zeros((5, windows)))
        each.squares = np.zeros((5, windows))
        for first in range(5):
            more = chance.beyond(slots, exact.astype(np.int64), first).reshape(windows, -1)
            each.beyond[first] = more.sum(axis=1)  # type: ignore[index]
            each.squares[first] = (more**2).sum(axis=1)
        found.append(each)
    squares = sum(each.squares for each in found if each.squares is not None)
    assert np.argmin(squares, axis=0).tolist() == [2] * windows
    for chosen, each in zip(beyond_chance(found), found, strict=True):
        assert each.beyond is not None
        assert chosen.tolist() == each.beyond[2].tolist()
