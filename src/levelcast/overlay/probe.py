"""Measuring the network from inside it (TT §2, §3): a probe to all, an echo from each, by the way that tokens go.

A prober multicasts a numbered probe with its time every `every_ns`; whoever hears it answers to it alone, with that
time and its own. So each answer tells the round trip by one clock, and the way there by two. The same probe goes to
everybody at once: what is lost to several of them together is seen as such.

- A probe that is not answered within `WAIT_NS` is lost, there or back. Losses are noted when the peer answers again: if
  more than `AWAY` probes in a row were not answered, the peer was away, and that says nothing about the network.
- A peer that has never answered is not there.
- Everybody answers, up to `MOST_ANSWERS` a second to each peer; only who has an interval sends probes itself.
- A way there that is longer than the round trip, or negative, shows that two clocks disagree: it is left out.

Nothing here touches the ring: no order, no repair, no timing depends on a probe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.rate import RateLimit
from levelcast.wire.messages import Echo, Probe

WAIT_NS = 3_000_000_000
AWAY = 10
MOST_ANSWERS = 200
KEPT = 1_000
"""Samples that are kept to be asked for."""


class Sample(NamedTuple):
    """One probe and one peer. Without a round trip it was lost."""

    number: int
    """From 1, in the order in which they became known."""
    at_ns: int
    peer: int
    round_trip_ns: int | None
    one_way_ns: int | None


@dataclass(slots=True)
class Peer:
    """What is known of the way to one peer."""

    answered: int = 0
    lost: int = 0
    away: int = 0
    """Probes that it was not there for."""
    clocks_apart: int = 0
    """Answers whose two clocks cannot both be right."""
    last_ns: int | None = None
    least_ns: int | None = None
    silent: list[int] = field(default_factory=list)
    """When those probes were sent that it has not answered since its last answer."""


class Prober:
    """One node's probes and answers. `peers` are those whose answers count; without `every_ns` it only answers."""

    def __init__(self, node: int, peers: Collection[int], every_ns: int | None, now: int) -> None:
        self.every_ns = every_ns
        self.wake_ns: int | None = None if every_ns is None else now
        self.peers = {peer: Peer() for peer in sorted(peers)}
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.known = 0
        """Samples that there have been."""
        self.refused = 0
        """Probes that were not answered because there were too many."""
        self._node = node
        self._number = 0
        self._open: dict[int, tuple[int, set[int]]] = {}
        """Probes under way: when sent, and who has not answered."""
        self._limits: dict[int, RateLimit] = {}
        """Of the answers to each peer."""

    def step(self, batch: Iterable[Probe | Echo], now: int) -> list[Effect]:
        """Answer, note what was answered and what was lost, and send the next probe if it is due."""
        effects: list[Effect] = []
        for message in batch:
            if isinstance(message, Probe):
                if self._may_answer(message.sender, now):
                    echo = Echo(self._node, message.sender, message.number, message.sent_ns, now)
                    effects.append(Send(message.sender, echo))
            elif message.to == self._node:
                self._on_echo(message, now)
        if self.every_ns is not None:
            self._give_up(now)
            if self.wake_ns is None or now >= self.wake_ns:
                self._number += 1
                self._open[self._number] = (now, set(self.peers))
                effects.append(Send(GROUP, Probe(self._node, self._number, now)))
                self.wake_ns = now + self.every_ns
        return effects

    def _may_answer(self, peer: int, now: int) -> bool:
        limit = self._limits.setdefault(peer, RateLimit(MOST_ANSWERS, MOST_ANSWERS, now))
        answers = limit.take(1, now)
        self.refused += not answers
        return answers

    def _on_echo(self, echo: Echo, now: int) -> None:
        sent_ns, waiting = self._open.get(echo.number, (0, set()))
        if echo.sender not in waiting or echo.sent_ns != sent_ns:
            return  # it has been answered, was given up, or is of a life before this one
        waiting.remove(echo.sender)
        peer = self.peers[echo.sender]
        round_trip, one_way = now - sent_ns, echo.heard_ns - sent_ns
        if round_trip < 0:
            return
        self._settle(echo.sender, peer)
        apart = not 0 <= one_way <= round_trip
        peer.clocks_apart += apart
        peer.answered += 1
        peer.last_ns = round_trip
        peer.least_ns = round_trip if peer.least_ns is None else min(peer.least_ns, round_trip)
        self._note(sent_ns, echo.sender, round_trip, None if apart else one_way)

    def _settle(self, node: int, peer: Peer) -> None:
        """It answers: what it did not answer before was lost, unless it was away."""
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
