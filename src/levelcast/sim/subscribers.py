"""Simulate subscribers and check their invariants (listed in `levelcast.sim.edges`).

A `SimSubscriber` drives a `SessionReader` with a given set of sessions. A `Follows` drives a `PlanFollower`, which
determines its sessions from the plans in the sequence. Both may merge the records that they read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from levelcast.edge.subscriber.delivery import Ask, Complete, Deliver, Grade, Lost
from levelcast.edge.subscriber.merge import Merger
from levelcast.edge.subscriber.plan_follower import Closed, Happening, PlanFollower
from levelcast.edge.subscriber.plan_follower import Followed as FollowedSessions
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.edge.subscriber.together import TogetherQueue
from levelcast.records import RTYPE_TRADE, each_record, split
from levelcast.sim.check.edge import Key, Truth, instrument_of, name_of, stamped, symbol_of
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import Alarm
from levelcast.units import PACKET_HEADERS
from levelcast.wire import mold
from levelcast.wire.snapshot import Snapshot
from levelcast.wire.watermark import decode_watermark

if TYPE_CHECKING:
    from levelcast.sim.edges import Crowd, SimEdge

TOGETHER_SLACK_NS = 1_000_000
RECORD_HEADERS = PACKET_HEADERS + mold.HEADER_SIZE + mold.LENGTH_SIZE
"""Bytes on the line beside the record, in a packet with one record."""


@dataclass(slots=True)
class SessionProgress:
    """Progress of a subscriber in one session."""

    truth: Truth
    first: int
    """First number that it reads."""
    next: int
    complete_ns: int = 0
    """Time of the last watermark; `last_ns` is the timestamp of the last record."""
    last_ns: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    newest: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of the last delivered price per (floor, instrument): *latest only*."""
    seen: set[int] = field(default_factory=set)
    """Delivered numbers: *latest only*, which may deliver them in another order."""


