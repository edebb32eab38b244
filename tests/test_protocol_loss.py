"""Rule 5: what is missing is asked for in two stages, k_r times each, of the best holder first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from levelcast.protocol.history import SourcePosition, Tip
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.loss import MAX_OPEN_SLOTS, LossDetector, Want, holders
from levelcast.protocol.retransmit import MAX_REMEMBERED, RetransmitScope, look_up
from levelcast.wire.messages import FaultReason, Request, Run
from tests.ring_parts import MS, PIPELINED, START, make_data, make_ring, make_token

K_R = PIPELINED.attempts
TAU_R = PIPELINED.request_ns
LACKS = (Run(201, 1, 3, 4),)


def no_token(_: int) -> tuple[Run, ...] | None:
    return None


def no_packets(_: int) -> tuple[Run, ...] | None:
    return LACKS


def complete(_: int) -> tuple[Run, ...] | None:
    return ()


def test_a_missing_token_is_asked_for_every_request_interval() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    assert repairs.due(START - 1, 6, no_token) == ([], [])
    assert repairs.next_ns == START
    for attempt in range(K_R):
        now = START + attempt * TAU_R
        assert repairs.due(now, 6, no_token) == ([Want(7, "TOKEN", attempt, ())], [])
        assert repairs.next_ns == now + TAU_R
        assert repairs.due(now + TAU_R - 1, 6, no_token) == ([], [])


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
        wants, faults = repairs.due(START + attempt * TAU_R, 6, missing)
        assert [want.attempt for want in wants] == [attempt]
        if faults:
            assert faults == [(7, reason)]
            faults_at.append(attempt)
    assert faults_at == [K_R, 2 * K_R]


def test_the_packets_of_a_recovered_token_get_k_r_attempts_of_their_own() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    for attempt in range(K_R):
        repairs.due(START + attempt * TAU_R, 6, no_token)
    recovered = START + K_R * TAU_R - 1
    repairs.open(7, "PACKETS", recovered)
    for attempt in range(K_R):
        wants, faults = repairs.due(recovered + attempt * TAU_R, 6, no_packets)
        assert wants == [Want(7, "PACKETS", attempt, LACKS)]
        assert not faults
    reported = recovered + K_R * TAU_R
    assert repairs.due(reported, 6, no_packets)[1] == [(7, FaultReason.PACKET_MISSING)]
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
        _, faults = repairs.due(START + attempt * TAU_R, have, no_token, 55)
        faults_at += [(slot, attempt) for slot, _ in faults]
    assert [at for slot, at in faults_at if slot == 50] == [4 * K_R - 1, 5 * K_R - 1], "k_r after it last came forward"
    assert [at for slot, at in faults_at if slot == 60] == [K_R, 2 * K_R, 3 * K_R, 4 * K_R]


def test_a_stage_begins_anew_when_the_token_turns_out_to_be_there_or_gone() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    repairs.due(START, 6, no_token)
    assert repairs.due(START + TAU_R, 6, no_packets)[0] == [Want(7, "PACKETS", 0, LACKS)]
    assert repairs.due(START + 2 * TAU_R, 6, no_token)[0] == [Want(7, "TOKEN", 0, ())]


def test_noting_the_same_stage_again_asks_no_sooner() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "TOKEN", START)
    repairs.due(START, 6, no_token)
    repairs.open(7, "TOKEN", START + 1)
    assert repairs.due(START + 1, 6, no_token) == ([], [])
    assert len(repairs) == 1


def test_what_is_complete_or_ordered_is_closed_without_asking() -> None:
    repairs = LossDetector(PIPELINED)
    repairs.open(7, "PACKETS", START)
    repairs.open(8, "TOKEN", START)
    repairs.open(9, "TOKEN", START + 5 * MS)
    assert repairs.due(START, 8, complete) == ([], [])
    assert len(repairs) == 1
    assert repairs.next_ns == START + 5 * MS
    assert repairs.due(START + 5 * MS, 8, complete) == ([], [])
    assert len(repairs) == 0
    assert repairs.next_ns is None


def test_slots_are_asked_for_lowest_first() -> None:
    repairs = LossDetector(PIPELINED)
    for slot in (9, 7, 8):
        repairs.open(slot, "TOKEN", START)
    assert [want.slot for want in repairs.due(START, 6, no_token)[0]] == [7, 8, 9]


def test_a_member_far_behind_works_on_so_many_slots_at_once() -> None:
    repairs = LossDetector(PIPELINED)
    for slot in range(MAX_OPEN_SLOTS):
        assert not repairs.full
        repairs.open(slot, "TOKEN", START)
    assert repairs.full
    repairs.clear()
    assert len(repairs) == 0
    assert repairs.next_ns is None


@pytest.mark.parametrize(
    ("site", "claims", "order"),
    [
        (3, [(1, True), (2, False), (3, False), (4, True)], [3, 4, 2]),
        (1, [(1, True), (2, False), (3, True)], [3, 2]),
        (None, [(4, False), (2, True), (3, True)], [2, 3, 4]),
        (1, [(1, True)], []),
    ],
)
def test_the_site_is_asked_first_then_who_claims_to_have_it_then_the_rest_by_nearness(
    site: int | None, claims: list[tuple[int, bool]], order: list[int]
) -> None:
    assert holders(site, claims, myself=1) == order


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
