"""Whatever is lost and in whatever order the rest arrives: parities give exactly the packets that they can give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.holdings import Holdings
from levelcast.protocol.parities import Parities
from levelcast.protocol.seals import CrcSeals
from levelcast.wire.messages import Data, Packet, Parity
from levelcast.wire.packets import join, seal, singles
from levelcast.wire.parity import parities_of

PACKETS = 9


def never(data: Data) -> bool:
    return False


def first_number(parity: Parity) -> int | None:
    return 1


@given(data=st.data(), groups=st.integers(1, PACKETS))
def test_each_group_that_lacks_one_packet_is_completed(data: st.DataObject, groups: int) -> None:
    [train] = join(seal(Packet(7, 1, number, 1, b"x" * number), 0) for number in range(1, PACKETS + 1))
    messages: list[Data | Parity] = [*singles(train), *parities_of(train, groups)]
    arriving = data.draw(st.permutations([each for each in messages if data.draw(st.booleans())]))
    held, parities = Holdings(), Parities(CrcSeals(0))
    for message in arriving:
        if isinstance(message, Data):
            held.add(message)
        else:
            parities.add(message)
        for _, found in list(parities.rebuild(held, first_number, never)):
            assert found.data is not None
            held.add(found.data)
    came = {message.first for message in arriving if isinstance(message, Data)}
    whole = [parity for parity in arriving if isinstance(parity, Parity) and len(set(parity.numbers) - came) <= 1]
    expected = came.union(*(parity.numbers for parity in whole))
    shelf = held.packets.get((7, 1))
    assert {single.first for piece in shelf or () for single in singles(piece)} == expected
    waiting = [parity for parity in arriving if isinstance(parity, Parity) and parity not in whole]
    assert len(parities) == len(waiting)


def test_a_group_of_which_an_ordered_packet_has_left_memory_gives_nothing() -> None:
    [train] = join(seal(Packet(7, 1, number, 1, b"x"), 0) for number in (1, 2, 3))
    held, parities = Holdings(), Parities(CrcSeals(0))
    held.add(singles(train)[1])
    parities.add(parities_of(train, 1)[0])
    assert list(parities.rebuild(held, lambda parity: 2, never)) == []
    assert len(parities) == 0


def test_packets_of_a_former_incarnation_are_not_rebuilt() -> None:
    parities = Parities(CrcSeals(0))
    parities.add(parities_of(seal(Packet(7, 1, 1, 1, b"x"), 0), 1)[0])
    assert list(parities.rebuild(Holdings(), lambda parity: None, never)) == []
    assert len(parities) == 0


def test_the_packets_after_all_that_arrived_are_shown_once_for_all_parities_of_a_train() -> None:
    [train] = join(seal(Packet(7, 1, number, 1, b"x"), 0) for number in range(1, 7))
    held, parities = Holdings(), Parities(CrcSeals(0))
    held.add(singles(train)[0])
    for parity in parities_of(train, 2):
        parities.add(parity)
    list(parities.rebuild(held, first_number, never))
    assert parities.trailing(held, first_number) == [(7, 1, 2, 6)]
    assert parities.trailing(held, first_number) == []
