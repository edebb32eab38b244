"""Rules 8 and 12: any two groups that may decide something share a member that remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.protocol.history import MembershipChange
from levelcast.ring.quorum import has_majority, in_doubt, majority, may_form, witnessed_by_majority
from levelcast.wire.messages import Join, MemberLife, Membership
from tests.ring_parts import lives, make_join, membership

OLD, NEW = membership(1, 2, 3), membership(3, 4, 5, version=1)
CHANGED_AT = 4
RECORDS = [MembershipChange(0, OLD), MembershipChange(CHANGED_AT, NEW)]

sets_of_members = st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True)


def groups(members: Iterable[MemberLife]) -> Iterator[frozenset[MemberLife]]:
    everybody = sorted(set(members))
    for size in range(len(everybody) + 1):
        yield from map(frozenset, combinations(everybody, size))


def joins_of(
    group: Iterable[MemberLife], before: Membership | None, current: Membership, *, witnessed: bool
) -> list[Join]:
    """JOINs of a group in which everybody knows the same sets."""
    return [
        make_join(9, life.member, life=life.life, before=before, current=current, witnessed=witnessed) for life in group
    ]


def may_form_from(
    group: frozenset[MemberLife], before: Membership | None, current: Membership, *, witnessed: bool
) -> bool:
    joins = joins_of(group, before, current, witnessed=witnessed)
    return bool(joins) and may_form(joins[0], joins)


def witnesses(
    group: frozenset[MemberLife], slot: int, records: list[MembershipChange], witnessed: int = 0, standing: int = -1
) -> bool:
    return witnessed_by_majority(slot, records, witnessed, standing, lambda life, _: life in group)


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(members: int, needed: int) -> None:
    configured = membership(*range(1, members + 1))
    assert majority(configured) == needed
    assert has_majority(configured, configured.members[:needed])
    assert not has_majority(configured, configured.members[: needed - 1])


def test_a_member_counts_with_the_life_that_the_set_names_and_with_no_other() -> None:
    assert not has_majority(OLD, {*lives(1), *lives(2, 3, life=2)})
    assert not has_majority(OLD, lives(3, 4, 5))
    assert has_majority(OLD, {*lives(1, 2), *lives(3, life=2)})


# -- a RING from JOINs ------------------------------------------------------------------------------------


def test_a_change_is_in_doubt_until_some_joiner_knows_its_record_to_be_witnessed() -> None:
    holder = make_join(9, 3, before=OLD, current=NEW, witnessed=False)
    knows = make_join(9, 4, before=OLD, current=NEW, witnessed=True)
    behind = make_join(9, 1, current=OLD, witnessed=True)
    ahead = make_join(9, 5, before=NEW, current=membership(5, 6, 7, version=2), witnessed=False)
    assert in_doubt(holder, [holder])
    assert in_doubt(holder, [holder, behind])
    assert not in_doubt(holder, [holder, knows])
    assert not in_doubt(holder, [holder, ahead])
    assert not in_doubt(behind, [behind])


@pytest.mark.parametrize(
    ("present", "witnessed", "may"),
    [
        ((1, 2, 3, 4), False, True),
        ((2, 3, 4), False, True),
        ((3, 4, 5), False, False),
        ((3, 4, 5), True, True),
        ((4, 5), True, True),
        ((1, 2, 3), False, False),
        ((1, 2, 3), True, False),
    ],
)
def test_while_a_change_is_in_doubt_a_ring_needs_both_majorities(
    present: tuple[int, ...], witnessed: bool, may: bool
) -> None:
    assert may_form_from(frozenset(lives(*present)), OLD, NEW, witnessed=witnessed) is may


def test_without_a_change_a_majority_of_the_configured_set_forms_a_ring() -> None:
    assert may_form_from(frozenset(lives(1, 3)), None, OLD, witnessed=True)
    assert not may_form_from(frozenset(lives(1)), None, OLD, witnessed=True)
    assert not may_form_from(frozenset(lives(1, 2, life=2)), None, OLD, witnessed=True)


# -- a witness --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "witnessed", "group", "enough"),
    [
        (3, 0, (1, 2), True),  # below the record the old set decides
        (3, 0, (3, 4, 5), False),
        (4, 3, (3, 4), False),  # the record itself needs both
        (4, 3, (1, 2, 3), False),
        (4, 3, (2, 3, 4), True),
        (5, 3, (3, 4), False),  # and so does everything behind it while it is not witnessed
        (5, 4, (3, 4), True),
        (5, 4, (1, 2, 3), False),
    ],
)
def test_whose_majority_witnesses_a_slot(slot: int, witnessed: int, group: tuple[int, ...], enough: bool) -> None:
    assert witnesses(frozenset(lives(*group)), slot, RECORDS, witnessed) is enough


def test_what_the_ring_says_to_stand_is_witnessed_up_to_its_record_and_then_the_new_set_decides() -> None:
    nobody: frozenset[MemberLife] = frozenset()
    assert witnesses(nobody, CHANGED_AT - 1, RECORDS, standing=1)
    assert witnesses(nobody, CHANGED_AT, RECORDS, standing=1)
    assert not witnesses(nobody, CHANGED_AT + 1, RECORDS, CHANGED_AT, standing=1)
    assert not witnesses(nobody, CHANGED_AT, RECORDS, standing=0)


def test_a_slot_before_every_set_that_is_still_known_is_witnessed() -> None:
    later = [MembershipChange(CHANGED_AT, NEW), MembershipChange(9, membership(5, 6, 7, version=2))]
    assert witnesses(frozenset(), CHANGED_AT - 1, later)
    assert not witnesses(frozenset(), CHANGED_AT, later)


# -- why it is safe ---------------------------------------------------------------------------------------


@given(sets_of_members)
def test_any_two_rings_and_any_ring_and_any_witness_of_one_set_share_a_member(members: list[int]) -> None:
    configured = membership(*members)
    everybody = list(groups(configured.members))
    rings = [group for group in everybody if may_form_from(group, None, configured, witnessed=True)]
    witnessed = [group for group in everybody if witnesses(group, 1, [MembershipChange(0, configured)])]
    assert rings
    assert rings == witnessed
    assert all(a & b for a in rings for b in rings)


@settings(max_examples=40)
@given(sets_of_members, sets_of_members)
def test_a_change_of_the_set_leaves_no_two_groups_that_can_decide_apart(before: list[int], after: list[int]) -> None:
    """Whoever witnesses the record is met by every ring that may form without knowing it to be witnessed.

    So once the record is witnessed, a ring of the old set alone has a member that holds it; and as long as no
    joiner knows more, a ring that holds it meets every witness of the old set.
    """
    old, new = membership(*before), membership(*after, version=1)
    records = [MembershipChange(0, old), MembershipChange(CHANGED_AT, new)]
    everybody = list(groups((*old.members, *new.members)))
    of_old = [group for group in everybody if may_form_from(group, None, old, witnessed=True)]
    doubting = [group for group in everybody if may_form_from(group, old, new, witnessed=False)]
    knowing = [group for group in everybody if may_form_from(group, old, new, witnessed=True)]
    of_record = [group for group in everybody if witnesses(group, CHANGED_AT, records, CHANGED_AT - 1)]
    of_slot_before = [group for group in everybody if witnesses(group, CHANGED_AT - 1, records)]
    of_slot_behind = [group for group in everybody if witnesses(group, CHANGED_AT + 1, records, CHANGED_AT)]
    assert doubting
    assert of_record
    for rings, met in (
        (of_old, of_slot_before),
        (of_old, of_record),
        (doubting, of_old),
        (doubting, of_slot_before),
        (doubting, of_record),
        (doubting, of_slot_behind),
        (knowing, of_record),
        (knowing, of_slot_behind),
        (knowing, knowing),
    ):
        assert all(a & b for a in rings for b in met)
