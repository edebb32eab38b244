"""Run many histories over seeds and processes, with or without a mutation, and sum their counts."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial

from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.sim.engine.trace_text import narrate
from levelcast.sim.entry_mutations import ENTRY_MUTATIONS
from levelcast.sim.mutations import MUTATIONS, Mutation
from levelcast.sim.scenarios.chain import ChainHistory, GroupSize
from levelcast.sim.scenarios.clocks import ClocksHistory
from levelcast.sim.scenarios.entry import EntryHistory
from levelcast.sim.scenarios.group import GroupHistory
from levelcast.sim.scenarios.nack import nack_history
from levelcast.sim.scenarios.overlay import OverlayReceiversHistory, OverlayRingHistory
from levelcast.sim.scenarios.receivers import ReceiversHistory
from levelcast.sim.scenarios.ring import HistoryCounts, Outcome, RingHistory
from levelcast.sim.scenarios.secured import SECURED
from levelcast.sim.secured_mutations import SECURED_MUTATIONS
from levelcast.units import quantile

CHAIN = "chain"
"""The scenario with members that lie."""
ENTRY = "entry"
"""The scenario with order entry; it has the clauses of order entry, those of the ring are searched for in `ring`."""
History = RingHistory | ClocksHistory | GroupHistory | ChainHistory
SCENARIOS: dict[str, Callable[[int], History]] = {
    "ring": RingHistory,
    "receivers": ReceiversHistory,
    "nack": nack_history,
    "clocks": ClocksHistory,
    ENTRY: EntryHistory,
    "ring-overlay": OverlayRingHistory,
    "receivers-overlay": OverlayReceiversHistory,
    "group": GroupHistory,
    CHAIN: ChainHistory,
    **SECURED,
}
"""By scenario: builds a history from a seed."""

CHUNK = 25
"""Number of seeds per task of a worker process."""


@dataclass(slots=True)
class Summary(HistoryCounts):
    """Sum over many outcomes."""

    histories: int = 0
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
        """Return a quantile (`share`) of the time to liveness, as a fraction of the bound."""
        return float(quantile(self.liveness_ratios, share))

    def as_json(self) -> dict[str, object]:
        """Return the summary as JSON values."""
        values: dict[str, object] = {name: getattr(self, name) for name in ("histories", *_ADDED)}
        values["simulated_hours"] = self.simulated_ns / 3.6e12
        values["liveness_share_of_bound"] = {
            name: round(self.liveness_quantile(share), 4)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        }
        values["broken"] = [{"seed": outcome.seed, "why": outcome.broken} for outcome in self.broken]
        return values


ALL_MUTATIONS = MUTATIONS | CHAIN_MUTATIONS | ENTRY_MUTATIONS | SECURED_MUTATIONS
_ADDED = [each.name for each in fields(HistoryCounts)]


def mutated(mutation: str | None) -> AbstractContextManager[None]:
    """Return a context that removes a clause, or one that changes nothing."""
    return ALL_MUTATIONS[mutation].applied() if mutation is not None else nullcontext()


def mutations_of(scenario: str) -> Mapping[str, Mutation]:
    """Return the clauses that can be removed from the rules of a scenario."""
    special = {CHAIN: CHAIN_MUTATIONS, ENTRY: ENTRY_MUTATIONS} | dict.fromkeys(SECURED, SECURED_MUTATIONS)
    return special.get(scenario, MUTATIONS)


def history_of(scenario: str, seed: int, group: GroupSize | None = None) -> History:
    """Return the history of a seed; only the scenario `chain` has a group."""
    return ChainHistory(seed, group) if group is not None else SCENARIOS[scenario](seed)


def run_seed(scenario: str, seed: int, mutation: str | None = None, group: GroupSize | None = None) -> Outcome:
    """Run one history."""
    with mutated(mutation):
        return history_of(scenario, seed, group).run()


def replay(
    scenario: str, seed: int, mutation: str | None = None, *, last: int = 120, group: GroupSize | None = None
) -> tuple[Outcome, list[str]]:
    """Run one history and return its outcome with the end of its trace as text."""
    with mutated(mutation):
        history = history_of(scenario, seed, group)
        outcome = history.run()
    return outcome, list(narrate(history.world.trace_lines))[-last:]


def replay_command(scenario: str, seed: int, mutation: str | None = None, group: GroupSize | None = None) -> str:
    """Return the command that replays a failing history."""
    without = f" --without {mutation}" if mutation is not None else ""
    size = "" if group is None else f" --members {group.members}"
    size += "" if group is None or group.liars is None else f" --liars {group.liars}"
    return f"levelcast sim --scenario {scenario}{size} --seeds {seed}..{seed}{without} --trace"


def run_seeds(
    scenario: str, seeds: Sequence[int], jobs: int = 1, mutation: str | None = None, group: GroupSize | None = None
) -> Iterator[Outcome]:
    """Yield outcomes in the order of the seeds, for any number of processes."""
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(scenario, seed, mutation, group)
        return
    # Forked before any thread exists; only the code is common to the processes.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(partial(run_seed, scenario, mutation=mutation, group=group), seeds, CHUNK)


def first_failing_seed(
    scenario: str, mutation: str, seeds: Sequence[int], jobs: int = 1, group: GroupSize | None = None
) -> Outcome | None:
    """Return the first history that fails without a clause, or None."""
    outcomes = run_seeds(scenario, seeds, jobs, mutation, group)
    return next((outcome for outcome in outcomes if outcome.broken is not None), None)
