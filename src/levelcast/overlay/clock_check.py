"""Decide whether a receiver can trust its clock, by its time source and by the clocks of the members (C1 to C4).

The delay from j to i by two clocks is the true one + c_i - c_j, and that from i to j the true one + c_j - c_i. Half of
the difference of the two is the offset of the clocks, wrong by half of the difference of the true delays: the same as
with the four timestamps of NTP, but each direction is measured by its own messages, with the least delay of the last
seconds. These are

- the beats of j here, and the row that j publishes about the beats of this node (`levelcast.overlay.paths`);
- probes and their echoes (`levelcast.overlay.probe`): at the start, and where there are no beats.

| state     | condition                                                     | trusted |
|-----------|---------------------------------------------------------------|---------|
| unchecked | the start: fewer than a majority have replied, for `START_NS` | no, then yes: nobody runs yet |
| unchecked | a majority has replied, and the median disagrees              | no; an alarm after `START_ALARM_NS` |
| checked   | from the first time that a majority was heard and agreed      | yes |
| doubted   | `ClockDoubt`                                                  | no |

A receiver falls silent (rule 13) when E_i > `clock_error`; when the median offset is beyond `clock_error` +
`asymmetry` for `OFFSET_NS`, with a majority of the members heard; when fewer than a majority can agree with it (the
intervals do not overlap, which proves it, so at once); and before a leap second. It returns after `RETURN_NS` without
any of these. A clock that was set (`levelcast.protocol.clock.ClockGuard`) begins with a new check when it is back.

- Without a time source the network file's `clock_error` is believed (C3).
- The nodes of one machine have the same clock. Offsets between them show only that its cores are busy, so none counts.
- A member is in the median itself, with 0: else one wrong member of three would silence the two others. Of an even
  number the middle one nearest to 0 counts, and at the start the farthest, so that one alone against one is no start.

Deviation from C2: at the start the median of a majority decides, not each of its members, because the far ones are
measured less exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from levelcast.overlay.paths import Paths, RecentLeast
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import ErrorBound, LeapSecond, Vouched
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import Effect
from levelcast.protocol.events import ClockBack, ClockDoubt, ClockDoubted, LeapAnnounced
from levelcast.wire.messages import NOTHING_RECENT, Beat, Echo

MS = 1_000_000
START_NS = 1_000 * MS
"""A node that hears no majority at its start waits for this long: then nobody runs yet."""
START_ALARM_NS = 2_000 * MS
START_EVERY_NS = 50 * MS
START_SAMPLES = 10
"""Echoes of a member before it is compared at the start: the least of fewer has too much jitter."""
OFFSET_NS = 10_000 * MS
"""A median offset is an alarm if it lasts this long: a change of routes is shorter."""
RETURN_NS = 10_000 * MS
SETTLE_NS = 10_000 * MS
"""Beats count from this long after the check: rows of others may still have delays of the time before it."""
EVERY_NS = 500 * MS
PROBE_NS = 1_000 * MS
ROW_FRESH_NS = 3_000 * MS
MOST_PROBES = 200
"""Nodes that a probe to the core group may reach in one `EVERY_NS`; if there are more, it is sent less often."""
_MOST_US = 2**31 - 1


class MemberClock(NamedTuple):
    """Clock of a member, as its beats state it: E_j and its median offset."""

    error_us: int | None
    offset_us: int | None


class Compared(NamedTuple):
    """The least delays between this node and a member, by two clocks: from it, and to it."""

    here_ns: int
    there_ns: int

    @property
    def offset_ns(self) -> int:
        """Return by how much this clock is ahead of the member's."""
        return (self.here_ns - self.there_ns) // 2


