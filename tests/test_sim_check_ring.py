"""Each checker finds the violation that it is there for, and nothing in a history that keeps its promises."""

from __future__ import annotations

from random import Random

import pytest

from levelcast.protocol.effects import GROUP, Persist, Release, Send
from levelcast.protocol.history import GENESIS, Frame, make_frame
from levelcast.protocol.machine import Machine
from levelcast.sim.check.ring import Checker, InvariantBroken
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.wire.messages import Data, Repair
from tests.ring_parts import MS, PIPELINED, make_config, make_data, make_ring, make_token

CLOCK_ERROR = 1 * MS
SLACK = 2 * MS
HOLD = PIPELINED.hold_ns
SOURCE = 201


class Court:
    """Receivers 1 to 3 and a source that only say what the test lets them say."""

    def __init__(self) -> None:
        config = make_config()
        self.world = World(config, 1, VirtualNetwork(Random(1), {}), Random(1))
        self.checker = Checker(self.world, CLOCK_ERROR)
        for node in (1, 2, 3, SOURCE):
            self.world.nodes[node] = SimNode(self.world, node, f"node {node}", self._never, Disk(config, 1))

    @staticmethod
    def _never(_: SimNode) -> Machine:
        raise NotImplementedError

    @property
    def receivers(self) -> list[SimNode]:
        return [self.world.nodes[node] for node in (1, 2, 3)]

    def submit(self, *packets: Data) -> None:
        for packet in packets:
            self.checker.on_effect(self.world.nodes[SOURCE], Send(GROUP, packet))

    def release(self, node: int, frame: Frame, at: int | None = None, *, late: bool = False) -> None:
        self.world.now = frame.timestamp_ns + HOLD if at is None else at
        self.world.nodes[node].disk.tape.append(frame)
        self.checker.on_effect(self.world.nodes[node], Release(frame, frame.timestamp_ns + HOLD, late))

    def end(self) -> None:
        self.checker.check_end(self.receivers, SLACK)


def frame(slot: int, *packets: Data, after: Frame | None = None) -> Frame:
    """The frame of a slot behind another one."""
    first = after.first_sequence + len(after.packets) if after is not None else 1
    chain = after.chain if after is not None else GENESIS
    return make_frame(slot, START_NS + slot * 10 * MS, first, packets, chain)


ONE, TWO, THREE = (make_data(SOURCE, number) for number in (1, 2, 3))
FIRST = frame(1, ONE)
SECOND = frame(4, TWO, THREE, after=FIRST)


def submitted() -> Court:
    court = Court()
    court.submit(ONE, TWO, THREE)
    return court


