"""Check the guarantees of a wide-area group in every history (TT §4, §5).

| guarantee    | checked           | condition |
|--------------|-------------------|-----------|
| Content      | at every delivery | the message is one that its source sent, to this life of the process |
| Once         | at every delivery | it was not delivered before |
| Causal order | at every delivery | nothing that was sent after it, in causal order, was delivered before |
| Needed       | at every settling | all destinations that are members have received it: it is not needed |
| One view     | at every view     | all members of a view have the same members |
| No loss      | at the end        | messages of sources that did not fail are delivered at all that stayed |
| Agreement    | at the end        | those of failed sources are so at all or none, if each destination keeps them |
| Receipt      | at the end        | nothing is kept any more: every reliable receipt is known |

A source has failed if its process crashed, or was removed while it ran. A process that left has not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.effects import Effect, Send, WideDeliver, WideInstall, WideSettle
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.wide_messages import WideData, WideId

LifeId = tuple[int, int]
"""A process and its life: the view in which it became a member."""


@dataclass(slots=True)
class WideSent:
    """Content of a message, by its source."""

    parts: dict[int, bytes]
    count: int
    sender: LifeId
    destinations: frozenset[LifeId]
    past: frozenset[WideId]
    delivered: set[LifeId] = field(default_factory=set)


def last_packet(data: WideData) -> WideId:
    """Return the identity of an application message: that of its last packet."""
    return data.id._replace(number=data.number + data.parts - 1 - data.part)


class WideChecker:
    """Watcher that checks every effect of every process of a group."""

    def __init__(self, world: World, *, agrees: bool) -> None:
        """With `agrees` each destination keeps messages until all have received them."""
        self._world, self._agrees = world, agrees
        self.submitted: dict[WideId, bytes] = {}
        self.submitted_at: dict[tuple[int, int, int], int] = {}
        self.sent: dict[WideId, WideSent] = {}
        self.failed: set[LifeId] = set()
        self.deliveries = self.settled = self.lost = 0
        self._past: dict[LifeId, set[WideId]] = defaultdict(set)
        self._views: dict[int, tuple[int, ...]] = {}

    def life_of(self, node: SimNode) -> LifeId:
        machine = node.machine
        assert isinstance(machine, GroupProcess)
        return node.id, machine.life

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.message, WideData):
            self._on_sent(node, effect.message)
        elif isinstance(effect, WideDeliver):
            self._on_delivered(node, effect)
        elif isinstance(effect, WideSettle) and effect.by_all:
            self._on_settled(node, effect.id)
        elif isinstance(effect, WideInstall):
            self._on_view(node, effect)

    def _on_sent(self, node: SimNode, data: WideData) -> None:
        each = last_packet(data)
        found = self.sent.get(each)
        if found is None:
            life = self.life_of(node)
            nodes = [self._world.nodes[member] for member in data.members]
            lives = frozenset((other.id, life_in(node, other.id)) for other in nodes)
            past = self._past[life]
            found = self.sent[each] = WideSent({}, data.parts, life, lives, frozenset(past))
            past.add(each)
        found.parts[data.part] = data.payload

    def _on_delivered(self, node: SimNode, effect: WideDeliver) -> None:
        life, message = self.life_of(node), self.sent.get(effect.id)
        who = f"{node.name} delivers {show(effect.id)}"
        if message is None or life not in message.destinations:
            raise InvariantBroken("content", f"{who}, which was not sent to it")
        if len(message.parts) == message.count:
            payload = b"".join(message.parts[part] for part in range(message.count))
            if payload != effect.payload:
                raise InvariantBroken("content", f"{who} with another content")
        if life in message.delivered:
            raise InvariantBroken("once", f"{who} again")
        past = self._past[life]
        if effect.id in past:
            raise InvariantBroken("causal order", f"{who} after a message that follows it")
        message.delivered.add(life)
        past |= message.past
        past.add(effect.id)
        self.deliveries += 1

    def _on_settled(self, node: SimNode, each: WideId) -> None:
        self.settled += 1
        machine = node.machine
        assert isinstance(machine, GroupProcess)
        message = next((found for last, found in self.sent.items() if covers(last, each, found)), None)
        if message is None:
            raise InvariantBroken("needed", f"{node.name} settles {show(each)}, which was not sent")
        for process, of_life in sorted(message.destinations):
            other = self._world.nodes[process]
            # A member that a newer view has removed is not waited for, even where that view is not known yet.
            if process not in self._views[max(self._views)] or not isinstance(other.machine, GroupProcess):
                continue
            if other.machine.life == of_life and not self._has(other.machine, each):
                raise InvariantBroken("needed", f"{node.name} drops {show(each)}, which {other.name} has not received")

    def _has(self, machine: GroupProcess, each: WideId) -> bool:
        return machine.removed or machine.has_received(each)

    def _on_view(self, node: SimNode, effect: WideInstall) -> None:
        known = self._views.setdefault(effect.view, effect.members)
        if known != effect.members:
            raise InvariantBroken("one view", f"{node.name} has {effect.members} in view {effect.view}, others {known}")
        machine = node.machine
        if node.id not in effect.members and isinstance(machine, GroupProcess) and machine.failed:
            self.failed.add(self.life_of(node))

    # -- at the end ---------------------------------------------------------------------------------------

    def stayed(self) -> dict[LifeId, GroupProcess]:
        """Return the processes that are members, by their lives."""
        found = {}
        for node in self._world.nodes.values():
            machine = node.machine
            if isinstance(machine, GroupProcess) and machine.life and not machine.removed:
                found[node.id, machine.life] = machine
        return found

    def is_complete(self) -> bool:
        """Return whether everything is received and known to be, by members that have one view."""
        members = self.stayed()
        views = {(machine.generation, machine.members) for machine in members.values()}
        if len(views) != 1 or not all(machine.is_idle for machine in members.values()):
            return False
        view = next(iter(views))[1]
        return sorted(process for process, _ in members) == sorted(view) and self.missing() is None

    def missing(self) -> str | None:
        """Return a message that a destination that stayed lacks, as text; None if there is none."""
        stayed = self.stayed()
        for each, message in self.sent.items():
            here = message.destinations & stayed.keys()
            lacking = here - message.delivered
            if not lacking:
                continue
            if message.sender not in self.failed or (self._agrees and message.delivered & here):
                return f"{show(each)} at process {min(lacking)[0]}"
        return None

    def check_end(self) -> None:
        """Check that everything has arrived, and count what was lost with its source."""
        if (missing := self.missing()) is not None:
            raise InvariantBroken("no loss", f"not delivered: {missing}")
        stayed = self.stayed()
        for life, machine in stayed.items():
            if machine.entries:
                kept = ", ".join(show(each) for each in sorted(machine.entries)[:3])
                raise InvariantBroken("receipt", f"process {life[0]} does not know of the receipt of {kept}")
        self.lost = sum(bool((each.destinations & stayed.keys()) - each.delivered) for each in self.sent.values())


def life_in(node: SimNode, process: int) -> int:
    """Return the life of a process in the view of a node."""
    assert isinstance(node.machine, GroupProcess)
    return node.machine.lives[process]


def covers(last: WideId, each: WideId, message: WideSent) -> bool:
    """Return whether a packet belongs to an application message."""
    return last[:2] == each[:2] and last.number - message.count < each.number <= last.number


def show(each: WideId) -> str:
    return f"{each.source}.{each.life}#{each.number}"
