"""Follow the measured delays with the hold time: `hold = "auto"` (rule W10).

- Every receiver measures the time that each slot *needs*: from its timestamp until it was held and witnessed, and until
  the others knew that. It publishes a row once a second (`ReleaseMeter`): slots, late ones and the largest need, by the
  second of their timestamps. A row repeats the seven seconds before, so a lost row loses nothing.
- The first member of the ring compares the rows of all receivers with the hold time in force (`HoldController`). All
  others store the rows, so each of them can take over without a gap.
- It publishes a change as a timing record from `CONTROL_SOURCE`, as an operator does (`HoldFeedback`).

*Longer*: in the last `lengthen_after` a receiver had `LEAST_LATE` late slots or more, above the late target. Then Δ_A
is 1.1 times the largest need, or 1.1·Δ_A if that is more. It is at most twice as long as before, so that one stray slot
does not cost hours, and at most that of rule 6.

*Shorter*: in the last `shorten_after` no receiver needed more than 0.8·Δ_A. Then it is 0.9·Δ_A, but at least the
largest need / 0.8 and at least two slots. So a new hold time is not followed by the reverse change: needs between
0.8·Δ_A and Δ_A change nothing. Changes below 2 % are omitted.

Not measured, because the hold time is not the cause:

- a release that was late because the process ran late: it was ready at its instant;
- slots that are released within the recovery time after a start, a new ring or a catch-up: all receivers are late then.

After a change the windows begin again when it is in force. One record is under way at a time, and none while an
operator changes something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from levelcast.protocol.effects import GROUP, Effect, Release, Send
from levelcast.protocol.events import HoldChosen
from levelcast.protocol.history import History
from levelcast.protocol.seals import CrcSeals, NodeSeals
from levelcast.protocol.timing_record import settled_ns, timing_record, units
from levelcast.wire.codec import MAX_RELEASE_SECONDS
from levelcast.wire.messages import CONTROL_SOURCE, Data, Pace, PaceChange, Packet, ReleaseRow, ReleaseSecond
from levelcast.wire.pace_change import encode_pace_change

SECOND_NS = 1_000_000_000
LEAST_LATE = 2
LENGTHEN, AT_MOST = 1.1, 2.0
SHORTEN, USED = 0.9, 0.8
LEAST_CHANGE = 0.98
LEAST_SLOTS = 100
"""A receiver with fewer slots in the window does not show that the hold time may be shorter."""
COVERED = 0.95
"""Share of the window's seconds of which a member's row must be known."""
QUIET_NS = 10_000_000_000
"""No record within this time after any packet of an operator."""
QUANTILES_OVER = 60
"""Seconds over which a row has quantiles."""
_MOST_US = 2**32 - 1


class Receiver(Protocol):
    """Part of a receiver's protocol class (`levelcast.ring.listener`) that the feedback uses."""

    generation: int
    history: History

    @property
    def ring_members(self) -> tuple[int, ...]: ...

    def pace(self, now: int) -> Pace | None: ...

    def hold_ns(self, timestamp_ns: int) -> int: ...


