"""Find missing tokens and packets, and schedule requests for them (rule 5).

Each slot that is not complete has one record here, in one of two stages:

| stage   | requests begin                         | requests                    | ends                  |
|---------|----------------------------------------|-----------------------------|-----------------------|
| TOKEN   | slot time + delay of the owner         | the token                   | token held -> PACKETS |
| PACKETS | token held, not before that time       | its packets still missing   | all held -> gone      |

Whom to ask, when first and how often is `levelcast.protocol.repair_plan`. A stage that has not succeeded k_r·τ_r after
δ_N is reported as a fault, whatever the number of requests was, and requests continue. This is the paper's two-stage
recovery, R = δ_N + 2·k_r·τ_r (MS §5.1).

A member that catches up with slots from before its ring requests many and receives a part at a time. While that
advances it, its time for such slots starts again: a reformation is needed only if the helper does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from levelcast.timing.rules import Timing
from levelcast.wire.messages import FaultReason, Run

MAX_OPEN_SLOTS = 128
"""Maximum number of incomplete slots that are repaired at a time: a member with a large lag catches up in steps."""
MAX_SLOTS_PER_REQUEST = 64
MAX_RUNS_PER_REQUEST = 128

Stage = Literal["TOKEN", "PACKETS"]
FAULT_OF: dict[Stage, int] = {"TOKEN": FaultReason.TOKEN_MISSING, "PACKETS": FaultReason.PACKET_MISSING}


@dataclass(slots=True)
class OpenSlot:
    """A slot that is being repaired."""

    stage: Stage
    attempts: int
    next_ns: int
    fault_ns: int
    """Time at which a fault is reported."""


class Want(NamedTuple):
    """A request to send now: the token of `slot`, or `runs` of packets that it names."""

    slot: int
    stage: Stage
    attempt: int
    runs: tuple[Run, ...]


class LossDetector:
    """The incomplete slots of one receiver."""

    def __init__(self, timing: Timing) -> None:
        self._give_up_ns = timing.attempts * timing.request_ns
        self._open: dict[int, OpenSlot] = {}
        self._have = 0
        self.next_ns: int | None = None
        """Time of the next call of `due`."""

    def __len__(self) -> int:
        """Return the number of slots for which requests were sent."""
        return sum(item.attempts > 0 for item in self._open.values())

    def open(self, slot: int, stage: Stage, at_ns: int, missing_ns: int = 0) -> None:
        """Note that `slot` is incomplete; requests for it start at `at_ns`, and it may fail k_r·τ_r after `missing_ns`.

        That time is slot time + δ_N, or when requests start if this is later.
        """
        fault_ns = max(at_ns, missing_ns) + self._give_up_ns
        known = self._open.get(slot)
        if known is None:
            self._open[slot] = OpenSlot(stage, 0, at_ns, fault_ns)
        elif known.stage != stage:
            known.stage, known.attempts, known.next_ns, known.fault_ns = stage, 0, at_ns, fault_ns
        else:
            return
        if self.next_ns is None or at_ns < self.next_ns:
            self.next_ns = at_ns

    def close_up_to(self, have: int) -> None:
        """Remove the slots up to `have`, which are complete, and their timers."""
        done = [slot for slot in self._open if slot <= have]
        for slot in done:
            del self._open[slot]
        if done:
            self.next_ns = min((item.next_ns for item in self._open.values()), default=None)

    def due(
        self,
        now: int,
        have: int,
        missing: Callable[[int], tuple[Run, ...] | None],
        interval_ns: Callable[[Want], int],
        start_slot: int = 0,
    ) -> tuple[list[Want], list[tuple[int, int]]]:
        """Return the requests to send at `now`, and the (slot, reason) of stages that ran out of time.

        `missing(slot)` is None while the token is not held, else the packets of it that are not. `interval_ns` is the
        time from a request to the next one. The ring begins at `start_slot`.
        """
        self.close_up_to(have)
        if have > self._have:
            for slot, item in self._open.items():
                if slot < start_slot:
                    item.attempts, item.fault_ns = 0, max(now, item.next_ns) + self._give_up_ns
        self._have = have
        wants: list[Want] = []
        faults: list[tuple[int, int]] = []
        next_ns: int | None = None
        for slot in sorted(self._open):
            item = self._open[slot]
            if item.next_ns <= now:
                runs = missing(slot)
                stage: Stage = "TOKEN" if runs is None else "PACKETS"
                if runs == ():
                    del self._open[slot]
                    continue
                if stage != item.stage:
                    item.stage, item.attempts, item.fault_ns = stage, 0, now + self._give_up_ns
                if now >= item.fault_ns:
                    faults.append((slot, FAULT_OF[stage]))
                    item.fault_ns = now + self._give_up_ns
                want = Want(slot, stage, item.attempts, runs or ())
                wants.append(want)
                item.attempts += 1
                item.next_ns = min(now + interval_ns(want), item.fault_ns)
            if next_ns is None or item.next_ns < next_ns:
                next_ns = item.next_ns
        self.next_ns = next_ns
        return wants, faults

    def clear(self) -> None:
        self._open.clear()
        self.next_ns = None


def by_holder(
    wants: Iterable[Want], holders_of: Callable[[Want], Iterable[int]]
) -> Iterator[tuple[int, tuple[int, ...], tuple[Run, ...]]]:
    """Group the requests by the holder that receives them: (holder, slots, runs)."""
    slots: dict[int, list[int]] = {}
    runs: dict[int, dict[Run, None]] = {}
    for want in wants:
        for asked in holders_of(want):
            slots.setdefault(asked, [])
            runs.setdefault(asked, {}).update(dict.fromkeys(want.runs))
            if want.stage == "TOKEN":
                slots[asked].append(want.slot)
    for asked in slots:
        yield asked, tuple(slots[asked][:MAX_SLOTS_PER_REQUEST]), tuple(runs[asked])[:MAX_RUNS_PER_REQUEST]
