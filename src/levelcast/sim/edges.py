"""Simulate edges at receivers, and subscribers of every grade with two lines each (MS §4.1, rule 15).

A `SimEdge` drives the `EdgeServer` of one receiver, the class that a node runs, with virtual links and files. Its state
is on the receiver's disk, and after a crash it starts from there. It paces late frames, some of its lines have a rate,
and its store is often so small that requests are answered from the tape. A `SimSubscriber` drives a `SessionReader`. It
receives from two edges over links that lose, duplicate, delay and reorder packets, and requests missing packets from
either of them. Damaged packets are lost: UDP has a checksum.

| invariant     | checked            | condition |
|---------------|--------------------|----------------|
| One numbering | at every send      | a number of a session has the same bytes at every edge, restarted ones included |
| True records  | at every delivery  | the records delivered at a number are those sent with it, by every path |
| In order      | at every delivery  | numbers are consecutive; a gap is reported as `Lost`; guaranteed ones have none |
| Never older   | at every delivery  | *latest only*: no price is older than one that was delivered for its symbol |
| Watermark     | at every delivery  | no record after a watermark has a timestamp up to the watermark's time |
| Together      | at every delivery  | a subscriber with a bound delivers no record before its release time and the    |
|               |                    | bound, and one that it has by then not later                                    |
| Merged order  | at every merge     | merged sessions rise by (timestamp, stripe, sequence), without a gap |
| Edge tape     | at the end         | a session has exactly the tape's records of its instruments |
| Watermark     | at the end         | all records up to its time precede it; it has the tape's sequence at that time |
| Snapshot      | at the end         | a snapshot has the last trade of each symbol up to its sequence |
| No hole       | at the end         | within `customer_bound_ns`, and the time that the faster one of its lines |
|               |                    | needs for its queue and for what its subscribers lack, every subscriber has |
|               |                    | everything since it joined |
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from random import Random

from levelcast.edge.server.archive import Archive
from levelcast.edge.server.checkpoints import FeedCheckpoints, replay
from levelcast.edge.server.feed import Feed, FramePosition, resume
from levelcast.edge.server.machine import EdgeConfig, EdgeEffect, EdgeServer, Reply, SaveState
from levelcast.edge.server.packetizer import GatherConfig, Outgoing
from levelcast.edge.server.request_policy import RequestPolicyConfig
from levelcast.edge.server.retransmit_store import RetransmitConfig
from levelcast.edge.subscriber.delivery import Grade, SubscriberConfig
from levelcast.edge.subscriber.plan_follower import LOOK_NS, SILENT_NS
from levelcast.network.model import MulticastGroup
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.history import Frame
from levelcast.protocol.machine import Machine
from levelcast.ring.listener import Listener
from levelcast.sim.check.edge import Truth, instruments_of
from levelcast.sim.engine.disk import Disk, stamped_content
from levelcast.sim.engine.world import START_NS, Alarm, SimNode, World
from levelcast.sim.subscribers import Follows, SimSubscriber
from levelcast.wire import mold
from levelcast.wire.snapshot import decode_snapshot

MS = 1_000_000
FIRST_CUSTOMER = 401
WATERMARK_NS = 60 * MS
TICK_NS = 30 * MS
"""Interval at which an edge checks for due watermarks and heartbeats."""
LINE_RATES = (None, None, None, 30_000)
"""Bytes/s of the line that an edge sends to, if it has a rate."""
STORE_BYTES = (1_500, 1_500, 64 << 20)
"""Sizes of the retransmission store. If it is small, it answers few requests and the tape answers the others."""
SEGMENT_RECORDS = 40
"""Maximum number of records between two checkpoints."""
TOGETHER_NS = (None, 2 * MS, 12 * MS, 60 * MS)
"""Bounds of subscribers that deliver together: below all delays, between them, and above most."""
APART_NS = 10 * MS
"""Copies of one send that arrive within this time are received as one batch."""
CUSTOMER = {"reorder_ns": 8 * MS, "retry_ns": 30 * MS, "attempts": 4}
EDGE = EdgeConfig(pace_rate=50_000, pace_burst=1_000, save_frames=8, policy=RequestPolicyConfig(window_ns=15 * MS))
"""`window_ns` is shorter than a subscriber's retry interval.

