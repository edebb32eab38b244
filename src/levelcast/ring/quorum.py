"""Majorities of primaries (rules 8 and 12).

- A majority refers to the *configured* primaries, not to the members of the current ring.
- A primary counts only with the life in the configured set. After a disk loss it has a new life, which does not count
  until a record has replaced the old one.
- While a change of the set is in doubt (its record is held but not known to be witnessed), both the old and the
  new set must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from levelcast.protocol.history import MembershipChange
from levelcast.wire.messages import Join, MemberLife, Membership


def majority(membership: Membership) -> int:
    """Return the number of primaries that is more than half of the configured set."""
    return len(membership.members) // 2 + 1


def has_majority(membership: Membership, present: Collection[MemberLife]) -> bool:
    """Return whether `present` contains a majority of the set, each with the life in the set."""
    return sum(entry in present for entry in membership.members) >= majority(membership)


def counted(joins: Collection[Join]) -> set[MemberLife]:
    """Return the lives that sent the JOINs, which count towards a majority (rule 12)."""
    return {MemberLife(join.member, join.life) for join in joins}


def in_doubt(best: Join, joins: Collection[Join]) -> bool:
    """Return whether the best joiner's newest record may not have been witnessed (rule 12)."""
    if best.before is None:
        return False
    version = best.current.version
    return not any(
        join.current.version > version or (join.current.version == version and join.current_witnessed) for join in joins
    )


def may_form(best: Join, joins: Collection[Join]) -> bool:
    """Return whether a RING may be formed from these JOINs (rule 12)."""
    present = counted(joins)
    if not has_majority(best.current, present):
        return False
    return not (in_doubt(best, joins) and best.before is not None and not has_majority(best.before, present))


def witnessed_by_majority(
    slot: int,
    records: Sequence[MembershipChange],
    witnessed: int,
    standing: int,
    has: Callable[[MemberLife, int], bool],
) -> bool:
    """Return whether majorities of the configured sets hold `slot` (rules 8, 12).

    `records` are the configured sets as ordered, oldest first; `witnessed` is the highest slot already known to
    be witnessed; `standing` is the version of the set whose record is witnessed according to the RING;
    `has(life, slot)` returns whether that primary has claimed the slot in this generation.
    """
    current = previous = None
    for record in records:
        if record.slot <= slot:
            previous, current = current, record
        if slot <= record.slot and record.membership.version <= standing:
            return True  # the record is witnessed, and with it every slot up to its own
    if current is None:
        return True  # a set is changed only when the change before is witnessed, so this slot is too
    if not _majority_has(current.membership, slot, has):
        return False
    if previous is None or current.slot <= witnessed:
        return True
    return old_set_agrees(previous, current, has)


def old_set_agrees(
    previous: MembershipChange, current: MembershipChange, has: Callable[[MemberLife, int], bool]
) -> bool:
    """Return whether a majority of the previous set holds the record of a change in doubt (rule 12)."""
    return _majority_has(previous.membership, current.slot, has)


def _majority_has(membership: Membership, slot: int, has: Callable[[MemberLife, int], bool]) -> bool:
    return sum(has(entry, slot) for entry in membership.members) >= majority(membership)
