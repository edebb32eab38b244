"""Rules 7 and 8: who has what, and the one token with which a slot is witnessed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.config import Witnesses
from levelcast.protocol.history import MembershipChange
from levelcast.ring.schedule import Schedule
from levelcast.ring.witness import Count, TokenWitness, guarantees
from levelcast.wire.messages import Ring, Token
from tests.ring_parts import PIPELINED, make_ring, make_token, membership

START_SLOT = 11
RING = make_ring(2, (1, 2, 3), start_slot=START_SLOT)
RECORDS = [MembershipChange(0, membership(1, 2, 3))]

rules = st.sampled_from(["majority", "all", 1, 2, 3])


def witness_of(ring: Ring, witnesses: Witnesses, standing: int = 0) -> TokenWitness:
    """A witness that starts with everything before the ring witnessed."""
    start = ring.lineage[-1].start_slot
    schedule = Schedule(ring, PIPELINED.slot_ns)
    return TokenWitness(schedule, Count(schedule, witnesses, standing), start - 1, start - 1)


def read(witness: TokenWitness, token: Token) -> None:
    witness.read({token.slot: token})


def tokens_with(haves: Sequence[int], ring: Ring = RING) -> list[Token]:
    start = ring.lineage[-1].start_slot
    return [make_token(ring, start + i, have) for i, have in enumerate(haves)]


@st.composite
def claims(draw: st.DrawFn) -> list[Token]:
    """Tokens in slot order; a site's `have` never falls, is never above its slot, and may begin far behind."""
    haves: list[int] = []
    for i in range(draw(st.integers(1, 14))):
        floor = haves[i - 3] if i >= 3 else START_SLOT - 3
        haves.append(draw(st.integers(floor, START_SLOT + i)))
    return tokens_with(haves)


def completing_by_definition(tokens: list[Token], slot: int, needed: int) -> int | None:
    """The first token in slot order, not before the slot's own, with which enough members claim the slot."""
    claimed = set()
    for token in tokens:
        if token.have >= slot:
            claimed.add(token.owner)
        if len(claimed) >= needed and token.slot >= slot:
            return token.slot
    return None


@given(claims(), rules, st.data())
def test_a_receiver_that_lagged_finds_the_same_completing_tokens(
    tokens: list[Token], witnesses: Witnesses, data: st.DataObject
) -> None:
    last = tokens[-1].slot
    prompt, lagging = witness_of(RING, witnesses), witness_of(RING, witnesses)
    have = START_SLOT - 1
    for token in tokens:
        read(prompt, token)
        have = data.draw(st.integers(have, token.slot))
        prompt.advance(have, RECORDS)
    prompt.advance(last, RECORDS)
    for token in tokens:
        read(lagging, token)
    lagging.advance(last, RECORDS)
    assert prompt.witnessed == lagging.witnessed
    needed = {"majority": 2, "all": 3, 1: 1, 2: 2, 3: 3}[witnesses]
    for slot in range(START_SLOT, lagging.witnessed + 1):
        assert prompt.due(slot).latest_ns == lagging.due(slot).latest_ns
        if witnesses != 1:
            completing = completing_by_definition(tokens, slot, needed)
            assert completing is not None
            assert lagging.due(slot).latest_ns == make_token(RING, completing).timestamp_ns
    if witnesses != 1 and lagging.witnessed < last:
        assert completing_by_definition(tokens, lagging.witnessed + 1, needed) is None


def test_a_claim_counts_only_once_its_member_has_caught_up_to_the_start_of_the_generation() -> None:
    """History F1b: before that, `have` speaks about another history."""
    witness = witness_of(RING, "majority")
    for token in tokens_with([START_SLOT, START_SLOT - 2]):
        read(witness, token)
    assert witness.claim_of(2) == -1
    assert witness.advance(START_SLOT, RECORDS) == START_SLOT - 1
    assert witness.stable() == -1
    read(witness, make_token(RING, START_SLOT + 2, START_SLOT - 1))
    assert witness.claim_of(3) == START_SLOT - 1


def test_nothing_is_witnessed_that_is_not_held_here() -> None:
    witness = witness_of(RING, "majority")
    for token in tokens_with([11, 12, 13]):
        read(witness, token)
    assert witness.advance(START_SLOT - 1, RECORDS) == START_SLOT - 1
    assert witness.advance(12, RECORDS) == 12


def test_with_one_witness_the_slots_own_site_is_enough_and_its_token_completes() -> None:
    witness = witness_of(RING, 1)
    assert witness.advance(START_SLOT + 1, RECORDS) == START_SLOT + 1
    assert witness.due(START_SLOT).latest_ns == 0


@pytest.mark.parametrize(
    ("witnesses", "after_each_token"),
    [(1, [11, 12, 13]), (2, [10, 11, 12]), (3, [10, 10, 11]), ("majority", [10, 11, 12]), ("all", [10, 10, 11])],
)
def test_how_many_tokens_a_slot_waits_for(witnesses: Witnesses, after_each_token: list[int]) -> None:
    witness = witness_of(RING, witnesses)
    found = []
    for token in tokens_with([11, 12, 13]):
        read(witness, token)
        found.append(witness.advance(token.slot, RECORDS))
    assert found == after_each_token


