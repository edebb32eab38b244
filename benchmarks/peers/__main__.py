"""`python -m benchmarks.peers [relay|corosync|zeromq ...] [--seconds S] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.peers import PEERS, Failed, Missing, PeerResult
from benchmarks.report import machine_facts, show, show_facts, tell

_WIDE = 190


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named peers, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure what Levelcast is up against."
    )
    parser.add_argument("peer", nargs="*", help=f"which ones: {', '.join(PEERS)}; all if none is named")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each case runs (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.peer if name not in PEERS]
    if unknown:
        parser.error(f"unknown peer {', '.join(unknown)}; use {', '.join(PEERS)}")
    if not 0 < chosen.seconds <= 600:
        parser.error("--seconds is more than 0 and at most 600")
    facts = machine_facts()
    results: list[PeerResult] = []
    not_measured: dict[str, str] = {}
    failed = False
    for name in chosen.peer or PEERS:
        tell(f"measuring: {name}")
        try:
            results.extend(PEERS[name](chosen.seconds))
        except (Missing, Failed) as why:
            not_measured[name] = str(why)
            failed |= isinstance(why, Failed)
    if chosen.json:
        told = {"machine": facts, "results": [result.as_json() for result in results], "not_measured": not_measured}
        print(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=_WIDE)
        console.print(show_facts(facts), highlight=False, markup=False)
        if results:
            console.print(table(results))
        for result in results:
            for note in result.notes:
                console.print(f"{result.name}, {result.case}: {note}", highlight=False, markup=False)
        for name, reason in not_measured.items():
            console.print(f"{name}: not measured: {reason}", highlight=False, markup=False)
    return int(failed)


def table(results: Sequence[PeerResult]) -> Table:
    """One row a result."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("peer", no_wrap=True)
    made.add_column("case")
    for column in ("records/s", "datagrams/s", "MB/s", "lost", "CPU µs per\ndatagram", "cores", "others'\ncores"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("delay µs\np50 / p99", justify="right", no_wrap=True)
    made.add_column("s of wall time and of CPU by role")
    for result in results:
        numbers = (
            result.records_per_s,
            result.datagrams_per_s,
            result.mb_per_s,
            result.lost,
            result.cpu_us_per_datagram,
            result.cores,
            result.other_load,
        )
        delay = result.delay_us
        roles = ", ".join(f"{role} {seconds:.2f}" for role, seconds in result.cpu_seconds.items())
        made.add_row(
            result.name,
            result.case,
            *map(show, numbers),
            f"{show(delay['p50'])} / {show(delay['p99'])}" if delay else "-",
            f"{result.seconds:.2f}; {roles}",
        )
    return made


if __name__ == "__main__":
    sys.exit(main())