def breaks(promise: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.raises(InvariantBroken, match=f"^{promise}: ")


def test_a_history_that_keeps_every_promise_passes() -> None:
    court = submitted()
    court.submit(TWO)  # sent again
    for each in (FIRST, SECOND):
        for node in (1, 2, 3):
            court.release(node, each, each.timestamp_ns + HOLD + node * MS // 2)
    court.end()
    court.checker.check_no_loss(court.receivers, [ONE[:3], TWO[:3], THREE[:3]])
    assert (court.checker.releases, court.checker.late_releases) == (6, 0)


def test_agreement_breaks_when_two_receivers_release_different_frames_for_a_slot() -> None:
    court = submitted()
    court.release(1, frame(1, ONE))
    with breaks("agreement"):
        court.release(2, frame(1, ONE, TWO))


def test_agreement_breaks_when_one_order_goes_on_differently_in_two_places() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.release(2, FIRST)
    court.release(1, SECOND)
    with breaks("agreement"):
        court.release(2, frame(3, TWO, after=FIRST))


def test_agreement_counts_receivers_that_have_crashed() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.world.nodes[1].crash()
    with breaks("agreement"):
        court.release(2, frame(1, TWO))


@pytest.mark.parametrize("invented", [make_data(SOURCE, 9), make_data(SOURCE, 1, payload=b"forged"), make_data(202, 1)])
def test_no_invention_breaks_when_a_packet_is_released_that_nobody_sent_so(invented: Data) -> None:
    court = submitted()
    with breaks("no invention"):
        court.release(1, frame(1, invented))


def test_no_invention_breaks_when_a_source_gives_one_number_to_two_packets() -> None:
    with breaks("no invention"):
        submitted().submit(make_data(SOURCE, 1, payload=b"another"))


def test_no_duplicate_breaks_when_a_packet_is_on_a_tape_twice() -> None:
    court = submitted()
    court.release(1, FIRST)
    with breaks("no duplicate"):
        court.release(1, frame(2, ONE, after=FIRST))


def test_a_new_life_of_a_receiver_releases_everything_once_more_without_being_blamed() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.world.nodes[1].disk = Disk(make_config(), 2)
    court.release(1, FIRST)
    court.end()


def test_source_order_breaks_when_a_lower_packet_follows_a_higher_one() -> None:
    court = submitted()
    with breaks("source order"):
        court.release(1, frame(1, TWO, ONE))


def test_source_order_breaks_when_an_old_incarnation_follows_a_new_one() -> None:
    court = submitted()
    court.submit(newer := make_data(SOURCE, 1, incarnation=2))
    with breaks("source order"):
        court.release(1, frame(1, newer, TWO))


def test_never_early_breaks_before_the_hold_time_is_over_but_for_the_clocks_error() -> None:
    instant = FIRST.timestamp_ns + HOLD
    submitted().release(1, FIRST, instant - CLOCK_ERROR)
    with breaks("never early"):
        submitted().release(1, FIRST, instant - CLOCK_ERROR - 1)
    with breaks("never early"):
        submitted().release(1, FIRST, instant - CLOCK_ERROR - 1, late=True)


def test_simultaneity_breaks_when_releases_that_are_not_marked_late_lie_too_far_apart() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.release(2, FIRST, FIRST.timestamp_ns + HOLD + 2 * CLOCK_ERROR + SLACK + 1)
    with breaks("simultaneity"):
        court.end()


def test_simultaneity_breaks_when_two_receivers_that_are_not_late_name_different_instants() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.world.now = FIRST.timestamp_ns + HOLD + 50 * MS
    court.world.nodes[2].disk.tape.append(FIRST)
    court.checker.on_effect(court.world.nodes[2], Release(FIRST, court.world.now, False))
    with breaks("simultaneity"):
        court.end()


def test_releases_within_the_clocks_error_of_each_other_are_simultaneous() -> None:
    court = submitted()
    instant = FIRST.timestamp_ns + HOLD
    court.release(1, FIRST, instant - CLOCK_ERROR)
    court.release(2, FIRST, instant + CLOCK_ERROR)
    court.end()
    assert court.checker.late_releases == 0


def test_simultaneity_is_asked_only_of_releases_that_were_not_marked_late() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.release(2, FIRST, FIRST.timestamp_ns + HOLD + 500 * MS, late=True)
    court.end()
    assert (court.checker.releases, court.checker.late_releases) == (2, 1)


def test_one_token_breaks_when_a_site_sends_two_for_a_slot_but_not_the_same_one_twice() -> None:
    court = submitted()
    token = make_token(make_ring(), 1)
    node = court.world.nodes[1]
    for _ in range(2):
        court.checker.on_effect(node, Send(GROUP, token))
    court.checker.on_effect(node, Send(GROUP, token._replace(generation=2)))
    with breaks("one token"):
        court.checker.on_effect(node, Send(GROUP, token._replace(have=0)))


def test_byte_identity_breaks_when_a_frame_is_missing_from_a_tape() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.release(1, SECOND)
    court.release(2, FIRST)
    court.end()  # receiver 2 is not there yet, and 3 has nothing
    court.world.nodes[2].disk.tape.tip.slot = SECOND.slot  # now it says it is
    with breaks("byte identity"):
        court.end()


def test_byte_identity_breaks_when_a_tape_holds_something_else() -> None:
    court = submitted()
    court.release(1, FIRST)
    court.world.nodes[2].disk.tape.append(frame(1, TWO))
    with breaks("byte identity"):
        court.end()


def test_no_loss_breaks_when_a_witnessed_packet_is_not_on_every_operable_tape() -> None:
    court = submitted()
    for node in (1, 2, 3):
        court.release(node, FIRST)
    court.release(1, SECOND)
    witnessed = [ONE[:3], TWO[:3]]
    court.checker.check_no_loss(court.receivers[:1], witnessed)
    assert court.checker.missing_from(court.receivers[1], witnessed) == [TWO[:3]]
    with breaks("no loss"):
        court.checker.check_no_loss(court.receivers, witnessed)


def test_authors_bytes_break_when_a_message_is_sealed_again_or_sent_as_ones_own() -> None:
    court = submitted()
    ring = make_ring()
    token = make_token(ring, 1)
    site, other = court.world.nodes[token.owner], court.world.nodes[2]
    with breaks("author's bytes"):
        court.checker.on_effect(other, Send(3, Repair(2, (token,))))  # its author has never sealed it
    court.checker.on_effect(site, Persist(token))
    court.checker.on_effect(other, Send(3, Repair(2, (token, ONE))))
    for item in (token._replace(sealed=token.sealed[:-1] + b"?"), ONE._replace(sealed=TWO.sealed)):
        with breaks("author's bytes"):
            court.checker.on_effect(other, Send(3, Repair(2, (item,))))
    with breaks("author's bytes"):
        court.checker.on_effect(other, Send(3, token))
