"""Define *late*, and separate it from a process that runs late. Every part of Levelcast uses these terms.

- *Instant*: the timestamp of a frame + Δ_A (rule 7).
- *Ready*: the time at which the last item arrived that the release needs: its packets, its token, the tokens that
  witness it, and those of all earlier slots. An item arrives at the kernel's receive time plus the delay that the
  driver adds (`levelcast.runtime.impairment`). A receiver's own token arrives when it is due. Everything in the journal
  of a restarted receiver arrives at its start.
- *Late*, by protocol: the frame was not ready at its instant, or its witness was completed so late that the ring moved
  the release to a later time (rule 7).
- *Scheduling delay*: from the scheduled release time, or from ready if that is later, to the release. The process ran
  late, or the machine was busy.
- *Token delay*: from the time at which a receiver's own token was due to its sending. It delays the others. Each
  receiver logs its own, and a reader of all logs subtracts it: a release that would have been ready with punctual
  tokens is not late (`levelcast.storage.release_log.read_together`). One receiver cannot subtract the delays of others,
  so its status and its part of a certificate count such a release as late.

The driver finds the time of ready without a part in the protocol: it compares `Machine.ready_slot` before and after
each step. Datagrams that arrived before an instant and after it, but are read in one turn, are delivered in separate
steps. So whether a frame was ready at its instant does not depend on when the process ran.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from levelcast.runtime.sockets import Arrival


class ReadyTimes:
    """The time at which each slot became ready, until it is released."""

    def __init__(self, ready_slot: int, now: int) -> None:
        """Slots that are ready at the start have the time of the start."""
        self._marks: deque[tuple[int, int]] = deque([(ready_slot, now)])
        """Slots up to the first number, and after the mark before, became ready at this time."""

    def note(self, ready_slot: int, at_ns: int) -> None:
        """Record that every slot up to `ready_slot` is ready, the new ones since `at_ns`; a reformation voids slots."""
        marks = self._marks
        if ready_slot > marks[-1][0]:
            marks.append((ready_slot, at_ns))
        elif ready_slot < marks[-1][0]:
            since_ns = 0
            while marks and marks[-1][0] > ready_slot:
                since_ns = marks.pop()[1]
            if not marks or marks[-1][0] < ready_slot:
                marks.append((ready_slot, since_ns))

    def take(self, slot: int) -> int:
        """Return the time of a slot that is released, and forget those of earlier slots; 0 if it is unknown."""
        marks = self._marks
        while len(marks) > 1 and marks[0][0] < slot:
            marks.popleft()
        return marks[0][1] if marks[0][0] >= slot else 0


def split_at_instants(arrivals: Sequence[Arrival], instants: tuple[int, int] | None) -> list[Sequence[Arrival]]:
    """Return the arrivals in groups, so that no instant is between two arrivals of a group.

    `instants` are the first instant and the time between two. A group without arrivals is returned if there are none.

    >>> split_at_instants([("c", (), 31), ("a", (), 10), ("b", (), 11)], (10, 20))
    [[('a', (), 10)], [('b', (), 11)], [('c', (), 31)]]
    """
    if instants is None or not arrivals or latest_ns(arrivals) <= instants[0]:
        return [arrivals]
    first_ns, every_ns = instants
    groups: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        groups.setdefault(max(0, -((first_ns - arrival[2]) // every_ns)), []).append(arrival)
    return [groups[number] for number in sorted(groups)]


def latest_ns(arrivals: Sequence[Arrival]) -> int:
    return max(arrival[2] for arrival in arrivals)