class ClockCheck:
    """The check of one receiver's clock. `trusted` is False while it must be silent."""

    def __init__(
        self,
        node: int,
        config: StripeConfig,
        prober: Prober,
        paths: Paths,
        now: int,
        monotonic_ns: int,
        *,
        one_machine: bool = False,
    ) -> None:
        """On `one_machine` all nodes have one clock: it is compared and shown, and not judged by it."""
        members = {life.member for life in config.membership.members}
        self.others = sorted(members - {node})
        self.needed = len(members) // 2 + 1
        """A majority of the members."""
        self.wake_ns = now
        self.bound = ErrorBound()
        self.leap = LeapSecond(smeared=config.smeared)
        self.told: dict[int, MemberClock] = {}
        """Statements of the members about their clocks."""
        self.compared: dict[int, Compared] = {}
        """Members with which the clock was compared in the last seconds."""
        self.doubt: ClockDoubt | None = None
        self.offset_ns: int | None = None
        """Offset of this clock from the median member's; None: no majority is heard."""
        self._own = int(node in members)
        self._one_machine = one_machine
        self._members = len(members)
        self._clock_error_ns = config.clock_error_ns
        self._limit_ns = config.clock_error_ns + config.asymmetry_ns
        self._prober, self._paths, self._node = prober, paths, node
        self.vouched: Vouched | None = None
        """E_i and the time source that vouches for it; None: the network file's clock error is believed (C3)."""
        self._waived = False
        """It is not checked, and no majority can be asked."""
        self._echoes: dict[int, Compare] = {}
        self._notices: list[Effect] = []
        self._reset(monotonic_ns)
        prober.on_echo = self._on_echo

    @property
    def trusted(self) -> bool:
        return self.doubt is None and (self.checked or self._waived)

    @property
    def error_ns(self) -> int:
        """E_i, or the network file's clock error."""
        return self.vouched.bound_ns if self.vouched is not None else self._clock_error_ns

    @property
    def heard(self) -> int:
        """Number of members whose clocks are known, this one included."""
        return len(self.compared) + self._own

    @property
    def error_us(self) -> int | None:
        """E_i for beats, rounded up."""
        return min(-(-self.vouched.bound_ns // 1_000), _MOST_US) if self.vouched is not None else None

    @property
    def offset_us(self) -> int | None:
        """The median offset for beats."""
        if self.offset_ns is None:
            return None
        return max(-_MOST_US, min(self.offset_ns // 1_000, _MOST_US))

    # -- what is heard ------------------------------------------------------------------------------------

    def hear_beat(self, beat: Beat) -> None:
        if beat.sender in self._echoes:
            self.told[beat.sender] = MemberClock(beat.error_us, beat.offset_us)

    def announce_leap(self, announced: bool, now: int) -> None:
        """Note whether the kernel will insert or delete a second."""
        if self.leap.announce(announced, now) and self.leap.at_ns is not None:
            self._notices.append(LeapAnnounced(0, self.leap.at_ns, self.leap.smeared))

    def _on_echo(self, echo: Echo, at_ns: int) -> None:
        if echo.sender in self._echoes:
            pair = self._echoes[echo.sender]
            pair.here.add(at_ns - echo.left_ns, at_ns)
            pair.there.add(echo.heard_ns - echo.sent_ns, at_ns)

    # -- one step -----------------------------------------------------------------------------------------

    def step(self, now: int, monotonic_ns: int, *, was_set: bool = False) -> list[Effect]:
        """Ask the others if needed, judge the clock, and return probes and events. `was_set`: it is wrong already."""
        effects, self._notices = self._notices, []
        self.vouched = self.bound.at(monotonic_ns)
        if was_set:
            self._reset(monotonic_ns)
        else:
            effects += self._ask(now, monotonic_ns)
            self._compare(now, monotonic_ns)
            effects += self._judge(now, monotonic_ns)
        starts = not self.checked and monotonic_ns - self._since_ns < START_ALARM_NS
        self.wake_ns = now + (START_EVERY_NS if starts else EVERY_NS)
        return effects

    def _reset(self, monotonic_ns: int) -> None:
        """Begin with the check of the start: nothing that was measured before counts."""
        self.checked = self._one_machine or self._own >= self.needed  # the only member has nobody to ask
        self._waived = False
        self.offset_ns = None
        self.compared = {}
        self._since_ns = monotonic_ns
        self._prober.forget_open()
        self._echoes = {member: Compare(RecentLeast(), RecentLeast()) for member in self.others}
        self._beats_from_ns: int | None = None
        self._asked_ns: int | None = None
        self._beyond_ns: int | None = None
        """Since when the median offset is beyond the limit."""
        self._fine_ns: int | None = None
        """Since when nothing is wrong with a clock that is doubted."""

    def _ask(self, now: int, monotonic_ns: int) -> list[Effect]:
        """Send a probe if one is due: to all at the start, then to members, if beats are not enough."""
        if not self.checked:
            early = monotonic_ns - self._since_ns < START_ALARM_NS
            every_ns = START_EVERY_NS if early else max(EVERY_NS, EVERY_NS * len(self._prober.peers) // MOST_PROBES)
            return self._probe(every_ns, None, now, monotonic_ns)
        if self._use_beats(monotonic_ns) and sum(self._by_beats(each, now) is not None for each in self.others) >= (
            self.needed - self._own
        ):
            return []
        return self._probe(PROBE_NS, self.others, now, monotonic_ns)

    def _probe(self, every_ns: int, to: list[int] | None, now: int, monotonic_ns: int) -> list[Effect]:
        if not self.others or (self._asked_ns is not None and monotonic_ns < self._asked_ns + every_ns):
            return []
        self._asked_ns = monotonic_ns
        return self._prober.probe(now, to)

    # -- measuring ----------------------------------------------------------------------------------------

    def _compare(self, now: int, monotonic_ns: int) -> None:
        """Find the least delays from and to each member of the last seconds."""
        self.compared = {}
        for member in self.others:
            pair = self._echoes[member]
            if not self.checked and pair.there.count < START_SAMPLES:
                continue
            found = [pair.at(now)]
            if self._use_beats(monotonic_ns):
                found.append(self._by_beats(member, now))
            known = [each for each in found if each is not None]
            if known:
                self.compared[member] = Compared(
                    min(each.here_ns for each in known), min(each.there_ns for each in known)
                )

    def _use_beats(self, monotonic_ns: int) -> bool:
        return self._beats_from_ns is not None and monotonic_ns >= self._beats_from_ns

    def _by_beats(self, member: int, now: int) -> Compared | None:
        """Return the least delays of beats, or of the probes that are sent instead; None if one is not known."""
        meter = self._paths.meters.get(member)
        row = self._paths.rows.get(member, {}).get(self._node)
        if meter is None or row is None or not 0 <= now - row.at_ns < ROW_FRESH_NS:
            return None
        here_ns = meter.recent.at(now)
        if here_ns is None or row.figures.recent_us == NOTHING_RECENT:
            return None
        return Compared(here_ns, row.figures.recent_us * 1_000)

    # -- judging (C2, C4) ---------------------------------------------------------------------------------

    def _judge(self, now: int, monotonic_ns: int) -> list[Effect]:
        is_heard = majority_heard(self.heard, self.needed)
        offsets = [each.offset_ns for each in self.compared.values()] + [0] * self._own
        self.offset_ns = median_offset(offsets, optimistic=self.checked) if is_heard and offsets else None
        doubt = self._doubt(now, monotonic_ns)
        if doubt is not None:
            self._fine_ns = None
            if self.doubt is None:
                return self._fall_silent(doubt)
        elif self.doubt is not None and self._may_return(monotonic_ns):
            self.doubt = None
            return [ClockBack(0)]
        return []

    def _doubt(self, now: int, monotonic_ns: int) -> ClockDoubt | None:
        if self.leap.refuses(now):
            return ClockDoubt.LEAP
        if self._one_machine:
            return None
        if bound_is_exceeded(self.bound, self._clock_error_ns, monotonic_ns):
            return ClockDoubt.BOUND
        if not self.checked:
            return self._check_start(monotonic_ns)
        if self.offset_ns is None:
            self._beyond_ns = None
            return None
        if self._members - self._apart() < self.needed:
            return ClockDoubt.APART
        if abs(self.offset_ns) <= self._limit_ns:
            self._beyond_ns = None
            return None
        if self._beyond_ns is None:
            self._beyond_ns = monotonic_ns
        return ClockDoubt.OFFSET if monotonic_ns - self._beyond_ns >= offset_lasts_ns() else None

    def _check_start(self, monotonic_ns: int) -> ClockDoubt | None:
        """Compare the clock with a majority before the first token. While nobody runs there is nothing to compare."""
        if self.offset_ns is None:
            self._waived = monotonic_ns - self._since_ns >= START_NS or skips_start_check()
            self._beyond_ns = None
            return None
        if abs(self.offset_ns) <= self._limit_ns or skips_start_check():
            self.checked, self._waived = True, False
            self._beats_from_ns = monotonic_ns + SETTLE_NS
            self._beyond_ns = None
            return None
        self._waived = False
        if self._beyond_ns is None:
            self._beyond_ns = monotonic_ns
        return ClockDoubt.OFFSET if monotonic_ns - self._beyond_ns >= START_ALARM_NS else None

    def _apart(self) -> int:
        """Return the number of members that cannot agree: no delay is negative, and no error above its bound."""
        apart = 0
        for member, (here_ns, there_ns) in self.compared.items():
            error_us = self.told.get(member, MemberClock(None, None)).error_us
            errors_ns = self.error_ns + (self._clock_error_ns if error_us is None else error_us * 1_000)
            apart += cannot_agree(here_ns, there_ns, errors_ns)
        return apart

    def _fall_silent(self, doubt: ClockDoubt) -> list[Effect]:
        self.doubt = doubt
        value_ns, limit_ns = self.offset_ns or 0, self._limit_ns
        if doubt is ClockDoubt.BOUND:
            value_ns, limit_ns = self.error_ns, self._clock_error_ns
        return [ClockDoubted(0, doubt, value_ns, limit_ns, self.heard)]

    def _may_return(self, monotonic_ns: int) -> bool:
        """Return whether nothing was wrong for long enough; a clock that was compared has to be compared again."""
        compared = self.offset_ns is not None and abs(self.offset_ns) <= self._limit_ns
        if not compared and self.doubt is not ClockDoubt.BOUND:
            self._fine_ns = None
            return False
        if self._fine_ns is None:
            self._fine_ns = monotonic_ns
        return monotonic_ns - self._fine_ns >= RETURN_NS


class Compare(NamedTuple):
    """The delays of the probes to one member, and of its answers."""

    here: RecentLeast
    there: RecentLeast

    def at(self, now: int) -> Compared | None:
        here_ns, there_ns = self.here.at(now), self.there.at(now)
        return None if here_ns is None or there_ns is None else Compared(here_ns, there_ns)


# Each clause of C2 is a function of its own, so that the simulator can run without it.


def majority_heard(heard: int, needed: int) -> bool:
    """Return whether enough members are heard to judge the own clock by them (C2)."""
    return heard >= needed


def median_offset(offsets: Iterable[int], *, optimistic: bool) -> int:
    """Return the median; of an even number the middle one nearest to 0, or the farthest.

    >>> median_offset([0, 0, 9], optimistic=True), median_offset([0, 9], optimistic=True)
    (0, 0)
    >>> median_offset([0, 9], optimistic=False), median_offset([-9, -8, 0], optimistic=True)
    (9, -8)
    """
    ordered = sorted(offsets)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return min(middle, key=abs) if optimistic else max(middle, key=abs)


def offset_lasts_ns() -> int:
    """Return how long the median offset must be beyond the limit (C2)."""
    return OFFSET_NS


def bound_is_exceeded(bound: ErrorBound, limit_ns: int, monotonic_ns: int) -> bool:
    """Return whether E_i is above the limit (C2)."""
    return bound.exceeds(limit_ns, monotonic_ns)


def cannot_agree(here_ns: int, there_ns: int, errors_ns: int) -> bool:
    """Return whether two clocks within their errors of UTC contradict these delays, which are not negative (C2).

    >>> cannot_agree(-5, 90, 2), cannot_agree(-5, 90, 5), cannot_agree(90, -5, 2)
    (True, False, True)
    """
    return here_ns < -errors_ns or there_ns < -errors_ns


def skips_start_check() -> bool:
    """Return whether a node may send before it has asked the others: never (C2)."""
    return False
