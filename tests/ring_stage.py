"""A stage on which histories of the ring are played by script.

The nodes are the real protocol classes in the simulator's world, over a network that loses nothing of its
own accord and delays everything by the same time. What goes wrong, the script says: whom a packet reaches, who
is deaf to whom, who dies after which effect, who joins which ring and who hears of it. Every effect goes past
the simulator's checkers; `end` heals everything and asks for the promises that are due at the end.

A, B and C are the configured primaries, D and E spare receivers that stay down until they are started; S and Z
are reformation servers, X and Y sources, K is the control source. No fault report reaches a server before
`end`: rings are formed when the script says so.

A script that cannot go on as written raises `StageError`, which is not an AssertionError, so that a history
that breaks a promise can be told from one that was told badly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from random import Random
from typing import ClassVar, cast

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS, Effect, Send
from levelcast.protocol.machine import Machine
from levelcast.ring.listener import Listener
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.schedule import Schedule
from levelcast.ring.source import Source
from levelcast.sim.check.ring import Checker, InvariantBroken, PacketId
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import VirtualNetwork
from levelcast.sim.engine.trace_text import narrate
from levelcast.sim.engine.world import SimNode, World
from levelcast.timing.derive import Given, Path, Shape, derive
from levelcast.timing.rules import liveness_bound_ns
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import (
    CONTROL_SOURCE,
    CatchUp,
    CatchUpPackets,
    Data,
    Fault,
    FaultReason,
    Group,
    Invite,
    MemberLife,
    Membership,
    Message,
    Repair,
    Ring,
    Token,
)

MS = 1_000_000

A, B, C, D, E = RECEIVERS = (1, 2, 3, 4, 5)
S, Z = SERVERS_BY_RANK = (102, 101)  # of two generations with one count, that of S is the higher
X, Y, K = SOURCES = (201, 202, CONTROL_SOURCE)
P, Q, U = SECONDARIES = (301, 302, 303)
NAMES = {A: "A", B: "B", C: "C", D: "D", E: "E", S: "S", Z: "Z", X: "X", Y: "Y", K: "K", P: "P", Q: "Q", U: "U"}

Nodes = int | Collection[int] | None
"""One node, several, or (None) all of them."""
Matches = Callable[[Message], bool]

RING_TRAFFIC = (Token, Data, Repair, CatchUp, CatchUpPackets)
"""What a member hears of the ring; reformation is not part of it."""


class StageError(Exception):
    """The script asks for something that does not happen on the stage."""


class Loss:
    """Messages that are lost from now on, until it is lifted."""

    def __init__(
        self, kinds: tuple[type, ...], sender: Nodes, to: Nodes, spared: Nodes, matches: Matches | None
    ) -> None:
        self._kinds = kinds
        self._sender = sender
        self._to = to
        self._spared = spared
        self._matches = matches
        self.lifted = False

    def takes(self, sender: int, to: int, message: Message) -> bool:
        return (
            not self.lifted
            and _among(sender, self._sender)
            and _among(to, self._to)
            and (self._spared is None or not _among(to, self._spared))
            and any(self._is_meant(each) for each in (message, *_passed_on(message)))
        )

    def _is_meant(self, message: Message) -> bool:
        return (not self._kinds or type(message) in self._kinds) and (self._matches is None or self._matches(message))

    def lift(self) -> None:
        self.lifted = True


class StageWorld(World):
    """The simulator's world, with a script instead of weather."""

    def __init__(self, config: StripeConfig, network: VirtualNetwork) -> None:
        super().__init__(config, 0, network, network.rng)
        self.losses: list[Loss] = []
        self.sent: list[tuple[int, Message]] = []
        """Every message and the node it was sent to, lost ones included."""

    def send(self, sender: SimNode, to: int, message: Message) -> None:
        if to == GROUP:
            receivers = [node for node in self.nodes if node != sender.id]
        elif to == SERVERS:
            receivers = [node for node in self.servers if node != sender.id]
        else:
            receivers = [to]
        for receiver in receivers:
            self.sent.append((receiver, message))
            if not any(loss.takes(sender.id, receiver, message) for loss in self.losses):
                super().send(sender, receiver, message)

    def pass_moment(self, limit_ns: int) -> None:
        """Let everything happen that is due at the next moment at which anything is."""
        due = [queue[0][0] for queue in (self._heap, self._arrivals) if queue]
        self.run(min([*due, limit_ns]))


