"""Rule 5: what is missing is asked for in two stages, k_r times each, of the best holder first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from levelcast.protocol.history import SourcePosition, Tip
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.loss import LossDetector, Want
from levelcast.protocol.repair_plan import SHORTEST_NS, RepairPlan
from levelcast.protocol.retransmit import MAX_REMEMBERED, RetransmitScope, look_up
from levelcast.timing.rules import GUARD_NS
from levelcast.wire.messages import FaultReason, Request, Run
from tests.ring_parts import LOCKSTEP, MS, PIPELINED, START, make_config, make_data, make_ring, make_token

K_R = PIPELINED.attempts
TAU_R = PIPELINED.request_ns
LACKS = (Run(201, 1, 3, 4),)


def no_token(_: int) -> tuple[Run, ...] | None:
    return None


def no_packets(_: int) -> tuple[Run, ...] | None:
    return LACKS


def due(
    repairs: LossDetector, now: int, have: int, missing: Callable[[int], tuple[Run, ...] | None], start_slot: int = 0
) -> tuple[list[Want], list[tuple[int, int]]]:
    return repairs.due(now, have, missing, lambda _: TAU_R, start_slot)


def complete(_: int) -> tuple[Run, ...] | None:
    return ()


def test_a_missing_token_is_asked_for_every_request_interval() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    assert due(repairs, START - 1, 6, no_token) == ([], [])
    assert repairs.next_ns == START
    for attempt in range(K_R):
        now = START + attempt * TAU_R
        assert due(repairs, now, 6, no_token) == ([Want(7, "TOKEN", attempt, ())], [])
        assert repairs.next_ns == now + TAU_R
        assert due(repairs, now + TAU_R - 1, 6, no_token) == ([], [])


@pytest.mark.parametrize(
    ("missing", "reason"), [(no_token, FaultReason.TOKEN_MISSING), (no_packets, FaultReason.PACKET_MISSING)]
)
def test_after_k_r_requests_without_success_a_fault_is_reported_and_asking_goes_on(
    missing: Callable[[int], tuple[Run, ...] | None], reason: int
) -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    faults_at = []
    for attempt in range(2 * K_R + 1):
        wants, faults = due(repairs, START + attempt * TAU_R, 6, missing)
        assert [want.attempt for want in wants] == [attempt]
        if faults:
            assert faults == [(7, reason)]
            faults_at.append(attempt)
    assert faults_at == [K_R, 2 * K_R]


def test_the_packets_of_a_recovered_token_get_k_r_attempts_of_their_own() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    for attempt in range(K_R):
        due(repairs, START + attempt * TAU_R, 6, no_token)
    recovered = START + K_R * TAU_R - 1
    repairs.open(7, "PACKETS", recovered)
    for attempt in range(K_R):
        wants, faults = due(repairs, recovered + attempt * TAU_R, 6, no_packets)
        assert wants == [Want(7, "PACKETS", attempt, LACKS)]
        assert not faults
    reported = recovered + K_R * TAU_R
    assert due(repairs, reported, 6, no_packets)[1] == [(7, FaultReason.PACKET_MISSING)]
    assert reported - START <= 2 * K_R * TAU_R  # R, less the δ_N before the first request


def test_who_catches_up_from_before_the_ring_has_all_attempts_again_whenever_it_comes_forward() -> None:
    """A member that returned got a part of what it asked for each time, and had the ring formed again all the same."""
    repairs = LossDetector(PIPELINED)
    for slot in (50, 60):
        repairs.open(slot, "TOKEN", START)
    faults_at: list[tuple[int, int]] = []
    have = 6
    for attempt in range(5 * K_R):
        have += attempt < 3 * K_R
        _, faults = due(repairs, START + attempt * TAU_R, have, no_token, 55)
        faults_at += [(slot, attempt) for slot, _ in faults]
    assert [at for slot, at in faults_at if slot == 50] == [4 * K_R - 1, 5 * K_R - 1], "k_r after it last came forward"
    assert [at for slot, at in faults_at if slot == 60] == [K_R, 2 * K_R, 3 * K_R, 4 * K_R]


def test_a_stage_begins_anew_when_the_token_turns_out_to_be_there_or_gone() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    due(repairs, START, 6, no_token)
    assert due(repairs, START + TAU_R, 6, no_packets)[0] == [Want(7, "PACKETS", 0, LACKS)]
    assert due(repairs, START + 2 * TAU_R, 6, no_token)[0] == [Want(7, "TOKEN", 0, ())]


def test_noting_the_same_stage_again_asks_no_sooner() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    due(repairs, START, 6, no_token)
    repairs.open(7, "TOKEN", START + 1)
    assert due(repairs, START + 1, 6, no_token) == ([], [])
    assert len(repairs) == 1


def test_what_is_complete_or_ordered_is_closed_without_asking() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "PACKETS", START)
    repairs.open(8, "TOKEN", START)
    repairs.open(9, "TOKEN", START + 5 * MS)
    assert due(repairs, START, 8, complete) == ([], [])
    assert repairs.next_ns == START + 5 * MS
    assert due(repairs, START + 5 * MS, 8, complete) == ([], [])
    assert len(repairs) == 0
    assert repairs.next_ns is None


def test_slots_are_asked_for_lowest_first() -> None:
    repairs = LossDetector(PIPELINED)
    for slot in (9, 7, 8):
        repairs.open(slot, "TOKEN", START)
    assert [want.slot for want in due(repairs, START, 6, no_token)[0]] == [7, 8, 9]


def test_a_stage_fails_k_r_intervals_after_it_counted_as_missing_whatever_the_number_of_requests() -> None:
    repairs = LossDetector(PIPELINED)
    missing_ns = START + 7 * MS
    repairs.open(7, "TOKEN", START, missing_ns)
    now, asked = START, 0
    while True:
        wants, faults = repairs.due(now, 6, no_token, lambda _: 3 * MS)
        asked += len(wants)
        if faults:
            break
        assert repairs.next_ns is not None
        now = repairs.next_ns
    assert now == missing_ns + K_R * TAU_R
    assert asked > 2 * K_R


def test_a_slot_counts_as_open_once_it_was_asked_for() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    assert len(repairs) == 0
    due(repairs, START, 6, no_token)
    assert len(repairs) == 1
    repairs.clear()
    assert len(repairs) == 0
    assert repairs.next_ns is None


@pytest.mark.parametrize(
    ("site", "claims", "order"),
    [
        (3, [(1, True), (2, False), (3, False), (4, True)], [3, 4, 2]),
        (1, [(1, True), (2, False), (3, True)], [3, 2]),
        (None, [(4, False), (2, True), (3, True)], [2, 3, 4]),
    ],
)
def test_in_lockstep_the_site_is_asked_first_then_who_claims_to_have_it_then_the_rest_by_nearness(
    site: int | None, claims: list[tuple[int, bool]], order: list[int]
) -> None:
    plan = RepairPlan(make_config(4, mode="lockstep"), 1)
    assert [plan.ask(site, claims, attempt) for attempt in range(len(order))] == [[each] for each in order]
    assert plan.again_ns(order, 7) == LOCKSTEP.request_ns
    assert plan.missing_after_ns(2) == LOCKSTEP.late_ns


def test_nobody_is_asked_if_there_is_no_other_member() -> None:
    assert RepairPlan(make_config(1, mode="lockstep"), 1).ask(1, [(1, True)], 0) == []
    assert RepairPlan(make_config(1), 1).ask(1, [(1, True)], 0) == []


NEAR = [(4, False), (3, False), (2, True), (5, False)]
"""The others of member 1, nearest first."""


def wide_plan() -> RepairPlan:
    delays = {(1, 2): 40 * MS, (2, 1): 41 * MS, (1, 3): 6 * MS, (3, 1): 6 * MS, (1, 4): 1 * MS, (4, 1): 1 * MS}
    timing = replace(PIPELINED, late_ns=50 * MS, request_ns=104 * MS)
    return RepairPlan(replace(make_config(5), timing=timing, delays=delays, clock_error_ns=MS), 1)


def test_each_attempt_asks_the_site_and_the_next_two_helpers_at_once() -> None:
    plan = wide_plan()
    assert [plan.ask(2, NEAR, attempt) for attempt in range(3)] == [[2, 4, 3], [2, 5, 4], [2, 3, 5]]
    assert plan.ask(None, NEAR, 0) == [4, 3]
    assert plan.ask(2, [(2, True), (4, True)], 5) == [2, 4]


def test_the_next_attempt_comes_after_the_shortest_round_trip_and_later_ones_wait_longer() -> None:
    plan = wide_plan()
    assert plan.again_ns([2, 3], 0) == (6 + 6 + 4) * MS
    assert plan.again_ns([2], 0) == (40 + 41 + 4) * MS
    assert plan.again_ns([2, 4], 0) == SHORTEST_NS
    assert [plan.again_ns([2, 3], attempt) // MS for attempt in range(7)] == [16, 16, 16, 32, 64, 104, 104]
    assert plan.again_ns([2, 3], 10**6) == 104 * MS


def test_a_message_is_missing_after_the_delay_of_its_sender_and_never_later_than_the_largest() -> None:
    plan = wide_plan()
    assert plan.missing_after_ns(4) == 1 * MS + 2 * MS + GUARD_NS
    assert plan.missing_after_ns(5) == 50 * MS, "the file has no delay of this pair"


def test_a_measured_delay_replaces_that_of_the_file() -> None:
    """It contains the offset of the clocks, so their error is not added, and it may be negative."""
    plan = wide_plan()
    plan.measured_ns = {2: 44 * MS, 3: 80 * MS, 4: -MS}
    assert plan.missing_after_ns(2) == 44 * MS + GUARD_NS
    assert plan.missing_after_ns(3) == 50 * MS, "never later than the largest"
    assert plan.missing_after_ns(4) == GUARD_NS
    assert plan.missing_after_ns(5) == 50 * MS


def test_what_two_members_ask_for_within_a_request_interval_is_sent_to_all() -> None:
    audience = RetransmitScope(PIPELINED)
    assert not audience.is_everybody("packet", 1, START)
    assert not audience.is_everybody("other packet", 2, START)
    assert audience.is_everybody("packet", 2, START + TAU_R)


def test_one_member_that_asks_again_or_another_one_much_later_is_answered_alone() -> None:
    audience = RetransmitScope(PIPELINED)
    assert not audience.is_everybody("packet", 1, START)
    assert not audience.is_everybody("packet", 1, START + 1)
    assert not audience.is_everybody("packet", 2, START + 2 + TAU_R)


def test_what_was_asked_for_long_ago_is_forgotten() -> None:
    audience = RetransmitScope(PIPELINED)
    for number in range(MAX_REMEMBERED):
        audience.is_everybody(number, 1, START)
    audience.is_everybody("recent", 1, START + 2 * TAU_R)
    assert list(audience._asked) == ["recent"]
    assert audience.is_everybody("recent", 2, START + 2 * TAU_R)


def test_an_answer_is_split_into_what_one_asked_for_and_what_several_did() -> None:
    audience = RetransmitScope(PIPELINED)
    token, first, second = make_token(make_ring(), 7), make_data(201, 1), make_data(201, 2)
    assert audience.split([token, first], 1, START) == ([token, first], [])
    assert audience.split([token, second], 2, START + 1) == ([second], [token])


def test_what_is_held_is_found_and_what_only_the_tape_holds_is_found_there() -> None:
    held = Holdings()
    held.tokens = {slot: make_token(make_ring(), slot) for slot in (5, 6)}
    held.add(make_data(201, 4))
    base = Tip(slot=4, places={201: SourcePosition(1, 4)})

    def found(slots: tuple[int, ...], *runs: Run, oldest_slot: int = 1) -> tuple[list[object], bool]:
        items, from_tape = look_up(Request(2, 1, 0, slots, runs), held, base, 5, oldest_slot)
        return list(items), from_tape

    assert found((5, 6, 7), Run(201, 1, 4, 5)) == ([held.tokens[5], held.tokens[6], make_data(201, 4)], False)
    assert found((4,)) == ([], True)
    assert found((), Run(201, 1, 3, 4)) == ([make_data(201, 4)], True)
    # Nobody could tell any more whether a token from before the lineage is valid.
    assert found((5,), oldest_slot=6) == ([], True)
