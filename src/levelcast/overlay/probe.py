"""Measure the network from inside (TT §2): a probe to all nodes, an echo from each, on the path of the tokens.

A prober multicasts a numbered probe with its time every `every_ns`; each node that receives it replies to the prober
alone, with that time, and by its own clock the times of the arrival and of the reply. So each reply yields the
round-trip time, without the time that the peer needed, and the one-way delay from two clocks. The same probe goes to
all nodes, so a loss that several of them have in common is visible.

- A probe that is not answered within `WAIT_NS` is lost, in either direction. Losses are recorded when the peer answers
  again: if more than `AWAY` probes in a row were not answered, the peer was down, and no loss is counted.
- A peer that has never answered does not count as present.
- Every node answers, at most `MOST_ANSWERS` probes/s of each peer. A node with an interval sends probes itself; a
  receiver also sends some to check its clock (`levelcast.overlay.clock_check`).
- A one-way delay that is longer than the round trip, or negative, shows that two clocks disagree: it is left out.

Nothing here affects the ring: no order, no repair, no timing depends on a probe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.rate import RateLimit
from levelcast.wire.messages import Echo, Probe

WAIT_NS = 3_000_000_000
AWAY = 10
MOST_ANSWERS = 200
SELECTED = 2**63
"""Numbers above this one are of probes to some nodes only: a gap in them is no loss."""
KEPT = 1_000
"""Number of samples that are kept for readers."""


class Sample(NamedTuple):
    """One probe and one peer. Without a round trip it was lost."""

    number: int
    """From 1, in the order in which the results became known."""
    at_ns: int
    peer: int
    round_trip_ns: int | None
    one_way_ns: int | None


@dataclass(slots=True)
class Peer:
    """Results for one peer."""

    answered: int = 0
    lost: int = 0
    away: int = 0
    """Probes during which it was down."""
    clocks_apart: int = 0
    """Answers with two clocks that cannot both be right."""
    last_ns: int | None = None
    least_ns: int | None = None
    silent: list[int] = field(default_factory=list)
    """Send times of the probes that it has not answered since its last answer."""


class Prober:
    """Sends and answers the probes of one node. Answers of `peers` count; without `every_ns` it only answers."""

    def __init__(self, node: int, peers: Collection[int], every_ns: int | None, now: int) -> None:
        self.every_ns = every_ns
        self.wake_ns: int | None = None if every_ns is None else now
        self.peers = {peer: Peer() for peer in sorted(peers)}
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.known = 0
        """Number of samples so far."""
        self.refused = 0
        """Probes that were not answered because of the rate limit."""
        self.on_echo: Callable[[Echo, int], None] | None = None
        """Called with every answer that counts, and the time of its arrival."""
        self._node = node
        self._number = 0
        self._selected = SELECTED
        self._open: dict[int, tuple[int, set[int]]] = {}
        """Open probes: send time, and the peers that have not answered."""
        self._limits: dict[int, RateLimit] = {}
        """Limit of the answers to each peer."""

    def step(self, batch: Iterable[tuple[Probe | Echo, int]], now: int) -> list[Effect]:
        """Answer probes, record answers and losses, and send the next probe if it is due.

        Each message is given with the time of its arrival, which may be before `now`.
        """
        effects: list[Effect] = []
        for message, at_ns in batch:
            if isinstance(message, Probe):
                if self._may_answer(message.sender, now):
                    echo = Echo(self._node, message.sender, message.number, message.sent_ns, at_ns, now)
                    effects.append(Send(message.sender, echo))
            elif message.to == self._node:
                self._on_echo(message, at_ns)
        if self._open:
            self._give_up(now)
        if self.every_ns is not None and (self.wake_ns is None or now >= self.wake_ns):
            effects += self.probe(now)
            self.wake_ns = now + self.every_ns
        return effects

    def probe(self, now: int, to: Collection[int] | None = None) -> list[Effect]:
        """Return the next probe: to all nodes, or to each of some peers."""
        if to is None:
            self._number += 1
            probe, asked = Probe(self._node, self._number, now), set(self.peers)
        else:
            self._selected += 1
            probe, asked = Probe(self._node, self._selected, now), set(to) & self.peers.keys()
        self._open[probe.number] = (now, asked)
        return [Send(each, probe) for each in ((GROUP,) if to is None else to)]

    def forget_open(self) -> None:
        """Ignore the answers to all probes so far: the clock was set meanwhile."""
        self._open.clear()

    def _may_answer(self, peer: int, now: int) -> bool:
        limit = self._limits.setdefault(peer, RateLimit(MOST_ANSWERS, MOST_ANSWERS, now))
        answers = limit.take(1, now)
        self.refused += not answers
        return answers

    def _on_echo(self, echo: Echo, at_ns: int) -> None:
        """Record an answer. The time that the peer needed for it is not part of the round trip."""
        sent_ns, waiting = self._open.get(echo.number, (0, set()))
        if echo.sender not in waiting or echo.sent_ns != sent_ns:
            return  # already answered, timed out, or of an earlier life
        waiting.remove(echo.sender)
        peer = self.peers[echo.sender]
        round_trip, one_way = at_ns - sent_ns - (echo.left_ns - echo.heard_ns), echo.heard_ns - sent_ns
        if round_trip < 0:
            return
        if self.on_echo is not None:
            self.on_echo(echo, at_ns)
        self._settle(echo.sender, peer)
        apart = not 0 <= one_way <= round_trip
        peer.clocks_apart += apart
        peer.answered += 1
        peer.last_ns = round_trip
        peer.least_ns = round_trip if peer.least_ns is None else min(peer.least_ns, round_trip)
        self._note(sent_ns, echo.sender, round_trip, None if apart else one_way)

    def _settle(self, node: int, peer: Peer) -> None:
        """Count the probes before this answer as lost, unless the peer was down."""
        if len(peer.silent) > AWAY or not peer.answered:
            peer.away += len(peer.silent)
        else:
            peer.lost += len(peer.silent)
            for sent_ns in peer.silent:
                self._note(sent_ns, node, None, None)
        peer.silent.clear()

    def _give_up(self, now: int) -> None:
        for number, (sent_ns, waiting) in list(self._open.items()):
            if now - sent_ns < WAIT_NS and waiting:
                break
            for node in waiting:
                peer = self.peers[node]
                if len(peer.silent) <= AWAY:
                    peer.silent.append(sent_ns)
                else:
                    peer.away += 1
            del self._open[number]

    def _note(self, at_ns: int, peer: int, round_trip_ns: int | None, one_way_ns: int | None) -> None:
        self.known += 1
        self.samples.append(Sample(self.known, at_ns, peer, round_trip_ns, one_way_ns))