class Stage:
    """One history in the making."""

    HOMES: ClassVar[dict[int, int]] = {}
    """The primary of each secondary; there are some on `tests.group_stage`."""
    LAYERS: ClassVar[int] = 0

    def __init__(self, *, slot_ms: int = 10, clock_error_ms: int = 1, delay_ms: int = 2) -> None:
        path = Path(delay_ns=5 * MS, loss_ratio=0.0, clock_error_ns=clock_error_ms * MS, process_ns=2 * MS)
        shape = Shape("pipelined", slot_ms * MS, witnesses=2, members=3, servers=2, layers=self.LAYERS)
        self.membership = Membership(0, tuple(MemberLife(member, 1) for member in (A, B, C)))
        self.config = StripeConfig(
            stripe=0,
            timing=replace(derive(path, shape, Given(attempts=3)).timing, beat_ns=0),  # the scripts are about tokens
            witnesses="majority",
            membership=self.membership,
            servers=SERVERS_BY_RANK,
            homes=self.HOMES,
        )
        delays = {(a, b): delay_ms * MS for a in NAMES for b in NAMES if a != b}
        self.world = StageWorld(self.config, VirtualNetwork(Random(0), delays))
        self.world.servers = SERVERS_BY_RANK
        self.checker = Checker(self.world, clock_error_ms * MS)
        self.world.watchers.append(self.checker)
        self._lives = dict.fromkeys(NAMES, 1)
        self._cast: set[int] = set()
        self._inviting: dict[int, Loss] = {}
        self._packets = count(1)
        for node in RECEIVERS:
            self._add(node, self._new_receiver)
        for node in SERVERS_BY_RANK:
            self._add(node, self._new_server)
        for node in SOURCES:
            self._add(node, self._new_source)

    def _add(self, node: int, new: Callable[[SimNode], Machine]) -> None:
        self.world.nodes[node] = SimNode(self.world, node, NAMES[node], new, Disk(self.config, 1))

    def _new_receiver(self, node: SimNode) -> Machine:
        return Member(self.config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns)

    def _new_server(self, node: SimNode) -> Machine:
        return ReformationServer(self.config, node.id, node.disk.journal, node.local_ns)

    def _new_source(self, node: SimNode) -> Machine:
        return Source(self.config, node.id, self._lives[node.id], node.disk.journal, node.local_ns)

    # -- who is there -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A, B and C form generation 1, and servers are out of reach of reports from then on."""
        self.lose(Fault)
        self.start(A, B, C, S, Z, X, Y, K)
        self.reform(S, {A, B, C})
        self.until(lambda: min(self.have(A), self.have(B), self.have(C)) >= 3)

    def receiver(self, node: int) -> Member:
        machine = self.world.nodes[node].machine
        if not isinstance(machine, Listener):
            raise StageError(f"{NAMES[node]} is not a running receiver")
        return cast(Member, machine)  # or a secondary, of which a test knows what it may use

    def source(self, node: int) -> Source:
        machine = self.world.nodes[node].machine
        if not isinstance(machine, Source):
            raise StageError(f"{NAMES[node]} is not a running source")
        return machine

    def server(self, node: int) -> ReformationServer:
        machine = self.world.nodes[node].machine
        if not isinstance(machine, ReformationServer):
            raise StageError(f"{NAMES[node]} is not a running server")
        return machine

    def up(self, node: int) -> bool:
        return self.world.nodes[node].up

    def have(self, node: int) -> int:
        return self.receiver(node).have

    def slot_of(self, node: int, packet: PacketId) -> int | None:
        """The slot at which a receiver has ordered a packet, while that can still be undone."""
        history = self.receiver(node).history
        for slot in range(history.base.slot + 1, history.have + 1):
            ordered = history.get(slot)
            frame = ordered.frame if ordered is not None else None
            if frame is not None and any(each[:3] == packet for each in frame.packets):
                return slot
        return None

    def until_ordered(self, node: int, packet: PacketId) -> int:
        """Wait until a receiver has the token that acknowledges a packet. Returns its slot."""
        self.until(lambda: self.slot_of(node, packet) is not None)
        return self.slot_of(node, packet) or 0

    def until_witnessed(self, node: int, packet: PacketId) -> int:
        """Wait until a receiver knows that packet to be witnessed. Returns its slot."""
        slot = self.until_ordered(node, packet)
        self.until(lambda: self.receiver(node).witnessed >= slot)
        return slot

    def released(self, node: int, packet: PacketId) -> bool:
        """Whether a packet is on the node's tape."""
        return not self.checker.missing_from(self.world.nodes[node], (packet,))

    # -- time ---------------------------------------------------------------------------------------------

    def all_released_upto(self, slot: int) -> bool:
        """Whether every primary has released this slot, empty or not."""
        return all(self.receiver(node).released >= slot for node in (A, B, C))

    def run(self, ms: float) -> None:
        self.world.run(self.world.now + int(ms * MS))

    def until(self, done: Callable[[], bool], *, within_ms: int = 1000) -> None:
        """Let time pass until `done`, which the script relies on."""
        limit_ns = self.world.now + within_ms * MS
        while not done():
            if self.world.now >= limit_ns:
                raise StageError("what the script waits for does not happen:\n" + self.story())
            self.world.pass_moment(limit_ns)

    def expect(self, holds: bool) -> None:
        """What the script relies on at this point. Not a promise, so not an assertion."""
        if not holds:
            raise StageError("the history has taken another course:\n" + self.story())

    def run_past_release(self) -> None:
        """As long as everything that is witnessed by now needs to be released."""
        timing = self.config.timing
        self.run((timing.hold_ns + timing.hear_ns + 3 * timing.slot_ns) / MS)

    def until_before_slot_of(self, node: int, ms: float = 2.5) -> int:
        """Wait until it is exactly so long before a slot of this node, by true time. Returns the slot."""
        schedule = self._schedule_of(node)
        slot = schedule.slot_at(self.world.now + int(ms * MS)) + 1
        while schedule.owner_of(slot) != node:
            slot += 1
        self.world.run(schedule.time_of(slot) - int(ms * MS))
        return slot

    def owner_of(self, node: int, slot: int) -> int:
        """Whose slot that is in the ring which the node has entered."""
        return self._schedule_of(node).owner_of(slot)

    def _schedule_of(self, node: int) -> Schedule:
        schedule = self.receiver(node)._schedule
        if schedule is None:
            raise StageError(f"{NAMES[node]} has no ring")
        return schedule

    # -- what gets lost -----------------------------------------------------------------------------------

    def lose(
        self,
        *kinds: type,
        sender: Nodes = None,
        to: Nodes = None,
        but_to: Nodes = None,
        matching: Matches | None = None,
    ) -> Loss:
        """From now on such messages are lost."""
        loss = Loss(kinds, sender, to, but_to, matching)
        self.world.losses.append(loss)
        return loss

    def deliver(self, kind: type, to: int, *, packet: PacketId | None = None) -> None:
        """The latest such message that was sent to `to`, lost or not, arrives now: it was on a long way."""
        for receiver, message in reversed(self.world.sent):
            if receiver == to and type(message) is kind and (packet is None or message[:3] == packet):
                self.world.nodes[to].arrive(message)
                return
        raise StageError(f"no {kind.__name__} was sent to {NAMES[to]}")

    # -- life and death -----------------------------------------------------------------------------------

    def start(self, *nodes: int) -> None:
        for node in nodes:
            if self.up(node):
                raise StageError(f"{NAMES[node]} is already running")
            self._cast.add(node)
            self.world.nodes[node].start()

    def kill(self, node: int) -> None:
        if not self.up(node):
            raise StageError(f"{NAMES[node]} is already dead")
        self.world.nodes[node].crash()

    def take_away(self, *nodes: int) -> None:
        """Kill nodes that do not return, not even at the end."""
        for node in nodes:
            self.kill(node)
            self._cast.remove(node)

    def restart(self, node: int) -> None:
        if self.up(node):
            self.kill(node)
        self.start(node)

    def lose_disk(self, node: int) -> None:
        """Kill a node and take its disk: it starts again as a new life, or a new incarnation."""
        if self.up(node):
            self.kill(node)
        self._lives[node] += 1
        self.world.nodes[node].disk = Disk(self.config, self._lives[node])
        self.world.trace(node, "loses its disk", f"life {self._lives[node]}")

    def strike(self, node: int, after: Callable[[Effect], bool], *, wipe: bool = False) -> None:
        """Kill the node right behind its next such effect and start it again at once, perhaps without its disk."""

        def again() -> None:
            if wipe:
                self.lose_disk(node)
            self.start(node)

        self.world.watchers.append(_Assassin(node, after, again))

    # -- packets ------------------------------------------------------------------------------------------

    def send(self, source: int, *, only_to: Nodes = None, payload: bytes | None = None) -> PacketId:
        """A source sends its next packet; if it reaches only some, resending does not help before `end`."""
        node, machine = self.world.nodes[source], self.source(source)
        payload = payload if payload is not None else f"packet {next(self._packets)}".encode()
        (_, send) = effects = machine.submit(payload, 1, node.local_ns)
        if not isinstance(send, Send) or not isinstance(send.message, Data):
            raise StageError("a source does not send what it is given")
        packet = send.message[:3]
        if only_to is not None:
            self.lose(Data, but_to=only_to, matching=lambda message: message[:3] == packet)
        node.perform(effects)
        return packet

    def change_membership(self, *members: int, only_to: Nodes = None) -> PacketId:
        """The operator submits the next version of the configured set, with the present lives."""
        lives = tuple(MemberLife(member, self._lives[member]) for member in members)
        self.membership = Membership(self.membership.version + 1, lives)
        return self.send(K, only_to=only_to, payload=encode_membership(self.membership))

    # -- rings --------------------------------------------------------------------------------------------

    def invite(self, server: int, invited: Collection[int], *, reporter: int | None = None) -> None:
        """A server hears a fault report of one of those it can reach, and sends them its INVITE."""
        self.until(lambda: self.server(server).phase == "IDLE")
        if server in self._inviting:
            self._inviting[server].lift()
        self._inviting[server] = self.lose(Invite, sender=server, but_to=invited)
        who = self.receiver(reporter or max(invited, key=lambda node: self.receiver(node).generation))
        fault = Fault(who.member, who.life, who.generation, who.promised, FaultReason.TOKEN_MISSING, 0, 0)
        self.world.nodes[server].arrive(fault)
        self.until(lambda: self.server(server).phase == "INVITING")

    def try_to_reform(
        self,
        server: int,
        joiners: Collection[int],
        *,
        announce_to: Nodes = None,
        reporter: int | None = None,
    ) -> Ring | None:
        """A server invites `joiners`, and announces its ring, if it can form one, to `announce_to` alone."""
        before = self.server(server).rings_formed
        hush = self.lose(Ring, sender=server)
        self.invite(server, joiners, reporter=reporter)
        self.until(lambda: self.server(server).phase in ("ANNOUNCING", "IDLE"))
        hush.lift()
        ring = self.server(server).ring
        if self.server(server).rings_formed == before or ring is None:
            return None
        heard_by = joiners if announce_to is None else announce_to
        self.lose(Ring, but_to=heard_by, matching=lambda message: message == ring)
        for node in (heard_by,) if isinstance(heard_by, int) else heard_by:
            self.deliver(Ring, node)
        return ring

    def reform(
        self,
        server: int,
        joiners: Collection[int],
        *,
        announce_to: Nodes = None,
        reporter: int | None = None,
    ) -> Ring:
        """The same, where the script relies on the ring."""
        ring = self.try_to_reform(server, joiners, announce_to=announce_to, reporter=reporter)
        if ring is None:
            raise StageError("no ring was formed:\n" + self.story())
        return ring

    # -- the end ------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything is healed and everybody returns: now all promises must hold."""
        self.world.losses.clear()
        for node in sorted(self._cast):
            if not self.up(node):
                self.start(node)
        bound_ns = self._bound_ns()
        limit_ns = self.world.now + bound_ns
        while not self._all_released() and self.world.now < limit_ns:
            self.world.pass_moment(limit_ns)
        self.checker.check_no_loss(self._operable(), self._witnessed())
        if not self._all_released():
            raise InvariantBroken("liveness", f"not everything is released after {bound_ns / 1e9:.2f} s")
        self.checker.check_end([self.world.nodes[node] for node in RECEIVERS], 2 * MS)

    def _bound_ns(self) -> int:
        return liveness_bound_ns(self.config.timing, len(self.membership.members), len(SERVERS_BY_RANK))

    def _operable(self) -> list[SimNode]:
        """The receivers that the configured set names, with the life that it names."""
        lives = self.membership.members
        return [self.world.nodes[node] for node in RECEIVERS if MemberLife(node, self._lives[node]) in lives]

    def _all_released(self) -> bool:
        living = [key for key in self.checker.submitted if key[1] == self._lives[key[0]]]
        return not any(self.checker.missing_from(node, living) for node in self._operable())

    def _witnessed(self) -> list[PacketId]:
        """What the sources believe to be safe."""
        sources = [self.source(source) for source in SOURCES]
        return [(x.source, x.incarnation, number) for x in sources for number in range(1, x.witnessed + 1)]

    def story(self, last: int = 80) -> str:
        """The end of the history as text."""
        return "\n".join(list(narrate(self.world.trace_lines))[-last:])


class _Assassin:
    """Kills a node once, right behind an effect."""

    def __init__(self, node: int, after: Callable[[Effect], bool], then: Callable[[], None]) -> None:
        self._node = node
        self._after = after
        self._then = then
        self._done = False

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not self._done and node.id == self._node and node.up and self._after(effect):
            self._done = True
            node.crash()
            node.world.after(0, self._then)


def _passed_on(message: Message) -> tuple[Message, ...]:
    """The rings and groups that a node passes on: they are lost like those that come from their server."""
    items = message.items if isinstance(message, Repair) else ()
    return tuple(item for item in items if isinstance(item, Ring | Group))


def _among(node: int, nodes: Nodes) -> bool:
    return nodes is None or node == nodes or (not isinstance(nodes, int) and node in nodes)


def sends(kind: type) -> Callable[[Effect], bool]:
    """Recognises the sending of a kind of message, for `strike`."""
    return lambda effect: isinstance(effect, Send) and type(effect.message) is kind
