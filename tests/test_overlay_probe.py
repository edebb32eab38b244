"""Probes and echoes between probers over a made-up network: what is measured is what was planted."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from random import Random

from levelcast.overlay.probe import AWAY, MOST_ANSWERS, SELECTED, WAIT_NS, Prober
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.wire.messages import Echo, Probe

MS = 1_000_000
T0 = 10**18
EVERY = 100 * MS


def sends(effects: Sequence[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def test_a_probe_goes_to_all_and_each_echo_is_a_sample() -> None:
    prober = Prober(1, [2, 3], EVERY, T0)
    (probe,) = sends(prober.step([], T0))
    assert probe == Send(GROUP, Probe(1, 1, T0))
    assert prober.wake_ns == T0 + EVERY
    other = Prober(2, [1, 3], None, T0)
    assert other.wake_ns is None
    (echo,) = sends(other.step([(Probe(1, 1, T0), T0 + 7 * MS)], T0 + 9 * MS))
    assert echo == Send(1, Echo(2, 1, 1, T0, T0 + 7 * MS, T0 + 9 * MS))
    prober.step([(Echo(2, 1, 1, T0, T0 + 7 * MS, T0 + 9 * MS), T0 + 18 * MS)], T0 + 19 * MS)
    (sample,) = prober.samples
    assert (sample.number, sample.at_ns, sample.peer) == (1, T0, 2)
    assert (sample.round_trip_ns, sample.one_way_ns) == (16 * MS, 7 * MS)
    assert (prober.peers[2].answered, prober.peers[2].least_ns, prober.peers[3].answered) == (1, 16 * MS, 0)


def test_an_echo_counts_once_and_only_of_a_probe_of_this_life() -> None:
    prober = Prober(1, [2], EVERY, T0)
    prober.step([], T0)
    echo = Echo(2, 1, 1, T0, T0 + MS, T0 + MS)
    others = [echo, echo._replace(to=9), echo._replace(sent_ns=T0 - 1), echo._replace(number=7)]
    prober.step([(each, T0 + 2 * MS) for each in (echo, *others)], T0 + 2 * MS)
    prober.step([(echo._replace(sender=5), T0 + 3 * MS)], T0 + 3 * MS)
    assert len(prober.samples) == 1


def test_clocks_that_cannot_both_be_right_leave_the_round_trip_alone() -> None:
    prober = Prober(1, [2], EVERY, T0)
    prober.step([], T0)
    prober.step([(Echo(2, 1, 1, T0, T0 - 5 * MS, T0 - 5 * MS), T0 + 2 * MS)], T0 + 2 * MS)
    assert [(sample.round_trip_ns, sample.one_way_ns) for sample in prober.samples] == [(2 * MS, None)]
    assert prober.peers[2].clocks_apart == 1


def test_a_probe_on_request_goes_to_some_and_is_not_one_of_the_numbered_ones() -> None:
    heard: list[tuple[int, int]] = []
    prober = Prober(1, [2, 3, 4], None, T0)
    prober.on_echo = lambda echo, at_ns: heard.append((echo.sender, at_ns))
    number = SELECTED + 1
    assert sends(prober.probe(T0, [3, 2])) == [Send(3, Probe(1, number, T0)), Send(2, Probe(1, number, T0))]
    echo = Echo(2, 1, number, T0, T0 + MS, T0 + MS)
    prober.step([(each, T0 + 2 * MS) for each in (echo, echo, echo._replace(sender=4))], T0 + 2 * MS)
    assert heard == [(2, T0 + 2 * MS)]
    assert prober.wake_ns is None
    assert sends(prober.probe(T0 + MS)) == [Send(GROUP, Probe(1, 1, T0 + MS))]
    prober.step([], T0 + MS + WAIT_NS)
    assert {peer: len(each.silent) for peer, each in prober.peers.items()} == {2: 1, 3: 2, 4: 1}


def test_answers_to_probes_from_before_a_clock_was_set_are_ignored() -> None:
    prober = Prober(1, [2], EVERY, T0)
    prober.step([], T0)
    prober.forget_open()
    prober.step([(Echo(2, 1, 1, T0, T0 + MS, T0 + MS), T0 + 2 * MS)], T0 + 2 * MS)
    assert len(prober.samples) == 0


def answered(prober: Prober, now: int, number: int) -> None:
    """Send the next probe at `now`; it is answered at once."""
    prober.step([], now)
    prober.step([(Echo(2, 1, number, now, now + MS, now + MS), now + 2 * MS)], now + 2 * MS)


def test_a_loss_is_known_when_the_peer_answers_again() -> None:
    prober = Prober(1, [2], EVERY, T0)
    answered(prober, T0, 1)
    prober.step([], T0 + EVERY)
    prober.step([], T0 + EVERY + WAIT_NS)
    assert prober.peers[2].lost == 0
    answered(prober, T0 + 2 * EVERY + WAIT_NS, 4)
    assert prober.peers[2].lost == 1
    assert [(sample.at_ns, sample.round_trip_ns) for sample in prober.samples][1] == (T0 + EVERY, None)


def test_a_peer_that_was_away_has_lost_nothing() -> None:
    prober, now = Prober(1, [2], EVERY, T0), T0
    answered(prober, now, 1)
    for _ in range(AWAY + 1 + WAIT_NS // EVERY):
        now += EVERY
        prober.step([], now)
    number = AWAY + 3 + WAIT_NS // EVERY
    answered(prober, now + EVERY, number)
    peer = prober.peers[2]
    assert (peer.lost, peer.answered) == (0, 2)
    assert peer.away > AWAY


def test_a_peer_that_never_answered_has_lost_nothing() -> None:
    prober = Prober(1, [2], EVERY, T0)
    prober.step([], T0)
    prober.step([], T0 + WAIT_NS)
    answered(prober, T0 + WAIT_NS + EVERY, 3)
    assert (prober.peers[2].lost, prober.peers[2].away, len(prober.samples)) == (0, 1, 1)


def test_answers_are_bounded_by_the_second() -> None:
    other = Prober(2, [1], None, T0)
    flood = [(Probe(1, number, T0), T0) for number in range(MOST_ANSWERS + 50)]
    assert len(other.step(flood, T0)) == MOST_ANSWERS
    assert other.refused == 50
    assert len(other.step(flood[:5], T0 + 1_000_000_000)) == 5


def test_a_planted_network_is_measured() -> None:
    """Three nodes; to node 3 a fifth is lost each way, and what is lost to 2 is lost to 3 too."""
    random, order = Random(1), count()
    probers = {node: Prober(node, {1, 2, 3} - {node}, EVERY if node == 1 else None, T0) for node in (1, 2, 3)}
    delay = {(1, 2): 10, (2, 1): 20, (1, 3): 50, (3, 1): 50}
    due: list[tuple[int, int, int, Probe | Echo | None]] = [(T0, next(order), 1, None)]
    while due:
        now, _, node, message = heapq.heappop(due)
        if now > T0 + 2_000 * EVERY:
            break
        for send in sends(probers[node].step([(message, now)] if message is not None else [], now)):
            assert isinstance(send.message, Probe | Echo)
            together = random.random() < 0.1
            for to in (2, 3) if send.to == GROUP else (send.to,):
                lost = together if to != 3 else together or random.random() < 0.2
                if send.to != GROUP:
                    lost = node == 3 and random.random() < 0.2
                if not lost:
                    heapq.heappush(due, (now + delay[node, to] * MS, next(order), to, send.message))
        if node == 1 and message is None:
            wake = probers[1].wake_ns
            assert wake is not None
            heapq.heappush(due, (wake, next(order), 1, None))
    near, far = probers[1].peers[2], probers[1].peers[3]
    assert (near.least_ns, far.least_ns) == (30 * MS, 100 * MS)
    assert abs(near.lost / (near.lost + near.answered) - 0.1) < 0.03
    assert abs(far.lost / (far.lost + far.answered) - (1 - 0.9 * 0.8 * 0.8)) < 0.04
    one_way = {sample.peer: sample.one_way_ns for sample in probers[1].samples if sample.one_way_ns is not None}
    assert one_way == {2: 10 * MS, 3: 50 * MS}
    both = [{s.at_ns for s in probers[1].samples if s.peer == peer and s.round_trip_ns is None} for peer in (2, 3)]
    assert len(both[0] & both[1]) >= 0.95 * len(both[0])
