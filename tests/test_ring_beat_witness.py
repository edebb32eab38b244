"""Rules 7 and 8 with claims in beats: who has said what when, and the one time at which a slot is released."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.config import Witnesses
from levelcast.protocol.history import MembershipChange
from levelcast.ring.beat_witness import NEXT_BEAT, BeatWitness, ClaimLog, OwnBeats
from levelcast.ring.schedule import Schedule
from levelcast.ring.witness import Count, Due
from levelcast.wire.messages import UNIT_NS, Beat, Claim
from levelcast.wire.token_codec import MAX_BEATS, MAX_STEP
from tests.ring_parts import MS, PIPELINED, START, make_ring, make_token, membership

START_SLOT = 11
BEAT_NS = 6 * MS
RING = make_ring(2, (1, 2, 3), start_slot=START_SLOT)
SCHEDULE = Schedule(RING, PIPELINED.slot_ns)
RECORDS = [MembershipChange(0, membership(1, 2, 3))]
HEARD = {1: 30 * MS, 2: 10 * MS, 3: 20 * MS}


def witness_of(witnesses: Witnesses = "majority") -> BeatWitness:
    return BeatWitness(SCHEDULE, Count(SCHEDULE, witnesses, 0), lambda _: HEARD, START_SLOT - 1, START_SLOT - 1)


def tick(member: int, number: int) -> int:
    """Return the time of a member's beat `number`."""
    return ((member - 1) * BEAT_NS // 3 + number * BEAT_NS) // UNIT_NS


def beat(member: int, number: int, *haves: int) -> Beat:
    first = number - len(haves) + 1
    claims = tuple(Claim(tick(member, each), have) for each, have in enumerate(haves, start=first))
    return Beat(member, RING.generation, claims, number + 1, 0)


def said_ns(member: int, number: int) -> int:
    """When every receiver knows the claims of this beat."""
    return START + tick(member, number) * UNIT_NS + HEARD[member]


def test_members_take_turns_within_a_beat() -> None:
    now = START + 35 * MS
    assert [SCHEDULE.last_beat(member, now, BEAT_NS) for member in (1, 2, 3)] == [300, 320, 340]
    assert [SCHEDULE.next_beat(member, now, BEAT_NS) for member in (1, 2, 3)] == [360, 380, 400]
    assert SCHEDULE.last_beat(2, START + 2 * MS - 1, BEAT_NS) < 0
    assert SCHEDULE.last_beat(2, START + 2 * MS, BEAT_NS) == 20
    assert SCHEDULE.last_beat(2, START - 90 * MS, BEAT_NS) < 0


def test_the_first_beat_is_after_the_start_of_the_ring() -> None:
    assert [SCHEDULE.next_beat(member, START - 90 * MS, BEAT_NS) for member in (1, 2, 3)] == [60, 20, 40]
    assert SCHEDULE.next_beat(2, START + 2 * MS, BEAT_NS) == 80, "not the one that is due now"


@given(st.integers(1, 3), st.integers(-(10**9), 10**10), st.integers(1, 60))
def test_the_next_beat_follows_the_last_one(member: int, after_ns: int, beat_ms: int) -> None:
    following = SCHEDULE.next_beat(member, START + after_ns, beat_ms * MS)
    assert following > max(0, SCHEDULE.tick_at(START + after_ns))
    at_ns = SCHEDULE.tick_time(following)
    assert SCHEDULE.last_beat(member, at_ns, beat_ms * MS) == following
    assert SCHEDULE.last_beat(member, at_ns - 1, beat_ms * MS) < max(1, SCHEDULE.tick_at(START + after_ns) + 1)


def test_a_slot_is_due_when_the_wth_smallest_claim_is_known_everywhere() -> None:
    witness = witness_of()
    witness.hear(beat(1, 0, 11))
    assert witness.advance(11, RECORDS) == 10
    witness.hear(beat(2, 0, 10))
    witness.hear(beat(2, 1, 10, 11))
    assert witness.advance(11, RECORDS) == 11
    witness.hear(beat(3, 0, 10))
    assert witness.due(11).latest_ns == said_ns(1, 0) == START + 30 * MS
    witness.hear(beat(3, 1, 10, 11))
    assert witness.due(11) == Due(said_ns(3, 1), said_ns(3, 1)), "1: 30 ms, 2: 18 ms, 3: 30 ms, of which the second"


def test_a_slot_that_is_not_held_here_waits() -> None:
    witness = witness_of()
    for member in (1, 2):
        witness.hear(beat(member, 0, 12))
    assert witness.advance(10, RECORDS) == 10
    assert witness.advance(12, RECORDS) == 12


@pytest.mark.parametrize(("witnesses", "claims"), [(1, 0), (2, 2), (3, 3), ("majority", 2), ("all", 3)])
def test_how_many_claims_a_slot_waits_for(witnesses: Witnesses, claims: int) -> None:
    witness = witness_of(witnesses)
    needed = 0
    while witness.advance(11, RECORDS) < 11:
        needed += 1
        witness.hear(beat(needed, 0, 11))
    assert needed == claims
    assert (witness.due(11).latest_ns == 0) == (claims == 0)


def test_a_claim_counts_only_once_its_member_has_caught_up_to_the_start_of_the_generation() -> None:
    """History F1b: before that, `have` speaks about another history."""
    witness = witness_of()
    for member in (1, 2, 3):
        witness.hear(beat(member, 0, 9))
    assert witness.claim_of(2) == witness.stable() == -1
    for member in (1, 2, 3):
        witness.hear(beat(member, 1, 9, 10))
    assert witness.claim_of(2) == witness.stable() == 10


def test_lost_beats_are_known_from_the_next_one() -> None:
    log = ClaimLog()
    log.hear(beat(1, 3, 11), SCHEDULE)
    log.hear(beat(1, 7, 11, 12, 12, 14), SCHEDULE)
    assert [log.first_claim(slot) for slot in (11, 12, 13, 14, 15)] == [
        (0, 180),
        (300, 300),
        (420, 420),
        (420, 420),
        (421, None),
    ]


def test_a_gap_that_no_beat_fills_leaves_bounds() -> None:
    log = ClaimLog()
    log.hear(beat(1, 2, 10, 11), SCHEDULE)
    log.hear(beat(1, 9, 13, 14), SCHEDULE)
    assert [log.first_claim(slot) for slot in (11, 12, 13, 14)] == [(120, 120), (121, 480), (121, 480), (540, 540)]
    log.hear(beat(1, 5, 12, 12), SCHEDULE)
    assert (log.latest, log.have) == (540, 14), "an older beat changes nothing"


def test_a_receiver_that_lost_claims_releases_at_the_latest_possible_time_and_is_not_certain() -> None:
    witness = witness_of()
    witness.hear(beat(1, 0, 11))
    witness.hear(beat(2, 9, 11, 11))
    witness.hear(beat(3, 9, 10, 10))
    assert witness.advance(11, RECORDS) == 11
    due = witness.due(11)
    assert due == Due(said_ns(1, 0), said_ns(2, 8))
    assert not due.certain


def test_claims_in_tokens_count_as_those_of_the_next_beat() -> None:
    witness = witness_of()
    witness.hear(beat(1, 0, 10))
    tokens = {slot: make_token(RING, slot) for slot in (11, 12)}
    witness.read(tokens)
    assert [witness.claim_of(member) for member in (1, 2, 3)] == [11, 12, -1]
    assert witness.advance(12, RECORDS) == 11
    after_ns = START + NEXT_BEAT * UNIT_NS
    assert witness.due(11).latest_ns == after_ns + HEARD[1], "no interval is longer"
    witness.hear(beat(1, 1, 10, 11))
    witness.hear(beat(2, 1, 11, 11))
    assert witness.due(11).latest_ns == said_ns(1, 1), "beats are more exact"


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=12, max_size=12), min_size=3, max_size=3),
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=3, max_size=3),
)
def test_receivers_that_are_certain_agree_and_others_are_never_earlier(
    rises: Sequence[Sequence[int]], lost: Sequence[Sequence[bool]]
) -> None:
    complete, lossy = witness_of(), witness_of()
    for index, (member_rises, member_lost) in enumerate(zip(rises, lost, strict=True)):
        own = OwnBeats(unclaimed=START_SLOT - 2)
        have = START_SLOT - 2
        for number, (rise, gone) in enumerate(zip(member_rises, member_lost, strict=True)):
            have += rise
            said = Beat(index + 1, RING.generation, own.say(tick(index + 1, number + 1), have), number + 1, 0)
            complete.hear(said)
            if not gone:
                lossy.hear(said)
    highest = complete.advance(60, RECORDS)
    assert lossy.advance(60, RECORDS) <= highest
    for slot in range(START_SLOT, lossy.witnessed + 1):
        truth, seen = complete.due(slot), lossy.due(slot)
        assert seen.earliest_ns <= truth.earliest_ns <= truth.latest_ns <= seen.latest_ns
        if seen.certain:
            assert seen == truth


