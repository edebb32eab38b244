"""Edges at simulated receivers, and customers of every grade on two lines each (MS §4.1, rule 15).

An `EdgePost` is what `levelcast.node.edge_service` is to a process. It drives the `Feed` of one receiver with what that
releases, answers requests, saves its state on the receiver's disk, and after a crash starts from the state before the
last one and the frames behind it. A `SimSubscriber` drives a `Subscriber`: it hears two edges over links that lose,
double, delay and reorder packets, and asks either of them for what it misses. Damaged packets are lost: UDP has a
checksum.

| promise       | when               | what must hold |
|---------------|--------------------|----------------|
| One numbering | at every send      | a number of a session has the same bytes at every edge, restarted ones included |
| True records  | at every delivery  | what is delivered at a number is what was sent with it, by whatever way it came |
| In order      | at every delivery  | numbers follow each other; a hole is told as `Lost`; guaranteed ones have none |
| Never older   | at every delivery  | *latest only*: no price is older than one that was delivered for its symbol |
| Watermark     | at every delivery  | nothing comes behind a watermark that has a timestamp up to its time |
| Merged order  | at every hand-over | several sessions rise by (timestamp, stripe, sequence), without a hole |
| Edge tape     | at the end         | a session has what the tape has of its instruments, and no more |
| Watermark     | at the end         | everything up to its time came before it; it names the tape's sequence there |
| Snapshot      | at the end         | a snapshot has the last trade of each symbol up to its sequence |
| No hole       | at the end         | within `customer_bound_ns` every customer has everything from where it began |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from levelcast.edge.server.feed import Feed, decode_state
from levelcast.edge.server.packetizer import GatherConfig, Outgoing
from levelcast.edge.server.request_policy import RequestPolicy, RequestPolicyConfig, Route
from levelcast.edge.subscriber.delivery import Grade, SubscriberConfig
from levelcast.edge.subscriber.plan_follower import LOOK_NS, SILENT_NS
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.history import Frame
from levelcast.protocol.machine import Machine
from levelcast.records import stamp
from levelcast.ring.listener import Listener
from levelcast.sim.check.edge import Truth
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.world import SimNode, World
from levelcast.sim.subscribers import Follows, SimLine, SimSubscriber
from levelcast.wire.snapshot import decode_snapshot

MS = 1_000_000
FIRST_CUSTOMER = 401
WATERMARK_NS = 60 * MS
TICK_NS = 30 * MS
"""How often an edge looks for watermarks and heartbeats."""
SAVE_FRAMES = 8
APART_NS = 10 * MS
"""Copies of one send that arrive within this time are taken in together."""
CUSTOMER = {"reorder_ns": 8 * MS, "retry_ns": 30 * MS, "attempts": 4}
DESK = RequestPolicyConfig(window_ns=15 * MS)
"""Answers to several customers within this time go to the group; less than a customer waits before it asks again."""
CALM_LOSS = 0.05
CUSTOMER_ROUNDS = 12
"""Requests that a customer may need for its last hole once all lines are well: loss goes on."""


def customer_bound_ns(config: SubscriberConfig, gather: GatherConfig) -> int:
    """Within what time after the last release every customer has everything: a watermark shows the hole, and it is
    asked for until the answer comes, slowly if it was asked for in vain before."""
    return 4 * gather.watermark_ns + config.reorder_ns + CUSTOMER_ROUNDS * 10 * config.retry_ns


# -- the edge of a receiver -------------------------------------------------------------------------------


class EdgePost:
    """The edge at one receiver."""

    def __init__(self, crowd: Crowd, node: SimNode, truth: Truth) -> None:
        self.node = node
        self.truth = truth
        self.feed: Feed | None = None
        self.customers: list[SimSubscriber] = []
        self._desk = RequestPolicy()
        self._crowd = crowd
        self._machine: Machine | None = None
        self._saved: tuple[Disk, list[bytes]] = (node.disk, [])
        self._saved_at = 0

    @property
    def up(self) -> bool:
        """Whether the process lives that this feed belongs to, and is not held up."""
        node = self.node
        return node.up and node.machine is self._machine and node.world.now >= node.paused_until_ns

    def restart(self, machine: Machine | None) -> None:
        """The receiver starts: go on from what its disk holds, as `levelcast.node.edge_service.restore` does."""
        disk = self.node.disk
        if self._saved[0] is not disk:
            self._saved = (disk, [])
        crowd, truth = self._crowd, self.truth
        feed = Feed(truth.plan, truth.stripe, crowd.gather)
        frames = disk.tape.frames
        chains = {frame.slot: frame.chain for frame in frames}
        for content in self._saved[1]:  # the one before the last comes first: the store is filled from there
            state = decode_state(content)
            if feed.fits(state) and chains.get(state.slot) == state.chain:
                feed = Feed(truth.plan, truth.stripe, crowd.gather, state=state)
                break
        for frame in frames:
            if frame.slot > feed.slot:
                self._book(feed, frame, 0)
        self.feed = feed
        self._desk = RequestPolicy(DESK, self.node.local_ns)
        self._saved_at = feed.frames
        self._machine = machine

    def _book(self, feed: Feed, frame: Frame, now: int) -> list[Outgoing]:
        content = stamp(frame.content, frame.first_sequence, frame.timestamp_ns)
        sent = feed.release(frame, content, now)
        feed.book(sent, content)
        self.truth.note(self.node.name, sent)
        return sent

    def release(self, release: Release) -> None:
        """The receiver has put a frame on its tape."""
        feed = self.feed
        if feed is None:
            return
        self._send(self._book(feed, release.frame, self.node.local_ns))
        if feed.frames - self._saved_at >= SAVE_FRAMES:
            self._saved_at = feed.frames
            self._saved = (self._saved[0], [*self._saved[1][-1:], feed.state()])

    def tick(self) -> None:
        """Between two steps of the receiver: watermarks and heartbeats."""
        feed, machine = self.feed, self.node.machine
        if feed is None or not self.up or not isinstance(machine, Listener):
            return
        now = self.node.local_ns
        marks = feed.advance(machine.complete_upto_ns(), now)
        feed.book(marks)
        self.truth.note(self.node.name, marks)
        next_ns = feed.next_ns
        if next_ns is not None and next_ns <= now:
            marks = marks + feed.heartbeats(now)
        self._send(marks)

    def _send(self, sent: list[Outgoing]) -> None:
        """To the groups of its customers: each hears the sessions that it follows."""
        if not sent or not self.customers:
            return
        for customer in self.customers:
            datagrams = [each for out in sent if customer.hears(self, out.session) for each in out.datagrams]
            if datagrams:
                self._crowd.carry(self, customer, datagrams)

    def answer(self, customer: SimSubscriber, request: bytes) -> None:
        """What a customer asked for, if this edge lives and has it."""
        feed, desk, now = self.feed, self._desk, self.node.local_ns
        if feed is None or not self.up or not desk.admit(customer.id, now):
            return
        wanted = feed.retransmitter.open(request)
        route = Route.NOBODY if wanted is None else desk.route(customer.id, wanted, now)
        if wanted is None or route is Route.NOBODY:
            return
        answer = feed.retransmitter.give(wanted) or self._from_tape(request)
        if answer is None:
            return
        if desk.answered(customer.id, answer, route, now) is Route.GROUP:
            self._send([answer])
        else:
            self._crowd.carry(self, customer, answer.datagrams)

    def _from_tape(self, request: bytes) -> Outgoing | None:
        """What has left the store is gathered from the tape again, as `levelcast.node.edge_archive` does in slices."""
        truth = self.truth
        again = Feed(truth.plan, truth.stripe, self._crowd.gather)
        for frame in self.node.disk.tape.frames:
            self._book(again, frame, 0)
        return again.retransmitter.answer(request)


# -- all of them ------------------------------------------------------------------------------------------


class Crowd:
    """The edges and customers of one history."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.gather = GatherConfig(heartbeat_ns=150 * MS, watermark_ns=WATERMARK_NS)
        self.truths: list[Truth] = []
        self.posts: dict[SimNode, EdgePost] = {}
        self.customers: list[SimSubscriber] = []
        self.last_ns = 0
        """Timestamp of the last record that must have reached everybody."""
        self.moved = 0
        self._configs = {grade: SubscriberConfig(grade=grade, **CUSTOMER) for grade in Grade}

    def config_of(self, grade: Grade) -> SubscriberConfig:
        return self._configs[grade]

    def begin(self) -> None:
        if self.customers:
            self.world.after(TICK_NS, self._tick)

    def _tick(self) -> None:
        for post in self.posts.values():
            post.tick()
        self.world.after(TICK_NS, self._tick)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if type(effect) is Release and (post := self.posts.get(node)) is not None:
            post.release(effect)

    def started(self, node: SimNode, machine: Machine) -> None:
        """A receiver's process starts, and its edge with it."""
        if (post := self.posts.get(node)) is not None:
            post.restart(machine)

    def post(self, node: SimNode, truth: Truth) -> EdgePost:
        """The edge of a receiver; made from its tape if it had none."""
        known = self.posts.get(node)
        if known is None:
            known = self.posts[node] = EdgePost(self, node, truth)
            if node.up:
                known.restart(node.machine)
        return known

    # -- who is there -------------------------------------------------------------------------------------

    def draw(
        self,
        stripes: Sequence[tuple[Truth, Sequence[SimNode]]],
        instruments: Sequence[int],
        floors: Sequence[int],
        begin_ns: int,
        end_ns: int,
        *,
        plans: bool,
    ) -> None:
        """One to three customers, each with two lines of every stripe that it follows; all follow plans, or none."""
        rng = self.rng
        self.truths = [truth for truth, _ in stripes]
        for number in range(rng.choice((1, 2, 2, 3))):
            if plans:
                ((truth, nodes),) = stripes
                wanted_ones = None if rng.random() < 0.5 else set(rng.sample(instruments, 2))
                lines = [self.post(node, truth) for node in rng.sample(list(nodes), 2)]
                self.customers.append(Follows(self, FIRST_CUSTOMER + number, lines, wanted_ones))
                self.customers[-1].loss = rng.choice((0.0, 0.05, 0.3))
                continue
            grade = rng.choice(tuple(Grade))
            wanted = list(stripes) if rng.random() < 0.7 else [rng.choice(list(stripes))]
            lines = [
                self.post(node, truth)
                for truth, nodes in wanted
                for node in rng.sample(list(nodes), min(2, len(nodes)))
            ]
            customer = SimSubscriber(self, FIRST_CUSTOMER + number, grade, lines)
            customer.loss = rng.choice((0.0, 0.05, 0.3))
            self.customers.append(customer)
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
                at_ns = rng.randint(begin_ns, end_ns)
                self.world.at(at_ns, self._late(customer, sessions, start == "snapshot", merged))

    def _late(
        self, customer: SimSubscriber, sessions: list[tuple[bytes, Truth]], snapshot: bool, merged: bool
    ) -> Callable[[], None]:
        def join() -> None:
            feeds: dict[int, Feed] = {}
            for line in customer.lines:
                if line.up and line.feed is not None:
                    feeds.setdefault(line.truth.stripe, line.feed)
            if any(truth.stripe not in feeds for _, truth in sessions):
                self.world.after(20 * MS, join)
                return
            first: dict[bytes, tuple[Truth, int]] = {}
            told = {stripe: decode_snapshot(feed.snapshot()) for stripe, feed in feeds.items() if snapshot}
            for session, truth in sessions:
                if snapshot:
                    number = dict(told[truth.stripe].sessions)[session]
                else:
                    number = max(1, feeds[truth.stripe].next_sequences[session] - self.rng.randint(0, 15))
                first[session] = (truth, number)
            customer.snapshots += told.values()
            customer.join(first, merged=merged)

        return join

    # -- the links ----------------------------------------------------------------------------------------

    def carry(self, post: EdgePost, customer: SimSubscriber, datagrams: Sequence[bytes]) -> None:
        """Packets on their way from an edge; those that arrive together are taken in together, in any order."""
        network = post.node.world.network
        sender = post.node.id
        network.delay_ns.setdefault((sender, customer.id), int(self.rng.uniform(1, 8) * MS))
        together = [
            (copy.delay_ns, datagram)
            for datagram in datagrams
            for copy in network.copies(sender, (customer.id,), datagram)
            if copy.damaged is None and not (customer.loss and self.rng.random() < customer.loss)
        ]
        if not together:
            return
        together.sort(key=lambda each: each[0])
        while together:
            upto_ns = together[0][0] + APART_NS
            now_due = [datagram for delay_ns, datagram in together if delay_ns <= upto_ns]
            self.world.after(together[len(now_due) - 1][0], self._arrive(post, customer, now_due))
            del together[: len(now_due)]

    @staticmethod
    def _arrive(post: EdgePost, customer: SimSubscriber, datagrams: list[bytes]) -> Callable[[], None]:
        return lambda: customer.receive(post, datagrams)

    def request(self, customer: SimSubscriber, line: SimLine, request: bytes) -> None:
        """A request on its way to an edge."""
        network = line.node.world.network
        network.delay_ns.setdefault((customer.id, line.node.id), int(self.rng.uniform(1, 8) * MS))
        for copy in network.copies(customer.id, (line.node.id,), request):
            if copy.damaged is None:
                self.world.after(copy.delay_ns, lambda: line.answer(customer, request))

    # -- the end ------------------------------------------------------------------------------------------

    def settle(self, releasing: dict[int, list[SimNode]]) -> None:
        """Who has no line left that releases is given one; then everybody must get what is on the tape now."""
        for customer in self.customers:
            customer.loss = min(customer.loss, CALM_LOSS)
            for truth in {id(line.truth): line.truth for line in customer.lines}.values():
                if not any(line.node in releasing[truth.stripe] for line in customer.lines if line.truth is truth):
                    line = self.post(self.rng.choice(releasing[truth.stripe]), truth)
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
        self.last_ns = max((frame.timestamp_ns for truth in self.truths for frame in truth.frames()[-1:]), default=0)

    @property
    def bound_ns(self) -> int:
        follow_ns = SILENT_NS + 2 * LOOK_NS if any(isinstance(each, Follows) for each in self.customers) else 0
        return customer_bound_ns(self._configs[Grade.GUARANTEED], self.gather) + follow_ns

    def lacking(self) -> str | None:
        """Who lacks what."""
        for customer in self.customers:
            if not customer.sessions:
                return f"{customer.name} could not join"
            if (lacks := customer.lacks(self._targets)) is not None:
                return lacks
        return None

    def check_end(self) -> None:
        for truth in self.truths:
            if any(post.truth is truth for post in self.posts.values()):
                truth.check_end()
        for customer in self.customers:
            customer.check_end()
