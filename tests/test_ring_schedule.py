"""Rules 1 and 12: when each slot is, whose it is, and which generation's token is valid for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.ring.listener import token_is_valid
from levelcast.ring.schedule import Lineage, Schedule
from levelcast.wire.messages import Era
from tests.ring_parts import MS, START, lives, make_ring, make_token

SLOT_NS = 10 * MS


@st.composite
def lineages(draw: st.DrawFn) -> tuple[Era, ...]:
    """Generations and start slots that rise, and start times behind the last slot before."""
    eras: list[Era] = []
    generation = slot = 0
    start_ns = START
    for _ in range(draw(st.integers(1, 5))):
        step = draw(st.integers(1, 6))
        generation += draw(st.integers(1, 3))
        slot += step
        start_ns += step * SLOT_NS + draw(st.integers(0, 5 * SLOT_NS))
        eras.append(Era(generation, slot, start_ns))
    return tuple(eras)


@given(st.integers(1, 100), st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True), st.integers(0, 200))
def test_slots_are_tau_apart_and_go_round_the_ring(start_slot: int, members: list[int], ahead: int) -> None:
    schedule = Schedule(make_ring(7, members, start_slot=start_slot), SLOT_NS)
    slot = start_slot + ahead
    assert schedule.time_of(slot) == START + ahead * SLOT_NS
    assert schedule.owner_of(slot) == members[ahead % len(members)]
    assert schedule.owner_of(slot + len(members)) == schedule.owner_of(slot)


@given(st.integers(1, 100), st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True))
def test_every_member_has_one_slot_in_each_round_and_its_first_one_is_known(
    start_slot: int, members: list[int]
) -> None:
    schedule = Schedule(make_ring(7, members, start_slot=start_slot), SLOT_NS)
    assert schedule.members == tuple(members)
    for member in members:
        first = schedule.first_own_slot(member)
        assert start_slot <= first < start_slot + len(members)
        assert schedule.owner_of(first) == member


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, SLOT_NS - 1))
def test_the_slot_at_a_time_is_the_last_one_due(start_slot: int, ahead: int, into_ns: int) -> None:
    schedule = Schedule(make_ring(start_slot=start_slot), SLOT_NS)
    assert schedule.slot_at(schedule.time_of(start_slot + ahead) + into_ns) == start_slot + ahead
    assert schedule.slot_at(START - 1 - into_ns) == start_slot - 1


def test_a_schedule_knows_the_times_of_the_generations_before_and_the_lives_of_its_members() -> None:
    ring = make_ring(3, (2, 1), start_slot=11, start_ns=START + 900 * MS, before=(Era(1, 1, START),), life=4)
    schedule = Schedule(ring, SLOT_NS)
    assert schedule.time_of(10) == START + 9 * SLOT_NS
    assert schedule.time_of(11) == START + 900 * MS
    assert tuple(schedule.lives.values()) == lives(2, 1, life=4)
    assert schedule.helper == 2


@given(lineages(), st.integers(0, 40))
def test_a_slot_belongs_to_the_last_generation_that_starts_at_or_before_it(eras: tuple[Era, ...], slot: int) -> None:
    lineage = Lineage(eras, SLOT_NS)
    of_slot = [era for era in eras if era.start_slot <= slot]
    if not of_slot:
        assert lineage.era_of(slot) is None
        assert (lineage.generation_of(slot), lineage.time_of(slot)) == (0, 0)
        return
    era = of_slot[-1]
    assert lineage.era_of(slot) == era
    assert lineage.generation_of(slot) == era.generation
    assert lineage.time_of(slot) == era.start_ns + (slot - era.start_slot) * SLOT_NS


@given(lineages())
def test_timestamps_rise_across_reformations(eras: tuple[Era, ...]) -> None:
    lineage = Lineage(eras, SLOT_NS)
    times = [lineage.time_of(slot) for slot in range(eras[0].start_slot, eras[-1].start_slot + 5)]
    assert all(before < after for before, after in pairwise(times))


def test_only_the_token_of_the_slots_own_generation_is_valid() -> None:
    lineage = Lineage((Era(1, 1, START), Era(4, 11, START + 200 * MS)), SLOT_NS)
    old, new = make_ring(1), make_ring(4, start_slot=11, start_ns=START + 200 * MS)
    assert token_is_valid(make_token(old, 10), lineage)
    assert token_is_valid(make_token(new, 11), lineage)
    assert not token_is_valid(make_token(old, 11), lineage)
    stale = make_ring(3, start_slot=5, start_ns=START + 100 * MS)
    assert not token_is_valid(make_token(stale, 8), lineage)
    assert not token_is_valid(make_token(stale, 12), lineage)


@given(lineages(), st.integers(0, 40))
def test_a_member_has_caught_up_in_the_last_generation_whose_slots_it_could_go_on_with(
    eras: tuple[Era, ...], have: int
) -> None:
    entered = [era.generation for era in eras if era.start_slot <= have + 1]
    assert Lineage(eras, SLOT_NS).caught_up(have) == (entered[-1] if entered else 0)


@given(lineages(), st.integers(1, 40), st.integers(0, 40))
def test_extending_keeps_the_generation_of_every_slot_that_is_not_released_everywhere(
    eras: tuple[Era, ...], start_slot: int, released: int
) -> None:
    lineage = Lineage(eras, SLOT_NS)
    new = Era(eras[-1].generation + 1, start_slot, START + 10_000 * MS)
    extended = Lineage(lineage.extended(new, released), SLOT_NS)
    assert extended.eras[-1] == new
    for slot in range(released + 1, start_slot):
        assert extended.generation_of(slot) == lineage.generation_of(slot)
    assert extended.generation_of(start_slot + 3) == new.generation


@given(lineages(), st.integers(1, 40), st.integers(0, 40))
def test_extending_leaves_out_generations_that_nobody_needs_any_more(
    eras: tuple[Era, ...], start_slot: int, released: int
) -> None:
    new = Era(eras[-1].generation + 1, start_slot, START + 10_000 * MS)
    *kept, _ = Lineage(eras, SLOT_NS).extended(new, released)
    assert all(era in eras and era.start_slot < start_slot for era in kept)
    if len(kept) > 1:
        assert kept[1].start_slot > released


@pytest.mark.asserts
@pytest.mark.parametrize(
    "eras", [(Era(1, 5, START), Era(2, 5, START)), (Era(2, 1, START), Era(1, 5, START)), (Era(2, 5, START),) * 2]
)
def test_a_lineage_that_does_not_rise_is_no_lineage(eras: tuple[Era, ...]) -> None:
    with pytest.raises(AssertionError):
        Lineage(eras, SLOT_NS)
