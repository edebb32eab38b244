"""Edges at simulated receivers, and customers of every grade on two lines each (MS §4.1, rule 15).

An `EdgePost` is what `levelcast.net.edge` is to a process. It drives the `Feed` of one receiver with what that
releases, answers requests, saves its state on the receiver's disk, and after a crash starts from the state before the
last one and the frames behind it. A `Customer` drives a `Subscriber`: it hears two edges over links that lose, double,
delay and reorder packets, and asks either of them for what it misses. Damaged packets are lost: UDP has a checksum.

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

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from levelcast.edge.delivery import Ask, Complete, Deliver, Effect, Grade, Lost, Stuck, SubscriberConfig
from levelcast.edge.desk import Desk, DeskConfig, Route
from levelcast.edge.feed import Feed, decode_state
from levelcast.edge.follow import LOOK_NS, SILENT_NS, Closed, Follower, Happening
from levelcast.edge.follow import Followed as FollowedSessions
from levelcast.edge.gather import GatherConfig, Outgoing, SessionPlan, session_name
from levelcast.edge.merge import Merger
from levelcast.edge.plans import session_plan
from levelcast.edge.subscriber import Subscriber
from levelcast.edge.watermark import decode_watermark
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE, WORD_BYTES, split, stamp, trades
from levelcast.ring.effects import Effect as RingEffect
from levelcast.ring.effects import Release
from levelcast.ring.machine import Machine
from levelcast.ring.order import Frame
from levelcast.ring.receiver import Receiver
from levelcast.sim.check import Checker, InvariantBroken
from levelcast.sim.disk import Disk
from levelcast.sim.world import SimNode, World
from levelcast.wire import mold
from levelcast.wire.plan import ChannelPlan, Kind, decode_record, make_plan
from levelcast.wire.snapshot import Snapshot, decode_snapshot

MS = 1_000_000
FIRST_CUSTOMER = 401
WATERMARK_NS = 60 * MS
TICK_NS = 30 * MS
"""How often an edge looks for watermarks and heartbeats."""
SAVE_FRAMES = 8
APART_NS = 10 * MS
"""Copies of one send that arrive within this time are taken in together."""
CUSTOMER = {"reorder_ns": 8 * MS, "retry_ns": 30 * MS, "attempts": 4}
DESK = DeskConfig(window_ns=15 * MS)
"""Answers to several customers within this time go to the group; less than a customer waits before it asks again."""
CALM_LOSS = 0.05
CUSTOMER_ROUNDS = 12
"""Requests that a customer may need for its last hole once all lines are well: loss goes on."""
UNPLANNED = 99
"""An instrument that no plan has: its records go nowhere."""

_TRADE = bytearray(trades(1).tobytes())
_SET = struct.Struct("<HIQq")
_SET_AT = 2
_TRADE_ID = struct.Struct("<Q")
_TRADE_ID_AT = 48
_KEY = struct.Struct("<QiI")
"""`ts_recv`, an unused delta and the sequence of a trade."""
_KEY_AT = 32
_INSTRUMENT = struct.Struct("<I")
_INSTRUMENT_AT = 4
TRADE_BYTES = len(_TRADE)


def trade(floor: int, instrument: int, number: int, at_ns: int) -> bytes:
    """One trade as its floor sends it; `number` tells it from every other one."""
    _SET.pack_into(_TRADE, _SET_AT, floor, instrument, at_ns, number)
    _TRADE_ID.pack_into(_TRADE, _TRADE_ID_AT, number)
    return bytes(_TRADE)


def split_records(payload: bytes) -> Iterator[bytes]:
    """Each record by itself."""
    at = 0
    while at < len(payload):
        size = payload[at] * WORD_BYTES
        yield payload[at : at + size]
        at += size


class Key(NamedTuple):
    """A record's place in the one order of all stripes (rule 15)."""

    timestamp_ns: int
    stripe: int
    sequence: int


def instrument_of(record: bytes) -> int:
    (instrument,) = _INSTRUMENT.unpack_from(record, _INSTRUMENT_AT)
    return int(instrument)


def symbol_of(record: bytes) -> tuple[int, int]:
    """Floor and instrument of a trade."""
    return record[2] | record[3] << 8, instrument_of(record)


