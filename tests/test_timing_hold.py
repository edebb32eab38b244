"""The derived hold time keeps its target with seeds that the derivation did not use, and the bound is above it."""

from __future__ import annotations

import ast
import csv
import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelcast.network import FiveCities, five_cities, parse_network
from levelcast.network.hold_input import bound_input, hold_input
from levelcast.node.demo.network import network_text
from levelcast.timing import hold, hold_bound
from levelcast.timing.hold import count_slots, derive_hold, late_share, least_hold_ms, slots_for, worst_late_share
from levelcast.timing.hold_bound import BoundInput, bound_hold_ns
from levelcast.timing.hold_rules import HoldInput, HoldRules, LossKind
from tests.hold_parts import small_group

FRESH = 77
LOSSES = (0.001, 0.01, 0.05, 0.1)
BURSTS = {
    "20 ms on paths": LossKind(20.0),
    "100 ms on paths": LossKind(100.0),
    "20 ms, half at lines": LossKind(20.0, 0.5),
    "100 ms, half at lines": LossKind(100.0, 0.5),
}


def cities(loss: float = 0.01, kind: LossKind = LossKind()) -> HoldInput:  # noqa: B008 - frozen
    return hold_input(parse_network(five_cities(FiveCities(loss_ratio=loss))), loss_kind=kind)


def regions(data_dir: Path, loss: float = 0.01) -> HoldInput:
    """The AWS regions: half of the round trip one way, each a member and a source."""
    [path] = (data_dir / "wan_aws_regions").glob("*.csv")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    delay = np.array([[float(cell) / 2.0 for cell in row[2:]] for row in rows])
    apart = 1.0 - np.eye(len(delay))
    links = (delay * apart, 6.0 * apart, loss * apart)
    return HoldInput(*links, *links, process_ms=5.0, clock_error_ms=1.0, names=tuple(row[1] for row in rows))


def in_integers(group: HoldInput) -> BoundInput:
    def whole(matrix: np.ndarray, scale: float) -> list[list[int]]:
        return [[round(value * scale) for value in row] for row in matrix.tolist()]

    times = (group.slot_ms, group.process_ms, group.transmit_ms, group.clock_error_ms)
    slot_ns, process_ns, transmit_ns, clock_error_ns = (round(value * 1e6) for value in times)
    return BoundInput(
        delay_ns=whole(group.delay_ms, 1e6),
        jitter_ns=whole(group.jitter_ms, 1e6),
        loss_ppb=whole(group.loss, 1e9),
        source_delay_ns=whole(group.source_delay_ms, 1e6),
        source_jitter_ns=whole(group.source_jitter_ms, 1e6),
        source_loss_ppb=whole(group.source_loss, 1e9),
        slot_ns=slot_ns,
        witnesses=group.needed,
        packets=group.packets,
        process_ns=process_ns,
        transmit_ns=transmit_ns,
        clock_error_ns=clock_error_ns,
    )


def test_the_doctests() -> None:
    assert doctest.testmod(hold).failed == 0


def test_the_model_gives_the_figures_of_the_earlier_model_of_these_rules() -> None:
    """Held and heard, without a common time, 12 packets a slot: 172 ms at p50, 270 at p99, about 407 at 1e-5."""
    group = replace(cities(), rules=HoldRules(common_time=False, token_twice=False), chosen_beat_ms=25.0, packets=12)
    counts = count_slots(group, 250_000, FRESH)
    needed = counts.needed.sum(axis=0)
    assert counts.quantile_ms(needed, 0.5) == pytest.approx(172, abs=3)
    assert counts.quantile_ms(needed, 0.01) == pytest.approx(270, abs=4)
    assert counts.quantile_ms(needed, 1e-5) == pytest.approx(407, abs=25)
    assert counts.requests / counts.seconds / 5 == pytest.approx(7.2, abs=0.5)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_hold_time_keeps_its_target_with_other_seeds_and_is_below_the_bound(loss: float) -> None:
    group = cities(loss)
    derived = derive_hold(group, slots=310_000)
    _, share = worst_late_share(count_slots(group, 300_000, FRESH), derived.hold_ms - derived.added_ms)
    assert share.low <= 1e-5
    rule_6_ns = round(group.rule_6_ms * 1e6)
    assert derived.hold_ms * 1_000_000 <= bound_hold_ns(in_integers(group), rule_6_ns) < rule_6_ns


@pytest.mark.parametrize("kind", BURSTS.values(), ids=BURSTS)
def test_the_hold_time_keeps_its_target_in_bursts(kind: LossKind) -> None:
    group = cities(kind=kind)
    derived = derive_hold(group, slots=400_000)
    _, share = worst_late_share(count_slots(group, 400_000, FRESH), derived.hold_ms - derived.added_ms)
    assert share.low <= 1e-5


def test_a_shorter_hold_time_misses_the_target() -> None:
    group = cities()
    derived = derive_hold(group, slots=310_000)
    counts = count_slots(group, 300_000, FRESH)
    _, share = worst_late_share(counts, derived.hold_ms * 3 // 4)
    assert share.low > 1e-5


def test_the_result_is_the_same_every_time_and_reports_progress() -> None:
    group, told = small_group(5, 0.05, late_target=1e-3, scheduling_ms=2.3), []
    first = derive_hold(group, lambda done, total: told.append((done, total)), slots=150_000)
    assert first == derive_hold(group, slots=150_000)
    assert first != derive_hold(group, seed=1, slots=150_000)
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))
    assert first.added_ms == 4  # 2 · 0.5 ms of clock error and 2.3 ms, in whole ms
    assert first.hold_ms == first.worst.hold_ms + 4
    assert first.worst.hold_ms == max(receiver.hold_ms for receiver in first.receivers)


