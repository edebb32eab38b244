"""Duties for one message follow from view, matrix, choices, source and destinations."""

from __future__ import annotations

from collections.abc import Collection

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices, CopiesBy, RepairBy
from levelcast.overlay.wide.plan import MessagePlan, PlanRules
from tests.wide_parts import MS, H, K, O, T, U, equal_matrix, tt_matrix

EVERYBODY = (H, U, O, K, T)
NESTED = ((H, T), (U, O), (K,))
"""Subgroups with their orders of succession."""


def plan(
    name: str | Choices, source: int = H, members: Collection[int] = (U, O, K, T), view: Collection[int] = EVERYBODY
) -> MessagePlan:
    choices = WIDE_PROTOCOLS[name] if isinstance(name, str) else name
    return MessagePlan(PlanRules(choices, tt_matrix(), allowed_loss=0.01), NESTED, source, members, view)


def test_direct_delivery_and_distributed_confirmation() -> None:
    found = plan("B")
    assert found.children(H) == (U, O, K, T)
    assert found.children(U) == ()
    assert found.confirms_to(U) == {H, O, K, T}
    assert found.accepts_to(H) == found.reports_to(H) == frozenset()
    assert [found.keeps(each) for each in (H, U)] == [True, False]
    assert found.repairs(H, U)
    assert not found.repairs(O, U)
    assert found.asks(U, K) == K
    assert found.stated_ns(U, K, is_receipt=True) == (240 + 110) * MS


def test_repair_by_the_nearest_known_holder_and_the_sender_last() -> None:
    found = plan("M")
    assert all(found.keeps(each) for each in EVERYBODY)
    assert found.repairs(O, K)
    assert [found.rank(each, K, {U, O, H}) for each in (O, U, H)] == [0, 1, 2]
    assert found.rank(H, K, set()) == 0


def test_decentralised_confirmation_goes_over_the_sender() -> None:
    found = plan("D")
    assert found.confirms_to(U) == {H}
    assert found.accepts_to(H) == {U, O, K, T}
    assert found.accepts_to(U) == frozenset()
    assert (found.asks(U, K), found.asks(H, K)) == (H, K)
    assert found.stated_ns(U, H, is_receipt=False) == (2 * 240 + 140) * MS


def test_nested_delivery_and_confirmation() -> None:
    found = plan("N")
    assert found.first == H
    assert found.children(H) == (U, K, T)
    assert found.children(U) == (O,)
    assert found.arrival_ns(O) == (140 + 40) * MS
    assert [set(found.confirms_to(each)) for each in (O, U)] == [{U}, {H, K}]
    assert [set(each) for each in (found.group_of(U), found.reports_to(U), found.accepts_to(U))] == [
        {U, O},
        {H, K},
        {O},
    ]
    assert [found.keeps(each) for each in EVERYBODY] == [True, True, False, True, False]
    assert (found.asks(O, K), found.asks(U, O), found.asks(H, O)) == (U, O, U)
    assert (found.repairs(U, O), found.repairs(K, O), found.repairs(K, U)) == (True, False, True)


def test_a_source_sends_to_the_coordinator_of_its_subgroup() -> None:
    found = plan("N", source=O, members=(H, T, U))
    assert found.first == U
    assert found.children(O) == (U,)
    assert found.children(U) == (H,)
    assert found.accepts_to(U) == {O}
    assert found.confirms_to(U) == {H, O}
    assert found.arrival_ns(T) == (40 + 140 + 60) * MS


def test_only_destinations_coordinate() -> None:
    # U is no destination: O coordinates. H is not, so that T is alone.
    found = plan("N", source=K, members=(O, T))
    assert found.coordinators == (O, K, T)
    assert found.participants == {O, T, K}
    assert found.children(K) == (O, T)


def test_the_next_in_order_coordinates_when_one_fails() -> None:
    found = plan("N", view=(H, O, K, T))
    assert found.children(H) == (O, K, T)
    assert found.group_of(O) == {O}
    assert found.confirms_to(O) == {H, K}


def test_without_its_source_the_coordinators_complete_a_message() -> None:
    found = plan("N", source=H, members=(U, O, K), view=(U, O, K, T))
    assert not found.source_lives
    assert found.destinations == found.participants == {U, O, K}
    assert found.repairs(U, K)
    assert plan("B", members=(U, O), view=(U, O)).asks(U, O) == O
    assert plan("D", members=(U, O), view=(U, O)).asks(U, O) is None
    by_sender = WIDE_PROTOCOLS["N"]._replace(repair=RepairBy.SENDER)
    assert plan(by_sender, members=(U, O, K), view=(U, O, K)).repairs(U, K)
    assert not plan(by_sender).repairs(K, U)


def test_hierarchical_delivery_with_distributed_confirmation() -> None:
    found = plan("HD")
    assert found.children(U) == (O,)
    assert found.confirms_to(O) == {H, U, K, T}
    assert found.keeps(O)
    assert found.repairs(K, O)


def test_copies_by_the_sender_are_as_many_as_the_loss_needs() -> None:
    found = plan("BR")
    assert [found.copies(H, each) for each in (T, U, O, K)] == [1, 3, 2, 3]
    assert plan("B").copies(H, K) == 1
    # In a nested group the number follows from each hop.
    assert plan("NR").copies(U, O) == 2


def test_forwarded_copies_come_over_the_quickest_other_way() -> None:
    choices = WIDE_PROTOCOLS["B"]._replace(copies=CopiesBy.FORWARDED)
    found = plan(choices)
    forwarded = {each: found.forwards(each) for each in EVERYBODY}
    # The least of δ_ik + δ_kj. K is equally far over U and O, of which O is nearer; T needs no second copy.
    assert (forwarded[U], forwarded[O]) == ((O,), (U, K))
    assert T not in {each for receivers in forwarded.values() for each in receivers}
    two = MessagePlan(PlanRules(choices, tt_matrix(), forwarders=2), NESTED, H, (U, O, K, T), EVERYBODY)
    assert sum(K in two.forwards(each) for each in EVERYBODY) == 2


def test_nothing_is_forwarded_where_a_repair_would_be_quicker() -> None:
    choices = WIDE_PROTOCOLS["B"]._replace(copies=CopiesBy.FORWARDED)
    rules = PlanRules(choices, equal_matrix(3, 10, 0.0), allowed_loss=0.01)
    found = MessagePlan(rules, ((1,), (2,), (3,)), 1, (2, 3), (1, 2, 3))
    assert found.forwards(2) == found.forwards(3) == ()
