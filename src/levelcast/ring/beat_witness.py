"""Claims in beats (rules 7 and 8, pipelined mode).

Every member states its `have` once in β, whatever the turn of the tokens is. A beat contains this claim and the seven
before it with their times, so β may change at any time. A claim in a token counts as well, as one of the next beat: a
receiver that restarts has the tokens in its journal, and no beats.

- said_j(t) is the time of the first claim of j of slot t. H_j, the cut-off of j, is the time within which a beat of j
  reaches every receiver. One that loses it knows the same times a beat later, and is late alone if the slot is due
  meanwhile. A longer H_j would make every such slot late for all.
- Slot t is witnessed for all at the time at which the claims with said_j(t) + H_j up to then are enough. This is the
  w-th smallest of them, and it is the same number at every receiver that knows these claims.
- A receiver that missed more beats than one repeats knows only bounds of said_j: after the last claim before the gap,
  and not after the first one behind it. The same holds for a member of which it has heard nothing. It releases at the
  latest possible time, so that it is never before the others. If the bounds differ, its release is not `certain`.

Deviation from DESIGN rules 7 and 8, in which tokens claim: with m members each has its turn once in m·τ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from levelcast.ring.schedule import Schedule
from levelcast.ring.witness import AT_ONCE, Count, Due, Records, Witness, claim_counts
from levelcast.timing.rules import LONGEST_BEAT_NS
from levelcast.wire.messages import UNIT_NS, Beat, Claim, Token
from levelcast.wire.token_codec import MAX_BEATS, MAX_STEP

Cutoffs = Mapping[int, int]
NEXT_BEAT = 1 + LONGEST_BEAT_NS // UNIT_NS
"""A member beats within this many ticks after a token."""


class Rise(NamedTuple):
    """A member claimed the slots up to `have` first at one of these ticks."""

    have: int
    first: int
    last: int


class ClaimLog:
    """The claims of one member that were received, by their ticks."""

    def __init__(self) -> None:
        self._rises: deque[Rise] = deque()
        self._in_tokens: deque[Claim] = deque()
        """`have` in tokens, each with the time by which a beat repeats it."""
        self.latest = -1
        """The last claim in a beat that was received."""
        self._in_beats = -1
        self.have = -1
        """The highest claim."""

    def hear(self, beat: Beat, schedule: Schedule) -> None:
        for index, (tick, have) in enumerate(beat.claims):
            if tick > self.latest and have > self._in_beats and claim_counts(have, schedule):
                # Between two claims of one beat its sender made no other.
                self._rises.append(Rise(have, tick if index else self.latest + 1, tick))
                self._in_beats = have
        self.latest = max(self.latest, beat.claims[-1].tick)
        self.have = max(self.have, self._in_beats)

    def read(self, have: int, tick: int, schedule: Schedule) -> None:
        """Note a claim in a token, which a beat repeats by `tick`."""
        if have > self.have and claim_counts(have, schedule):
            self._in_tokens.append(Claim(tick, have))
            self.have = have

    def first_claim(self, slot: int) -> tuple[int, int | None]:
        """Return the earliest and the latest tick that can be the first claim of `slot`; None: not claimed yet."""
        _, first, last = next((rise for rise in self._rises if rise.have >= slot), (slot, self.latest + 1, None))
        if first != last:
            in_token = next((claim.tick for claim in self._in_tokens if claim.have >= slot), last)
            if in_token is not None:
                last = max(first, in_token if last is None else min(last, in_token))
        return first, last

    def forget(self, slot: int) -> None:
        while self._rises and self._rises[0].have <= slot:
            self._rises.popleft()
        while self._in_tokens and self._in_tokens[0].have <= slot:
            self._in_tokens.popleft()


class OwnBeats:
    """The last claims of this member in its beats."""

    def __init__(self, unclaimed: int | None = None, last: int = 0) -> None:
        """`unclaimed` is a `have` that does not count, for the time before the first beat; None: that is not known."""
        self.last = last
        """The tick of the last beat that was sent, or may have been."""
        self._claims: deque[Claim] = deque([] if unclaimed is None else [Claim(0, unclaimed)], maxlen=MAX_BEATS)
        self._in_tokens: list[Claim] = []
        """The claims of the tokens since the last beat, at the times of the beats after them."""

    def claim_in_token(self, tick: int, have: int) -> None:
        """Note that a token claims `have`: the next beat, at `tick`, claims it too, even if it is not sent."""
        self._in_tokens.append(Claim(tick, have))

    def say(self, tick: int, have: int) -> tuple[Claim, ...]:
        """Return the claims of the beat at `tick`."""
        if self._claims:
            for claim in self._in_tokens:
                if self._claims[-1].tick < claim.tick < tick:
                    self._add(*claim)
        self._add(tick, have)
        self._in_tokens.clear()
        self.last = tick
        return tuple(self._claims)

    def _add(self, tick: int, have: int) -> None:
        if self._claims:
            before = self._claims[-1]
            have = max(have, before.have)  # what was claimed stays true
            if have - before.have > MAX_STEP or tick - before.tick > MAX_STEP:
                self._claims.clear()
        self._claims.append(Claim(tick, have))


class BeatWitness(Witness):
    """Claims in the beats of one generation."""

    def __init__(
        self, schedule: Schedule, count: Count, cutoffs_at: Callable[[int], Cutoffs], read_upto: int, witnessed: int
    ) -> None:
        """`cutoffs_at` returns H_j of each member for a slot with this timestamp."""
        self._read_upto = max(read_upto, schedule.start_slot - 1)
        self._schedule = schedule
        self._count = count
        self._cutoffs_at = cutoffs_at
        self._logs = {member: ClaimLog() for member in schedule.members}
        self._open: dict[int, Records] = {}
        """The configured sets of each slot that was witnessed in this generation and is not released."""
        self._inherited: dict[int, Due] = {}
        self._known: tuple[int, Due] | None = None
        self.witnessed = witnessed

    def read(self, tokens: Mapping[int, Token]) -> None:
        while (token := tokens.get(self._read_upto + 1)) is not None:
            self._read_upto = token.slot
            tick = self._schedule.tick_at(token.timestamp_ns) + NEXT_BEAT
            self._logs[token.owner].read(token.have, tick, self._schedule)

    def hear(self, beat: Beat) -> None:
        log = self._logs.get(beat.sender)
        if log is not None:
            log.hear(beat, self._schedule)
            if self._known is not None and not self._known[1].certain:
                self._known = None

    def advance(self, have: int, records: Records) -> int:
        while self.witnessed < have:
            slot = self.witnessed + 1
            claimed = {member for member, log in self._logs.items() if log.have >= slot}
            if not self._count.is_complete(slot, records, self.witnessed, claimed):
                break
            self.witnessed = slot
            self._open[slot] = records
        return self.witnessed

    def inherit(self, before: Witness) -> None:
        witnessed = min(before.witnessed, self._schedule.start_slot - 1)
        for slot in range(self.witnessed + 1, witnessed + 1):
            self._inherited[slot] = before.due(slot)
        self.witnessed = max(self.witnessed, witnessed)

    def due(self, slot: int) -> Due:
        if slot in self._inherited:
            return self._inherited[slot]
        records = self._open.get(slot)
        if records is None:
            return AT_ONCE
        if self._known is None or self._known[0] != slot:
            self._known = slot, self._due(slot, records)
        return self._known[1]

    def _due(self, slot: int, records: Records) -> Due:
        earliest: dict[int, int] = {}
        latest: dict[int, int] = {}
        cutoffs = self._hear_ns(slot)
        for member, log in self._logs.items():
            first, last = log.first_claim(slot)
            earliest[member] = self._schedule.tick_time(first) + cutoffs[member]
            if last is not None:
                latest[member] = self._schedule.tick_time(last) + cutoffs[member]
        return Due(self._complete_ns(slot, records, earliest), self._complete_ns(slot, records, latest))

    def _hear_ns(self, slot: int) -> Cutoffs:
        """Return H_j, the time within which every receiver knows a claim of member j (rule 7)."""
        return self._cutoffs_at(self._schedule.time_of(slot))

    def _complete_ns(self, slot: int, records: Records, times: Mapping[int, int]) -> int:
        """Return the time at which the claims up to then are enough."""
        claimed: set[int] = set()
        at_ns = 0
        for member in sorted(times, key=lambda each: (times[each], each)):
            if self._count.is_complete(slot, records, slot - 1, claimed):
                break
            claimed.add(member)
            at_ns = times[member]
        return at_ns

    def forget(self, slot: int) -> None:
        self._open.pop(slot, None)
        self._inherited.pop(slot, None)
        for log in self._logs.values():
            log.forget(slot)

    def skip_to(self, slot: int) -> None:
        self._read_upto = max(self._read_upto, slot)
        self.witnessed = max(self.witnessed, slot)
        for skipped in [each for each in self._open if each <= slot]:
            self.forget(skipped)

    def claim_of(self, member: int) -> int:
        log = self._logs.get(member)
        return log.have if log is not None else -1

    def stable(self) -> int:
        return min(log.have for log in self._logs.values())
