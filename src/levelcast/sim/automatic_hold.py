"""Let the hold time of a simulated ring follow what its receivers measure (`overlay.hold_feedback`, rule W10)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from levelcast.overlay.hold_feedback import SECOND_NS, FeedbackRules, HoldFeedback
from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.events import HoldChosen, Witnessed
from levelcast.ring.listener import Listener
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.codec import encode
from levelcast.wire.messages import Data, ReleaseRow


class AutomaticHold:
    """Watcher that does at each receiver what its driver does: it notes releases, and publishes rows and records.

    A receiver that crashes forgets the rows of the others.
    """

    def __init__(self, world: World, rules: FeedbackRules) -> None:
        self._world = world
        self._rules = rules
        self._feedback: dict[int, HoldFeedback] = {}
        self._machines: dict[int, Listener] = {}
        """The process for which each feedback was made: a restarted one gets another."""
        self._ready: dict[int, dict[int, int]] = {}
        """When the slots of each receiver became ready that it has not released yet."""
        self._ready_upto: dict[int, int] = {}
        self.chosen: list[HoldChosen] = []
        """The changes that were sent, in order."""
        self.deciders: list[int] = []
        """Who sent each of them."""

    def start(self, receivers: Iterable[SimNode]) -> None:
        """Begin at receivers that run already."""
        for node in receivers:
            self._begin(node)
        self._world.watchers.append(self)

    def _begin(self, node: SimNode) -> None:
        timing, machine = self._world.config.timing, node.machine
        assert isinstance(machine, Listener)
        self._machines[node.id] = machine
        self._feedback[node.id] = HoldFeedback(
            node.id,
            self._world.config.domain,
            machine,
            node.local_ns,
            recovery_ns=timing.recovery_ns,
            resend_ns=timing.resend_ns,
            rules=self._rules,
        )
        self._ready[node.id], self._ready_upto[node.id] = {}, machine.ready_slot
        self._turn_later(node)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if self._machines.get(node.id) is not node.machine:
            return
        if isinstance(effect, Witnessed):
            slots = range(self._ready_upto[node.id] + 1, effect.slot + 1)
            self._ready[node.id].update(dict.fromkeys(slots, node.local_ns))
            self._ready_upto[node.id] = effect.slot
        elif isinstance(effect, Release):
            self._note(node, effect)

    def _note(self, node: SimNode, release: Release) -> None:
        machine, stamp_ns = node.machine, release.frame.timestamp_ns
        assert isinstance(machine, Listener)
        ready = self._ready[node.id]
        ready_ns = ready.get(release.frame.slot, 0)
        for slot in [slot for slot in ready if slot <= release.frame.slot]:
            del ready[slot]
        instant_ns = stamp_ns + machine.hold_ns(stamp_ns)
        late = release.scheduled_ns > instant_ns or ready_ns > instant_ns
        self._feedback[node.id].released(release._replace(ready_ns=ready_ns, late=late), node.local_ns)

    def _turn_later(self, node: SimNode) -> None:
        at_ns = self._feedback[node.id].wake_ns - node.clock_offset_ns
        self._world.at(max(at_ns, self._world.now + 1), partial(self._turn, node))

    def _turn(self, node: SimNode) -> None:
        if self._machines[node.id] is not node.machine:
            if node.up:
                self._begin(node)
            else:
                self._world.after(SECOND_NS, partial(self._turn, node))
            return
        others: list[Effect] = []
        own: list[Data] = []
        for effect in self._feedback[node.id].step(node.local_ns):
            if isinstance(effect, Send) and isinstance(effect.message, ReleaseRow):
                self._carry(node, effect.message)
                continue
            others.append(effect)
            if isinstance(effect, HoldChosen):
                self.chosen.append(effect)
                self.deciders.append(node.id)
            elif isinstance(effect, Send) and isinstance(effect.message, Data):
                own.append(effect.message)
        if others:
            node.perform(others)
        if own:
            node.step(own)
        self._turn_later(node)

    def _carry(self, sender: SimNode, row: ReleaseRow) -> None:
        """Bring a row to the other receivers: it may be lost. Protocol classes do not read it, so it takes no inbox."""
        world = self._world
        others = [node for node in self._feedback if node != sender.id]
        for copy in world.network.copies(sender.id, others, encode(row, world.config.domain)):
            if copy.damaged is None:
                to = world.nodes[copy.to]
                world.after(copy.delay_ns, partial(self._hear, to, row))

    def _hear(self, node: SimNode, row: ReleaseRow) -> None:
        if self._machines[node.id] is node.machine:
            self._feedback[node.id].hear(row, node.local_ns)
