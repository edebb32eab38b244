"""The fair sequence as a function of frames: admission, closing, order in a bucket (E4 to E8)."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.market.fair import fair_order
from levelcast.market.fair.fair_order import EntryReason, FairEntry, tickets
from levelcast.market.fair.snapshot import EntrySnapshotError, entry_snapshot, restored_entry
from levelcast.records import orders
from tests.fair_entry_parts import MS, RULES, START, S, Shown, Tape, replay


def reasons(batch: fair_order.EntryBatch) -> list[EntryReason]:
    return [EntryReason(each) for each in batch.reasons.tolist()]


def bucket_of(tape: Tape, at_ns: int) -> tuple[int, int]:
    """Return start and end of the bucket of a stamp, once its epoch is known."""
    era = tape.entry.eras[-1]
    end = int(era.ends(np.array([at_ns]), tape.entry.log)[0])
    return era.border_before(at_ns, tape.entry.log), end


def test_a_bucket_closes_when_all_gateways_have_passed_it() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    _, end = bucket_of(tape, START + 150 * MS)
    assert len(tape.add(START + 170 * MS, [Shown(11, START + 150 * MS, 7)]).orders) == 0
    assert len(tape.beats(end, (12, 13)).orders) == 0, "the gateway of the order itself has not passed the end"
    assert tape.beats(end, (11,)).orders["account"].tolist() == [7]


def test_a_clock_exactly_at_the_end_closes_and_one_before_it_does_not() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    _, end = bucket_of(tape, START + 150 * MS)
    tape.add(START + 170 * MS, [Shown(11, START + 150 * MS, 7)])
    assert len(tape.beats(end - 1).orders) == 0
    assert len(tape.beats(end).orders) == 1


def test_a_dead_gateway_delays_closing_once_by_theta() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    tape.add(START + 170 * MS, [Shown(11, START + 150 * MS, 7)])
    at = START + 200 * MS
    while not len(tape.beats(at, (11, 12)).orders):
        at += 20 * MS
    assert at + 20 * MS <= START + 150 * MS + RULES.quantum_ns + RULES.close_ns + 20 * MS
    assert tape.batches[-1].left == (13,) or any(batch.left == (13,) for batch in tape.batches)
    tape.add(at + 30 * MS, [Shown(11, at + 10 * MS, 8)])
    assert tape.beats(at + 30 * MS, (11, 12)).orders["account"].tolist() == [8], "the others do not wait any more"


def test_a_gateway_that_returned_is_waited_for_again() -> None:
    tape = Tape()
    for step in range(60):
        tape.beats(START + step * 20 * MS, (11, 12))
    assert not tape.entry.gateways[13].waited_for
    at = START + 1300 * MS
    tape.beats(at)
    assert tape.entry.gateways[13].waited_for
    tape.add(at + 30 * MS, [Shown(11, at + 10 * MS, 8)])
    assert len(tape.beats(at + 40 * MS, (11, 12)).orders) == 0
    assert len(tape.beats(at + 40 * MS, (13,)).orders) == 1


def test_a_gateway_that_fails_repeatedly_is_readmitted_after_increasing_pauses() -> None:
    """A gateway beats only while it is outside the set: its pauses are 0, Θ, 2Θ, 4Θ, 8Θ."""
    tape, pauses, clock_13 = Tape(), [], None
    left_at = START
    for step in range(1, 1200):
        before = tape.entry.gateways[13].waited_for
        tape.beats(START + step * 20 * MS, (11, 12) if before else RULES.gateways)
        clock_13 = tape.entry.gateways[13]
        if before and not clock_13.waited_for:
            left_at = clock_13.changed_ns
        elif clock_13.waited_for and not before:
            pauses.append(clock_13.changed_ns - left_at)
    pauses = pauses[:5]
    expected = [fair_order.pause_ns(failures, RULES.close_ns) for failures in range(1, 6)]
    assert expected == [0, RULES.close_ns, 2 * RULES.close_ns, 4 * RULES.close_ns, 8 * RULES.close_ns]
    assert all(0 <= pause - wanted <= 20 * MS for pause, wanted in zip(pauses, expected, strict=True))


def test_failures_are_forgotten_after_a_long_time_in_the_set() -> None:
    tape = Tape()
    for step in range(60):
        tape.beats(START + step * 20 * MS, (11, 12))
    at = START + 1200 * MS
    for step in range(600):
        tape.beats(at + step * 20 * MS)
    assert tape.entry.gateways[13].failures == 0


def test_equally_fast_accounts_are_first_equally_often() -> None:
    tape, firsts = Tape(), []
    tape.beats(START + 50 * MS)
    for step in range(300):
        at = START + (step + 1) * 200 * MS + 100 * MS
        tape.beats(at - 20 * MS)
        start, end = bucket_of(tape, at)
        stamp = start + 1
        tape.add(end + 10 * MS, [Shown(11, stamp, 1), Shown(12, stamp, 2)])
        firsts += tape.beats(end + 60 * MS).orders["account"].tolist()[:1]
    assert len(firsts) == 300
    assert abs(firsts.count(1) - 150) < 5 * np.sqrt(75)


def test_copies_get_later_turns_and_no_second_ticket() -> None:
    tape = Tape()
    tape.beats(START + 50 * MS)
    start, end = bucket_of(tape, START + 200 * MS)
    copies = [Shown(11, start, 1, number) for number in range(5)]
    tape.add(end + 10 * MS, [*copies, Shown(12, start, 2), Shown(13, start, 3)])
    ordered = tape.beats(end + 60 * MS).orders
    assert sorted(ordered["account"].tolist()[:3]) == [1, 2, 3]
    assert ordered["account"].tolist()[3:] == [1, 1, 1, 1]
    mine = ordered["client_order_id"][ordered["account"] == 1]
    assert mine.tolist() == [0, 1, 2, 3, 4], "an account's own orders keep their order"


def test_buckets_come_in_turn() -> None:
    tape = Tape()
    tape.beats(START + 50 * MS)
    _, end = bucket_of(tape, START + 200 * MS)
    tape.add(end + 10 * MS, [Shown(11, end, 1), Shown(12, end - 1, 2), Shown(13, end + 1, 3)])
    assert tape.beats(end + 60 * MS).orders["account"].tolist()[0] == 2


def test_an_order_of_a_closed_bucket_goes_into_the_first_open_one_and_is_marked() -> None:
    tape = Tape()
    for step in range(60):  # gateway 13 lets Θ pass
        tape.beats(START + step * 20 * MS, (11, 12))
    at = START + 1200 * MS
    start, _ = bucket_of(tape, at - 30 * MS)
    late = tape.add(at, [Shown(13, START + 300 * MS, 9)])
    assert len(late.orders) == 0
    assert len(late.refused) == 0
    batch = tape.beats(at + 40 * MS, (11, 12, 13))
    assert batch.orders["account"].tolist() == [9]
    assert batch.late.tolist() == [True]
    assert tape.entry.gateways[13].late == 1
    assert start <= tape.entry.closed_ns


def test_stamps_that_go_back_or_are_in_the_future_are_refused_with_an_alarm() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    back = tape.add(START + 130 * MS, [Shown(11, START + 100 * MS - 1, 1), Shown(11, START + 100 * MS, 2)])
    assert reasons(back) == [EntryReason.GOES_BACK]
    assert list(back.alarms()) == [
        "gateway 11: 1 record refused: its stamp is below one that the gateway has shown; "
        "check the clock of the gateway"
    ]
    future = tape.add(
        START + 140 * MS, [Shown(11, START + 140 * MS + RULES.ahead_ns + 1, 1), Shown(12, START + 140 * MS + 1, 2)]
    )
    assert reasons(future) == [EntryReason.FUTURE]
    assert tape.entry.gateways[11].passed_ns == START + 100 * MS, "a refused stamp shows no clock"
    assert tape.entry.gateways[11].refused == 2
    assert tape.beats(START + 200 * MS).orders["account"].tolist() == [2, 2]


def test_undefined_stamps_unknown_gateways_wrong_corrections_and_others_ids_are_refused() -> None:
    tape = Tape()
    undefined = tape.add(START + 20 * MS, [Shown(11, 2**64 - 1, 1)])
    assert reasons(undefined) == [EntryReason.FUTURE]
    unknown = tape.add(START + 30 * MS, [Shown(77, START + 20 * MS, 1), Shown(11, START - 1, 1)])
    assert reasons(unknown) == [EntryReason.UNKNOWN_GATEWAY] * 2
    records = orders(2)
    records["publisher_id"], records["ts_event"], records["account"] = 11, START + 20 * MS, 5
    records["ts_in_delta"] = [RULES.late_cap_ns, RULES.late_cap_ns + 1]
    frame = tape.frames[-1]._replace(
        sequence=frame_sequence(tape) + 2, timestamp_ns=START + 40 * MS, payload=records.tobytes(), sources=((11, 2),)
    )
    assert reasons(tape.entry.frame(frame)) == [EntryReason.CORRECTION]
    stolen = frame._replace(sequence=frame.sequence + 2, sources=((12, 2),), timestamp_ns=START + 50 * MS)
    assert reasons(tape.entry.frame(stolen)) == [EntryReason.OTHER_SOURCE] * 2


def frame_sequence(tape: Tape) -> int:
    return tape.frames[-1].sequence


def test_before_the_first_rules_no_order_is_accepted() -> None:
    tape = Tape(None)
    assert reasons(tape.add(START, [Shown(11, START, 1)])) == [EntryReason.UNKNOWN_GATEWAY]


def test_a_frame_that_goes_back_is_a_defect_of_the_caller() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    with pytest.raises(ValueError, match="is not after"):
        tape.entry.frame(tape.frames[0])


def test_treasury_commands_and_other_records_keep_their_place() -> None:
    tape = Tape()
    deposit = orders(1)
    deposit["action"], deposit["command"], deposit["publisher_id"] = b"N", b"D", 9
    batch = tape.add(START + 10 * MS, [Shown(11, START, 1)], others=deposit.tobytes())
    assert batch.others == deposit.tobytes()
    assert batch.payload == deposit.tobytes()


def test_a_removed_gateway_leaves_with_the_new_rules_and_an_added_one_is_waited_for() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    change = START + 3 * S
    tape.add(START + 200 * MS, rules=[RULES._replace(version=2, from_ns=change, gateways=(11, 12, 14))])
    assert tape.entry.gateways[13].waited_for
    for step in range(1, 150):
        tape.beats(START + 200 * MS + step * 20 * MS)
    batch = tape.add(change + 230 * MS, [Shown(13, change + 210 * MS, 1), Shown(14, change + 210 * MS, 2)])
    assert reasons(batch) == [EntryReason.UNKNOWN_GATEWAY]
    assert tape.beats(change + 240 * MS, (11, 12)).orders["account"].tolist() == []
    assert tape.beats(change + 240 * MS, (14,)).orders["account"].tolist() == [2]


def test_rules_that_do_not_follow_are_ignored() -> None:
    tape = Tape()
    tape.beats(START + 100 * MS)
    at = START + 200 * MS
    skips = RULES._replace(version=3, from_ns=at + 5 * S)
    too_soon = RULES._replace(version=2, from_ns=at + RULES.hold_ns)
    tape.add(at, rules=[skips, too_soon])
    assert len(tape.entry.eras) == 1
    second = RULES._replace(version=2, from_ns=at + 5 * S)
    tape.add(at + MS, rules=[second, second._replace(version=3, from_ns=at + 8 * S)])
    assert [era.rules.version for era in tape.entry.eras] == [1, 2], "one change is under way at most"


def random_tape(seed: int, quantum_ns: int = RULES.quantum_ns) -> Tape:
    """Return a tape of orders, beats, silences and a change of rules."""
    rng = Random(seed)
    tape = Tape(RULES._replace(quantum_ns=quantum_ns))
    clocks = dict.fromkeys((11, 12, 13), START)
    silent = rng.choice((None, 13))
    for step in range(rng.randint(20, 80)):
        at = START + step * rng.choice((20, 40)) * MS
        at = max(at, tape.entry.timestamp_ns + MS)
        shown = []
        for gateway in clocks:
            if gateway == silent and step % 60 < 45:
                continue
            clocks[gateway] = max(clocks[gateway], at - rng.randint(5, 60) * MS)
            count = rng.choice((0, 0, 1, 3))
            shown += [Shown(gateway, clocks[gateway], rng.randint(1, 4), number) for number in range(count)]
            shown.append(Shown(gateway, clocks[gateway] + rng.choice((0, 0, -1))))
        if step == 15:
            rules = RULES._replace(version=2, from_ns=at + 2 * S + MS, quantum_ns=rng.choice((0, MS, 7 * MS)))
            tape.add(at, shown, rules=[rules])
        else:
            tape.add(at, shown)
    return tape


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((0, MS, 5 * MS, 400 * MS)))
def test_two_readers_of_a_tape_compute_the_same_sequence_and_none_is_lost_or_twice(seed: int, quantum_ns: int) -> None:
    tape = random_tape(seed, quantum_ns)
    assert replay(tape.frames) == b"".join(batch.payload for batch in tape.batches)
    ordered = np.concatenate([batch.orders for batch in tape.batches])
    given_in = np.concatenate(
        [fair_order._parts(frame)[0] for frame in tape.frames if len(fair_order._parts(frame)[0])]
    )
    wanted = int(np.count_nonzero(~fair_order.is_beat(given_in)))
    refused = sum(int(np.count_nonzero(~fair_order.is_beat(batch.refused))) for batch in tape.batches)
    assert len(ordered) + refused + tape.entry.waiting == wanted


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 100))
def test_a_snapshot_and_the_later_frames_give_the_same_sequence(seed: int, share: int) -> None:
    tape = random_tape(seed)
    cut = len(tape.frames) * share // 100
    entry = FairEntry()
    for frame in tape.frames[:cut]:
        entry.frame(frame)
    again = restored_entry(entry_snapshot(entry))
    assert entry_snapshot(again) == entry_snapshot(entry)
    for frame, batch in zip(tape.frames[cut:], tape.batches[cut:], strict=True):
        assert again.frame(frame).payload == batch.payload
    assert entry_snapshot(again) == entry_snapshot(tape.entry)


def test_a_damaged_snapshot_is_refused() -> None:
    octets = entry_snapshot(random_tape(3).entry)
    for bad in (b"", octets[:-1], octets[:40] + b"x" + octets[41:], b"nope" + octets[4:]):
        with pytest.raises(EntrySnapshotError):
            restored_entry(bad)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from((1, 1000, MS, 5 * MS, 3 * S)),
    st.lists(st.integers(0, 4 * S), min_size=1),
)
def test_borders_agree_and_are_a_quantum_apart(seed: int, quantum_ns: int, stamps: list[int]) -> None:
    tape = Tape(RULES._replace(quantum_ns=quantum_ns, close_ns=max(quantum_ns, RULES.close_ns)))
    for step in range(10):
        tape.beats(START + step * 500 * MS + seed)
    era, log = tape.entry.eras[0], tape.entry.log
    at = np.array(stamps) + START
    for stamp, end in zip(at.tolist(), era.ends(at, log).tolist(), strict=True):
        start = era.border_before(stamp, log)
        assert start <= stamp < end
        assert end - start < 2 * min(quantum_ns, RULES.epoch_ns)
        if end < START + 4 * S:
            assert era.border_before(end, log) == end
            assert era.border_before(end - 1, log) == start


def test_tickets_of_two_accounts_are_even_and_depend_on_the_seed() -> None:
    accounts = np.arange(1, 401, dtype=np.uint64)
    ends = np.zeros(400, np.int64)
    drawn = [tickets(accounts, ends, seed.to_bytes(32, "little")) for seed in range(4000)]
    ranks = np.array([np.argsort(np.argsort(each)) for each in drawn])
    assert (tickets(accounts, ends + 1, bytes(32)) != drawn[0]).all()
    firsts = (ranks[:, :-1] < ranks[:, 1:]).mean(axis=0)
    assert abs(float(firsts.mean()) - 0.5) < 0.002
    assert float(np.abs(firsts - 0.5).max()) < 4.5 * 0.5 / np.sqrt(4000)
    assert abs(float(ranks[:, 0].mean()) - 199.5) < 5 * 115 / np.sqrt(4000)
