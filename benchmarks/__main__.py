"""`python -m benchmarks [name ...] [--quick] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    beats,
    chain,
    clocks,
    cluster,
    copies,
    engine,
    evenness,
    export,
    fair_entry,
    faults,
    filtering,
    fix,
    floor,
    group,
    hold,
    journal,
    keys,
    lake,
    lake_day,
    limits,
    live,
    liveness,
    load,
    loop,
    modes,
    paper,
    planjob,
    planner,
    planner_grid,
    planner_scale,
    plans,
    publish,
    receivers,
    secured,
    simulator,
    skew,
    snapshot_joins,
    soak,
    source,
    startup,
    sweep,
    throughput,
    together,
    unicast,
    world,
)
from benchmarks.report import Options, Result, Stopwatch, machine_facts, show_facts, tell, write_json

BENCHMARKS: dict[str, Callable[[Options], Result]] = {
    "simulator": simulator.run,
    "modes": modes.run,
    "liveness": liveness.run,
    "clocks": clocks.run,
    "hold": hold.run,
    "copies": copies.run,
    "beats": beats.run,
    "group": group.run,
    "unicast": unicast.run,
    "chain": chain.run,
    "paper": paper.run,
    "faults": faults.run,
    "engine": engine.run,
    "fair-entry": fair_entry.run,
    "receivers": receivers.run,
    "journal": journal.run,
    "keys": keys.run,
    "secured": secured.run,
    "export": export.run,
    "fix": fix.run,
    "floor": floor.run,
    "throughput": throughput.run,
    "publish": publish.run,
    "limits": limits.run,
    "load": load.run,
    "evenness": evenness.run,
    "together": together.run,
    "soak": soak.run,
    "planner": planner.run,
    "planner-grid": planner_grid.run,
    "planner-scale": planner_scale.run,
    "filtering": filtering.run,
    "world": world.run,
    "plans": plans.run,
    "snapshot-joins": snapshot_joins.run,
    "loop": loop.run,
    "planjob": planjob.run,
    "lake": lake.run,
    "lake-day": lake_day.run,
    "live": live.run,
    "source": source.run,
    "sweep": sweep.run,
    "startup": startup.run,
    "skew": skew.run,
    "cluster": cluster.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks and write their results.")
    parser.add_argument("name", nargs="*", help=f"benchmarks to run (default: all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="run for a few seconds, as a test")
    parser.add_argument(
        "--out", type=Path, default=Options().out, help="directory of the JSON files (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.name if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; use {', '.join(BENCHMARKS)}")
    options = Options(quick=chosen.quick, out=chosen.out)
    for name in chosen.name or BENCHMARKS:
        facts = machine_facts()
        print(f"== {name} ==\n{show_facts(facts)}\n", flush=True)
        with Stopwatch() as watch:
            result = BENCHMARKS[name](options)
        result.set_times(watch)
        print(f"{result}\n", flush=True)
        tell(f"written: {write_json(result, facts, options)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