def test_a_beat_repeats_the_claims_of_those_before_it() -> None:
    own = OwnBeats()
    said = [own.say(tick, have) for tick, have in ((4, 20), (5, 21), (9, 22), (40, 30))]
    assert said[0] == ((4, 20),)
    assert said[-1] == ((4, 20), (5, 21), (9, 22), (40, 30))
    for number in range(20):
        assert len(own.say(50 + number, 31)) <= MAX_BEATS


def test_the_first_beat_of_a_ring_says_that_nothing_was_claimed_before() -> None:
    assert OwnBeats(unclaimed=9).say(2, 11) == ((0, 9), (2, 11))
    assert OwnBeats(unclaimed=9).say(1, 3) == ((0, 9), (1, 9))


def test_a_beat_that_was_not_sent_repeats_the_claim_of_the_token_before_it() -> None:
    own = OwnBeats(unclaimed=9)
    own.claim_in_token(20, 12)
    assert own.say(40, 14) == ((0, 9), (20, 12), (40, 14))
    own.claim_in_token(60, 15)
    assert own.say(60, 16) == ((0, 9), (20, 12), (40, 14), (60, 16)), "the beat after the token is sent"


def test_what_was_claimed_stays_true() -> None:
    own = OwnBeats()
    assert [own.say(tick, have)[-1].have for tick, have in ((1, 20), (2, 18))] == [20, 20]


