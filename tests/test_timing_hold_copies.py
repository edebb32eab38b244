"""Copies replace what is lost: as often, and as late, as their rules say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelcast.timing.copies import NOTHING, Copies
from levelcast.timing.hold_copies import losses_of, relays
from levelcast.timing.hold_draws import Draws
from levelcast.timing.hold_losses import SlotBlock
from levelcast.timing.hold_model import simulate
from levelcast.timing.hold_rules import HoldInput, LossKind
from tests.hold_parts import small_group

SLOTS = 60_000


def block_of(group: HoldInput) -> SlotBlock:
    return SlotBlock.make(group, Draws(4), SLOTS)


def with_copies(copies: Copies, loss: float = 0.05, packets: int = 6) -> HoldInput:
    return small_group(5, loss, packets=packets, copies=(copies,) * 5)


def test_a_group_without_copies_has_the_losses_that_it_had() -> None:
    group = small_group(5, 0.1)
    plain, copied = (
        SlotBlock.make(group, Draws(4), 500),
        SlotBlock.make(replace(group, copies=(NOTHING,) * 5), Draws(4), 500),
    )
    assert type(losses_of(copied)) is type(plain.losses())
    assert (
        simulate(group, Draws(2), 800).held_ms == simulate(replace(group, copies=(NOTHING,) * 5), Draws(2), 800).held_ms
    ).all()


@pytest.mark.parametrize(("parity", "size"), [(6, 6), (3, 3), (2, 2), (1, 1)])
def test_a_parity_rebuilds_the_only_missing_packet_of_its_group(parity: int, size: int) -> None:
    """A packet stays missing if another one of its group, or the parity, is missing too."""
    p = 0.05
    missing = losses_of(block_of(with_copies(Copies(0, parity)))).data()
    left = p * (1.0 - (1.0 - p) ** size)
    assert len(missing.train) / (SLOTS * 5 * 6) == pytest.approx(left, rel=0.1)


def test_the_packets_that_are_left_were_lost_without_parity_too() -> None:
    group = with_copies(Copies(0, 3))
    left, before = losses_of(block_of(group)).data(), block_of(group).losses().data()

    def keys(missing: tuple[np.ndarray, ...]) -> set[tuple[int, int, int]]:
        return set(zip(*(column.tolist() for column in missing[:3]), strict=True))

    assert keys(left) < keys(before)
    whole = keys(before)
    for train, member, packet in list(keys(before) - keys(left))[:2_000]:
        others = {(train, member, other) for other in range(packet % 2, 6, 2)} - {(train, member, packet)}
        assert not others & whole, "a packet was rebuilt although its group lacked another one"


def test_a_parity_shows_packets_that_no_later_one_shows() -> None:
    shown = losses_of(block_of(with_copies(Copies(0, 6), loss=0.2))).data().shown
    others, left = 1.0 - 0.8**5, 1.0 - 0.8**6
    assert shown.mean() == pytest.approx(0.8 * others / left, abs=0.02)


def test_no_parity_helps_in_bursts() -> None:
    group = replace(with_copies(Copies(0, 2)), loss_kind=LossKind(40.0))
    assert len(losses_of(block_of(group)).data().train) == len(block_of(group).losses().data().train) > 0


def test_further_tokens_follow_on_the_next_beats() -> None:
    p = 0.1
    group = small_group(5, p, copies=(Copies(2),) * 5)
    slot, member, direct_ms = losses_of(block_of(group)).tokens()
    assert np.isinf(direct_ms).mean() == pytest.approx(p**3, rel=0.3)
    once = block_of(group).losses().tokens().direct_ms
    late = np.isinf(once) & np.isfinite(direct_ms)
    after = direct_ms[late] - slot[late] * group.slot_ms - group.delay_ms[slot[late] % 5, member[late]]
    assert group.beat_ms < after.min() < after.max() <= 3 * group.beat_ms + 5.0
    assert (direct_ms <= once).all()


def test_each_receiver_gets_its_own_copies() -> None:
    group = small_group(
        5, 0.1, copies=(NOTHING, Copies(0, 1), NOTHING, Copies(0, 0, second_path=True), NOTHING), packets=6
    )
    missing = losses_of(block_of(group)).data()
    counts = np.bincount(missing.member, minlength=5)
    assert counts[1] < 0.2 * counts[0]
    assert np.isfinite(missing.direct_ms).sum() == np.isfinite(missing.direct_ms[missing.member == 3]).sum() > 1_000


def test_a_second_path_leads_over_another_member_and_loses_on_both_ways() -> None:
    p = 0.1
    group = small_group(5, p, copies=(Copies(0, 0, second_path=True),) * 5)
    found = relays(group.delay_ms, group)
    assert all(found[a, b] not in (a, b) for a in range(5) for b in range(5) if a != b)
    assert (relays(group.source_delay_ms, group) != np.arange(5)).all()
    losses = losses_of(block_of(group))
    assert np.isinf(losses.data().direct_ms).mean() == pytest.approx(1 - (1 - p) ** 2, rel=0.1)
    slot, member, direct_ms = losses.tokens()
    over = found[slot % 5, member]
    ways = group.delay_ms[slot % 5, over] + group.delay_ms[over, member]
    after = (direct_ms - slot * group.slot_ms - ways)[np.isfinite(direct_ms)]
    assert after.max() <= group.beat_ms + group.delay_ms.max() + 10.0
    two = small_group(2, p, copies=(Copies(0, 0, second_path=True),) * 2)
    assert relays(two.delay_ms, two)[[0, 1], [1, 0]].tolist() == [-1, -1], "two members have no detour"


@pytest.mark.parametrize("copies", [Copies(1), Copies(0, 3), Copies(0, 0, second_path=True)], ids=str)
def test_each_kind_of_copy_shortens_the_time_until_slots_are_held(copies: Copies) -> None:
    group, draws = small_group(5, 0.1, packets=6), Draws(3)
    held, less = (
        simulate(each, draws, 20_000).held_ms[:-100] for each in (group, replace(group, copies=(copies,) * 5))
    )
    assert less.mean() < held.mean()
    assert np.quantile(less - np.arange(len(less))[:, None] * 20.0, 0.999) < np.quantile(
        held - np.arange(len(held))[:, None] * 20.0, 0.999
    )