def customer_bound_ns(config: SubscriberConfig, gather: GatherConfig) -> int:
    """Within what time after the last release every customer has everything: a watermark shows the hole, and it is
    asked for until the answer comes, slowly if it was asked for in vain before."""
    return 4 * gather.watermark_ns + config.reorder_ns + CUSTOMER_ROUNDS * 10 * config.retry_ns


# -- what is true -----------------------------------------------------------------------------------------


class Truth:
    """The sessions of one stripe as they were first sent; every edge and every delivery is held against them."""

    def __init__(self, stripe: int, plan: SessionPlan, checker: Checker) -> None:
        self.stripe = stripe
        self.plan = plan
        self.plans: dict[int, ChannelPlan] = {}
        """Those that the operator has sent, by number."""
        self._checker = checker
        self.streams: dict[bytes, list[bytes]] = {session: [] for session in plan.sessions}
        """Each session's records, watermarks among them; the first has number 1."""
        self._trains: dict[tuple[bytes, int], bytes] = {}

    def note(self, name: str, sent: Iterable[Outgoing]) -> None:
        """An edge sends these, or has them in its store."""
        for out in sent:
            if not out.records:
                continue
            known = self._trains.setdefault((out.session, out.sequence), out.buffer)
            if known is not out.buffer:
                if known != out.buffer:
                    raise InvariantBroken("one numbering", f"{name} has other bytes at {_place(out)}")
                continue
            stream = self.streams.setdefault(out.session, [])
            if out.sequence != len(stream) + 1:
                raise InvariantBroken("one numbering", f"{name} sends {_place(out)}, {len(stream) + 1} is next")
            for datagram in out.datagrams:
                packet = mold.decode(datagram)
                assert isinstance(packet, mold.Packet)
                stream.extend(split_records(bytes(packet.payload)))

    def frames(self) -> list[Frame]:
        return self._checker.frames()

    def tape(self) -> Iterator[bytes]:
        """Every trade on the tape, stamped."""
        for frame in self.frames():
            for record in split_records(stamp(frame.content, frame.first_sequence, frame.timestamp_ns)):
                if record[1] == RTYPE_TRADE:
                    yield record

    def expected(self) -> dict[bytes, list[bytes]]:
        """What the tape has for each session, by the words of the plan and not by the edge's code."""
        plan = self.plan
        wanted: dict[bytes, list[bytes]] = {session: [] for session in plan.sessions}
        for frame in self.frames():
            swapped = plan
            for record in split_records(stamp(frame.content, frame.first_sequence, frame.timestamp_ns)):
                if record[1] != RTYPE_TRADE:
                    swapped = self._swapped(record) or swapped
                elif (instrument := instrument_of(record)) == 0:
                    for session in plan.sessions:
                        wanted[session].append(record)
                elif (only := plan.session_of.get(instrument, plan.default)) is not None:
                    wanted[only].append(record)
            if swapped is not plan:
                plan = swapped
                wanted |= {session: [] for session in plan.sessions}
        return wanted

    def _swapped(self, record: bytes) -> SessionPlan | None:
        """The plan that takes effect behind the frame of this record."""
        said = decode_record(record)
        if said is None or said.kind is not Kind.SWAP:
            return None
        return session_plan(self.plans[said.number], self.stripe)

    def check_end(self) -> None:
        """The sessions are the tape, and the watermarks in them are true."""
        sequences = self._sequences_upto()
        for session, wanted in self.expected().items():
            done = 0
            times = [_KEY.unpack_from(record, _KEY_AT)[0] for record in wanted]
            over = False
            for record in self.streams.get(session, ()):
                if over:
                    raise InvariantBroken("edge tape", f"{_name(session)} goes on behind its last record")
                if record[1] == RTYPE_SYSTEM:
                    mark = decode_record(record)
                    over = mark is not None and mark.kind is Kind.LAST
                    if mark is None:
                        self._check_watermark(session, record, times, done, sequences)
                elif done == len(wanted) or record != wanted[done]:
                    raise InvariantBroken("edge tape", f"{_name(session)} has another record {done + 1} than the tape")
                else:
                    done += 1

    def number_after(self, session: bytes, trades: int) -> int:
        """The number after so many trades of a session; one that nobody has sent yet if there are fewer."""
        left = trades
        for number, record in enumerate(self.streams.get(session, ()), 1):
            left -= record[1] == RTYPE_TRADE
            if not left:
                return number + 1
        return len(self.streams.get(session, ())) + 1 + left

    def last_prices(self, session: bytes, upto: int) -> dict[tuple[int, int], int]:
        """Per (floor, instrument), the number of its last trade below `upto`."""
        return {
            symbol_of(record): number
            for number, record in enumerate(self.streams[session][: upto - 1], 1)
            if record[1] == RTYPE_TRADE
        }

    def last_records(self, next_global: int) -> list[bytes]:
        """The last trade of each floor and instrument below a sequence, whatever session it is in."""
        last: dict[tuple[int, int], bytes] = {}
        for record in self.tape():
            if _KEY.unpack_from(record, _KEY_AT)[2] < next_global:
                last[symbol_of(record)] = record
        return sorted(last.values())

    def _sequences_upto(self) -> list[tuple[int, int]]:
        """Each frame's timestamp, and the sequence after it."""
        return [(frame.timestamp_ns, frame.first_sequence + frame.records) for frame in self.frames()]

    def _check_watermark(
        self, session: bytes, record: bytes, times: list[int], done: int, sequences: list[tuple[int, int]]
    ) -> None:
        watermark = decode_watermark(record)
        if watermark is None:
            raise InvariantBroken("edge tape", f"{_name(session)} has a system message that is no watermark")
        due = bisect_right(times, watermark.complete_ns)
        if due != done:
            raise InvariantBroken("watermark", f"{_name(session)}: {done} of {due} records came before {watermark}")
        place = bisect_right(sequences, (watermark.complete_ns, 2**63))
        after = sequences[place - 1][1] if place else 1
        if after != watermark.next_sequence or watermark.stripe != self.stripe:
            raise InvariantBroken("watermark", f"{_name(session)}: {watermark}, but the sequence there is {after}")


