"""Follow channel plans as a subscriber: select sessions and groups, and switch from one plan to the next.

A `PlanFollower` uses a `levelcast.edge.subscriber.session_reader.SessionReader` and has the same interface. It follows,
for each stripe, the sessions that carry the requested instruments, or all sessions.

1. The first packet of a stripe determines the active plan: by the number in its session's name, or number 0 for the
   one session of a stripe without a plan. An end of session does not: ends of old sessions are repeated for a while.
2. The follower requests the plan from its plan session. Then it follows the plan's sessions and joins their groups. It
   leaves group 0 when every stripe is known, or with a line after `SEEK_NS`.
3. The parts of the next plan are sent to all groups, and a READY mark in each session has their number. So the plan is
   known, and its groups are joined, before it takes effect.
4. A LAST mark is the end of its session. After the first one, the sessions of the next plan are followed from their
   sequence 1. If that plan is not known yet, it is read now, and messages sent meanwhile are requested.
5. Records of a plan are delivered when all sessions of the previous plan have ended, so an instrument's records keep
   their order when it changes its session. No record is lost or duplicated: each is in one session of one plan, and
   each of these sessions is read from its beginning to its end.
6. A guaranteed subscriber requests the next messages of a session from which it received nothing for `SILENT_NS`: the
   end of the session may have been lost. A subscriber that missed several plans reads them all in sequence.

Sessions that the caller specifies are followed to their ends, and no others after them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from levelcast.edge.plan_parts import Collector
from levelcast.edge.subscriber.delivery import (
    Ask,
    Complete,
    Deliver,
    Effect,
    Ended,
    Grade,
    Lost,
    SubscriberConfig,
    SubscriberCounts,
)
from levelcast.edge.subscriber.line_room import LineRoom
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.records import SYSTEM
from levelcast.wire import mold
from levelcast.wire.channel_plan import (
    ChannelPlan,
    Kind,
    PlanRecord,
    is_plan_session,
    parse_session,
    plan_records,
    plan_session,
    session_of,
)
from levelcast.wire.header import Malformed, Reason
from levelcast.wire.mold import Block
from levelcast.wire.watermark import Watermark

SILENT_NS = 3_000_000_000
LOOK_NS = 1_000_000_000
"""Interval of the check for idle sessions."""
SEEK_NS = 3_000_000_000
"""Several intervals of the heartbeats by which a plan is found."""
TENTATIVE_NS = 2_000_000_000
"""If only an end of session is received for this long, it is the end of the day."""
BASE = 0
"""The group that every plan session is in."""


class JoinGroup(NamedTuple):
    """Join the group with this index in the block of groups."""

    group: int


class Leave(NamedTuple):
    group: int


class Followed(NamedTuple):
    """Start to read these sessions of one plan and stripe; they contain nothing up to `complete_ns`."""

    sessions: tuple[bytes, ...]
    stripe: int
    complete_ns: int


class Closed(NamedTuple):
    """A session has no further records."""

    session: bytes


class Replaced(NamedTuple):
    """Everything before plan `number` of a stripe was delivered, and this plan is now active."""

    stripe: int
    number: int


class Unfit(NamedTuple):
    """The line has no room for the groups of these instruments in plan `number` of a stripe: they are not received.

    It replaces the previous one of the stripe; without instruments, all are received again.
    """

    stripe: int
    number: int
    instruments: tuple[int, ...]


Happening = Effect | JoinGroup | Leave | Followed | Closed | Replaced | Unfit


@dataclass(slots=True, eq=False)
class _Era:
    """One plan of one stripe, from the view of this subscriber."""

    number: int
    digest: bytes = b""
    """Digest of the plan; empty if unknown."""
    complete_ns: int = 0
    begins: int | None = None
    """First sequence to read of each session: 1 after another plan, None for the first packet received."""
    plan: ChannelPlan | None = None
    is_followed: bool = False
    """The sessions to read are chosen."""
    sessions: set[bytes] = field(default_factory=set)
    open: set[bytes] = field(default_factory=set)
    held: list[Happening] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Track:
    """One stripe: the plan that is being delivered, and the plans after it."""

    stripe: int
    eras: list[_Era] = field(default_factory=list)
    ready: tuple[int, bytes] | None = None
    """The announced plan, by number and digest."""
    known: dict[tuple[int, bytes], ChannelPlan] = field(default_factory=dict)
    ahead: int = 0
    """The highest plan number in a session's name."""
    tentative: tuple[bytes, int] | None = None


