"""Run one history of any scenario and return its metrics as one row: the unit of work of a sweep.

A row has the scenario, its parameters as JSON, the seed, a verdict (`held`, `broken` or `crashed`), the reason, and the
metrics by name. An error inside a history also gives a row, with the error and its location; other histories continue.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blake3 import blake3

from levelcast.protocol.effects import Effect, Release
from levelcast.sim.bulk.cities import build_globe, made_up_cities
from levelcast.sim.bulk.run import Conditions, run_world
from levelcast.sim.check.ring import place_of, what_broke
from levelcast.sim.compare_protocols import AGAIN, CONTROL, ProtocolFigures, run_steady
from levelcast.sim.engine.world import SimNode
from levelcast.sim.parameters import STEADY, WORLD, Values, branches, nack_sets, size_of
from levelcast.sim.run import SCENARIOS, History, mutated
from levelcast.units import quantiles

HELD, BROKEN, CRASHED = "held", "broken", "crashed"
NOT_COMPUTED_BY = frozenset({"cli", "client", "formats", "node", "pipeline", "planner", "plots", "runtime", "web"})
"""Packages that no history uses. All others are part of the code version, new ones included."""
_DIGITS = 16

Item = tuple[str, str, int]
"""Scenario, parameters as JSON, seed."""
Row = dict[str, Any]
_NAMES = ("scenario", "parameters", "seed", "verdict", "broken", "cpu_s", "figures")


def as_text(values: Values) -> str:
    """Return parameters as canonical JSON: equal values give equal text."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"))


def code_version() -> str:
    """Return a digest of the sources that compute histories; histories of different versions are not comparable."""
    root = Path(__file__).resolve().parents[1]
    digest = blake3()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in NOT_COMPUTED_BY:
            digest.update(str(relative).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:_DIGITS]


def run_items(items: Iterable[Item]) -> list[Row]:
    """Run the histories of one task in sequence."""
    return [run_item(*item) for item in items]


def run_item(scenario: str, parameters: str, seed: int) -> Row:
    """Run one history and return its row, even if the history fails."""
    begun = time.process_time()
    figures: dict[str, Any] = {}
    broken: str | None = None
    try:
        broken, figures = _run(scenario, json.loads(parameters), seed)
        verdict = HELD if broken is None else BROKEN
    except AssertionError as error:
        verdict, broken = BROKEN, what_broke(error)
    except Exception as error:
        verdict, broken = CRASHED, f"{type(error).__name__}: {error} in {place_of(error)}"
    return _row((scenario, parameters, seed), verdict, broken, time.process_time() - begun, figures)


def crashed(item: Item, why: str) -> Row:
    """Return the row of a history whose process crashed."""
    return _row(item, CRASHED, why, None, {})


def _row(item: Item, *found: object) -> Row:
    return dict(zip(_NAMES, (*item, *found), strict=True))


def _run(scenario: str, values: Values, seed: int) -> tuple[str | None, dict[str, Any]]:
    if scenario == STEADY:
        return None, _steady(values, seed)
    if scenario == WORLD:
        return None, _world(values, seed)
    with mutated(values.get("without")):
        history = SCENARIOS[scenario](seed)
        latency = Latency(history)
        history.world.watchers.append(latency)
        outcome = history.run()
    figures = asdict(outcome)
    for name in ("seed", "broken", "trace"):
        del figures[name]
    figures["simulated_s"] = outcome.simulated_ns / 1e9
    figures |= _quantiles("latency", latency.ns)
    if outcome.broken is None and outcome.bound_ns:
        figures["liveness_ratio"] = outcome.liveness_ns / outcome.bound_ns
    return outcome.broken, figures


class Latency:
    """Watcher that measures the true time from submit to release, per packet and receiver of the first stripe."""

    def __init__(self, history: History) -> None:
        self._world, self._submitted_at = history.world, history.checker.submitted_at
        self.ns = array("q")

    def on_effect(self, _: SimNode, effect: Effect) -> None:
        if isinstance(effect, Release):
            now = self._world.now
            for packet in effect.frame.packets:
                if (at := self._submitted_at.get(packet[:3])) is not None:
                    self.ns.append(now - at)


def _steady(values: Values, seed: int) -> dict[str, Any]:
    members, sets, protocol = values["members"], values["nack_sets"], values["protocol"]
    found = run_steady(
        protocol,
        members=members,
        loss=values["loss"],
        load=values["load"],
        lasting_ns=int(values["seconds"] * 1e9),
        seed=seed,
        nack=nack_sets(sets, members) if sets is not None and protocol == "timed" else None,
        branch_of=branches(members),
        branch_loss=values["branch_loss"],
    )
    return {"simulated_s": float(values["seconds"]), **steady_figures(found)}


def steady_figures(found: ProtocolFigures) -> dict[str, Any]:
    """Return the metrics of a run without faults."""
    holds = {"0": 0, "late": found.timing.late_ns, "recovery": found.timing.recovery_ns}
    ready = [ns for slot in found.ready_ns for ns in slot]
    spreads = found.spreads_ns(found.timing.recovery_ns)
    return {
        "packets": found.packets,
        **{"sent_" + name.replace(" ", "_"): found.sent[name] for name in (*CONTROL, *AGAIN)},
        "control_per_packet": found.control_per_packet,
        **_quantiles("wait", found.wait_ns),
        **_quantiles("ready", ready),
        **_quantiles("detect_token", found.detect_token_ns),
        **_quantiles("detect_data", found.detect_data_ns),
        **{f"late_share_{name}": found.late_share(hold_ns) for name, hold_ns in holds.items()},
        "spread_max_ms": max(spreads, default=0) / 1e6,
        "recovery_ms": found.timing.recovery_ns / 1e6,
        "waiting_most": found.waiting_most,
        "faults": found.faults,
    }


def _world(values: Values, seed: int) -> dict[str, Any]:
    globe = build_globe(*made_up_cities(values["cities"], seed), size_of(values), seed)
    told = {name: values[name] for name in ("loss", "slots", "follow", "branch_loss")}
    figures: dict[str, Any] = dict(run_world(globe, Conditions(**told, seed=seed)).figures())
    figures["simulated_s"] = figures["slots"] * globe.size.slot_ms / 1e3
    figures["late_releases"] = round(figures["releases"] * (1 - figures["on_time"]))
    return figures


def _quantiles(name: str, values: Sequence[int]) -> dict[str, float]:
    """Return median, 99 % quantile and maximum in ms; {} without values."""
    if not values:
        return {}
    found = zip(("p50", "p99", "max"), quantiles(values, (0.5, 0.99, 1.0)), strict=True)
    return {f"{name}_{share}_ms": ns / 1e6 for share, ns in found}
