"""Clean days to audit, and days with one planted fault: a simulated network whose receivers leave tapes and logs.

The simulator releases at the very instant. A real receiver is some time behind it, more on some machines than on
others, and now and then it stalls; what is slow stays slow for a while. `Punctuality` adds that to the logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from levelcast.network import Network, five_cities, parse_network
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.history import Frame, first_tip
from levelcast.sim.engine.network import LinkNetwork
from levelcast.sim.engine.world import SimNode
from levelcast.sim.rehearsal import Deployment, Rehearsal
from levelcast.storage.release_log import LATE, RELEASE, Released, ReleaseLog
from levelcast.storage.tape.writer import TapeWriter

SECOND = 1_000_000_000
_STICKS = 0.95
"""How much of its slowness a receiver keeps from one slot to the next."""


@dataclass(frozen=True, slots=True)
class Punctuality:
    """How far behind the instant receivers release."""

    median_ns: tuple[float, float] = (30_000.0, 150_000.0)
    """Machines differ: the medians lie in this range."""
    sigma: float = 0.6
    stall_share: float = 0.002
    """Of the slots, in how many a stall begins, of up to `stall_ns` and some slots."""
    stall_ns: float = 8_000_000.0

    def delays(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """Of so many slots of one receiver."""
        noise = rng.normal(size=count) * np.sqrt(1 - _STICKS**2)
        slowness = np.empty(count)
        last = rng.normal()
        for i in range(count):
            last = slowness[i] = _STICKS * last + noise[i]
        delays = rng.uniform(*self.median_ns) * np.exp(self.sigma * slowness)
        for start in np.flatnonzero(rng.random(count) < self.stall_share).tolist():
            length = int(rng.integers(1, 6))
            delays[start : start + length] += rng.uniform(0, self.stall_ns)
        made: npt.NDArray[np.int64] = delays.astype(np.int64)
        return made


@dataclass(slots=True)
class Day:
    """What the receivers of a network recorded."""

    network: Network
    deployment: Deployment
    frames: dict[str, list[Frame]] = field(default_factory=dict)
    releases: dict[str, npt.NDArray[np.void]] = field(default_factory=dict)

    def write(self, data: Path, *, records_per_segment: int = 20_000) -> None:
        """As the nodes' own directories."""
        first = first_tip(self.deployment.config)
        for name, frames in self.frames.items():
            writer = TapeWriter.open(data / name / "tape", first, records_per_segment=records_per_segment)
            writer.extend(frames)
            writer.close()
            log = ReleaseLog(data / name / "releases")
            log.append(
                [Released(slot, generation, due, at, records, bool(flags & LATE), ready)
                 for slot, generation, due, at, ready, records, flags in self.releases[name].tolist()]
            )  # fmt: skip
            log.close()


class _Clerk:
    """Writes down every release, by the receiver's own clock."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, ...]]] = {}

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Release):
            frame = effect.frame
            row = (frame.slot, 1, effect.scheduled_ns, node.local_ns, 0, frame.records, LATE if effect.late else 0)
            self.rows.setdefault(node.id, []).append(row)


def simulate(
    seed: int,
    seconds: float,
    *,
    network: Network | None = None,
    slow_source: str | None = None,
    slow_ns: int = 0,
    punctuality: Punctuality | None = None,
) -> Day:
    """A day of `seconds`. The packets of `slow_source` reach every receiver `slow_ns` later than the file says."""
    chosen = network or parse_network(five_cities())
    deployment = Deployment(chosen, seed)
    links = deployment.world.network
    assert isinstance(links, LinkNetwork)
    floors = {floor.name: floor.id for floor in chosen.floors}
    if slow_source is not None:
        for receiver in chosen.receivers:
            pair = floors[slow_source], receiver.id
            links.links[pair] = replace(links.links[pair], delay_ns=links.links[pair].delay_ns + slow_ns)
    clerk = _Clerk()
    rehearsal = Rehearsal(deployment, int(seconds * SECOND), ())
    deployment.world.watchers.append(clerk)
    for _ in rehearsal.steps():
        pass
    assert rehearsal.broken is None, rehearsal.broken
    day = Day(chosen, deployment)
    rng = np.random.default_rng(seed)
    for receiver, node in zip(chosen.receivers, deployment.receivers, strict=True):
        day.frames[receiver.name] = node.disk.tape.frames
        rows = np.array(clerk.rows[node.id], RELEASE)
        rows["released_ns"] += (punctuality or Punctuality()).delays(rng, len(rows)).astype(np.uint64)
        day.releases[receiver.name] = rows
    return day
