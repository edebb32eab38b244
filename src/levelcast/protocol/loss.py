"""Find missing tokens and packets, and schedule requests for them (rule 5).

Each slot that is not complete has one record here, in one of two stages:

| stage   | begins                                 | requests                    | ends                  |
|---------|----------------------------------------|-----------------------------|-----------------------|
| TOKEN   | slot time + δ_N, token not held        | the token                   | token held -> PACKETS |
| PACKETS | token held, not before slot time + δ_N | its packets still missing   | all held -> gone      |

With NACK reduction a member of the set S_i counts from slot time + δ_N + i·τ_r instead (`levelcast.timing.nack_sets`).
Each stage sends a request every τ_r; after k_r requests without success a fault is reported, and requests continue.
This is the paper's two-stage recovery, R = δ_N + 2·k_r·τ_r (MS §5.1). The first request goes to the slot owner, which
holds the packets that it acknowledged; each further one goes to another member, first to those that claim the slot.

A member that catches up with slots from before its ring requests many and receives a part at a time. While that
advances it, its attempts at such slots restart from 0: a reformation is needed only if the helper does not answer.
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


class Want(NamedTuple):
    """A request to send now: the token of `slot`, or `runs` of packets that it names."""

    slot: int
    stage: Stage
    attempt: int
    runs: tuple[Run, ...]


class LossDetector:
    """The incomplete slots of one receiver."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._open: dict[int, OpenSlot] = {}
        self._have = 0
        self.next_ns: int | None = None
        """Time of the next call of `due`."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        return len(self._open) >= MAX_OPEN_SLOTS

    def open(self, slot: int, stage: Stage, at_ns: int) -> None:
        """Note that `slot` is incomplete; requests for it start at `at_ns`."""
        known = self._open.get(slot)
        if known is None:
            self._open[slot] = OpenSlot(stage, 0, at_ns)
        elif known.stage != stage:
            known.stage, known.attempts, known.next_ns = stage, 0, at_ns
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
        self, now: int, have: int, missing: Callable[[int], tuple[Run, ...] | None], start_slot: int = 0
    ) -> tuple[list[Want], list[tuple[int, int]]]:
        """Return the requests to send at `now`, and the (slot, reason) of stages that ran out of attempts.

        `missing(slot)` is None while the token is not held, else the packets of it that are not. The ring begins at
        `start_slot`.
        """
        self.close_up_to(have)
        if have > self._have:
            for slot, item in self._open.items():
                if slot < start_slot:
                    item.attempts = 0
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
                    item.stage, item.attempts = stage, 0
                if item.attempts and item.attempts % self._timing.attempts == 0:
                    faults.append((slot, FAULT_OF[stage]))
                wants.append(Want(slot, stage, item.attempts, runs or ()))
                item.attempts += 1
                item.next_ns = now + self._timing.request_ns
            if next_ns is None or item.next_ns < next_ns:
                next_ns = item.next_ns
        self.next_ns = next_ns
        return wants, faults

    def clear(self) -> None:
        self._open.clear()
        self.next_ns = None


def by_holder(
    wants: Iterable[Want], holder_of: Callable[[Want], int | None]
) -> Iterator[tuple[int, tuple[int, ...], tuple[Run, ...]]]:
    """Group the requests by the holder that receives them: (holder, slots, runs)."""
    slots: dict[int, list[int]] = {}
    runs: dict[int, dict[Run, None]] = {}
    for want in wants:
        asked = holder_of(want)
        if asked is None:
            continue
        slots.setdefault(asked, [])
        runs.setdefault(asked, {}).update(dict.fromkeys(want.runs))
        if want.stage == "TOKEN":
            slots[asked].append(want.slot)
    for asked in slots:
        yield asked, tuple(slots[asked][:MAX_SLOTS_PER_REQUEST]), tuple(runs[asked])[:MAX_RUNS_PER_REQUEST]


def holders(site: int | None, claims: Iterable[tuple[int, bool]], myself: int) -> list[int]:
    """Return the nodes to request from, best first: the slot owner, those that claim the slot, the rest by nearness."""
    claimed: list[int] = []
    others: list[int] = []
    for member, has in claims:
        if member not in (myself, site):
            (claimed if has else others).append(member)
    first = [site] if site is not None and site != myself else []
    return first + claimed + others