class ReleaseMeter:
    """Measure what the slots of one receiver need, by second."""

    def __init__(self, now: int, recovery_ns: int) -> None:
        self._recovery_ns = recovery_ns
        self._quiet_until_ns = now + recovery_ns
        self._first = self._quiet_until_ns // SECOND_NS
        """The first second that is published."""
        self._needs: dict[int, list[int]] = {}
        self._late: dict[int, int] = {}

    def recover(self, now: int) -> None:
        """Leave out the slots that are released within the recovery time from now on."""
        self._quiet_until_ns = max(self._quiet_until_ns, now + self._recovery_ns)

    def note(self, timestamp_ns: int, need_ns: int, now: int, *, late: bool) -> None:
        if now < self._quiet_until_ns:
            return
        second = timestamp_ns // SECOND_NS
        self._needs.setdefault(second, []).append(max(0, need_ns) // 1_000)
        self._late[second] = self._late.get(second, 0) + late

    def row(self, sender: int, now: int, hold_ns: int) -> ReleaseRow:
        """Return the row that is due now. Its last second is one whose slots are all due."""
        last = (now - hold_ns) // SECOND_NS - 1
        for second in [each for each in self._needs if each <= last - max(QUANTILES_OVER, MAX_RELEASE_SECONDS)]:
            del self._needs[second], self._late[second]
        needs = sorted(need for second, some in self._needs.items() if second <= last for need in some)
        p50, p99, p999 = (
            min(needs[min(len(needs) - 1, int(share * len(needs)))], _MOST_US) if needs else 0
            for share in (0.5, 0.99, 0.999)
        )
        seconds = tuple(
            self._second(second) for second in range(max(self._first, last + 1 - MAX_RELEASE_SECONDS), last + 1)
        )
        return ReleaseRow(sender, p50, p99, p999, seconds)

    def _second(self, second: int) -> ReleaseSecond:
        needs = self._needs.get(second, ())
        return ReleaseSecond(second, len(needs), self._late.get(second, 0), min(max(needs, default=0), _MOST_US))


@dataclass(frozen=True, slots=True)
class FeedbackRules:
    """Limits of an automatic hold time."""

    late_target: float
    lengthen_after_ns: int
    shorten_after_ns: int
    least_ns: int
    """Two slots."""
    most_ns: int
    """That of rule 6."""


class HoldChange(NamedTuple):
    """A new hold time and the reason for it."""

    hold_ns: int
    receiver: int
    """The receiver that was late most often, or needed most."""
    late: int
    slots: int
    need_ns: int
    window_ns: int


class HoldController:
    """Decide by the rows of all receivers whether the hold time is right."""

    def __init__(self, rules: FeedbackRules) -> None:
        self._rules = rules
        self._seconds: dict[int, dict[int, ReleaseSecond]] = {}
        self._kept = max(rules.lengthen_after_ns, rules.shorten_after_ns) // SECOND_NS + 60

    def hear(self, row: ReleaseRow, now: int) -> None:
        known = self._seconds.setdefault(row.sender, {})
        newest = now // SECOND_NS
        for each in row.seconds:
            before = known.get(each.second)
            if newest - self._kept <= each.second <= newest and (before is None or each.slots >= before.slots):
                known[each.second] = each
        while known and (first := next(iter(known))) < newest - self._kept:
            del known[first]

    def decide(self, members: Collection[int], now: int, hold_ns: int, since_ns: int) -> HoldChange | None:
        """Return a better hold time than `hold_ns`, which has been in force since `since_ns`; None: it is right."""
        end = (now - hold_ns) // SECOND_NS - 1  # rows of the second before are still under way
        return self._longer(end, hold_ns, since_ns) or self._shorter(members, end, hold_ns, since_ns)

    def _longer(self, end: int, hold_ns: int, since_ns: int) -> HoldChange | None:
        rules = self._rules
        begin = end - max(1, rules.lengthen_after_ns // SECOND_NS)
        if begin * SECOND_NS < since_ns:
            return None
        worst: HoldChange | None = None
        longest_ns = 0
        for receiver, known in sorted(self._seconds.items()):
            if min(known, default=end) > begin:
                continue
            seconds = _within(known, begin, end)
            late, slots = sum(each.late for each in seconds), sum(each.slots for each in seconds)
            if late < LEAST_LATE or late <= rules.late_target * slots:
                continue
            need_ns = _longest_ns(seconds)
            longest_ns = max(longest_ns, need_ns)
            if worst is None or late * worst.slots > worst.late * slots:
                worst = HoldChange(0, receiver, late, slots, need_ns, rules.lengthen_after_ns)
        if worst is None:
            return None
        wanted_ns = min(max(longest_ns * LENGTHEN, hold_ns * LENGTHEN), hold_ns * AT_MOST, rules.most_ns)
        return worst._replace(hold_ns=units(wanted_ns)) if units(wanted_ns) > hold_ns else None

    def _shorter(self, members: Collection[int], end: int, hold_ns: int, since_ns: int) -> HoldChange | None:
        rules = self._rules
        length = max(1, rules.shorten_after_ns // SECOND_NS)
        begin = end - length
        if begin * SECOND_NS < since_ns or not members:
            return None
        windows = {receiver: _within(known, begin, end) for receiver, known in self._seconds.items()}
        for member in members:
            seconds = windows.get(member, [])
            if len(seconds) < COVERED * length or sum(each.slots for each in seconds) < LEAST_SLOTS:
                return None
        if any(each.late for seconds in windows.values() for each in seconds):
            return None
        need_ns, receiver = max((_longest_ns(seconds), receiver) for receiver, seconds in windows.items())
        if need_ns > USED * hold_ns:
            return None
        shorter_ns = max(SHORTEN * hold_ns, need_ns / USED, rules.least_ns)
        if shorter_ns > LEAST_CHANGE * hold_ns:
            return None
        slots = sum(each.slots for each in windows[receiver])
        return HoldChange(units(shorter_ns), receiver, 0, slots, need_ns, rules.shorten_after_ns)


def _within(known: dict[int, ReleaseSecond], begin: int, end: int) -> list[ReleaseSecond]:
    return [each for second, each in known.items() if begin <= second < end]


def _longest_ns(seconds: Iterable[ReleaseSecond]) -> int:
    return max((each.longest_us for each in seconds), default=0) * 1_000


class HoldFeedback:
    """Publish the row of a receiver, and with `rules` change the hold time when it is this receiver's turn."""

    def __init__(
        self,
        node: int,
        domain: int,
        receiver: Receiver,
        now: int,
        *,
        recovery_ns: int,
        resend_ns: int,
        rules: FeedbackRules | None = None,
        seals: NodeSeals | None = None,
    ) -> None:
        self.wake_ns = now + SECOND_NS
        self.last_row: ReleaseRow | None = None
        self._node, self._receiver = node, receiver
        self._seals = seals or CrcSeals(domain)
        self._resend_every_ns = resend_ns
        self._generation = receiver.generation
        self._meter = ReleaseMeter(now, recovery_ns)
        self._controller = HoldController(rules) if rules is not None else None
        self._row_ns = self.wake_ns
        self._control_ns = 0
        """When a packet of an operator, or of an automatic change, was released last."""
        self._change: PaceChange | None = None
        """The change that was sent and is not in the sequence yet."""
        self._data: Data | None = None
        self._resend_ns = 0

    def hear(self, row: ReleaseRow, now: int) -> None:
        if self._controller is not None:
            self._controller.hear(row, now)

    def released(self, release: Release, now: int) -> None:
        """Note a release with the values that the driver has set: when it was ready, and whether it was late."""
        frame = release.frame
        if any(run.source == CONTROL_SOURCE for run in frame.runs):
            self._control_ns = now
        if release.from_tape:
            self._meter.recover(now)
        self._watch_ring(now)
        need_ns = max(release.ready_ns, release.witness_ns) - frame.timestamp_ns
        self._meter.note(frame.timestamp_ns, need_ns, now, late=release.late)

    def step(self, now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Publish what is due. A `Data` among the effects is for this node's own receiver as well."""
        effects: list[Effect] = []
        self._watch_ring(now)
        if now >= self._row_ns:
            self._row_ns = now + SECOND_NS
            if clock_trusted:
                self.last_row = row = self._meter.row(self._node, now, self._receiver.hold_ns(now))
                effects.append(Send(GROUP, row))
                self.hear(row, now)
                if self._change is None:
                    effects += self._decide(now)
        effects += self._send(now)
        self.wake_ns = self._row_ns if self._change is None else min(self._row_ns, self._resend_ns)
        return effects

    def _watch_ring(self, now: int) -> None:
        if self._receiver.generation != self._generation:
            self._generation = self._receiver.generation
            self._meter.recover(now)

    def _decide(self, now: int) -> list[Effect]:
        members, pace = self._receiver.ring_members, self._receiver.pace(now)
        if self._controller is None or pace is None or not pace.beat_ns or members[:1] != (self._node,):
            return []
        tip = self._receiver.history.tip
        since_ns = settled_ns(tip.paces[-1]) if tip.paces else 0
        if now < since_ns or now < self._control_ns + QUIET_NS:
            return []
        found = self._controller.decide(members, now, pace.hold_ns, since_ns)
        if found is None:
            return []
        version = tip.paces[-1].version if tip.paces else 0
        change = timing_record(version, pace, found.hold_ns, now, settled_ns=since_ns)
        place = tip.places.get(CONTROL_SOURCE)
        incarnation = max(now, place.incarnation + 1 if place is not None else 0)
        payload = encode_pace_change(change)
        self._change, self._resend_ns = change, now
        self._data = self._seals.seal_packet(Packet(CONTROL_SOURCE, incarnation, 1, 1, payload))
        _, receiver, late, slots, need_ns, window_ns = found
        return [
            HoldChosen(0, receiver, late, slots, need_ns, window_ns // SECOND_NS, change.pace.hold_ns, change.before_ns)
        ]

    def _send(self, now: int) -> list[Effect]:
        """Send the record until it is in the sequence, or would come too late to count."""
        if self._change is None or self._data is None:
            return []
        paces = self._receiver.history.tip.paces
        known = paces and paces[-1].version >= self._change.version
        if known or now >= self._change.from_ns - self._change.before_ns:
            self._change = self._data = None
            return []
        if now < self._resend_ns:
            return []
        self._resend_ns = now + self._resend_every_ns
        return [Send(GROUP, self._data)]
