"""Hash fixed histories of every scenario and compare them with the recorded hashes.

A hash is over the outcome and the trace of a history: times, nodes, messages and events by their fields, not by their
text. So a reworded message changes no hash, and neither does code that only moves. A change of the protocol or of the
wire format changes the histories; `--write` records the new hashes then.

    python -m tests.baseline.history_hashes            # compare all
    python -m tests.baseline.history_hashes --write    # record them again
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path

from levelcast.network import parse_network
from levelcast.network.example import five_cities
from levelcast.protocol.events import Event, event_fields
from levelcast.sim.compare_protocols import run_steady
from levelcast.sim.engine.world import TraceLine
from levelcast.sim.history_rows import steady_figures
from levelcast.sim.rehearsal import Deployment, Rehearsal
from levelcast.sim.run import SCENARIOS

RECORDED = Path(__file__).with_name("history_hashes.json")
SEEDS = {
    "ring": range(300),
    "receivers": range(100),
    "nack": range(50),
    "steady": range(10),
    "rehearsal": range(1, 4),
}

LEFT_OUT = frozenset(
    (
        *("foreign", "fetched", "resent", "acknowledged_late", "stated", "shadows", "convictions", "refused"),
        *("orders", "late_orders", "refused_orders"),
        *("from_outside", "epochs", "orders_across_epochs"),
    )
)
"""Counts of a network that changes nothing, and of chain multicast and order entry, which these histories lack."""


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def trace_fields(lines: Iterable[TraceLine]) -> list[object]:
    """A trace as plain values: kinds by name, messages and events by their fields."""
    return [[line.at_ns, line.node, line.what, _plain(line.about)] for line in lines]


def _plain(value: object) -> object:
    if isinstance(value, Event):
        return [value.KIND, value.slot, *(_plain(each) for each in event_fields(value).values())]
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(tuple(asdict(value).values()))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _history(scenario: str, seed: int) -> str:
    history = SCENARIOS[scenario](seed)
    outcome = {name: count for name, count in asdict(history.run()).items() if name not in LEFT_OUT}
    return _digest(outcome, trace_fields(history.world.trace_lines))


def _steady(seed: int) -> str:
    found = run_steady("rmp" if seed % 2 else "timed", members=5, lasting_ns=3_000_000_000, seed=seed)
    return _digest(steady_figures(found))


def _rehearsal(seed: int) -> str:
    deployment = Deployment(parse_network(five_cities()), seed)
    rehearsal = Rehearsal(deployment, 2_000_000_000)
    for _ in rehearsal.steps():
        pass
    chains = [node.disk.tape.tip.chain.hex() for node in deployment.receivers]
    return _digest(rehearsal.broken, chains, trace_fields(deployment.world.trace_lines))


_OTHERS: dict[str, Callable[[int], str]] = {"steady": _steady, "rehearsal": _rehearsal}


def history_hash(scenario: str, seed: int) -> str:
    """Outcome and trace of one history as one hash."""
    if scenario in _OTHERS:
        return _OTHERS[scenario](seed)
    return _history(scenario, seed)


def recorded() -> dict[str, dict[str, str]]:
    """The recorded hashes by scenario and seed."""
    hashes: dict[str, dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return hashes


def _one(item: tuple[str, int]) -> tuple[str, int, str]:
    return *item, history_hash(*item)


def _all(jobs: int) -> Iterator[tuple[str, int, str]]:
    items = [(scenario, seed) for scenario, seeds in SEEDS.items() for seed in seeds]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_one, items, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the hashes instead of comparing them")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    before = {} if options.write else recorded()
    found: dict[str, dict[str, str]] = {scenario: {} for scenario in SEEDS}
    for scenario, seed, digest in _all(options.jobs):
        found[scenario][str(seed)] = digest
    if options.write:
        RECORDED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    changed = [
        f"{scenario} {seed}"
        for scenario, hashes in before.items()
        for seed, digest in hashes.items()
        if found[scenario].get(seed) != digest
    ]
    print(f"{sum(map(len, found.values()))} histories, {len(changed)} changed: {', '.join(changed[:10])}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