def test_a_majority_is_of_the_configured_set_not_of_the_ring_as_it_has_shrunk() -> None:
    ring = make_ring(2, (1, 2, 3), start_slot=START_SLOT, configured=membership(1, 2, 3, 4, 5))
    records = [MembershipChange(0, ring.membership)]
    witness = witness_of(ring, "majority")
    for token in tokens_with([11, 12], ring):
        read(witness, token)
    assert witness.advance(12, records) == 10
    read(witness, make_token(ring, 13, 13))
    assert witness.advance(13, records) == 11


def test_all_means_all_of_the_ring_and_still_a_majority_of_the_configured_set() -> None:
    ring = make_ring(2, (1, 2), start_slot=START_SLOT, configured=membership(1, 2, 3, 4, 5))
    witness = witness_of(ring, "all")
    for token in tokens_with([11, 12, 13, 14], ring):
        read(witness, token)
    assert witness.advance(14, [MembershipChange(0, ring.membership)]) == 10
    assert witness.advance(14, [MembershipChange(0, membership(1, 2, 3))]) == 13


def test_a_member_with_another_life_than_the_configured_one_witnesses_nothing() -> None:
    ring = make_ring(2, (1, 2, 3), start_slot=START_SLOT, life=2)
    witness = witness_of(ring, "majority")
    for token in tokens_with([11, 12, 13], ring):
        read(witness, token)
    assert witness.advance(13, RECORDS) == 10


def test_a_change_of_the_set_needs_a_majority_of_both_sets_and_then_of_the_new_one() -> None:
    new = membership(3, 4, 5, version=1)
    ring = make_ring(2, (1, 2, 3, 4, 5), start_slot=START_SLOT, configured=membership(1, 2, 3), stands=False)
    records = [*RECORDS, MembershipChange(START_SLOT, new)]
    witness = witness_of(ring, "majority", standing=-1)
    found = []
    for token in tokens_with([11, 11, 13, 14], ring):
        read(witness, token)
        found.append(witness.advance(14, records))
    assert found == [10, 10, 10, 13]


def test_slots_taken_from_a_tape_are_witnessed_and_reading_goes_on_behind_them() -> None:
    witness = witness_of(RING, "majority")
    witness.skip_to(14)
    assert (witness.witnessed, witness.read_upto) == (14, 14)
    witness.skip_to(12)
    assert (witness.witnessed, witness.read_upto) == (14, 14)
    for slot in (15, 16):
        read(witness, make_token(RING, slot))
    assert witness.advance(16, RECORDS) == 15
    assert witness.due(15).latest_ns == make_token(RING, 16).timestamp_ns


def test_a_slot_is_stable_when_the_last_member_of_the_ring_has_it() -> None:
    witness = witness_of(RING, "majority")
    for token in tokens_with([11, 12]):
        read(witness, token)
    assert witness.stable() == -1
    read(witness, make_token(RING, 13, 10))
    assert witness.stable() == 10
    read(witness, make_token(RING, 14, 14))
    assert witness.stable() == 10


def test_a_new_generation_inherits_what_the_one_before_has_witnessed_below_its_start_and_nothing_more() -> None:
    before = witness_of(RING, "majority")
    for token in tokens_with([11, 12, 13, 14]):
        read(before, token)
    assert before.advance(14, RECORDS) == 13
    for start_slot, inherited in ((20, 13), (13, 12)):
        schedule = Schedule(make_ring(9, start_slot=start_slot), PIPELINED.slot_ns)
        later = TokenWitness(schedule, Count(schedule, "majority", 0), 10, 10)
        later.inherit(before)
        assert later.witnessed == inherited
        assert later.due(11).latest_ns == before.due(11).latest_ns == make_token(RING, 12).timestamp_ns
    ahead = witness_of(RING, "majority")
    ahead.skip_to(19)
    ahead.inherit(before)
    assert ahead.witnessed == 19


@pytest.mark.parametrize(
    ("witnesses", "members", "survives"),
    [("majority", 3, True), ("all", 3, True), (1, 3, False), (2, 3, True), (2, 4, False), (3, 4, True), (1, 1, True)],
)
def test_only_a_majority_makes_a_witnessed_slot_survive_every_reformation(
    witnesses: Witnesses, members: int, survives: bool
) -> None:
    assert guarantees(witnesses, members) is survives


def test_tokens_are_read_in_slot_order_without_gaps() -> None:
    witness = witness_of(RING, "majority")
    read(witness, make_token(RING, START_SLOT + 1))
    assert witness.read_upto == START_SLOT - 1


@pytest.mark.asserts
def test_tokens_are_read_of_this_generation_only() -> None:
    witness = witness_of(RING, "majority")
    with pytest.raises(AssertionError):
        read(witness, make_token(RING, START_SLOT)._replace(generation=1))
