"""Claims in beats (rules 7 and 8, pipelined mode).

Every member states its `have` in beat b at T_g + b·β + place/m·β, whatever the turn of the tokens is. A beat repeats
the claims of the seven before it. A claim in a token counts as well, as one of the next beat: a receiver that restarts
has the tokens in its journal, and no beats.

- said_j(t) is the scheduled time of the first beat in which j claims t. H_j, the cut-off of j, is the time within which
  a beat of j reaches every receiver. One that loses it knows the same times a beat later, and is late alone if the slot
  is due meanwhile. A longer H_j would make every such slot late for all.
- Slot t is witnessed for all at the time at which the claims with said_j(t) + H_j up to then are enough. This is the
  w-th smallest of them, and it is the same number at every receiver that knows these claims.
- A receiver that missed more beats than one repeats knows only bounds of said_j: after the last beat before the gap,
  and not after the first one behind it. The same holds for a member of which it has heard nothing. It releases at the
  latest possible time, so that it is never before the others. If the bounds differ, its release is not `certain`.

Deviation from DESIGN rules 7 and 8, in which tokens claim: with m members each has its turn once in m·τ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from levelcast.ring.schedule import Schedule
from levelcast.ring.witness import AT_ONCE, Count, Due, Records, Witness, claim_counts
from levelcast.wire.messages import Beat, Pace, Token
from levelcast.wire.token_codec import MAX_BEATS, MAX_RISE


class Rise(NamedTuple):
    """A member claimed the slots up to `have` first in one of these beats."""

    have: int
    first: int
    last: int


class ClaimLog:
    """The claims of one member that were received, by its beats."""

    def __init__(self) -> None:
        self._rises: deque[Rise] = deque()
        self._in_tokens: deque[tuple[int, int]] = deque()
        """`have` in tokens, each with the beat that repeats it."""
        self.latest = -1
        """The last beat that was received."""
        self._in_beats = -1
        self.have = -1
        """The highest claim."""

    def hear(self, beat: Beat, schedule: Schedule) -> None:
        number = beat.number - len(beat.haves)
        unknown = self.latest + 1
        for have in beat.haves:
            number += 1
            if number < unknown:
                continue
            if have > self._in_beats and claim_counts(have, schedule):
                self._rises.append(Rise(have, unknown, number))
                self._in_beats = have
            unknown = number + 1
        self.latest = max(self.latest, beat.number)
        self.have = max(self.have, self._in_beats)

    def read(self, have: int, number: int, schedule: Schedule) -> None:
        """Note a claim in a token that was due before beat `number`."""
        if have > self.have and claim_counts(have, schedule):
            self._in_tokens.append((have, number))
            self.have = have

    def first_claim(self, slot: int) -> tuple[int, int | None]:
        """Return the earliest and the latest beat that can be the first one to claim `slot`; None: not claimed yet."""
        _, first, last = next((rise for rise in self._rises if rise.have >= slot), (slot, self.latest + 1, None))
        if first != last:
            in_token = next((number for have, number in self._in_tokens if have >= slot), last)
            if in_token is not None:
                last = max(first, in_token if last is None else min(last, in_token))
        return first, last

    def forget(self, slot: int) -> None:
        while self._rises and self._rises[0].have <= slot:
            self._rises.popleft()
        while self._in_tokens and self._in_tokens[0][0] <= slot:
            self._in_tokens.popleft()


class OwnBeats:
    """The last claims of this member in its beats."""

    def __init__(self, unclaimed: int | None = None, last: int = -1) -> None:
        """`unclaimed` is a `have` that does not count, for the beats before the first; None: they are not known."""
        self.last = last
        """The last beat that was sent, or may have been; -1: none."""
        self._haves: deque[int] = deque([] if unclaimed is None else [unclaimed], maxlen=MAX_BEATS)
        self._in_tokens: list[tuple[int, int]] = []
        """The next beat after each token since the last beat, and `have` in that token."""

    def claim_in_token(self, number: int, have: int) -> None:
        """Note that a token claims `have`: the next beat, `number`, claims it too, even if it is not sent."""
        self._in_tokens.append((number, have))

    def say(self, number: int, have: int) -> tuple[int, ...]:
        """Return the claims of beat `number`. Beats that were not sent repeat the claim before them."""
        if self._haves:
            for skipped in range(max(self.last + 1, number - MAX_BEATS), number):
                self._add(max((claim for beat, claim in self._in_tokens if beat <= skipped), default=0))
        self._add(have)
        self._in_tokens.clear()
        self.last = number
        return tuple(self._haves)[-number - 1 :]

    def _add(self, have: int) -> None:
        haves = self._haves
        if haves:
            have = max(have, haves[-1])  # what was claimed stays true
            if have - haves[-1] > MAX_RISE:
                haves.clear()
        haves.append(have)


class BeatWitness(Witness):
    """Claims in the beats of one generation."""

    def __init__(self, schedule: Schedule, count: Count, pace: Pace, read_upto: int, witnessed: int) -> None:
        self._read_upto = max(read_upto, schedule.start_slot - 1)
        self._schedule = schedule
        self._count = count
        self._beat_ns = pace.beat_ns
        self._cutoffs = dict(pace.cutoffs)
        self._logs = {member: ClaimLog() for member in schedule.members}
        self._open: dict[int, Records] = {}
        """The configured sets of each slot that was witnessed in this generation and is not released."""
        self._inherited: dict[int, Due] = {}
        self._known: tuple[int, Due] | None = None
        self.witnessed = witnessed

    def read(self, tokens: Mapping[int, Token]) -> None:
        while (token := tokens.get(self._read_upto + 1)) is not None:
            self._read_upto = token.slot
            number = self._schedule.beat_at(token.owner, token.timestamp_ns, self._beat_ns) + 1
            self._logs[token.owner].read(token.have, number, self._schedule)

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
        for member, log in self._logs.items():
            first, last = log.first_claim(slot)
            hear_ns = self._hear_ns(member)
            earliest[member] = self._schedule.beat_time(member, first, self._beat_ns) + hear_ns
            if last is not None:
                latest[member] = self._schedule.beat_time(member, last, self._beat_ns) + hear_ns
        return Due(self._complete_ns(slot, records, earliest), self._complete_ns(slot, records, latest))

    def _hear_ns(self, member: int) -> int:
        """Return H_j, the time within which every receiver knows a claim of this member (rule 7)."""
        return self._cutoffs[member]

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
