"""Run the processes of a wide-area group in virtual time, without bytes, to measure protocols.

Every datagram is lost independently with the loss of its pair, or by its loss model, and takes the pair's delay and
a uniform jitter. For histories with faults, bytes and checkers see `levelcast.sim.scenarios.group`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from random import Random

from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.measure import BufferMeter, GroupFigures, MessageTimes, figures_of, kind_of
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.effects import Effect, Send, WideDeliver, WideSettle
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import WideData, WideId

BEGIN_NS = 1_000_000_000_000
Lost = Callable[[int], bool]
"""Whether a datagram that is sent at this time is lost."""


class GroupLoop:
    """All processes of a group, and the network between them."""

    def __init__(
        self,
        config: GroupConfig,
        seed: int,
        *,
        jitter_ns: int = 0,
        lost: Mapping[tuple[int, int], Lost] | None = None,
    ) -> None:
        self.config = config
        self.now = BEGIN_NS
        self.rng = Random(seed)
        self.processes = {each: GroupProcess(config, each, self.now) for each in config.members}
        self.times: dict[WideId, MessageTimes] = {}
        self.sent: Counter[str] = Counter()
        """Datagrams by kind: copies of messages, statements."""
        self.datagrams = 0
        self.buffers = {each: BufferMeter() for each in config.members}
        self._jitter_ns, self._lost = jitter_ns, lost or {}
        self._heap: list[tuple[int, int, int, Message | None]] = []
        self._sequence = 0
        self._actions: list[tuple[int, int, Callable[[], None]]] = []

    def submit(self, source: int, payload: bytes = b"", to: Collection[int] | None = None) -> None:
        self._perform(source, self.processes[source].submit(payload, self.now, to))

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._actions, (when_ns, self._sequence, action))

    def run(self, until_ns: int | None = None) -> None:
        """Run until a time, or until nothing is left to do."""
        while self._heap or self._actions:
            next_ns = min(each[0][0] for each in (self._heap, self._actions) if each)
            if until_ns is not None and next_ns > until_ns:
                break
            self.now = next_ns
            if self._actions and self._actions[0][0] == next_ns:
                heapq.heappop(self._actions)[2]()
                continue
            _, _, process, message = heapq.heappop(self._heap)
            machine = self.processes[process]
            if message is None and (machine.wake_ns is None or machine.wake_ns > self.now):
                continue
            self._perform(process, machine.step(() if message is None else (message,), self.now))
        if until_ns is not None:
            self.now = max(self.now, until_ns)

    def is_quiet(self) -> bool:
        """Return whether all messages are known to be received by all, everywhere."""
        return not any(machine.entries for machine in self.processes.values())

    def figures(self) -> GroupFigures:
        """Return the figures of all messages, which must be received."""
        return figures_of(self.times.values(), self.sent, self.buffers.values())

    def _perform(self, process: int, effects: list[Effect]) -> None:
        machine = self.processes[process]
        for effect in effects:
            if isinstance(effect, Send):
                self._send(process, effect.to, effect.message)
            elif isinstance(effect, WideDeliver):
                self.times[effect.id].delivered_ns[process] = self.now
            elif isinstance(effect, WideSettle):
                self.times[effect.id].known_ns[process] = self.now
        self.buffers[process].set(machine.buffered, self.now)
        if machine.wake_ns is not None:
            self._push(max(machine.wake_ns, self.now), process, None)

    def _send(self, sender: int, to: int, message: Message) -> None:
        self.datagrams += 1
        if isinstance(message, WideData) and message.id not in self.times:
            self.times[message.id] = MessageTimes(sender, self.now, message.members)
        self.sent[kind_of(message)] += 1
        pair = (sender, to)
        is_lost = self._lost.get(pair)
        if is_lost(self.now) if is_lost is not None else self.rng.random() < self.config.matrix.loss(*pair):
            return
        delay_ns = self.config.matrix.delay_ns(*pair) + int(self._jitter_ns * self.rng.random())
        self._push(self.now + delay_ns, to, message)

    def _push(self, at_ns: int, process: int, message: Message | None) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, self._sequence, process, message))
