"""Running many histories: over seeds, over processes, with mutations, and adding up what they contained."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from levelcast.sim.engine.trace_text import narrate
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.scenarios.nack import nack_history
from levelcast.sim.scenarios.receivers import ReceiversHistory
from levelcast.sim.scenarios.ring import Outcome, RingHistory
from levelcast.units import quantile

SCENARIOS: dict[str, Callable[[int], RingHistory]] = {
    "ring": RingHistory,
    "receivers": ReceiversHistory,
    "nack": nack_history,
}
"""Every scenario builds a history from a seed."""

CHUNK = 25
"""Seeds that a worker process takes at a time."""


@dataclass(slots=True)
class Summary:
    """Many outcomes added up."""

    histories: int = 0
    events: int = 0
    datagrams: int = 0
    simulated_ns: int = 0
    packets: int = 0
    releases: int = 0
    late_releases: int = 0
    reformations: int = 0
    voided_slots: int = 0
    crashes: int = 0
    disks_lost: int = 0
    membership_changes: int = 0
    caught_up_by_frames: int = 0
    strikes: int = 0
    malformed: int = 0
    secondaries: int = 0
    groups: int = 0
    layers: int = 0
    stripes: int = 0
    plans: int = 0
    customers: int = 0
    delivered: int = 0
    requests: int = 0
    lost: int = 0
    merged: int = 0
    liveness_ratios: list[float] = field(default_factory=list)
    broken: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        if outcome.broken is not None:
            self.broken.append(outcome)
        elif outcome.bound_ns:
            self.liveness_ratios.append(outcome.liveness_ns / outcome.bound_ns)

    def liveness_quantile(self, share: float) -> float:
        """How much of the liveness bound the given share of histories needed at most."""
        return float(quantile(self.liveness_ratios, share))

    def as_json(self) -> dict[str, object]:
        """The summary as a program reads it."""
        values: dict[str, object] = {name: getattr(self, name) for name in ("histories", *_ADDED)}
        values["simulated_hours"] = self.simulated_ns / 3.6e12
        values["liveness_share_of_bound"] = {
            name: round(self.liveness_quantile(share), 4)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        }
        values["broken"] = [{"seed": outcome.seed, "why": outcome.broken} for outcome in self.broken]
        return values


_ADDED = (
    "events", "datagrams", "simulated_ns", "packets", "releases", "late_releases", "reformations", "voided_slots",
    "crashes", "disks_lost", "membership_changes", "caught_up_by_frames", "strikes", "malformed",
    "secondaries", "groups", "layers", "stripes", "plans", "customers", "delivered", "requests", "lost", "merged",
)  # fmt: skip


def run_seed(scenario: str, seed: int, mutation: str | None = None) -> Outcome:
    """One history."""
    with MUTATIONS[mutation].applied() if mutation is not None else nullcontext():
        return SCENARIOS[scenario](seed).run()


def replay(scenario: str, seed: int, mutation: str | None = None, *, last: int = 120) -> tuple[Outcome, list[str]]:
    """One history with the end of its trace as text."""
    with MUTATIONS[mutation].applied() if mutation is not None else nullcontext():
        history = SCENARIOS[scenario](seed)
        outcome = history.run()
    return outcome, list(narrate(history.world.trace_lines))[-last:]


def replay_command(scenario: str, seed: int, mutation: str | None = None) -> str:
    """The one line that shows a failing history again."""
    without = f" --without {mutation}" if mutation is not None else ""
    return f"levelcast sim --scenario {scenario} --seeds {seed}..{seed}{without} --trace"


def run_seeds(scenario: str, seeds: Sequence[int], jobs: int = 1, mutation: str | None = None) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds, however many processes work on them."""
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(scenario, seed, mutation)
        return
    chunks = [(scenario, list(seeds[i : i + CHUNK]), mutation) for i in range(0, len(seeds), CHUNK)]
    # Forked before any thread exists; nothing is shared but the code.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for outcomes in pool.imap(_run_chunk, chunks):
            yield from outcomes


def _run_chunk(chunk: tuple[str, list[int], str | None]) -> list[Outcome]:
    scenario, seeds, mutation = chunk
    return [run_seed(scenario, seed, mutation) for seed in seeds]


def first_failing_seed(scenario: str, mutation: str, seeds: Sequence[int], jobs: int = 1) -> Outcome | None:
    """The first history that breaks without a clause, or None."""
    for outcome in run_seeds(scenario, seeds, jobs, mutation):
        if outcome.broken is not None:
            return outcome
    return None