@pytest.mark.parametrize("far", [Claim(2, 6 + MAX_STEP), Claim(2 + MAX_STEP, 6)], ids=["rise", "time"])
def test_a_claim_that_is_too_far_from_the_one_before_stands_alone(far: Claim) -> None:
    own = OwnBeats()
    own.say(1, 5)
    assert own.say(*far) == (far,)
    assert own.say(far.tick + 1, far.have) == (far, (far.tick + 1, far.have))


def test_beats_after_a_change_of_their_interval_leave_no_bounds() -> None:
    own, log = OwnBeats(unclaimed=START_SLOT - 2), ClaimLog()
    for at, have in ((60, 10), (120, 11), (150, 12), (180, 13)):
        claims = own.say(at, have)
        if at != 150:  # lost, at the first beat of the shorter interval
            log.hear(Beat(1, RING.generation, claims, at, 0), SCHEDULE)
    assert [log.first_claim(slot) for slot in (10, 11, 12, 13)] == [(60, 60), (120, 120), (150, 150), (180, 180)]


def test_released_slots_are_forgotten_and_later_ones_are_not() -> None:
    witness = witness_of()
    for number, have in enumerate((11, 12, 13)):
        for member in (1, 2, 3):
            witness.hear(beat(member, number, have))
    assert witness.advance(13, RECORDS) == 13
    later = witness.due(13)
    witness.forget(11)
    witness.forget(12)
    assert witness.due(13) == later
    assert later.earliest_ns > 0


def test_a_new_generation_keeps_the_times_of_what_the_one_before_has_witnessed() -> None:
    before = witness_of()
    for member in (1, 2, 3):
        before.hear(beat(member, 0, 13))
    assert before.advance(13, RECORDS) == 13
    ring = make_ring(9, start_slot=13)
    schedule = Schedule(ring, PIPELINED.slot_ns)
    later = BeatWitness(schedule, Count(schedule, "majority", 0), lambda _: HEARD, 10, 10)
    later.inherit(before)
    assert later.witnessed == 12
    assert later.due(11) == before.due(11)
    later.skip_to(20)
    assert later.witnessed == 20
