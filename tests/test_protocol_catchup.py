"""Rule 9: one that is too far behind for repairs gets released slots from a tape, as much as it can keep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.catchup import from_tape, take_over
from levelcast.protocol.history import GENESIS, Frame, History, MembershipChange, Tip, make_frame, runs_of
from levelcast.protocol.holdings import Holdings
from levelcast.wire.codec import encode
from levelcast.wire.messages import CatchUp, CatchUpPackets, Data, Message, Packet, Run
from levelcast.wire.packets import seal
from tests.ring_parts import MS, START, make_data, membership


def tape_of(sizes: list[int], sources: int = 1) -> list[Frame]:
    """A frame in every second slot, with so many packets, the sources in turn."""
    frames: list[Frame] = []
    chain, sequence = GENESIS, 1
    numbers = dict.fromkeys(range(sources), 0)
    for i, size in enumerate(sizes):
        packets = []
        for k in range(size):
            source = (i + k) % sources
            numbers[source] += 1
            packets.append(make_data(201 + source, numbers[source]))
        packets.sort()
        frame = make_frame(2 * i + 2, START + i * 20 * MS, sequence, tuple(packets), chain)
        frames.append(frame)
        chain, sequence = frame.chain, sequence + size
    return frames


def parts(messages: list[Message]) -> tuple[CatchUp, list[Data]]:
    settled, *others = messages
    assert isinstance(settled, CatchUp)
    packets: list[Data] = []
    for each in others:
        assert isinstance(each, CatchUpPackets)
        assert each.packets
        assert (each.sender, each.after_slot) == (settled.sender, settled.after_slot)
        encode(each, 0)  # it fits a datagram
        packets += [seal(packet, 0) for packet in each.packets]
    return settled, packets


sizes_of_frames = st.lists(st.integers(1, 30), min_size=1, max_size=6)


@given(sizes_of_frames, st.integers(1, 3), st.integers(1, 40))
def test_the_answer_is_a_whole_stretch_of_the_tape_with_its_chain_and_its_packets(
    sizes: list[int], sources: int, credit: int
) -> None:
    frames = tape_of(sizes, sources)
    last = frames[-1].slot + 1
    settled, packets = parts(from_tape(3, frames, 0, last, GENESIS, credit))
    taken = [frame for frame in frames if frame.slot <= settled.upto_slot]
    assert [(line.slot, line.timestamp_ns) for line in settled.slots] == [f[:2] for f in taken]
    assert settled.chain_before == GENESIS
    assert settled.chain_after == taken[-1].chain
    assert packets == [seal(packet, 0) for frame in taken for packet in frame.packets]
    assert settled.upto_slot == (last if len(taken) == len(frames) else taken[-1].slot)
    assert (settled.sender, settled.after_slot) == (3, 0)


@given(sizes_of_frames, st.integers(1, 3), st.integers(1, 40))
def test_the_answer_has_no_more_of_a_source_than_its_credit_but_always_a_frame(
    sizes: list[int], sources: int, credit: int
) -> None:
    frames = tape_of(sizes, sources)
    settled, packets = parts(from_tape(3, frames, 0, frames[-1].slot, GENESIS, credit))

    def most(some: Sequence[Data | Packet]) -> int:
        return max(sum(packet.source == source for packet in some) for source in (201, 202, 203))

    assert len(settled.slots) == 1 or most(packets) <= credit
    if len(settled.slots) < len(frames):
        assert most([*packets, *frames[len(settled.slots)].packets]) > credit


def test_a_stretch_of_empty_slots_is_an_answer_too() -> None:
    assert from_tape(3, [], 4, 9, GENESIS, 8) == [CatchUp(3, 4, 9, GENESIS, GENESIS, ())]


def test_asking_again_from_where_the_answer_stopped_brings_the_rest() -> None:
    frames = tape_of([5, 5, 5, 5])
    after, chain, got = 0, GENESIS, []
    for _ in range(10):
        rest = [frame for frame in frames if frame.slot > after]
        if not rest:
            break
        settled, packets = parts(from_tape(3, rest, after, frames[-1].slot, chain, 8))
        assert settled.after_slot == after
        after, chain = settled.upto_slot, settled.chain_after
        got += packets
    assert got == [seal(packet, 0) for frame in frames for packet in frame.packets]
    assert chain == frames[-1].chain


@given(st.lists(st.tuples(st.sampled_from((201, 202)), st.integers(1, 2), st.integers(1, 6)), unique=True))
def test_runs_keep_the_order_of_the_tape(keys: list[tuple[int, int, int]]) -> None:
    packets = [make_data(source, number, incarnation=incarnation) for source, incarnation, number in keys]
    named = [
        (run.source, run.incarnation, number) for run in runs_of(packets) for number in range(run.first, run.last + 1)
    ]
    assert named == keys


def test_neighbouring_packets_of_a_source_are_one_run() -> None:
    packets = [make_data(201, 1), make_data(201, 2), make_data(202, 1), make_data(201, 3)]
    assert list(runs_of(packets)) == [Run(201, 1, 1, 2), Run(202, 1, 1, 1), Run(201, 1, 3, 3)]


def behind(packets: list[Data]) -> tuple[History, Holdings]:
    """A receiver that has ordered nothing and holds the packets."""
    held = Holdings()
    for packet in packets:
        held.add(packet)
    return History(Tip(records=[MembershipChange(0, membership(1, 2, 3))])), held


@given(sizes_of_frames, st.integers(1, 3))
def test_taking_over_gives_the_very_tape_that_was_served(sizes: list[int], sources: int) -> None:
    frames = tape_of(sizes, sources)
    settled, packets = parts(from_tape(3, frames, 0, frames[-1].slot + 1, GENESIS, 1000))
    history, held = behind(packets)
    assert take_over(settled, history, held)
    assert (history.have, history.tip.chain) == (frames[-1].slot + 1, frames[-1].chain)
    assert [history.at(frame.slot).frame for frame in frames] == frames


@pytest.mark.parametrize("wrong", ["chain_before", "chain_after", "timestamp", "packet", "gap"])
def test_frames_that_do_not_match_their_chain_are_refused_and_leave_no_trace(wrong: str) -> None:
    frames = tape_of([2, 3], sources=2)
    settled, packets = parts(from_tape(3, frames, 0, 5, GENESIS, 1000))
    if wrong == "timestamp":
        first, second = settled.slots
        settled = settled._replace(slots=(first, second._replace(timestamp_ns=second.timestamp_ns + 1)))
    elif wrong == "packet":
        last = packets[-1]
        packets[-1] = make_data(last.source, last.first, payload=b"another")
    elif wrong == "gap":  # runs that do not continue the order: an assertion would end the receiver
        first, second = settled.slots
        moved = tuple(run._replace(first=run.first + 1) for run in second.runs)
        settled = settled._replace(slots=(first, second._replace(runs=moved)))
    elif wrong == "chain_before":
        settled = settled._replace(chain_before=bytes([7]) * 32)
    else:
        settled = settled._replace(chain_after=bytes([7]) * 32)
    history, held = behind(packets)
    before = history.tip.copy()
    assert not take_over(settled, history, held)
    assert history.tip == before
    assert all(history.get(slot) is None for slot in range(1, 6))