In many histories the late frames exceed `pace_burst`."""
CALM_LOSS = 0.05
CUSTOMER_ROUNDS = 12
"""Requests that a subscriber may need for its last gap after all lines are repaired: loss continues."""
QUEUE_FACTOR = 2
"""A line with a rate needs this multiple of the time for its queue: watermarks and replies use the line too."""
LACKING_FACTOR = 4
"""And this multiple of the time for what its subscribers lack: watermarks use up to half of the line, and a subscriber
requests a record from both of its lines while the reply waits in the queue."""


def customer_bound_ns(config: SubscriberConfig, gather: GatherConfig) -> int:
    """Return the time after the last release by which every subscriber has everything: a watermark reveals the gap,
    and the subscriber repeats its request until the reply arrives, more slowly after requests without a reply."""
    return 4 * gather.watermark_ns + config.reorder_ns + CUSTOMER_ROUNDS * 10 * config.retry_ns


# -- the edge of a receiver -------------------------------------------------------------------------------


def noted_feed(truth: Truth, name: str) -> type[Feed]:
    """Return a subclass of `Feed` that reports everything it numbers to `truth`."""

    class NotedFeed(Feed):
        def release(
            self, frame: FramePosition, content: mold.Buffer, now: int, *, control: bool = True
        ) -> list[Outgoing]:
            return truth.note(name, super().release(frame, content, now, control=control))

        def advance(self, complete_ns: int, now: int) -> list[Outgoing]:
            return truth.note(name, super().advance(complete_ns, now))

    return NotedFeed


class SimFrameReader:
    """Reader of a simulated tape's frames, from an index on."""

    def __init__(self, frames: list[Frame], index: int) -> None:
        self._frames, self._index = frames, index

    def read(self, most_bytes: int, most_frames: int) -> tuple[list[tuple[Frame, bytes]], bool]:
        found = self._frames[self._index : self._index + most_frames]
        self._index += len(found)
        return [(frame, stamped_content(frame)) for frame in found], bool(found)

    def close(self) -> None:
        """Nothing is open."""


