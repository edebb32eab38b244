"""The hold time as a function of timestamps: changes of it are records of the sequence (rule W9).

A change applies from its `from_ns` on, to slots with that timestamp or a later one. It counts only if it follows the
change before it:

- its version is the next one, and `before_ns` is the hold time that the last change has reached by then;
- it is ordered when the last change applies already, so that there is one change under way at most;
- it is released, at timestamp + Δ_A of its slot, before `from_ns`: receivers and their subscribers know it by then.

Everything else in a record of the sequence is skipped, so all readers of the tape find the same changes.

A shorter hold time is reached in steps. It falls by half of the time that passes, τ/2 per slot: otherwise a slot would
be due before the one ahead of it. A longer one applies at once.

Deviation from DESIGN rule W9: a change applies from a time, not from a slot. So a reader that knows neither τ nor the
generations of the ring, as a subscriber, finds the same hold time.
"""

from __future__ import annotations

from collections.abc import Sequence

from levelcast.wire.messages import PaceChange

KEPT = 4
"""Changes that a receiver keeps: older ones apply to no slot that is open."""
FALL = 2
"""A hold time falls by the time that passes, divided by this."""


def hold_at(changes: Sequence[PaceChange], timestamp_ns: int, first_ns: int) -> int:
    """Return Δ_A of a slot with this timestamp; `first_ns` is that before all changes."""
    change = change_at(changes, timestamp_ns)
    if change is not None:
        return _reached(change, timestamp_ns)
    return first_ns if not changes or changes[0].version == 1 else changes[0].before_ns


def change_at(changes: Sequence[PaceChange], timestamp_ns: int) -> PaceChange | None:
    """Return the change that applies to a slot with this timestamp; None before the first."""
    return next((change for change in reversed(changes) if applies(change, timestamp_ns)), None)


def applies(change: PaceChange, timestamp_ns: int) -> bool:
    return timestamp_ns >= change.from_ns


def with_change(changes: Sequence[PaceChange], change: PaceChange, timestamp_ns: int) -> list[PaceChange]:
    """Return the changes after a slot with this timestamp has ordered `change`, which counts only if it follows."""
    return [*changes[1 - KEPT :], change] if follows(changes, change, timestamp_ns) else list(changes)


def follows(changes: Sequence[PaceChange], change: PaceChange, timestamp_ns: int) -> bool:
    """Return whether `change`, ordered by a slot with this timestamp, counts after `changes`."""
    if not changes:
        return change.version == 1 and is_known_before(change, timestamp_ns + change.before_ns)
    last = changes[-1]
    return (
        change.version == last.version + 1
        and applies(last, timestamp_ns)
        and change.before_ns == last.pace.hold_ns == _reached(last, change.from_ns)
        and is_known_before(change, timestamp_ns + _reached(last, timestamp_ns))
    )


def is_known_before(change: PaceChange, release_ns: int) -> bool:
    """Return whether a change that is released at this time is known before it applies."""
    return change.from_ns > release_ns


def _reached(change: PaceChange, timestamp_ns: int) -> int:
    """Return Δ_A at a time at which `change` applies."""
    return max(change.pace.hold_ns, change.before_ns - fallen_ns(timestamp_ns - change.from_ns))


def fallen_ns(passed_ns: int) -> int:
    """Return by how much a hold time may have become shorter after this time."""
    return passed_ns // FALL
