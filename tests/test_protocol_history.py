"""Rules 3 and 14: every receiver that holds the tokens gets the same order, bytes and all."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.history import GENESIS, History, MembershipChange, Misplaced, SourcePosition, Tip, make_frame
from levelcast.protocol.holdings import Holdings
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, Cutoff, Data, Pace, PaceChange, Packet, Run
from levelcast.wire.pace_change import encode_pace_change
from levelcast.wire.packets import seal
from tests.ring_parts import MS, START, make_data, membership

SOURCES = (CONTROL_SOURCE, 201, 202, 203)


class Slot(NamedTuple):
    slot: int
    runs: tuple[Run, ...]


def packet(source: int, incarnation: int, number: int) -> Data:
    """A packet; those of the control source carry the set with their number as its version."""
    if source == CONTROL_SOURCE and incarnation == 1:
        return make_data(source, number, payload=encode_membership(membership(1, 2, 3, version=number)))
    return make_data(source, number, incarnation=incarnation)


@st.composite
def tokens(draw: st.DrawFn) -> list[Slot]:
    """The tokens that sites which know only some of each other's tokens could send.

    A run begins at or before the next packet of its source: later ones are not contiguous, and no site names them.
    """
    place = {source: SourcePosition(1, 1) for source in SOURCES}
    slots = []
    for slot in range(1, draw(st.integers(2, 9))):
        runs = []
        for source in draw(st.lists(st.sampled_from(SOURCES), unique=True)):
            now = place[source]
            incarnation = max(1, now.incarnation + draw(st.sampled_from((0, 0, 0, 0, -1, 1))))
            next_number = now.next if incarnation == now.incarnation else 1
            first = draw(st.integers(1, next_number))
            last = draw(st.integers(first, next_number + 2))
            runs.append(Run(source, incarnation, first, last))
            if incarnation >= now.incarnation:
                place[source] = SourcePosition(incarnation, max(last + 1, next_number))
        slots.append(Slot(slot, tuple(runs)))
    return slots


def new_history() -> History:
    return History(Tip(records=[MembershipChange(0, membership(1, 2, 3))]))


def packets_of(slots: list[Slot]) -> list[Data]:
    named = {
        (run.source, run.incarnation, number)
        for _, runs in slots
        for run in runs
        for number in range(run.first, run.last + 1)
    }
    return [packet(*key) for key in sorted(named)]


def time_of(slot: int) -> int:
    return START + slot * 10 * MS


def absorb(arrivals: list[Slot | Data], history: History | None = None) -> History:
    """Order whatever can be ordered after each arrival, as a receiver does."""
    history = history if history is not None else new_history()
    held = Holdings()
    known: dict[int, Slot] = {}
    for arrival in arrivals:
        if isinstance(arrival, Data):
            held.add(arrival)
        else:
            known[arrival.slot] = arrival
        while (token := known.get(history.have + 1)) is not None and held.is_complete(token.runs, history):
            runs = history.sorted_runs(token.runs)
            history.extend(token.slot, 1, time_of(token.slot), runs, held.packets)
    return history


def in_slot_order(slots: list[Slot], history: History | None = None) -> History:
    return absorb([*packets_of(slots), *slots], history)


@given(tokens(), st.integers())
def test_receivers_agree_whatever_order_tokens_and_packets_came_in(slots: list[Slot], seed: int) -> None:
    arrivals: list[Slot | Data] = [*packets_of(slots), *slots]
    Random(seed).shuffle(arrivals)
    assert absorb(arrivals).tip == in_slot_order(slots).tip


@given(tokens(), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_site_lists_its_runs(slots: list[Slot], rng: Random) -> None:
    relisted = [Slot(slot, tuple(rng.sample(runs, len(runs)))) for slot, runs in slots]
    assert in_slot_order(relisted).tip == in_slot_order(slots).tip


def test_the_place_of_a_source_within_a_slot_changes_from_frame_to_frame() -> None:
    runs = [Run(201, 1, 1, 1), Run(202, 1, 1, 1)]
    first = set()
    for number in range(16):
        history = new_history()
        history.tip.chain = sha256(bytes([number])).digest()
        ordered = history.sorted_runs(runs)
        assert ordered == history.sorted_runs(runs[::-1])
        first.add(ordered[0].source)
    assert first == {201, 202}


def test_incarnations_of_one_source_in_one_token_come_in_rising_order() -> None:
    runs = (Run(201, 2, 1, 2), Run(201, 1, 1, 3))
    assert [run.incarnation for run in new_history().sorted_runs(runs)] == [1, 2]


@given(tokens())
def test_a_packet_belongs_to_the_lowest_slot_that_names_it_and_lower_incarnations_to_none(slots: list[Slot]) -> None:
    expected: dict[tuple[int, int, int], int] = {}
    newest: dict[int, int] = {}
    for slot, runs in slots:
        for run in runs:
            if run.incarnation >= newest.get(run.source, 0):
                newest[run.source] = run.incarnation
                for number in range(run.first, run.last + 1):
                    expected.setdefault((run.source, run.incarnation, number), slot)
    history = in_slot_order(slots)
    found: dict[tuple[int, int, int], int] = {}
    for slot, _ in slots:
        frame = history.at(slot).frame
        for each in frame.packets if frame is not None else ():
            assert each[:3] not in found
            found[each[:3]] = slot
    assert found == expected


@given(tokens())
def test_a_sources_packets_keep_their_order_and_sequence_numbers_have_no_gap(slots: list[Slot]) -> None:
    history = in_slot_order(slots)
    last: dict[int, tuple[int, int]] = {}
    sequence, chain = 1, GENESIS
    for slot, _ in slots:
        frame = history.at(slot).frame
        if frame is None:
            continue
        assert (frame.first_sequence, frame.chain_before, frame.timestamp_ns) == (sequence, chain, time_of(slot))
        sequence, chain = sequence + len(frame.packets), frame.chain
        for each in frame.packets:
            assert (each.incarnation, each.number) > last.get(each.source, (0, 0))
            last[each.source] = (each.incarnation, each.number)
    assert (history.tip.next_sequence, history.tip.chain) == (sequence, chain)


def test_a_run_of_a_lower_incarnation_is_skipped_even_if_it_was_never_ordered() -> None:
    history = in_slot_order([Slot(1, (Run(201, 2, 1, 2),)), Slot(2, (Run(201, 1, 1, 5),))])
    assert history.at(2).frame is None
    assert history.tip.places[201] == SourcePosition(2, 3)


def test_sequence_numbers_count_records_not_packets() -> None:
    history = new_history()
    held = Holdings()
    held.add(seal(Packet(201, 1, 1, 5, b"five!"), 0))
    held.add(seal(Packet(201, 1, 2, 2, b"22"), 0))
    history.extend(1, 1, time_of(1), [Run(201, 1, 1, 2)], held.packets)
    assert history.tip.next_sequence == 8


@given(tokens(), st.data())
def test_rolling_back_restores_exactly_the_tip_before(slots: list[Slot], data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(slots)))
    history = in_slot_order(slots[:kept])
    before = history.tip.copy()
    in_slot_order(slots, history)
    after = history.tip.copy()
    history.rollback(kept)
    assert history.tip == before
    assert all(history.get(slot) is None for slot, _ in slots[kept:])
    assert in_slot_order(slots, history).tip == after


@given(tokens(), st.data())
def test_settling_gives_the_tip_that_reading_the_tape_gives(slots: list[Slot], data: st.DataObject) -> None:
    settled = data.draw(st.integers(0, len(slots)))
    history = in_slot_order(slots)
    frames = [history.at(slot).frame for slot, _ in slots]
    tape = new_history().base
    for frame in frames[:settled]:
        if frame is not None:
            tape.append(frame)
    tape.slot = settled  # a tape has no frame for an empty slot at its end
    tip = history.tip.copy()
    history.settle(settled)
    assert history.base == tape == in_slot_order(slots[:settled]).tip
    assert history.tip == tip
    assert in_slot_order(slots, History(tape)).tip == tip


@pytest.mark.asserts
def test_the_tape_refuses_a_frame_that_does_not_follow() -> None:
    history = in_slot_order([Slot(1, (Run(201, 1, 1, 1),)), Slot(2, (Run(201, 1, 2, 2),))])
    first, second = history.at(1).frame, history.at(2).frame
    assert first is not None
    assert second is not None
    tape = new_history().base
    with pytest.raises(AssertionError):
        tape.append(second)
    tape.append(first)
    with pytest.raises(AssertionError):
        tape.append(first)


@pytest.mark.asserts
def test_released_slots_cannot_be_rolled_back() -> None:
    history = in_slot_order([Slot(1, ()), Slot(2, ()), Slot(3, ())])
    history.settle(2)
    with pytest.raises(AssertionError):
        history.rollback(1)


@pytest.mark.parametrize("runs", [[Run(201, 1, 2, 2)], [Run(202, 1, 1, 1), Run(201, 1, 1, 1), Run(201, 1, 3, 3)]])
def test_a_token_that_leaves_a_gap_is_not_ordered_and_changes_nothing(runs: list[Run]) -> None:
    history = new_history()
    held = Holdings()
    for each in (packet(201, 1, 1), packet(201, 1, 2), packet(201, 1, 3), packet(202, 1, 1)):
        held.add(each)
    before = history.tip.copy()
    with pytest.raises(Misplaced, match="is next"):
        history.extend(1, 1, time_of(1), runs, held.packets)
    assert history.tip == before
    assert history.extend(1, 1, time_of(1), [Run(201, 1, 1, 3)], held.packets).frame is not None


@given(
    st.sampled_from(("slot", "timestamp", "sequence", "chain", "source", "incarnation", "number", "records", "payload"))
)
def test_the_chain_covers_everything_in_a_frame(changed: str) -> None:
    each = Packet(201, 1, 1, 1, b"trade")
    plain = make_frame(4, START, 9, (seal(each, 0),), GENESIS)
    if changed in Packet._fields:
        altered = {
            "source": each._replace(source=7),
            "incarnation": each._replace(incarnation=7),
            "number": each._replace(number=7),
            "records": each._replace(records=2),
            "payload": each._replace(payload=b"other"),
        }
        other = make_frame(4, START, 9, (seal(altered[changed], 0),), GENESIS)
    else:
        slot, timestamp = (5, START) if changed == "slot" else (4, START + (changed == "timestamp"))
        chain = bytes([1]) * 32 if changed == "chain" else GENESIS
        other = make_frame(slot, timestamp, 10 if changed == "sequence" else 9, (seal(each, 0),), chain)
    assert other.chain != plain.chain


def test_bytes_cannot_move_between_two_packets_without_changing_the_chain() -> None:
    def chain(first: bytes, second: bytes) -> bytes:
        packets = (make_data(201, 1, payload=first), make_data(201, 2, payload=second))
        return make_frame(1, START, 1, packets, GENESIS).chain

    assert chain(b"ab", b"c") != chain(b"a", b"bc")


def test_only_the_successor_of_the_current_set_changes_it_and_only_from_the_control_source() -> None:
    def control(number: int, version: int, source: int = CONTROL_SOURCE) -> Data:
        return make_data(source, number, payload=encode_membership(membership(1, 2, 4, version=version)))

    history = new_history()
    held = Holdings()
    for each in (control(1, 2), control(2, 1), control(3, 1), control(1, 2, source=201), control(4, 2)):
        held.add(each)
    control_runs = [Run(CONTROL_SOURCE, 1, number, number) for number in range(1, 5)]
    versions = []
    for slot, run in enumerate([*control_runs[:3], Run(201, 1, 1, 1), control_runs[3]], start=1):
        history.extend(slot, 1, time_of(slot), [run], held.packets)
        versions.append([(record.slot, record.membership.version) for record in history.tip.records])
    assert versions == [[(0, 0)], [(0, 0), (2, 1)], [(0, 0), (2, 1)], [(0, 0), (2, 1)], [(2, 1), (5, 2)]]
    history.rollback(1)
    assert history.tip.records == [MembershipChange(0, membership(1, 2, 3))]


def test_a_timing_record_counts_from_its_slot_until_that_is_voided() -> None:
    def of_version(number: int, version: int) -> Data:
        pace = Pace(400 * MS, 10 * MS, (Cutoff(1, 30 * MS),))
        change = PaceChange(version, START + 3_000 * MS, 600 * MS, pace)
        return make_data(CONTROL_SOURCE, number, payload=encode_pace_change(change))

    history, held = new_history(), Holdings()
    for number, version in ((1, 2), (2, 1)):
        held.add(of_version(number, version))
        history.extend(number, 1, START + number * MS, (Run(CONTROL_SOURCE, 1, number, number),), held.packets)
    assert [change.version for change in history.tip.paces] == [1], "version 2 follows nothing"
    history.rollback(1)
    assert history.tip.paces == []