@dataclass(slots=True, eq=False)
class _Reader:
    """Reads a plan session."""

    track: _Track
    number: int
    collector: Collector = field(default_factory=Collector)


class PlanFollower:
    """Read the requested records of every stripe, under any plan.

       argument   | meaning |
          |------------|------|
          | `wanted`   | instrument ids; None for all |
       `stripes`  | the sessions of stripes without a plan, with their stripe |
          | `sessions` | the caller's own choice of sessions, instead of `wanted` |
          | `start`    | sequences from which sessions are read; others from the first packet |
    `prices`   | per stripe, the floors and instruments of the needed trades: `SessionReader.expect` |
    `room`     | the groups that the subscriber's line carries; None: all |
    """

    def __init__(
        self,
        wanted: Collection[int] | None = None,
        stripes: Mapping[bytes, int] | None = None,
        sessions: Iterable[bytes] | None = None,
        start: Mapping[bytes, int] | None = None,
        config: SubscriberConfig | None = None,
        prices: Mapping[int, Collection[tuple[int, int]]] | None = None,
        room: LineRoom | None = None,
    ) -> None:
        self._core = SessionReader({}, config)
        self._room = room
        self._unfit: dict[int, tuple[int, ...]] = {}
        """Requested instruments that are not received, by stripe."""
        self._prices = dict(prices or {})
        self._plan_core = SessionReader({}, replace(self._core.config, grade=Grade.GUARANTEED))
        """Reads plan sessions, with any grade as GUARANTEED: a plan is useless in parts."""
        self._wanted = None if wanted is None else set(wanted) - {0}
        self._unplanned = dict(stripes or {})
        self._chosen = None if sessions is None else set(sessions)
        self._start = dict(start or {})
        self._tracks: dict[int, _Track] = {}
        self._readers: dict[bytes, _Reader] = {}
        self._era_of: dict[bytes, tuple[_Track, _Era]] = {}
        self._met: set[bytes] = set()
        self._heard_ns: dict[bytes, int] = {}
        self._probed: set[bytes] = set()
        """Idle sessions from which the next messages were requested."""
        self._joined = {BASE}
        self._look_ns = 0
        self._alone = -1
        self._begun = False
        self._seek_until_ns: int | None = None
        """With a line, the time until which group 0 is joined to find stripes; it has packets of each."""

    # -- the interface of a subscriber --------------------------------------------------------------------

    @property
    def counts(self) -> SubscriberCounts:
        return self._core.counts

    @property
    def config(self) -> SubscriberConfig:
        return self._core.config

    @property
    def next_ns(self) -> int | None:
        times = [each for each in (self._core.next_ns, self._plan_core.next_ns) if each is not None]
        if self._heard_ns or any(track.tentative for track in self._tracks.values()):
            times.append(self._look_ns)
        return min(times, default=None)

    @property
    def groups(self) -> frozenset[int]:
        """Indices of the joined groups in the block of groups; initially the first."""
        return frozenset(self._joined)

    @property
    def plans(self) -> dict[int, int]:
        """Number of the plan that is being delivered, by stripe."""
        return {track.stripe: track.eras[0].number for track in self._tracks.values() if track.eras}

    @property
    def channel_plans(self) -> dict[int, ChannelPlan | None]:
        """These plans themselves, by stripe, if known; None: one session for all instruments."""
        tracks = [track for track in self._tracks.values() if track.eras and track.eras[0].is_followed]
        return {track.stripe: track.eras[0].plan for track in tracks}

    @property
    def positions(self) -> dict[bytes, int]:
        """The next sequence of each session that has not ended; another follower continues from them as `start`.

        If a plan was replaced and the next one is not known yet, its plan session represents all its sessions.
        """
        current = [(track, track.eras[0]) for track in self._tracks.values() if track.eras]
        found = {name: self._core.position(name) for _, era in current for name in era.open}
        known = {name: following for name, following in found.items() if following is not None}
        unread = [(track, era) for track, era in current if not era.is_followed and era.begins is not None]
        return known | {plan_session(era.number, track.stripe): 1 for track, era in unread}

    @property
    def over(self) -> bool:
        """True if every followed session has ended and no plan follows."""
        eras = [era for track in self._tracks.values() for era in track.eras]
        return bool(eras) and all(era.is_followed and not era.open for era in eras)

    def position(self, session: bytes) -> int | None:
        return self._core.position(session)

    def wants(self, session: bytes) -> bool:
        """Return whether packets of a session are processed; those of a session not seen before are."""
        return session in self._heard_ns or session in self._readers or session not in self._met

    def receive(self, arrived: list[bytes | Block], now: int) -> list[Happening]:
        """Process packets of any session; see `SessionReader.receive`."""
        effects: list[Happening] = [] if self._begun else self._begin(now)
        of_plans: list[bytes | Block] = []
        noise: list[bytes | Block] = []
        answered: set[bytes] = set()
        for item in arrived:
            name = item.session if type(item) is Block else item[: mold.SESSION_SIZE]
            assert isinstance(name, bytes)
            if name in self._heard_ns:
                self._heard_ns[name] = now
                if name in self._probed:
                    answered.add(name)
                continue
            if name not in self._met and not self._meet(name, item, now, effects):
                noise.append(item)
            if name in self._readers:
                of_plans.append(item)
        if of_plans:
            self._digest(self._plan_core.receive(of_plans, now), now, effects)
        if noise:
            self.counts.malformed[Reason.BAD_FIELD] += len(noise)
            arrived = [item for item in arrived if item not in noise]
        self._digest(self._core.receive(arrived, now), now, effects)
        for name in answered & self._probed:
            self._probe_on(name, effects)
        return effects

    def _probe_on(self, name: bytes, effects: list[Happening]) -> None:
        """Request the rest of an idle session that has answered, if its plan was replaced: no edge sends it unasked."""
        track, era = self._era_of[name]
        if era.number < track.ahead:
            effects += self._core.probe(name)
        else:
            self._probed.discard(name)

    def wake(self, now: int) -> list[Happening]:
        effects: list[Happening] = [] if self._begun else self._begin(now)
        self._digest(self._plan_core.wake(now), now, effects)
        self._digest(self._core.wake(now), now, effects)
        if self._look_ns <= now:
            self._look(now, effects)
        return effects

    def skip(self, session: bytes, now: int, upto: int | None = None) -> list[Happening]:
        effects: list[Happening] = []
        if session in self._heard_ns:
            self._digest(self._core.skip(session, now, upto), now, effects)
        return effects

    def gone(self, session: bytes, left: int) -> None:
        self._core.gone(session, left)

    # -- beginning ----------------------------------------------------------------------------------------

    def _begin(self, now: int) -> list[Happening]:
        """Start at the caller's positions, or with the sessions that it specifies."""
        self._begun = True
        if self._room is not None:
            self._seek_until_ns = now + SEEK_NS
        effects: list[Happening] = []
        for name in sorted({*self._start, *(self._chosen or ())}, key=self._place):
            stripe, number = self._place(name)
            track = self._track(stripe)
            if not track.eras:
                begins = 1 if is_plan_session(name) else None
                self._enter_era(track, _Era(number, begins=begins), now, effects)
        return effects

    def _place(self, name: bytes) -> tuple[int, int]:
        """Return the stripe and plan number of a session; a session without a stripe becomes a separate stripe."""
        place = parse_session(name)
        if place is not None:
            return place.stripe, place.number
        if name not in self._unplanned:
            self._unplanned[name] = self._alone
            self._alone -= 1
        return self._unplanned[name], 0

    def _track(self, stripe: int) -> _Track:
        return self._tracks.setdefault(stripe, _Track(stripe))

    def _meet(self, name: bytes, item: bytes | Block, now: int, effects: list[Happening]) -> bool:
        """Process a packet of a new session that is not followed; return False if its name is not a session name."""
        if len(self._met) >= self.config.max_sessions or (type(item) is bytes and len(item) < mold.HEADER_SIZE):
            return True
        if not mold.is_session(name):
            return False
        place = parse_session(name)
        if self._chosen is not None and place is None and name not in self._chosen:
            self._met.add(name)
            return True
        stripe, number = self._place(name)
        track = self._track(stripe)
        count = 1 if type(item) is Block else int.from_bytes(item[18:20], "big")
        if count == mold.END_OF_SESSION:
            if not track.eras and track.tentative is None:
                track.tentative = (name, now)
                self._look_ns = min(self._look_ns, now + TENTATIVE_NS) or now + TENTATIVE_NS
            return True
        if place is not None and place.session is None and count:
            return True  # parts of a plan that may not be active yet
        self._met.add(name)
        track.ahead = max(track.ahead, number)
        if not track.eras:
            track.tentative = None
            self._enter_era(track, _Era(number), now, effects)
        elif self._chosen is None and number > (last := track.eras[-1]).number and last.is_followed and not last.open:
            # Best effort: the mark was lost, and every session has ended.
            self._enter_era(track, _Era(number, begins=1), now, effects)
            self._hand_over(track, effects)
        return True

    # -- plans --------------------------------------------------------------------------------------------

    def _enter_era(self, track: _Track, era: _Era, now: int, effects: list[Happening]) -> None:
        track.eras.append(era)
        if era.number == 0:
            names = [name for name, stripe in self._unplanned.items() if stripe == track.stripe]
            self._follow(track, era, names, now, effects)
            return
        era.plan = track.known.get((era.number, era.digest))
        if era.plan is not None:
            self._follow(track, era, self._sessions(track, era.plan), now, effects)
            return
        name = plan_session(era.number, track.stripe)
        effects.append(Followed((name,), track.stripe, era.complete_ns))  # a merger waits for the plan's sessions
        self._read(track, era.number, 1, now, effects)

    def _sessions(self, track: _Track, plan: ChannelPlan) -> list[bytes]:
        """Return the names of the sessions to follow."""
        if self._wanted is None:
            indices = plan.used
        else:
            indices = plan.sessions_of(self._wanted) or [plan.default]
        names = [session_of(plan.number, track.stripe, index) for index in indices]
        if self._chosen is not None:
            everything = [session_of(plan.number, track.stripe, index) for index in plan.used]
            return [name for name in everything if name in self._chosen]
        if len(track.eras) == 1:
            names = [name for name in names if name in self._start] or names
        if self._room is None:
            return names
        groups = {name: self._groups_of(plan, {name}) for name in names}
        fitting = self._room.fitting(plan.number, set().union(*groups.values()))
        return [name for name in names if groups[name] <= fitting]

    def _report_unfit(self, track: _Track, era: _Era, effects: list[Happening]) -> None:
        """Report the requested instruments that the line has no room for, if they are others than before."""
        plan, room = era.plan, self._room
        if room is None or self._chosen is not None:
            return
        unfit: tuple[int, ...] = ()
        if plan is not None:
            places = zip(plan.instruments.tolist(), plan.groups[plan.sessions].tolist(), strict=True)
            missing = (instrument for instrument, group in places if not room.carries(plan.number, group))
            unfit = tuple(each for each in missing if self._wanted is None or each in self._wanted)
        if unfit != self._unfit.get(track.stripe, ()):
            self._unfit[track.stripe] = unfit
            effects.append(Unfit(track.stripe, era.number, unfit))

    def _follow(self, track: _Track, era: _Era, names: list[bytes], now: int, effects: list[Happening]) -> None:
        era.is_followed = True
        era.sessions, era.open = set(names), set(names)
        self._report_unfit(track, era, effects)
        effects.append(Followed(tuple(sorted(names)), track.stripe, era.complete_ns))
        if era.number:
            effects.append(Closed(plan_session(era.number, track.stripe)))
        self._regroup(effects)
        if self._chosen is None and track.stripe >= 0:
            self._listen(track, era.number + 1)
        self._look_ns = self._look_ns or now + LOOK_NS
        for name in names:
            self._era_of[name] = (track, era)
            self._heard_ns[name] = now if era.number >= track.ahead else now - SILENT_NS
            self._core.follow(name, self._start.get(name, era.begins))
            if prices := self._prices_of(track, era, name):
                self._core.expect(name, prices)

    def _prices_of(self, track: _Track, era: _Era, name: bytes) -> list[tuple[int, int]]:
        place, prices = parse_session(name), self._prices.get(track.stripe, ())
        if era.plan is None or place is None:
            return list(prices)
        return [pair for pair in prices if era.plan.sessions_of([pair[1]]) == [place.session]]

    def _listen(self, track: _Track, number: int) -> bytes:
        """Read the parts of a plan as they arrive."""
        name = plan_session(number, track.stripe)
        if name not in self._readers:
            self._readers[name] = _Reader(track, number)
            self._plan_core.follow(name, 1)
        return name

    def _read(self, track: _Track, number: int, parts: int, now: int, effects: list[Happening]) -> None:
        """Read a plan that has at least `parts` parts."""
        name = self._listen(track, number)
        self._digest(self._plan_core.announce(name, parts + 1, now), now, effects)

    def _want(
        self, track: _Track, number: int, digest: bytes, parts: int, now: int, effects: list[Happening]
    ) -> None:  # fmt: skip
        """Read this plan, and not another one with the same number."""
        if (number, digest) in track.known:
            self._regroup(effects)
            return
        reader = self._readers.get(name := plan_session(number, track.stripe))
        if reader is not None and reader.collector.found and reader.collector.digest != digest:
            self._stop_reading(name)
        self._read(track, number, parts, now, effects)

    def _part(self, reader: _Reader, payload: bytes, now: int, effects: list[Happening]) -> None:
        for record in plan_records(payload):
            if record.kind is not Kind.PART or not reader.collector.add(record):
                continue
            if record.part == 0 and record.parts > 1:
                self._read(reader.track, reader.number, record.parts, now, effects)
            if reader.collector.complete:
                self._have_read(reader, now, effects)
                return

    def _have_read(self, reader: _Reader, now: int, effects: list[Happening]) -> None:
        track, name = reader.track, plan_session(reader.number, reader.track.stripe)
        self._stop_reading(name)
        try:
            plan = reader.collector.plan()
        except Malformed:
            self._read(track, reader.number, 1, now, effects)
            return
        track.known[plan.number, plan.digest] = plan
        for era in track.eras:
            if not era.is_followed and era.number == plan.number:
                if era.digest in (b"", plan.digest):
                    era.plan = plan
                    self._follow(track, era, self._sessions(track, plan), now, effects)
                else:
                    self._read(track, era.number, 1, now, effects)
        self._regroup(effects)

    def _stop_reading(self, name: bytes) -> None:
        self._readers.pop(name, None)
        self._plan_core.unfollow(name)

    def _regroup(self, effects: list[Happening]) -> None:
        """Join and leave groups as needed."""
        wanted: set[int] = set()
        for track in self._tracks.values():
            for era in track.eras:
                wanted |= self._groups_of(era.plan, era.open) if era.plan is not None else {BASE}
            ready = track.ready if self._chosen is None else None
            if ready in track.known and (not track.eras or ready[0] > track.eras[-1].number):
                plan = track.known[ready]
                wanted |= self._groups_of(plan, set(self._sessions(track, plan)))
        if not wanted or self._seeks():
            wanted.add(BASE)
        effects += [JoinGroup(group) for group in sorted(wanted - self._joined)]
        effects += [Leave(group) for group in sorted(self._joined - wanted)]
        self._joined = wanted

    def _seeks(self) -> bool:
        """Return whether a stripe is unknown: its packets may be in no group of the other stripes' plans."""
        if self._chosen is not None or self._seek_until_ns == 0:
            return False
        found = {track.stripe for track in self._tracks.values() if track.eras}
        return not found.issuperset(self._unplanned.values())

    def _groups_of(self, plan: ChannelPlan, names: set[bytes]) -> set[int]:
        places = (parse_session(name) for name in names)
        return {int(plan.groups[each.session]) for each in places if each is not None and each.session is not None}

    # -- incoming effects ---------------------------------------------------------------------------------

    def _digest(self, found: Iterable[Effect], now: int, effects: list[Happening]) -> None:
        """Process the readers' effects: handle those about plans, and pass on the others in the order of the plans."""
        for effect in found:
            reader = self._readers.get(effect.session)
            if reader is not None:
                if isinstance(effect, Deliver):
                    self._part(reader, effect.payload, now, effects)
                elif isinstance(effect, Ask):
                    effects.append(effect)
                continue
            if effect.session not in self._era_of:
                continue
            track, era = self._era_of[effect.session]
            if not isinstance(effect, Deliver | Complete | Lost | Ended):
                effects.append(effect)
                continue
            out = effects if era is track.eras[0] else era.held
            if isinstance(effect, Ended):
                self._ended(track, era, effect, now, out, effects)
                continue
            out.append(effect)
            if isinstance(effect, Deliver) and not 0 < effect.size < SYSTEM.itemsize:  # trades need not be searched
                for mark in plan_records(effect.payload):
                    self._mark(track, era, effect, mark, now, out, effects)

    def _mark(
        self, track: _Track, era: _Era, deliver: Deliver, mark: PlanRecord, now: int,
        out: list[Happening], effects: list[Happening],
    ) -> None:  # fmt: skip
        if mark.number != era.number + 1:
            return
        if mark.kind is Kind.READY:
            if self._chosen is None and track.ready != (mark.number, mark.digest):
                track.ready = (mark.number, mark.digest)
                self._want(track, mark.number, mark.digest, mark.parts, now, effects)
        elif mark.kind is Kind.LAST:
            session, end = deliver.session, deliver.sequence + deliver.records
            if self.config.grade is not Grade.LATEST_ONLY:  # LATEST_ONLY may still wait for an earlier message
                out.append(Complete(session, Watermark(mark.complete_ns, mark.next_sequence, mark.stripe)))
            if self._chosen is None and track.eras[-1] is era:
                following = _Era(mark.number, mark.digest, mark.complete_ns, 1)
                self._enter_era(track, following, now, effects)
            self._digest(self._core.receive([mold.encode(mold.EndOfSession(session, end))], now), now, effects)

    def _ended(
        self, track: _Track, era: _Era, effect: Ended, now: int, out: list[Happening], effects: list[Happening]
    ) -> None:
        """Close a session; when all sessions of its plan have ended, deliver the next plan's records.

        It may have ended without a mark: at the end of the day, or because a best-effort subscriber lost the mark.
        """
        following = max(track.ahead, track.ready[0] if track.ready is not None else 0)
        if self._chosen is None and track.eras[-1] is era and following > era.number:
            digest = track.ready[1] if track.ready is not None and track.ready[0] == following else b""
            self._enter_era(track, _Era(following, digest, era.complete_ns, 1), now, effects)
        session = effect.session
        if session not in era.open:
            return
        era.open.discard(session)
        self._heard_ns.pop(session, None)
        self._probed.discard(session)
        if track.eras[-1] is era:
            out.append(effect)
        out.append(Closed(session))
        self._hand_over(track, effects)

    def _hand_over(self, track: _Track, effects: list[Happening]) -> None:
        """Remove plans whose sessions have all ended, and deliver the records of the next one."""
        while len(track.eras) > 1 and track.eras[0].is_followed and not track.eras[0].open:
            past, current = track.eras.pop(0), track.eras[0]
            for name in past.sessions:
                self._core.unfollow(name)
                self._era_of.pop(name, None)
            self._met = {name for name in self._met if not self._is_past(name, track.stripe, current.number)}
            track.known = {key: plan for key, plan in track.known.items() if key[0] >= current.number}
            effects.append(Replaced(track.stripe, current.number))
            effects += current.held
            current.held = []
        self._regroup(effects)

    def _is_past(self, name: bytes, stripe: int, number: int) -> bool:
        where, which = self._place(name)
        return where == stripe and which < number

    def _look(self, now: int, effects: list[Happening]) -> None:
        """Request the next messages of idle sessions."""
        self._look_ns = now + LOOK_NS
        if self._seek_until_ns and self._seek_until_ns <= now:
            self._seek_until_ns = 0
            self._regroup(effects)
        for track in list(self._tracks.values()):
            if track.tentative is not None and not track.eras and track.tentative[1] + TENTATIVE_NS <= now:
                name, track.tentative = track.tentative[0], None
                self._enter_era(track, _Era(self._place(name)[1]), now, effects)
        if self.config.grade is not Grade.GUARANTEED:
            return
        for name, heard_ns in list(self._heard_ns.items()):
            if heard_ns + SILENT_NS <= now:
                self._probed.add(name)
                effects += self._core.probe(name)