def _place(out: Outgoing) -> str:
    return f"{_name(out.session)}/{out.sequence}"


def _name(session: bytes) -> str:
    return session.decode().rstrip()


# -- the edge of a receiver -------------------------------------------------------------------------------


class EdgePost:
    """The edge at one receiver."""

    def __init__(self, crowd: Crowd, node: SimNode, truth: Truth) -> None:
        self.node = node
        self.truth = truth
        self.feed: Feed | None = None
        self.customers: list[Customer] = []
        self._desk = Desk()
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
        """The receiver starts: go on from what its disk holds, as `levelcast.net.edge.restore` does."""
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
        self._desk = Desk(DESK, self.node.local_ns)
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
        if feed is None or not self.up or not isinstance(machine, Receiver):
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

    def answer(self, customer: Customer, request: bytes) -> None:
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
        """What has left the store is gathered from the tape again, as `levelcast.net.archive` does in slices."""
        truth = self.truth
        again = Feed(truth.plan, truth.stripe, self._crowd.gather)
        for frame in self.node.disk.tape.frames:
            self._book(again, frame, 0)
        return again.retransmitter.answer(request)


# -- the customer -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Followed:
    """What a customer has of one session."""

    truth: Truth
    first: int
    """The number from which it reads."""
    next: int
    complete_ns: int = 0
    """Of the last watermark, and the last record's timestamp."""
    last_ns: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    newest: dict[tuple[int, int], int] = field(default_factory=dict)
    """Per (floor, instrument), the number of the last price that was delivered: *latest only*."""
    seen: set[int] = field(default_factory=set)
    """Numbers that were delivered: *latest only*, which may take them in another order."""


