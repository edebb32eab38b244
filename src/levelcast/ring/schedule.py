"""Time, owner and valid generation of each slot (rules 1 and 12), and the times of beats (rule 8).

- Slot t of generation g is at T_g + (t - t_g)·τ and belongs to ring[(t - t_g) mod m] (rule 1).
- A *lineage* lists the generations of which the tape consists. A token is valid only if its generation is the
  lineage's for its slot; every other token is void (rule 12).
- A member has *caught up* in the last generation g of its lineage with t_g - 1 <= have (rules 8, 12): only then
  does its `have` refer to g. Comparing (caught-up generation, have) finds the longest valid history, as
  comparing (last term, length) does in Raft.

Deviation from MS §5: the paper has one permanent schedule; a lineage makes the schedule survive reformations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from levelcast.protocol.events import RefuseReason, RingRefused
from levelcast.timing.rules import Timing
from levelcast.wire.messages import UNIT_NS, Era, MemberLife, Ring


class Lineage:
    """The generations of one tape, oldest first, with strictly rising start slots."""

    __slots__ = ("_slot_ns", "eras")

    def __init__(self, eras: Sequence[Era], slot_ns: int) -> None:
        assert all(a.start_slot < b.start_slot and a.generation < b.generation for a, b in pairwise(eras))
        self.eras = tuple(eras)
        self._slot_ns = slot_ns

    def era_of(self, slot: int) -> Era | None:
        """Return the generation that `slot` belongs to; None before the lineage begins."""
        for era in reversed(self.eras):
            if era.start_slot <= slot:
                return era
        return None

    def generation_of(self, slot: int) -> int:
        """Return the only generation that is valid for a token of `slot`; 0 before the lineage begins."""
        era = self.era_of(slot)
        return era.generation if era is not None else 0

    def time_of(self, slot: int) -> int:
        """Return the scheduled time of `slot`, which is its token's timestamp (rule 1)."""
        era = self.era_of(slot)
        if era is None:
            return 0
        return era.start_ns + (slot - era.start_slot) * self._slot_ns

    def caught_up(self, have: int) -> int:
        """Return the last generation g with t_g - 1 <= have, else 0."""
        for era in reversed(self.eras):
            if era.start_slot - 1 <= have:
                return era.generation
        return 0

    def extended(self, era: Era, settled: int) -> tuple[Era, ...]:
        """Return this lineage up to `era`'s start, followed by `era`.

        Generations that end below `settled` are omitted. Up to that slot no member of the new ring needs its journal,
        because tape and checkpoint suffice; so no member will have to distinguish their tokens from void ones.
        """
        kept = [old for old in self.eras if old.start_slot < era.start_slot]
        while len(kept) >= 2 and kept[1].start_slot <= settled:
            kept.pop(0)
        return (*kept, era)


class Schedule:
    """The slots of one ring: the last era of its lineage and its members in ring order."""

    __slots__ = (
        "_index",
        "_members",
        "_slot_ns",
        "_start_ns",
        "generation",
        "helper",
        "lineage",
        "lives",
        "start_slot",
    )

    def __init__(self, ring: Ring, slot_ns: int) -> None:
        self.lineage = Lineage(ring.lineage, slot_ns)
        last = ring.lineage[-1]
        assert last.generation == ring.generation
        self.generation = ring.generation
        self.start_slot = last.start_slot
        self._start_ns = last.start_ns
        self._slot_ns = slot_ns
        self._members = tuple(entry.member for entry in ring.members)
        self._index = {member: i for i, member in enumerate(self._members)}
        self.lives: dict[int, MemberLife] = {entry.member: entry for entry in ring.members}
        self.helper = ring.helper

    @property
    def members(self) -> tuple[int, ...]:
        return self._members

    def time_of(self, slot: int) -> int:
        if slot >= self.start_slot:
            return self._start_ns + (slot - self.start_slot) * self._slot_ns
        return self.lineage.time_of(slot)

    def owner_of(self, slot: int) -> int:
        """Return the owner of a slot of this generation (rule 1)."""
        assert slot >= self.start_slot
        return self._members[(slot - self.start_slot) % len(self._members)]

    def first_own_slot(self, member: int) -> int:
        """Return the first slot of this generation that is `member`'s; the others follow every m slots."""
        return self.start_slot + self._index[member]

    def tick_time(self, tick: int) -> int:
        """Return the time of a claim."""
        return self._start_ns + tick * UNIT_NS

    def tick_at(self, now: int) -> int:
        return (now - self._start_ns) // UNIT_NS

    def last_beat(self, member: int, now: int, beat_ns: int) -> int:
        """Return the tick of the last beat of `member` that is due at `now`; below 1 before the first.

        Members take turns within β, so that their beats do not collide.
        """
        every = max(1, beat_ns // UNIT_NS)
        place = self._index[member] * every // len(self._members)
        return self.tick_at(now) - (self.tick_at(now) - place) % every

    def next_beat(self, member: int, now: int, beat_ns: int) -> int:
        """Return the tick of the first beat of `member` after `now`."""
        every = max(1, beat_ns // UNIT_NS)
        tick = self.last_beat(member, max(now, self._start_ns), beat_ns) + every
        return tick if tick > 0 else tick + every

    def slot_at(self, now: int) -> int:
        """Return the last slot that is due at `now` (one below the start slot if none is)."""
        return (
            self.start_slot + (now - self._start_ns) // self._slot_ns if now >= self._start_ns else self.start_slot - 1
        )


def refusal(ring: Ring, now: int, timing: Timing) -> RingRefused | None:
    """Return the reason why a member must not enter this ring, or None (rule 12).

    The start time must not be before the last slot of the previous ring, nor so late that releases stop for long.
    """
    lineage = Lineage(ring.lineage[:-1], timing.slot_ns)
    start = ring.lineage[-1]
    earliest_ns = lineage.time_of(start.start_slot - 1) + timing.slot_ns if lineage.eras else 0
    if start.start_ns < earliest_ns:
        return RingRefused(start.start_slot, ring.server, RefuseReason.EARLY, start.start_ns, earliest_ns)
    nearby_ns = 4 * (timing.lead_ns + timing.join_ns + timing.late_ns)
    latest_ns = max(now, earliest_ns) + nearby_ns
    if start.start_ns > latest_ns:
        return RingRefused(start.start_slot, ring.server, RefuseReason.FAR, start.start_ns, latest_ns)
    return None
