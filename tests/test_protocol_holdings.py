"""What a receiver holds: pieces of packets that come in any order, overlap and are cut, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.history import SourcePosition
from levelcast.protocol.holdings import Holdings, PacketRanges
from levelcast.wire.messages import Data
from levelcast.wire.packets import join, open_packets
from tests.ring_parts import make_data

spans = st.tuples(st.integers(1, 30), st.integers(0, 8)).map(lambda each: (each[0], each[0] + each[1]))


def piece(first: int, last: int) -> Data:
    (data,) = join(make_data(201, number) for number in range(first, last + 1))
    return data


def numbers(data: Data) -> range:
    """The numbers that a piece has; its bytes are looked at, too."""
    assert join(make_data(201, packet.number) for packet in open_packets(data)) == [data]
    return range(data.first, data.last + 1)


@given(st.lists(spans, max_size=12), spans, st.integers(1, 40))
def test_a_shelf_holds_every_packet_once(added: list[tuple[int, int]], asked: tuple[int, int], before: int) -> None:
    shelf, held = PacketRanges(), set[int]()
    for span in added:
        new = [number for data in shelf.add(piece(*span)) for number in numbers(data)]
        assert new == [number for number in range(span[0], span[1] + 1) if number not in held]
        held |= set(new)
    for forgets in (0, before):
        shelf.forget(forgets)
        held = {number for number in held if number >= forgets}
        wanted = range(asked[0], asked[1] + 1)
        assert [number for data in shelf for number in numbers(data)] == sorted(held)
        assert [n for data in shelf.take(*asked) for n in numbers(data)] == [n for n in wanted if n in held]
        missing = [range(first, last + 1) for first, last in shelf.missing(*asked)]
        assert [n for each in missing for n in each] == [n for n in wanted if n not in held]
        last = asked[0] - 1
        while last + 1 in held:
            last += 1
        assert shelf.contiguous_from(asked[0]) == last
    assert bool(shelf) == bool(held)


def test_what_is_below_a_place_goes_whatever_its_incarnation() -> None:
    held = Holdings()
    for incarnation in (1, 2, 3):
        for number in (1, 2, 3):
            held.add(make_data(201, number, incarnation=incarnation))
    held.forget(0, {201: SourcePosition(2, 3)})
    left = {(data.incarnation, data.first) for shelf in held.packets.values() for data in shelf}
    assert left == {(2, 3), (3, 1), (3, 2), (3, 3)}