class Customer:
    """One customer: a subscriber, two lines a stripe, and what it may rely on."""

    def __init__(self, crowd: Crowd, node: int, grade: Grade, lines: Sequence[EdgePost]) -> None:
        self.id = node
        self.grade = grade
        self.lines = list(lines)
        self.sessions: dict[bytes, Followed] = {}
        self.loss = 0.0
        """Of its own thin lines, besides the weather."""
        self.stuck = 0
        self.snapshots: list[Snapshot] = []
        self._crowd = crowd
        self._world = crowd.world
        self._subscriber: Subscriber | None = None
        self._heard: dict[bytes, EdgePost] = {}
        self._wake_at: int | None = None
        self._merger: Merger | None = None
        self._handed: list[Key] = []
        self.delivered = 0
        for line in lines:
            line.customers.append(self)

    @property
    def name(self) -> str:
        return f"{self.grade.value} customer {self.id}"

    def join(self, first: dict[bytes, tuple[Truth, int]], *, merged: bool) -> None:
        """Begin to read each session at a number."""
        self.sessions = {session: Followed(truth, number, number) for session, (truth, number) in first.items()}
        self._subscriber = Subscriber({session: number for session, (_, number) in first.items()}, self.config)
        if merged:
            self._merger = Merger()
            for stripe, names in self._by_stripe().items():
                self._merger.follow(names, stripe)

    def _by_stripe(self) -> dict[int, list[bytes]]:
        names: dict[int, list[bytes]] = {}
        for session, followed in self.sessions.items():
            names.setdefault(followed.truth.stripe, []).append(session)
        return names

    def hears(self, post: EdgePost, session: bytes) -> bool:
        """Whether it is in a group to which this session goes."""
        return session in self.sessions

    @property
    def requests(self) -> int:
        return self._subscriber.counts.requests if self._subscriber is not None else 0

    @property
    def lost(self) -> int:
        return self._subscriber.counts.lost if self._subscriber is not None else 0

    @property
    def merged(self) -> int:
        """Records that were handed on in the order of all its sessions."""
        return len(self._handed)

    @property
    def config(self) -> SubscriberConfig:
        return self._crowd.config_of(self.grade)

    # -- packets ------------------------------------------------------------------------------------------

    def receive(self, line: EdgePost, datagrams: Sequence[bytes]) -> None:
        if self._subscriber is None:
            return
        for datagram in datagrams:
            self._heard[datagram[: mold.SESSION_SIZE]] = line
        self._perform(self._subscriber.receive(datagrams, self._world.now))

    def _wake(self) -> None:
        if self._subscriber is not None and self._wake_at == self._world.now:
            self._wake_at = None
            self._perform(self._subscriber.wake(self._world.now))

    def _perform(self, effects: Iterable[Effect]) -> None:
        subscriber = self._subscriber
        assert subscriber is not None
        for effect in effects:
            if isinstance(effect, Deliver):
                self._delivered(effect)
            elif isinstance(effect, Complete):
                self._complete(effect)
            elif isinstance(effect, Ask):
                self._ask(effect)
            elif isinstance(effect, Lost):
                self._lost(effect)
            elif isinstance(effect, Stuck):
                self.stuck += 1
        self._wake_for(subscriber.next_ns)

    def _wake_for(self, at: int | None) -> None:
        if at is not None and (self._wake_at is None or at < self._wake_at or self._wake_at < self._world.now):
            self._wake_at = max(at, self._world.now)
            self._world.at(self._wake_at, self._wake)

    def _ask(self, ask: Ask) -> None:
        """The line that was heard last comes first, then the others of the stripe."""
        stripe = self._truth_of(ask.session)
        lines = [line for line in self.lines if line.truth is stripe]
        heard = self._heard.get(ask.session)
        begin = lines.index(heard) if heard in lines else 0
        self._crowd.request(self, lines[(begin + ask.attempt) % len(lines)], ask.datagram)

    def _truth_of(self, session: bytes) -> Truth:
        return self.sessions[session].truth

    # -- what it may rely on ------------------------------------------------------------------------------

    def _delivered(self, deliver: Deliver) -> None:
        followed = self.sessions[deliver.session]
        stream = followed.truth.streams[deliver.session]
        number = deliver.sequence
        records = list(split_records(deliver.payload))
        self.delivered += len(records)
        if records != stream[number - 1 : number - 1 + deliver.records]:
            raise InvariantBroken("true records", f"{self.name} has other records at {_name(deliver.session)}/{number}")
        if self.grade is Grade.LATEST_ONLY:
            self._check_newest(followed, number, records)
            return
        if number != followed.next:
            what = f"{self.name} was given {_name(deliver.session)}/{number}, {followed.next} is next"
            raise InvariantBroken("in order", what)
        followed.next = number + deliver.records
        for record in records:
            if record[1] == RTYPE_TRADE:
                self._take(followed, record)
            else:
                self._mark(followed, record)
        for batch in split(deliver.payload) if self._merger is not None else ():
            if self._merger is not None and batch.kind.rtype == RTYPE_TRADE:
                self._merger.take(deliver.session, batch.kind, batch.records)

    def _take(self, followed: Followed, record: bytes) -> None:
        timestamp_ns, _, _ = _KEY.unpack_from(record, _KEY_AT)
        if timestamp_ns <= followed.complete_ns:
            raise InvariantBroken("watermark", f"{self.name}: a record of {timestamp_ns} behind {followed.complete_ns}")
        followed.last_ns = timestamp_ns

    def _mark(self, followed: Followed, record: bytes) -> None:
        watermark = decode_watermark(record)
        assert watermark is not None
        if watermark.complete_ns <= followed.complete_ns:
            raise InvariantBroken("watermark", f"{self.name}: {watermark} behind {followed.complete_ns}")
        followed.complete_ns = watermark.complete_ns

    def _complete(self, complete: Complete) -> None:
        """Rule 15: what is complete in all sessions is handed on in one order."""
        if self._merger is None:
            return
        self._merger.complete(complete.session, complete.watermark)
        self._hand_over(self._merger)

    def _hand_over(self, merger: Merger) -> None:
        for merged in merger.ready():
            for timestamp_ns, sequence in zip(
                merged.records["ts_recv"].tolist(), merged.records["sequence"].tolist(), strict=True
            ):
                key = Key(timestamp_ns, merged.stripe, sequence)
                if self._handed and key <= self._handed[-1]:
                    raise InvariantBroken("merged order", f"{self.name} was handed {key} behind {self._handed[-1]}")
                if timestamp_ns > self._known_ns():
                    raise InvariantBroken("merged order", f"{self.name} was handed {key}, which may not be the next")
                self._handed.append(key)

    def _known_ns(self) -> int:
        """Up to where it can know of every session that nothing more comes: by watermarks and by later records."""
        return min(max(each.complete_ns, each.last_ns - 1) for each in self.sessions.values())

    def _lost(self, lost: Lost) -> None:
        followed = self.sessions[lost.session]
        if self.grade is Grade.GUARANTEED:
            raise InvariantBroken("in order", f"{self.name} lost {_name(lost.session)}/{lost.sequence}")
        followed.lost.append((lost.sequence, lost.sequence + lost.messages))
        if self.grade is Grade.BEST_EFFORT:
            if lost.sequence != followed.next:
                raise InvariantBroken("in order", f"{self.name} lost {lost.sequence}, {followed.next} is next")
            followed.next = lost.sequence + lost.messages

    def _check_newest(self, followed: Followed, number: int, records: list[bytes]) -> None:
        for at, record in enumerate(records, number):
            if at in followed.seen:
                raise InvariantBroken("in order", f"{self.name} was given number {at} twice")
            followed.seen.add(at)
            if record[1] == RTYPE_TRADE:
                symbol = symbol_of(record)
                if followed.newest.get(symbol, 0) > at:
                    what = f"{self.name} was given price {at} of {symbol} behind {followed.newest[symbol]}"
                    raise InvariantBroken("never older", what)
                followed.newest[symbol] = at

    # -- the end ------------------------------------------------------------------------------------------

    def lacks(self, targets: dict[bytes, int]) -> str | None:
        """What it has not got yet of the records up to `targets`."""
        for session, followed in self.sessions.items():
            upto = targets[session]
            if self.grade is not Grade.LATEST_ONLY:
                if followed.next < upto:
                    return f"{self.name} is at {_name(session)}/{followed.next} of {upto}"
                continue
            for symbol, last in followed.truth.last_prices(session, upto).items():
                if last < followed.first or any(first <= last < end for first, end in followed.lost):
                    continue
                if followed.newest.get(symbol, 0) < last:
                    return f"{self.name} has not the last price of {symbol}, {_name(session)}/{last}"
        if self._merger is not None and self._merger.complete_ns < self._crowd.last_ns:
            return f"{self.name} has not handed on everything up to {self._crowd.last_ns}"
        return None

    def check_end(self) -> None:
        """What was merged is the tape of its sessions; what a snapshot said is the tape's."""
        if self._merger is not None:
            self._check_merged()
        for snapshot in self.snapshots:
            truth = next(each for each in self._crowd.truths if each.stripe == snapshot.stripe)
            wanted = truth.last_records(snapshot.next_global)
            if sorted(split_records(snapshot.records)) != wanted:
                raise InvariantBroken(
                    "snapshot", f"{self.name} was told other last trades up to {snapshot.next_global}"
                )

    def _check_merged(self) -> None:
        """In order it is, so it is enough that nothing is missing: a record of every session comes from the first."""
        wanted = set()
        leads = {min(names) for names in self._by_stripe().values()}
        for session, followed in self.sessions.items():
            lost = {at for first, end in followed.lost for at in range(first, end)}
            for number, record in enumerate(followed.truth.streams[session][: followed.next - 1], 1):
                if number < followed.first or number in lost or record[1] != RTYPE_TRADE:
                    continue
                if instrument_of(record) or session in leads:
                    timestamp_ns, _, sequence = _KEY.unpack_from(record, _KEY_AT)
                    wanted.add(Key(timestamp_ns, followed.truth.stripe, sequence))
        if self._handed != sorted(wanted)[: len(self._handed)]:
            raise InvariantBroken("merged order", f"{self.name} was not handed the tape of its sessions in order")