class SimEdgeFiles:
    """Files of an edge on its receiver's disk: the last two states, the checkpoints and the tape."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.states: list[bytes] = []
        """The last two, older one first: the store is filled from the older one."""
        self.checkpoints: list[tuple[int, bytes]] = []

    def append(self, slot: int, checkpoint: bytes) -> int:
        self.checkpoints.append((slot, checkpoint))
        return len(self.checkpoints) - 1

    def read(self, location: int) -> bytes:
        return self.checkpoints[location][1]

    def close(self) -> None:
        """Nothing is open."""

    def read_from(self, slot: int, sequence: int) -> SimFrameReader:
        frames = self.disk.tape.frames
        return SimFrameReader(frames, self.disk.tape.after(slot))

    def first_sequence(self) -> int | None:
        return 1


class SimEdge:
    """The edge at one receiver."""

    def __init__(self, crowd: Crowd, node: SimNode, truth: Truth) -> None:
        self.node = node
        self.truth = truth
        self.server: EdgeServer | None = None
        self.customers: list[SimSubscriber] = []
        self._group = MulticastGroup(node.name, "239.0.0.1", 1, rate_bytes=crowd.rng.choice(LINE_RATES))
        self._crowd = crowd
        self._machine: Listener | None = None
        self._files = SimEdgeFiles(node.disk)
        self._alarm = Alarm(crowd.world, self.turn)

    @property
    def up(self) -> bool:
        """True while the process of this edge runs and is not paused."""
        node = self.node
        return node.up and node.machine is self._machine and node.world.now >= node.paused_until_ns

    def restart(self, machine: Machine | None) -> None:
        """Start with the receiver, from the state on its disk."""
        disk = self.node.disk
        if self._files.disk is not disk:
            self._files = SimEdgeFiles(disk)
        crowd, truth, files, frames = self._crowd, self.truth, self._files, disk.tape.frames
        made = noted_feed(truth, self.node.name)
        hold_ns = self.node.world.config.timing.hold_ns
        first = made(truth.plan, truth.stripe, crowd.gather, crowd.retransmit, first_hold_ns=hold_ns)
        chains = {frame.slot: frame.chain for frame in frames}
        feed = resume(first, files.states, chains.get) or first
        known = ((slot, location) for location, (slot, _) in enumerate(files.checkpoints))
        checkpoints = FeedCheckpoints(files, SEGMENT_RECORDS, known)
        replay(feed, ((frame, stamped_content(frame)) for frame in frames if frame.slot > feed.slot), checkpoints)
        self.server = EdgeServer(Archive(feed, checkpoints), self.node.local_ns, EDGE)
        self._machine = machine if isinstance(machine, Listener) else None
        self._perform(self.server.assign([self._group], self.node.local_ns))

    def release(self, release: Release) -> None:
        """Send a frame that the receiver has put on its tape."""
        if self.server is not None:
            hold_ns = self._machine.ring_hold_ns(release.frame.slot) if self._machine is not None else 0
            now = self.node.local_ns
            self._perform(self.server.released(release, stamped_content(release.frame), now, hold_ns))
            self._alarm.set(self._crowd.world.now)

    def wait_ns(self, targets: dict[bytes, int]) -> int:
        """Return the time that its line needs for its queue, and for what its subscribers lack up to `targets`."""
        rate = self._group.rate_bytes
        if rate is None or self.server is None:
            return 0
        queue_ns = max((line.behind_ns for line in self.server.lines.values()), default=0)
        lacking = sum(customer.lacking_bytes(self.truth, targets) for customer in self.customers)
        return QUEUE_FACTOR * queue_ns + LACKING_FACTOR * lacking * 10**9 // rate

    def turn(self, requests: Iterable[tuple[Hashable, bytes]] = ()) -> None:
        """Run one step of the edge between two steps of the receiver."""
        server, machine = self.server, self.node.machine
        if server is None or not self.up or not isinstance(machine, Listener):
            return
        now = self.node.local_ns
        self._perform(server.step(requests, machine.complete_upto_ns(), now))
        self._perform(server.work(machine.wake_ns, now))
        if server.wake_ns is not None:
            self._alarm.set(self._crowd.world.now + max(MS, server.wake_ns - now))

    def _perform(self, effects: Iterable[EdgeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SaveState):
                self._files.states = [*self._files.states[-1:], effect.content]
                continue
            datagrams = mold.split_train(effect.buffer, effect.ends)
            if isinstance(effect, Reply):
                assert isinstance(effect.to, SimSubscriber)
                self._crowd.carry(self, effect.to, datagrams)
                continue
            for customer in self.customers:
                heard = [each for each in datagrams if customer.hears(effect.number, each[: mold.SESSION_SIZE])]
                if heard:
                    self._crowd.carry(self, customer, heard)


# -- edges and subscribers of a history -------------------------------------------------------------------


class Crowd:
    """Edges and subscribers of one history."""

    def __init__(self, world: World, rng: Random, seed: int) -> None:
        self.world = world
        self._bounds = Random(f"together {seed}")
        self.rng = rng
        self.gather = GatherConfig(heartbeat_ns=150 * MS, watermark_ns=WATERMARK_NS)
        self.retransmit = RetransmitConfig(store_bytes=rng.choice(STORE_BYTES))
        self.truths: list[Truth] = []
        self.edges: dict[SimNode, SimEdge] = {}
        self.customers: list[SimSubscriber] = []
        self._waits_ns = 0
        self.last_ns = 0
        """Timestamp of the last record that every subscriber must have received."""
        self.moved = 0
        self.configs = {grade: SubscriberConfig(grade=grade, **CUSTOMER) for grade in Grade}

    def begin(self) -> None:
        if self.customers:
            self.world.after(TICK_NS, self._tick)

    def _tick(self) -> None:
        for edge in self.edges.values():
            edge.turn()
        self.world.after(TICK_NS, self._tick)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if type(effect) is Release and (edge := self.edges.get(node)) is not None:
            edge.release(effect)

    def started(self, node: SimNode, machine: Machine) -> Machine:
        """Start the edge of a receiver with its process; return the receiver's machine."""
        if (edge := self.edges.get(node)) is not None:
            edge.restart(machine)
        return machine

    def edge(self, node: SimNode, truth: Truth) -> SimEdge:
        """Return the edge of a receiver; create it from the tape if the receiver has none."""
        known = self.edges.get(node)
        if known is None:
            known = self.edges[node] = SimEdge(self, node, truth)
            if node.up:
                known.restart(node.machine)
        return known

    # -- subscribers --------------------------------------------------------------------------------------

    def draw(
        self, stripes: Sequence[tuple[Truth, Sequence[SimNode]]], floors: Sequence[int], end_ns: int, *, plans: bool
    ) -> None:
        """Draw one to three subscribers with two lines for each stripe they follow; all follow plans, or none does."""
        rng = self.rng
        self.truths = [truth for truth, _ in stripes]
        instruments = instruments_of(self.truths[0].stripe)
        for number in range(FIRST_CUSTOMER, FIRST_CUSTOMER + rng.choice((1, 2, 2, 3))):
            if plans:
                ((truth, nodes),) = stripes
                wanted_ones = None if rng.random() < 0.5 else set(rng.sample(instruments, 2))
                lines = [self.edge(node, truth) for node in rng.sample(list(nodes), 2)]
                self._add(Follows(self, number, lines, wanted_ones))
                continue
            grade = rng.choice(tuple(Grade))
            wanted = list(stripes) if rng.random() < 0.7 else [rng.choice(list(stripes))]
            lines = [
                self.edge(node, truth)
                for truth, nodes in wanted
                for node in rng.sample(list(nodes), min(2, len(nodes)))
            ]
            customer = self._add(SimSubscriber(self, number, grade, lines))
            sessions = [(session, truth) for truth, _ in wanted for session in truth.plan.sessions]
            if rng.random() < 0.3:
                sessions = rng.sample(sessions, 1)
            merged = grade is not Grade.LATEST_ONLY and rng.random() < 0.7
            if grade is Grade.LATEST_ONLY and rng.random() < 0.5:
                customer.expects = {(floor, rng.choice(instruments)) for floor in floors}
            start = rng.choice(("beginning", "beginning", "snapshot", "number"))
            if start == "beginning":
                customer.join({session: (truth, 1) for session, truth in sessions}, merged=merged)
            else:
                late = partial(self._join_late, customer, sessions, start == "snapshot", merged)
                self.world.at(rng.randint(START_NS, end_ns), late)

    def _add(self, customer: SimSubscriber) -> SimSubscriber:
        customer.loss = self.rng.choice((0.0, 0.05, 0.3))
        if (bound_ns := self._bounds.choice(TOGETHER_NS)) is not None:
            error_ns = self.world.config.clock_error_ns
            customer.deliver_together(bound_ns, self._bounds.randint(-error_ns, error_ns))
        self.customers.append(customer)
        return customer

    def _join_late(
        self, customer: SimSubscriber, sessions: list[tuple[bytes, Truth]], snapshot: bool, merged: bool
    ) -> None:
        servers: dict[int, EdgeServer] = {}
        for line in customer.lines:
            if line.up and line.server is not None:
                servers.setdefault(line.truth.stripe, line.server)
        if any(truth.stripe not in servers for _, truth in sessions):
            self.world.after(20 * MS, partial(self._join_late, customer, sessions, snapshot, merged))
            return
        first: dict[bytes, tuple[Truth, int]] = {}
        now = self.world.now
        told = {stripe: decode_snapshot(server.snapshot(now)) for stripe, server in servers.items() if snapshot}
        for session, truth in sessions:
            if snapshot:
                number = dict(told[truth.stripe].sessions)[session]
            else:
                number = max(1, servers[truth.stripe].feed.next_sequences[session] - self.rng.randint(0, 15))
            first[session] = (truth, number)
        customer.snapshots += told.values()
        customer.join(first, merged=merged)

    # -- the links ----------------------------------------------------------------------------------------

    def carry(self, edge: SimEdge, customer: SimSubscriber, datagrams: Sequence[bytes]) -> None:
        """Send packets from an edge to a subscriber; those that arrive together form one batch, in any order."""
        network = edge.node.world.network
        sender = edge.node.id
        network.delay_ns.setdefault((sender, customer.id), int(self.rng.uniform(1, 8) * MS))
        together = [
            (copy.delay_ns, datagram)
            for datagram in datagrams
            for copy in network.copies(sender, (customer.id,), datagram)
            if copy.damaged is None and not (customer.loss and self.rng.random() < customer.loss)
        ]
        together.sort(key=lambda each: each[0])
        while together:
            upto_ns = together[0][0] + APART_NS
            now_due = [datagram for delay_ns, datagram in together if delay_ns <= upto_ns]
            self.world.after(together[len(now_due) - 1][0], partial(customer.receive, edge, now_due))
            del together[: len(now_due)]

    def request(self, customer: SimSubscriber, line: SimEdge, request: bytes) -> None:
        """Send a request to an edge."""
        network = line.node.world.network
        network.delay_ns.setdefault((customer.id, line.node.id), int(self.rng.uniform(1, 8) * MS))
        for copy in network.copies(customer.id, (line.node.id,), request):
            if copy.damaged is None:
                self.world.after(copy.delay_ns, lambda: line.turn([(customer, request)]))

    # -- the end ------------------------------------------------------------------------------------------

    def settle(self, releasing: dict[int, list[SimNode]]) -> None:
        """Move subscribers without a releasing line to another edge, then note what is on the tape as their target."""
        for customer in self.customers:
            customer.loss = min(customer.loss, CALM_LOSS)
            for truth in {id(line.truth): line.truth for line in customer.lines}.values():
                if not any(line.node in releasing[truth.stripe] for line in customer.lines if line.truth is truth):
                    line = self.edge(self.rng.choice(releasing[truth.stripe]), truth)
                    customer.lines.append(line)
                    line.customers.append(customer)
                    self.moved += 1
        self._targets = {
            session: truth.number_after(session, len(wanted))
            for truth in self.truths
            for session, wanted in truth.expected().items()
        }
        for customer in self.customers:
            if isinstance(customer, Follows):
                customer.settle()
        self._waits_ns = max((self._wait_ns(customer, releasing) for customer in self.customers), default=0)
        self.last_ns = max((frame.timestamp_ns for truth in self.truths for frame in truth.frames()[-1:]), default=0)

    def _wait_ns(self, customer: SimSubscriber, releasing: dict[int, list[SimNode]]) -> int:
        """Return the time for which a subscriber may wait for its lines: of each stripe the faster line counts."""
        waits: dict[int, list[int]] = {}
        for line in customer.lines:
            if line.node in releasing[line.truth.stripe]:
                waits.setdefault(line.truth.stripe, []).append(line.wait_ns(self._targets))
        return max((min(each) for each in waits.values()), default=0)

    @property
    def bound_ns(self) -> int:
        follow_ns = SILENT_NS + 2 * LOOK_NS if any(isinstance(each, Follows) for each in self.customers) else 0
        together_ns = max((each.bound_ns for each in self.customers), default=0)
        config = self.configs[Grade.GUARANTEED]
        return customer_bound_ns(config, self.gather) + follow_ns + self._waits_ns + together_ns

    def lacking(self) -> str | None:
        """Return a message about a subscriber that lacks records, or None."""
        for customer in self.customers:
            if not customer.sessions:
                return f"{customer.name} could not join"
            if (lacks := customer.lacks(self._targets)) is not None:
                return lacks
        return None

    def check_end(self) -> None:
        for truth in self.truths:
            if any(edge.truth is truth for edge in self.edges.values()):
                truth.check_end()
        for customer in self.customers:
            customer.check_end()
