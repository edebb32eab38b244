"""The vectorised model of the hold time computes what the rules say, event by event; each rule matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from levelcast.timing import hold_model
from levelcast.timing.copies import NOTHING, Copies
from levelcast.timing.hold_counts import HoldCounts
from levelcast.timing.hold_draws import Draws, Spells, sparse_positions
from levelcast.timing.hold_losses import SlotBlock
from levelcast.timing.hold_model import simulate
from levelcast.timing.hold_rules import TODAY, HoldInput, HoldRules, LossKind
from tests.hold_parts import small_group, times_by_events

SLOTS, END = 150, 60
RULES: dict[str, HoldRules] = {
    "all": HoldRules(),
    "today": TODAY,
    "without beats": HoldRules(beats=False),
    "without pair lateness": HoldRules(pair_lateness=False),
    "without nearest": HoldRules(nearest=False),
    "one at once": HoldRules(at_once=1),
    "two at once": HoldRules(at_once=2),
    "without gaps": HoldRules(gaps=False),
    "token once": HoldRules(token_twice=False),
    "without a common time": HoldRules(common_time=False),
}
GROUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "five members": {"members": 5, "witnesses": 2},
    "two members": {"members": 2},
    "three members": {"members": 3, "witnesses": 3},
    "one packet": {"packets": 1},
    "high loss": {"loss": 0.3},
    "quantile": {"quantile": 0.8},
    "heavy tail": {"quantile": 0.9, "heavy_tail": True},
    "bursts": {"loss_kind": LossKind(40.0)},
    "bursts at lines": {"loss_kind": LossKind(60.0, 0.5)},
    "token copies": {"copies": (Copies(2), Copies(1), NOTHING, Copies(4))},
    "parity": {"copies": (Copies(0, 2), NOTHING, Copies(0, 3), Copies(1, 1)), "packets": 5},
    "second path": {"copies": (NOTHING, Copies(0, 0, True), Copies(1, 3, True), NOTHING)},
    "copies in bursts": {"copies": (Copies(1, 2, True),) * 4, "loss_kind": LossKind(40.0, 0.5)},
}


def compare(group: HoldInput, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_model, "PASSES", 100)
    draws = Draws(seed, 3)
    times = simulate(group, draws, SLOTS)
    held, witnessed = times_by_events(group, draws, SLOTS)
    np.testing.assert_allclose(times.held_ms[:-END], held[:-END], atol=1e-6)
    np.testing.assert_allclose(times.witnessed_ms[:-END], witnessed[:-END], atol=1e-6)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_switch_gives_the_times_of_the_event_simulation(
    rules: HoldRules, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(small_group(rules=rules), seed, monkeypatch)


@pytest.mark.parametrize("values", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("seed", [11, 12])
def test_each_group_gives_the_times_of_the_event_simulation(
    values: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(small_group(**values), seed, monkeypatch)


def test_few_rounds_of_repair_are_never_too_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    group, draws = small_group(loss=0.4, rules=HoldRules(gaps=False)), Draws(5)
    exact = simulate(group, draws, 2_000).held_ms
    monkeypatch.setattr(hold_model, "PASSES", 1)
    quick = simulate(group, draws, 2_000).held_ms
    assert (quick >= exact).all()
    assert (quick > exact).any()


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("all", "without a common time")])
def test_each_rule_shortens_the_time_until_slots_are_held_and_witnessed(name: str) -> None:
    def needed_ms(rules: HoldRules) -> int:
        counts = HoldCounts(group := small_group(5, 0.05, rules=replace(rules, common_time=False)))
        counts.add(simulate(group, Draws(8), 60_000))
        return counts.quantile_ms(counts.needed.sum(axis=0), 1e-3)

    assert needed_ms(HoldRules()) < needed_ms(RULES[name])


def test_the_common_time_is_never_before_the_claims_arrive() -> None:
    group, draws = small_group(5, 0.1), Draws(9)
    common = simulate(group, draws, 20_000).witnessed_ms
    alone = simulate(replace(group, rules=HoldRules(common_time=False)), draws, 20_000).witnessed_ms
    assert np.mean(common[:-100] >= alone[:-100]) > 0.99
    assert np.mean(common[:-100] == common[:-100, :1]) > 0.6, "others have lost the beat that completes the count"


def test_losses_have_their_rates() -> None:
    group = small_group(5, 0.03, slot_ms=20.0)
    for kind in (LossKind(), LossKind(20.0), LossKind(100.0, 0.5), LossKind(50.0, 1.0)):
        losses = SlotBlock.make(replace(group, loss_kind=kind), Draws(4), 60_000).losses()
        assert len(losses.tokens().slot) / (60_000 * 4) == pytest.approx(0.03, rel=0.1)
        assert len(losses.data().train) / (60_000 * 5 * losses.packets) == pytest.approx(0.03, rel=0.1)


def test_a_token_that_is_lost_arrives_with_the_next_beat_unless_that_is_lost_too() -> None:
    group = small_group(5, 0.1)
    slot, member, direct_ms = SlotBlock.make(group, Draws(4), 40_000).losses().tokens()
    came = np.isfinite(direct_ms)
    assert np.mean(~came) == pytest.approx(0.1, rel=0.1)
    after = direct_ms[came] - slot[came] * group.slot_ms - group.delay_ms[slot[came] % 5, member[came]]
    assert 0.0 < after.min() < after.max() <= group.beat_ms + 5.0
    once = replace(group, rules=HoldRules(token_twice=False))
    assert np.isinf(SlotBlock.make(once, Draws(4), 1_000).losses().tokens().direct_ms).all()


@pytest.mark.parametrize("kind", [LossKind(30.0), LossKind(80.0, 0.5)], ids=str)
def test_copies_are_lost_exactly_in_bad_spells(kind: LossKind) -> None:
    group = small_group(4, 0.1, loss_kind=kind)
    losses = SlotBlock.make(group, Draws(6), 3_000).losses()
    slot, member = (each.ravel() for each in np.indices((3_000, 4)))
    owner = slot % 4
    lost = losses.lost(owner, member, slot.astype(np.float64) * group.slot_ms, np.ones(len(slot))) & (owner != member)
    found = losses.tokens()
    assert (slot[lost].tolist(), member[lost].tolist()) == (found.slot.tolist(), found.member.tolist())
    assert lost.sum() > 500


def test_spells_have_the_length_and_the_share_that_was_asked_for() -> None:
    spells = Spells(Draws(2), 1, np.array([0.02, 0.0, 0.2]), 25.0, -100.0, 2e6)
    line, start, end = spells.starts_ends()
    assert set(line.tolist()) == {0, 2}
    for number, loss in ((0, 0.02), (2, 0.2)):
        mine = line == number
        assert (end - start)[mine].mean() == pytest.approx(25.0, rel=0.1)
        assert (end - start)[mine].sum() / 2.0001e6 == pytest.approx(loss, rel=0.1)
    middle = (start + end) / 2.0
    assert spells.bad(line, middle).all()
    assert not spells.bad(line, start - 1e-6)[1:].all()
    assert not spells.bad(np.ones(1, dtype=np.int64), np.zeros(1)).any()


def test_sparse_positions_are_those_of_independent_trials() -> None:
    found = sparse_positions(Draws(1), 7, 0.01, 1_000_000)
    assert len(found) == pytest.approx(10_000, rel=0.04)
    assert (np.diff(found) > 0).all()
    assert found[-1] < 1_000_000
    assert np.mean(np.diff(found) == 1) == pytest.approx(0.01, rel=0.4)
    assert len(sparse_positions(Draws(1), 7, 0.0, 100)) == 0
    assert sparse_positions(Draws(1), 7, 1.0, 3).tolist() == [0, 1, 2]


def test_draws_depend_on_seed_block_and_kind_and_are_uniform() -> None:
    numbers = np.arange(100_000)
    first = Draws(1, 2).uniform(3, numbers)
    assert first.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(first[1:], first[:-1])[0, 1] == pytest.approx(0.0, abs=0.02)
    high, low = Draws(1, 2).pairs(3, numbers)
    assert np.corrcoef(high, low)[0, 1] == pytest.approx(0.0, abs=0.02)
    for other in (Draws(2, 2).uniform(3, numbers), Draws(1, 3).uniform(3, numbers), Draws(1, 2).uniform(4, numbers)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02
    assert first[77] == Draws(1, 2).uniform(3, np.array([77]))[0]


def test_counts_are_those_of_the_times() -> None:
    group = small_group(4, 0.2)
    counts, twice = HoldCounts(group), HoldCounts(group)
    needed = []
    for block in (0, 1):
        times = simulate(group, Draws(3, block), 4_000)
        counts.add(times)
        needed.append(np.maximum(times.after_slot(times.held_ms), times.after_slot(times.witnessed_ms)))
        one = HoldCounts(group)
        one.add(times)
        twice.merge(one)
    for hold_ms in (100, 150, 200):
        late = [each > hold_ms for each in needed]
        assert counts.late(hold_ms).tolist() == sum(each.sum(axis=0) for each in late).tolist()
        runs = sum((each[1:] & ~each[:-1]).sum(axis=0) for each in late)
        assert counts.runs[:, hold_ms].tolist() == runs.tolist()
    assert counts.slots == sum(map(len, needed))
    assert (twice.needed == counts.needed).all()
    assert (twice.runs == counts.runs).all()
    assert twice.requests == counts.requests > 0


def test_tokens_beyond_the_quantile_are_requested_although_they_arrive() -> None:
    def unneeded(quantile: float) -> int:
        rules = HoldRules(token_twice=False)
        return simulate(
            small_group(4, 0.01, quantile=quantile, heavy_tail=True, rules=rules), Draws(1), 20_000
        ).unneeded

    assert unneeded(0.9) > unneeded(0.99) > 2 * unneeded(0.9999)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": 0.6}, "loss is above 0.5"),
        ({"jitter_ms": np.zeros((3, 3))}, r"jitter_ms has shape \(3, 3\); it must be \(4, 4\)"),
        ({"source_loss": np.full((2, 4), -0.1)}, "source_loss has a negative"),
        ({"witnesses": 5}, "witnesses is 5; it must be 0 to 4"),
        ({"late_target": 0.0}, "late_target between 0 and 1"),
        ({"heavy_tail": True}, "below 1 with a heavy tail"),
        ({"copies": (NOTHING,) * 3}, "copies are for 3 receivers; there are 4"),
        ({"copies": (Copies(5),) * 4}, "outside 0 to 4 tokens"),
    ],
)
def test_bad_input_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_group(**values)