class Follows(Customer):
    """A customer that follows the plans: guaranteed, from the beginning, some instruments or all (rule 15)."""

    def __init__(self, crowd: Crowd, node: int, lines: Sequence[EdgePost], wanted: set[int] | None) -> None:
        super().__init__(crowd, node, Grade.GUARANTEED, lines)
        self._truth = lines[0].truth
        self._wanted = wanted
        first = dict.fromkeys(self._truth.plan.sessions, 1)
        self._follower = Follower(
            wanted, dict.fromkeys(first, self._truth.stripe), start=first, config=crowd.config_of(self.grade)
        )
        self._merger = Merger()
        self._next: dict[bytes, int] = {}
        self._got: dict[int, int] = {}
        """Per instrument, how many of its trades it has."""
        self._last: dict[int, int] = {}
        """Per instrument, the global sequence of the last one."""
        self._due: dict[int, int] = {}
        self.sessions = {session: Followed(self._truth, 1, 1) for session in first}

    def hears(self, post: EdgePost, session: bytes) -> bool:
        groups = post.feed.groups_of(session) if post.feed is not None else ()
        return any(group in self._follower.groups for group in groups)

    def receive(self, line: EdgePost, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            self._heard[datagram[: mold.SESSION_SIZE]] = line
        self._happen(self._follower.receive(list(datagrams), self._world.now))

    def _wake(self) -> None:
        if self._wake_at == self._world.now:
            self._wake_at = None
            self._happen(self._follower.wake(self._world.now))

    def _truth_of(self, session: bytes) -> Truth:
        return self._truth

    def _happen(self, happenings: Iterable[Happening]) -> None:
        merger = self._merger
        assert merger is not None
        for each in happenings:
            if isinstance(each, Deliver):
                self._delivered(each)
            elif isinstance(each, Complete):
                merger.complete(each.session, each.watermark)
            elif isinstance(each, Ask):
                self._ask(each)
            elif isinstance(each, Lost):
                raise InvariantBroken("in order", f"{self.name} lost {_name(each.session)}/{each.sequence}")
            elif isinstance(each, FollowedSessions):
                merger.follow(each.sessions, each.stripe, each.complete_ns)
            elif isinstance(each, Closed):
                merger.end(each.session)
        self._hand_over(merger)
        self._wake_for(self._follower.next_ns)

    def _delivered(self, deliver: Deliver) -> None:
        session, number = deliver.session, deliver.sequence
        records = list(split_records(deliver.payload))
        self.delivered += len(records)
        if records != self._truth.streams[session][number - 1 : number - 1 + deliver.records]:
            raise InvariantBroken("true records", f"{self.name} has other records at {_name(session)}/{number}")
        if number != self._next.get(session, 1):
            raise InvariantBroken("in order", f"{self.name} was given {_name(session)}/{number}")
        self._next[session] = number + deliver.records
        for record in records:
            if record[1] == RTYPE_TRADE and self._wants(instrument := instrument_of(record)):
                sequence = _KEY.unpack_from(record, _KEY_AT)[2]
                if sequence <= self._last.get(instrument, 0):
                    what = f"{self.name} was given {sequence} of {instrument} behind {self._last[instrument]}"
                    raise InvariantBroken("in order", what)
                self._last[instrument] = sequence
                self._got[instrument] = self._got.get(instrument, 0) + 1
        assert self._merger is not None
        for batch in split(deliver.payload):
            if batch.kind.rtype == RTYPE_TRADE:
                self._merger.take(session, batch.kind, batch.records)

    def _wants(self, instrument: int) -> bool:
        """One of no instrument is in every session, so it says nothing."""
        return instrument != 0 and (self._wanted is None or instrument in self._wanted)

    def _known_ns(self) -> int:
        """Which sessions there are is for the follower to know."""
        assert self._merger is not None
        return self._merger.complete_ns

    def settle(self) -> None:
        """From now on it must have what is on the tape."""
        self._due = {}
        for record in self._truth.tape():
            if self._wants(instrument := instrument_of(record)):
                self._due[instrument] = self._due.get(instrument, 0) + 1

    def lacks(self, targets: dict[bytes, int]) -> str | None:
        for instrument, due in self._due.items():
            if self._got.get(instrument, 0) < due:
                return f"{self.name} has {self._got.get(instrument, 0)} of {due} trades of {instrument}"
        assert self._merger is not None
        if self._merger.complete_ns < self._crowd.last_ns:
            return f"{self.name} has not handed on everything up to {self._crowd.last_ns}"
        return None

    def check_end(self) -> None:
        handed, due = len(self._handed), sum(self._due.values())
        if self._wanted is None and handed < due:
            raise InvariantBroken("merged order", f"{self.name} was handed {handed} of {due} trades")

    @property
    def requests(self) -> int:
        return self._follower.counts.requests


# -- all of them ------------------------------------------------------------------------------------------


class Crowd:
    """The edges and customers of one history."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.gather = GatherConfig(heartbeat_ns=150 * MS, watermark_ns=WATERMARK_NS)
        self.truths: list[Truth] = []
        self.posts: dict[SimNode, EdgePost] = {}
        self.customers: list[Customer] = []
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

    def on_effect(self, node: SimNode, effect: RingEffect) -> None:
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
            customer = Customer(self, FIRST_CUSTOMER + number, grade, lines)
            customer.loss = rng.choice((0.0, 0.05, 0.3))
            self.customers.append(customer)
            sessions = [(session, truth) for truth, _ in wanted for session in truth.plan.sessions]
            if rng.random() < 0.3:
                sessions = rng.sample(sessions, 1)
            merged = grade is not Grade.LATEST_ONLY and rng.random() < 0.7
            start = rng.choice(("beginning", "beginning", "snapshot", "number"))
            if start == "beginning":
                customer.join({session: (truth, 1) for session, truth in sessions}, merged=merged)
            else:
                at_ns = rng.randint(begin_ns, end_ns)
                self.world.at(at_ns, self._late(customer, sessions, start == "snapshot", merged))

    def _late(
        self, customer: Customer, sessions: list[tuple[bytes, Truth]], snapshot: bool, merged: bool
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

    def carry(self, post: EdgePost, customer: Customer, datagrams: Sequence[bytes]) -> None:
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
    def _arrive(post: EdgePost, customer: Customer, datagrams: list[bytes]) -> Callable[[], None]:
        return lambda: customer.receive(post, datagrams)

    def request(self, customer: Customer, post: EdgePost, request: bytes) -> None:
        """A request on its way to an edge."""
        network = post.node.world.network
        network.delay_ns.setdefault((customer.id, post.node.id), int(self.rng.uniform(1, 8) * MS))
        for copy in network.copies(customer.id, (post.node.id,), request):
            if copy.damaged is None:
                self.world.after(copy.delay_ns, lambda: post.answer(customer, request))

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


def draw_plan(rng: Random, stripe: int) -> SessionPlan:
    """One to three sessions of two instruments each; sometimes one of them takes what is not planned."""
    names = [session_name(f"S{stripe}-{letter}") for letter in "ABC"[: rng.choice((1, 2, 2, 3))]]
    listed = instruments_of(stripe)[: 2 * len(names)]
    return SessionPlan({each: names[i % len(names)] for i, each in enumerate(listed)}, rng.choice((None, *names)))


def draw_channel_plan(rng: Random, stripe: int, number: int) -> ChannelPlan:
    """A plan for the sequence, of one to three sessions."""
    sessions = rng.randint(1, 3)
    pairs = [(each, rng.randrange(sessions)) for each in instruments_of(stripe)]
    return make_plan(number, pairs, [rng.randrange(3) for _ in range(sessions)], default=rng.randrange(sessions))


def one_session(stripe: int) -> SessionPlan:
    """The plan before the first one in the sequence."""
    return SessionPlan({}, session_name(f"S{stripe}"))


def instruments_of(stripe: int) -> list[int]:
    return list(range(10 * stripe + 1, 10 * stripe + 7))


def draw_instrument(rng: Random, stripe: int) -> int:
    """Mostly one of the stripe's; sometimes none at all, which goes to every session, or one that nobody planned."""
    draw = rng.random()
    if draw < 0.03:
        return 0
    return UNPLANNED if draw < 0.06 else rng.choice(instruments_of(stripe))