def test_the_explanation_names_the_parts() -> None:
    group = replace(cities(), packets=1)
    worst = derive_hold(group, slots=310_000).worst
    assert worst.decided_by == "held"
    assert worst.delay_ms + worst.repair_ms == worst.held_ms
    assert f"{worst.name}, {worst.hold_ms} ms: {worst.delay_ms} ms until it misses" in str(worst)
    assert {"sydney-1", "tokyo-1"} & {worst.name, worst.owner}
    witness = derive_hold(replace(cities(), witnesses=5), slots=310_000).worst
    assert witness.decided_by == "witness"
    assert "5 of 5 members must claim a slot: " in str(witness)
    assert f"; it holds slots after {witness.held_ms} ms" in str(witness)


def test_more_loss_and_slower_answers_need_longer() -> None:
    base = small_group(5, 0.05, late_target=1e-4)
    hold_ms = derive_hold(base, slots=80_000).hold_ms
    for worse in (
        small_group(5, 0.2, late_target=1e-4),
        replace(base, process_ms=30.0),
        replace(base, witnesses=5),
        replace(base, late_target=2e-5),
    ):
        assert derive_hold(worse, slots=80_000).hold_ms > hold_ms


def test_the_sampling_error_counts_against_the_hold_time() -> None:
    counts = count_slots(small_group(5, 0.05, late_target=1e-3), 20_000, FRESH)
    for member in range(5):
        least = least_hold_ms(counts, member)
        assert late_share(counts, member, least).share < 1e-3
        assert late_share(counts, member, least).low < late_share(counts, member, least).share
        assert late_share(counts, member, least).high < late_share(counts, member, least - 1).high * 1.5


def test_a_target_that_no_hold_time_keeps_is_refused() -> None:
    group = small_group(4, 0.2, late_target=1e-5)
    with pytest.raises(ValueError, match=r"no hold time below \d+ ms keeps the late target"):
        least_hold_ms(count_slots(group, 10_000, FRESH), 0)


def test_few_slots_are_enough_to_judge_the_target() -> None:
    for loss in LOSSES:
        assert slots_for(cities(loss)) * 1e-5 > 2.99


def test_the_bound_uses_integers_alone() -> None:
    tree = ast.parse(Path(hold_bound.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div)
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
    network = parse_network(five_cities())
    bound_ns = bound_hold_ns(bound_input(network, scheduling_ns=0), 6_322_800_000)
    assert isinstance(bound_ns, int)
    assert bound_ns == bound_hold_ns(in_integers(hold_input(network)), 6_322_800_000)
    assert bound_hold_ns(bound_input(network), 300_000_000) == 300_000_000


def test_the_bound_grows_with_loss_delay_and_witnesses() -> None:
    group = in_integers(cities())
    base = bound_hold_ns(group, 10**11)
    assert bound_hold_ns(in_integers(cities(0.02)), 10**11) > base
    assert bound_hold_ns(replace(group, witnesses=5), 10**11) > base
    assert bound_hold_ns(replace(group, process_ns=20_000_000), 10**11) > base
    assert bound_hold_ns(replace(group, target_ppb=10), 10**11) > base


def test_the_regions_of_aws(data_dir: Path) -> None:
    group = regions(data_dir)
    derived = derive_hold(group, slots=310_000)
    assert derived.worst.name == "Africa (Cape Town)"
    assert 340 < derived.hold_ms < 450
    rule_6_ns = round(group.rule_6_ms * 1e6)
    assert derived.hold_ms * 1_000_000 <= bound_hold_ns(in_integers(group), rule_6_ns) < rule_6_ns


@pytest.mark.parametrize("text", [five_cities(), network_text()], ids=["init", "demo"])
def test_a_stored_hold_time_is_the_one_that_the_links_need(text: str) -> None:
    network = parse_network(text)
    stored_ns = network.stripes[0].rules.hold_ns
    assert stored_ns == network.timing().hold_ns == derive_hold(hold_input(network)).hold_ms * 1_000_000


def test_the_bound_of_a_large_ring_does_not_follow_negligible_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [[0 if a == b else 1_000_000 * (10 + abs(a - b)) for b in range(40)] for a in range(40)]
    loss = [[0 if a == b else 10_000_000 for b in range(40)] for a in range(40)]
    group = BoundInput(members, loss, loss, members[:2], loss[:2], loss[:2], 50_000_000, 21)
    follow, followed = hold_bound._Bound._slot_late, []

    def count(bound: Any, *arguments: Any) -> int:
        followed.append(arguments)
        return follow(bound, *arguments)

    monkeypatch.setattr(hold_bound._Bound, "_slot_late", count)
    assert 100_000_000 < bound_hold_ns(group, 10**10) < 10**9
    assert len(followed) < 40**3 * 4


def test_the_bound_of_a_loss_above_one_half_is_rule_6() -> None:
    group = in_integers(cities())
    lost = [[10**9] * 5 for _ in range(5)]
    assert bound_hold_ns(replace(group, loss_ppb=lost), 10**10) == 10**10
    assert bound_hold_ns(replace(group, source_loss_ppb=lost), 10**10) == 10**10