class SimSubscriber:
    """One subscriber with two lines per stripe, and the checks of its invariants."""

    def __init__(self, crowd: Crowd, node: int, grade: Grade, lines: Sequence[SimEdge]) -> None:
        self.id = node
        self.grade = grade
        self.lines = list(lines)
        self.sessions: dict[bytes, SessionProgress] = {}
        self.loss = 0.0
        """Loss ratio of its own lines, in addition to that of the network."""
        self.expects: set[tuple[int, int]] | None = None
        """Floors and instruments of which it needs the latest price; None for all: *latest only*."""
        self.snapshots: list[Snapshot] = []
        self._crowd = crowd
        self._world = crowd.world
        self._reader: SessionReader | PlanFollower | None = None
        self._heard: dict[bytes, SimEdge] = {}
        self._alarm = Alarm(crowd.world, self._wake)
        self._together: TogetherQueue | None = None
        self._clock_ns = 0
        self._came: dict[tuple[bytes, int], int] = {}
        """The time at which each record was read, before its time."""
        self._release_alarm = Alarm(crowd.world, self._release)
        self._merger: Merger | None = None
        self._handed: list[Key] = []
        self.delivered = 0
        for line in lines:
            line.customers.append(self)

    @property
    def name(self) -> str:
        return f"{self.grade.value} subscriber {self.id}"

    def join(self, first: dict[bytes, tuple[Truth, int]], *, merged: bool) -> None:
        """Begin to read each session at a number."""
        self.sessions = {session: SessionProgress(truth, number, number) for session, (truth, number) in first.items()}
        if self._together is not None:
            for session, (truth, _) in first.items():
                self._together.follow([session], truth.stripe)
        config = self._crowd.configs[self.grade]
        self._reader = reader = SessionReader({session: number for session, (_, number) in first.items()}, config)
        for session in first if self.expects is not None else ():
            reader.expect(session, self.expects or ())
        if merged:
            self._merger = Merger()
            for stripe, names in self._by_stripe().items():
                self._merger.follow(names, stripe)

    # -- together -----------------------------------------------------------------------------------------

    @property
    def bound_ns(self) -> int:
        return self._together.bound_ns if self._together is not None else 0

    @property
    def local_ns(self) -> int:
        return self._world.now + self._clock_ns

    def deliver_together(self, bound_ns: int, clock_ns: int) -> None:
        """Deliver at the release time plus a bound, by a clock with this error."""
        self._together = TogetherQueue(bound_ns, in_order=self.grade is not Grade.LATEST_ONLY)
        self._clock_ns = clock_ns

    def _release(self) -> None:
        if self._together is not None and self._reader is not None:
            self._carry_out(self._together.due(self.local_ns), self._reader)

    def _check_together(self, truth: Truth, records: list[bytes]) -> None:
        """Check that no record is delivered before its release time and the bound, and that none waits after them."""
        together = self._together
        if together is None:
            return
        for record in records:
            if record[1] != RTYPE_TRADE:
                continue
            timestamp_ns, _ = stamped(record)
            released_ns = truth.release_ns(timestamp_ns)
            if self.grade is not Grade.GUARANTEED:  # it may have lost a timing record
                released_ns = timestamp_ns + truth.shortest_hold_ns
            early_ns = released_ns + together.bound_ns - self.local_ns
            if early_ns > 0:
                raise InvariantBroken("together", f"{self.name} delivered a record {early_ns / 1e6:.3f} ms early")
        if together.next_ns is not None and together.next_ns < self.local_ns - TOGETHER_SLACK_NS:
            raise InvariantBroken("together", f"{self.name} kept records after their time")

    def _by_stripe(self) -> dict[int, list[bytes]]:
        names: dict[int, list[bytes]] = {}
        for session, followed in self.sessions.items():
            names.setdefault(followed.truth.stripe, []).append(session)
        return names

    def hears(self, group: int, session: bytes) -> bool:
        """Return True if it reads this session, or is in this group."""
        return session in self.sessions

    @property
    def requests(self) -> int:
        return self._reader.counts.requests if self._reader is not None else 0

    @property
    def lost(self) -> int:
        return self._reader.counts.lost if self._reader is not None else 0

    @property
    def merged(self) -> int:
        """Number of records delivered in the merged order of all its sessions."""
        return len(self._handed)

    # -- packets ------------------------------------------------------------------------------------------

    def receive(self, line: SimEdge, datagrams: Sequence[bytes]) -> None:
        if self._reader is not None:
            self._heard |= dict.fromkeys((datagram[: mold.SESSION_SIZE] for datagram in datagrams), line)
            self._perform(self._reader.receive(list(datagrams), self._world.now), self._reader)

    def _wake(self) -> None:
        if self._reader is not None:
            self._perform(self._reader.wake(self._world.now), self._reader)

    def _perform(self, effects: Iterable[Happening], reader: SessionReader | PlanFollower) -> None:
        if self._together is not None:
            effects = self._together.take(effects, self.local_ns)
        self._carry_out(effects, reader)

    def _carry_out(self, effects: Iterable[Happening], reader: SessionReader | PlanFollower) -> None:
        for effect in effects:
            self._do(effect)
        if reader.next_ns is not None:
            self._alarm.set(reader.next_ns)
        if self._together is not None and self._together.next_ns is not None:
            self._release_alarm.set(self._together.next_ns - self._clock_ns)

    def _do(self, effect: Happening) -> None:
        match effect:
            case Deliver():
                self._delivered(effect)
            case Complete():
                self._complete(effect)
            case Ask():
                self._ask(effect)
            case Lost():
                self._lost(effect)

    def _ask(self, ask: Ask) -> None:
        """Send a request: to the line that was received last first, then to the others of the stripe in turn."""
        truth = self._progress(ask.session).truth
        lines = [line for line in self.lines if line.truth is truth]
        heard = self._heard.get(ask.session)
        begin = lines.index(heard) if heard in lines else 0
        self._crowd.request(self, lines[(begin + ask.attempt) % len(lines)], ask.datagram)

    # -- invariants ---------------------------------------------------------------------------------------

    def _delivered(self, deliver: Deliver) -> None:
        session, number = deliver.session, deliver.sequence
        records = list(each_record(deliver.payload))
        self.delivered += len(records)
        followed = self._progress(session)
        self._check_together(followed.truth, records)
        if records != followed.truth.streams[session][number - 1 : number - 1 + deliver.records]:
            raise InvariantBroken("true records", f"{self.name} has wrong records at {name_of(session)}/{number}")
        if self.grade is Grade.LATEST_ONLY:
            self._check_newest(followed, number, records)
            return
        if number != followed.next:
            what = f"{self.name} received {name_of(session)}/{number}, expected {followed.next}"
            raise InvariantBroken("in order", what)
        followed.next = number + deliver.records
        for record in records:
            if record[1] == RTYPE_TRADE:
                self._take(followed, record)
            else:
                self._mark(followed, record)
        for batch in split(deliver.payload) if self._merger is not None else ():
            if self._merger is not None and batch.kind.rtype == RTYPE_TRADE:
                self._merger.take(session, batch.kind, batch.records)

    def _progress(self, session: bytes) -> SessionProgress:
        return self.sessions[session]

    def _take(self, followed: SessionProgress, record: bytes) -> None:
        timestamp_ns, _ = stamped(record)
        if timestamp_ns <= followed.complete_ns:
            raise InvariantBroken("watermark", f"{self.name}: a record of {timestamp_ns} after {followed.complete_ns}")
        followed.last_ns = timestamp_ns

    def _mark(self, followed: SessionProgress, record: bytes) -> None:
        watermark = decode_watermark(record)
        if watermark is None:  # a timing record, which `Truth` checks
            return
        if watermark.complete_ns <= followed.complete_ns:
            raise InvariantBroken("watermark", f"{self.name}: {watermark} after {followed.complete_ns}")
        followed.complete_ns = watermark.complete_ns

    def _complete(self, complete: Complete) -> None:
        """Deliver records that are complete in all sessions, in one order (rule 15)."""
        if self._merger is None:
            return
        self._merger.complete(complete.session, complete.watermark)
        self._hand_over(self._merger)

    def _hand_over(self, merger: Merger) -> None:
        for merged in merger.ready():
            for timestamp_ns, sequence in merged.records[["ts_recv", "sequence"]].tolist():
                key = Key(timestamp_ns, merged.stripe, sequence)
                if self._handed and key <= self._handed[-1]:
                    raise InvariantBroken("merged order", f"{self.name} received {key} after {self._handed[-1]}")
                if timestamp_ns > self._known_ns():
                    raise InvariantBroken("merged order", f"{self.name} received {key}, which may not be the next")
                self._handed.append(key)

    def _known_ns(self) -> int:
        """Return the time up to which every session is complete, by watermarks and by later records."""
        return min(max(each.complete_ns, each.last_ns - 1) for each in self.sessions.values())

    def _lost(self, lost: Lost) -> None:
        if self.grade is Grade.GUARANTEED:
            raise InvariantBroken("in order", f"{self.name} lost {name_of(lost.session)}/{lost.sequence}")
        followed = self.sessions[lost.session]
        followed.lost.append((lost.sequence, lost.sequence + lost.messages))
        if self.grade is Grade.BEST_EFFORT:
            if lost.sequence != followed.next:
                raise InvariantBroken("in order", f"{self.name} lost {lost.sequence}, expected {followed.next}")
            followed.next = lost.sequence + lost.messages

    def _check_newest(self, followed: SessionProgress, number: int, records: list[bytes]) -> None:
        for at, record in enumerate(records, number):
            if at in followed.seen:
                raise InvariantBroken("in order", f"{self.name} received number {at} twice")
            followed.seen.add(at)
            if record[1] == RTYPE_TRADE:
                symbol = symbol_of(record)
                if followed.newest.get(symbol, 0) > at:
                    what = f"{self.name} received price {at} of {symbol} after {followed.newest[symbol]}"
                    raise InvariantBroken("never older", what)
                followed.newest[symbol] = at

    # -- the end ------------------------------------------------------------------------------------------

    def lacking_bytes(self, truth: Truth, targets: dict[bytes, int]) -> int:
        """Return the size of what it lacks up to `targets` if each record is retransmitted in a packet of its own."""
        return sum(
            len(record) + RECORD_HEADERS
            for session, followed in self.sessions.items()
            if followed.truth is truth
            for number, record in enumerate(truth.streams.get(session, [])[: targets.get(session, 1) - 1], 1)
            if number >= followed.next and number not in followed.seen
        )

    def lacks(self, targets: dict[bytes, int]) -> str | None:
        """Return a message about a record up to `targets` that it has not received, or None."""
        for session, followed in self.sessions.items():
            upto = targets[session]
            if self.grade is not Grade.LATEST_ONLY:
                if followed.next < upto:
                    return f"{self.name} is at {name_of(session)}/{followed.next} of {upto}"
                continue
            for symbol, last in followed.truth.last_prices(session, upto).items():
                if last < followed.first or any(first <= last < end for first, end in followed.lost):
                    continue
                if self.expects is not None and symbol not in self.expects:
                    continue
                if followed.newest.get(symbol, 0) < last:
                    return f"{self.name} lacks the last price of {symbol}, {name_of(session)}/{last}"
        # A stripe has no watermark before its first frame (`levelcast.edge.server.feed`): in a real network the first
        # frame is the directory's.
        begun = all(followed.truth.frames() for followed in self.sessions.values())
        return self._unmerged() if begun else None

    def _unmerged(self) -> str | None:
        if self._merger is None or self._merger.complete_ns >= self._crowd.last_ns:
            return None
        return f"{self.name} has not merged everything up to {self._crowd.last_ns}"

    def check_end(self) -> None:
        """Check that merged records are the tape of its sessions, and that snapshots match the tape."""
        if self._merger is not None:
            self._check_merged()
        for snapshot in self.snapshots:
            self._check_snapshot(snapshot)

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        """Check that a snapshot has the last trades below its sequence, and that each session continues from there."""
        truth = next(each for each in self._crowd.truths if each.stripe == snapshot.stripe)
        if sorted(each_record(snapshot.records)) != truth.last_records(snapshot.next_global):
            raise InvariantBroken("snapshot", f"{self.name} received wrong trades up to {snapshot.next_global}")
        for session, followed in self.sessions.items():
            if followed.truth is not truth:
                continue
            for number, record in enumerate(truth.streams[session], 1):
                told = record[1] == RTYPE_TRADE and stamped(record)[1] < snapshot.next_global
                if record[1] == RTYPE_TRADE and told != (number < followed.first):
                    what = f"{self.name} began {name_of(session)} at {followed.first} with {snapshot.next_global}"
                    raise InvariantBroken("snapshot", what)

    def _check_merged(self) -> None:
        """Check that merged records have no gap; their order is checked already. A record that is in every session
        is merged from the first session only."""
        wanted = set()
        leads = {min(names) for names in self._by_stripe().values()}
        for session, followed in self.sessions.items():
            lost = {at for first, end in followed.lost for at in range(first, end)}
            for number, record in enumerate(followed.truth.streams[session][: followed.next - 1], 1):
                if number < followed.first or number in lost or record[1] != RTYPE_TRADE:
                    continue
                if instrument_of(record) or session in leads:
                    timestamp_ns, sequence = stamped(record)
                    wanted.add(Key(timestamp_ns, followed.truth.stripe, sequence))
        if self._handed != sorted(wanted)[: len(self._handed)]:
            raise InvariantBroken("merged order", f"{self.name} did not receive the tape of its sessions in order")


