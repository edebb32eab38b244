"""Run a world: the core in bulk, then the subscribers, and compute the metrics of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from levelcast.sim.bulk.cities import Globe
from levelcast.sim.bulk.core import BulkCore, CoreRun
from levelcast.sim.bulk.edge import BEST_EFFORT, BIN_MS, BINS, EARLIEST_MS, BulkEdge, EdgeRules, EdgeRun
from levelcast.sim.bulk.paths import NS_PER_MS, Core, Times
from levelcast.timing.rules import Timing
from levelcast.timing.secondary import group_round_ns

Tell = Callable[[str, int, int], None]
PARTS = ("trial", "core", "customers")
"""Parts of a run: the core with rule 6's hold time, to find the one it needs; the core; the subscribers."""
TRIAL_SEED = 1_000_003
"""Added to the seed for the trial."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a run."""

    loss: float
    slots: int = 1_000
    """Number of measured slots in the core."""
    follow: int = 200
    """Number of those slots that are simulated at the subscribers."""
    packets_per_slot: float = 1.0
    branch_loss: float = 0.0
    seed: int = 1
    together_ms: float | None = None
    """Bound of the subscribers after the release time; None: the largest p99 of the arrival times in a city."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 0.5 or not 0.0 <= self.branch_loss <= 0.5:
            raise ValueError("loss and branch loss must be ratios from 0 to 0.5")
        if self.slots < 2 or self.follow < 1 or self.packets_per_slot <= 0:
            raise ValueError("a run is too short; use at least two slots with packets, and follow at least one")


@dataclass(frozen=True, slots=True)
class WorldRun:
    """One run of a world."""

    conditions: Conditions
    timing: Timing
    core: CoreRun
    edge: EdgeRun
    primaries: int
    secondaries: int
    """Those of one primary, without the layer below."""
    clock_error_ms: float = 0.0
    cities: tuple[str, ...] = ()

    @property
    def hold_ms(self) -> float:
        return self.timing.hold_ns / NS_PER_MS

    def missing_cities(self, most: int = 5) -> list[tuple[str, float]]:
        """Return the cities with the largest fractions of packets that miss the bound, and these."""
        missed = self.edge.missed(self.together_ms)
        order = np.argsort(-missed, kind="stable")[:most].tolist()
        return [(self.cities[city], float(missed[city])) for city in order if missed[city] > 0]

    @property
    def together_ms(self) -> float:
        """The bound with which subscribers deliver together."""
        given = self.conditions.together_ms
        return self.edge.bound_ms() if given is None else given

    @property
    def instant_ms(self) -> Times:
        """Earliest common release time of each slot by rule 7: the w-th smallest of said_j + H_j."""
        return self.core.instant_ms

    def latency_ms(self, share: float) -> float:
        """Return a quantile of the time from source to subscriber: wait for a token, hold time and line together.

        The wait and the line delay are independent, so their distributions are convolved.
        """
        per_ms = round(1 / BIN_MS)
        lines = self.edge.arrivals.sum(axis=0)[: BINS // per_ms * per_ms].reshape(-1, per_ms).sum(axis=1)
        waits = np.bincount(np.maximum(self.core.wait_ms, 0.0).astype(np.intp))
        passed = np.cumsum(np.convolve(lines, waits))
        return float(self.hold_ms + EARLIEST_MS + np.searchsorted(passed, share * passed[-1]) + 1.0)

    def figures(self) -> dict[str, float]:
        """Return all metrics by name, in ms and as fractions."""
        return {**self._core_figures(), **self._edge_figures(), **self._load_figures()}

    def _core_figures(self) -> dict[str, float]:
        core, timing = self.core, self.timing
        packets = max(core.packets_counted, 1)
        at_once = core.release.max(axis=1) - core.release.min(axis=1)
        primaries = core.nacks[: self.primaries] / packets
        return {
            "loss": self.conditions.loss,
            "late_ms": timing.late_ns / NS_PER_MS,
            "request_ms": timing.request_ns / NS_PER_MS,
            "attempts": timing.attempts,
            "hold_ms": self.hold_ms,
            "slots": len(core.slots),
            "packets": core.packets_counted,
            "releases": core.release.size,
            "on_time": core.on_time,
            **{f"held_p{name}_ms": float(np.quantile(core.held, at)) for name, at in _SHARES},
            **{f"ready_p{name}_ms": float(np.quantile(core.ready, at)) for name, at in _SHARES},
            "held_max_ms": float(core.held.max()),
            "ready_max_ms": float(core.ready.max()),
            "instant_max_ms": float(self.instant_ms.max()),
            "release_spread_ms": float(np.median(at_once)),
            "primary_nacks_peak": core.nacks_peak,
            "core_nacks_per_packet": float(core.nacks.sum() / packets),
            "primary_nacks_busiest": float(primaries.max()),
            "primary_nacks_mean": float(primaries.mean()),
            "answer_copies_per_packet": core.copies / packets / core.release.shape[1],
            "answers_multicast": core.answers_to_all / max(core.answers, 1),
            "attempts_most": core.attempts_most,
            "faults": core.faults,
        }

    def _edge_figures(self) -> dict[str, float]:
        edge = self.edge
        came = max(int(edge.arrivals.sum()), 1)
        inner = edge.region_spreads_ms()
        first_to_last = np.median(edge.region_spread_ms[edge.arrivals.any(axis=1)], axis=1)
        return {
            "followed": edge.slots,
            **{f"customer_p{name}_ms": edge.quantile_ms(at) for name, at in (*_SHARES, ("99.99", 0.9999))},
            "customer_max_ms": edge.slowest_ms,
            "world_spread_p1_p99_ms": edge.quantile_ms(0.99) - edge.quantile_ms(0.01),
            "world_spread_first_last_ms": float(np.median(edge.spread_ms)),
            "region_spread_p1_p99_median_ms": float(np.median(inner)),
            "region_spread_p1_p99_worst_ms": max(inner),
            "region_spread_first_last_median_ms": float(np.median(first_to_last)),
            "by_first_line": edge.first_line / came,
            "by_second_line": edge.second_line / came,
            "by_repair": edge.repaired / came,
            "best_effort_lost": float(edge.lost[BEST_EFFORT]) / came,
            "edge_nacks_busiest": float(edge.nacks.max() / edge.slots),
            "edge_nacks_mean": float(edge.nacks.mean() / edge.slots),
            "edge_nacks_per_packet": float(edge.asked.sum() / edge.slots),
            **{f"latency_p{name}_ms": self.latency_ms(at) for name, at in _SHARES},
            **self._together_figures(),
        }

    def _together_figures(self) -> dict[str, float]:
        """Return metrics of subscribers that deliver at the release time plus the bound."""
        edge, bound_ms, clock_ms = self.edge, self.together_ms, self.clock_error_ms
        low, middle, high = (edge.together_quantile_ms(share, bound_ms, clock_ms) for share in (0.01, 0.5, 0.99))
        missed = edge.missed(bound_ms)
        delivered = edge.places.sum(axis=1)
        return {
            "together_ms": bound_ms,
            "together_spread_p1_p99_ms": high - low,
            "together_p50_ms": middle,
            "together_missed": float((missed * delivered).sum() / max(int(delivered.sum()), 1)),
            "together_missed_worst_city": float(missed.max(initial=0.0)),
        }

    def _load_figures(self) -> dict[str, float]:
        """Return the messages/s that a receiver receives, next to the packets themselves."""
        slots_per_s = 1e9 / self.timing.slot_ns
        packets_per_s = self.core.packets_counted / len(self.core.slots) * slots_per_s
        round_ns = group_round_ns(self.timing, self.timing.beat_ns, self.secondaries)
        copies = self.core.copies / max(self.core.packets_counted, 1) / self.core.release.shape[1]
        return {
            "tokens_per_s": slots_per_s,
            "packets_per_s": packets_per_s,
            "group_tokens_per_s": self.secondaries * 1e9 / round_ns,
            "answers_per_s": copies * packets_per_s,
        }


_SHARES = (("50", 0.5), ("90", 0.9), ("99", 0.99), ("99.9", 0.999))


def with_hold(core: Core, trial: CoreRun) -> Core:
    """Return the core with the hold time that the slowest release of a trial run needed, and δ_N for one more repair.

    The model of `levelcast.timing.hold` would need minutes for so many receivers.
    """
    timing = core.timing
    hold_ns = int(np.ceil(trial.needed_ms)) * int(NS_PER_MS) + timing.late_ns
    return replace(core, timing=replace(timing, hold_ns=min(hold_ns, timing.hold_ns)))


def run_world(globe: Globe, conditions: Conditions, tell: Tell | None = None) -> WorldRun:
    """Run the core, then the subscribers. The same globe and conditions give the same metrics, bit for bit."""
    size = globe.size
    core = globe.core(conditions.loss, branch_loss=conditions.branch_loss)
    gap_ms = size.sources * size.slot_ms / conditions.packets_per_slot
    of_trial, of_core, of_edge = (partial(tell, part) if tell is not None else None for part in PARTS)

    def run(core: Core, seed: int, tell: Callable[[int, int], None] | None) -> CoreRun:
        return BulkCore(core, seed).run(conditions.slots, gap_ms, warm=2 * size.primaries, tell=tell)

    core = with_hold(core, run(core, conditions.seed + TRIAL_SEED, of_trial))
    in_core = run(core, conditions.seed, of_core)
    rules = EdgeRules(branch_loss=conditions.branch_loss)
    edge = BulkEdge(core.delays, core.city, globe.customers, rules, conditions.seed + 1)
    at_edge = edge.run(in_core, core.timing.hold_ns / NS_PER_MS, size.slot_ms, conditions.follow, of_edge)
    return WorldRun(
        conditions,
        core.timing,
        in_core,
        at_edge,
        size.primaries,
        size.groups[0],
        size.clock_error_ms,
        core.delays.names,
    )