class Follows(SimSubscriber):
    """Subscriber that follows the plans: guaranteed, from the beginning, some instruments or all (rule 15)."""

    def __init__(self, crowd: Crowd, node: int, lines: Sequence[SimEdge], wanted: set[int] | None) -> None:
        super().__init__(crowd, node, Grade.GUARANTEED, lines)
        self._truth = lines[0].truth
        self._wanted = wanted
        first = dict.fromkeys(self._truth.plan.sessions, 1)
        stripes = dict.fromkeys(first, self._truth.stripe)
        self._reader = self._follower = PlanFollower(
            wanted, stripes, start=first, config=crowd.configs[Grade.GUARANTEED]
        )
        self._merger: Merger = Merger()
        self._got: Counter[int] = Counter()
        """Number of received trades per instrument."""
        self._last: dict[int, int] = {}
        """Global sequence of the last trade per instrument."""
        self._due: Counter[int] = Counter()
        self.sessions = {session: SessionProgress(self._truth, 1, 1) for session in first}

    def hears(self, group: int, session: bytes) -> bool:
        return group in self._follower.groups

    def _carry_out(self, effects: Iterable[Happening], reader: SessionReader | PlanFollower) -> None:
        super()._carry_out(effects, reader)
        self._hand_over(self._merger)

    def _do(self, effect: Happening) -> None:
        match effect:
            case Complete():
                self._merger.complete(effect.session, effect.watermark)
            case FollowedSessions():
                self._merger.follow(effect.sessions, effect.stripe, effect.complete_ns)
            case Closed():
                self._merger.end(effect.session)
            case _:
                super()._do(effect)

    def _progress(self, session: bytes) -> SessionProgress:
        """Return the progress in a session; a plan may add sessions at any time."""
        return self.sessions.setdefault(session, SessionProgress(self._truth, 1, 1))

    def _take(self, followed: SessionProgress, record: bytes) -> None:
        if self._wants(instrument := instrument_of(record)):
            _, sequence = stamped(record)
            if sequence <= self._last.get(instrument, 0):
                what = f"{self.name} received {sequence} of {instrument} after {self._last[instrument]}"
                raise InvariantBroken("in order", what)
            self._last[instrument] = sequence
            self._got[instrument] += 1

    def _mark(self, followed: SessionProgress, record: bytes) -> None:
        """Ignore the record: the follower handles watermarks and ends of sessions."""

    def _wants(self, instrument: int) -> bool:
        """Return True for a subscribed instrument; records without an instrument are in every session and ignored."""
        return instrument != 0 and (self._wanted is None or instrument in self._wanted)

    def _known_ns(self) -> int:
        """Return the merger's time: only the follower knows the sessions."""
        return self._merger.complete_ns

    def settle(self) -> None:
        """Note the trades on the tape now as the ones it must receive, also from sessions of a later plan."""
        for session in self._truth.streams:
            self._progress(session)
        self._due = Counter(filter(self._wants, map(instrument_of, self._truth.tape())))

    def lacks(self, targets: dict[bytes, int]) -> str | None:
        for instrument, due in self._due.items():
            if self._got[instrument] < due:
                return f"{self.name} has {self._got[instrument]} of {due} trades of {instrument}"
        return self._unmerged()

    def check_end(self) -> None:
        handed, due = len(self._handed), self._due.total()
        if self._wanted is None and handed < due:
            raise InvariantBroken("merged order", f"{self.name} received {handed} of {due} trades")
