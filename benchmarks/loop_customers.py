"""Customers of `benchmarks.loop`, several in one process: `python -m benchmarks.loop_customers`.

Each is a `levelcast.Subscriber` with its own symbols. At every change of plan it notes what it has counted so far. The
process tells as JSON lines how far it is and how much CPU it has used; on SIGTERM it writes down what came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.client.subscriber import Subscriber
from levelcast.edge.subscriber.plan_follower import Replaced
from levelcast.network import Network, load_network
from levelcast.records import RTYPE_SYSTEM, RTYPE_TRADE
from levelcast.runtime.realtime import calm_garbage_collection, keep_freed_memory

TELL_EVERY_S = 0.25
SESSION = "main"


class Customer:
    """Follows its symbols and counts."""

    def __init__(self, name: str, symbols: list[str]) -> None:
        self.name, self.symbols = name, symbols
        self.wanted = 0
        """Records of its instruments that it was handed."""
        self.sequences: list[Any] = []
        self.phases: list[dict[str, int]] = []
        """What it had counted when a plan was replaced, and at the end."""
        self.events: list[str] = []
        self.error = ""
        self._tape: Subscriber | None = None

    async def follow(self, network: Network) -> None:
        self._tape = Subscriber(network, symbols=self.symbols, start={SESSION: 1}, on_event=self._note)
        try:
            async with self._tape as tape:
                async for batch in tape:
                    if batch.kind.rtype != RTYPE_SYSTEM:
                        self.wanted += len(batch.records)
                    if batch.kind.rtype == RTYPE_TRADE:
                        self.sequences.append(batch.records["sequence"].astype(np.int64))
        except asyncio.CancelledError:
            pass
        except Exception as error:  # it is part of what came of the run
            self.error = str(error) or type(error).__name__
        self.count()

    def count(self) -> None:
        assert self._tape is not None
        counts = self._tape.counts
        names = ("packets", "records", "duplicates", "lost", "foreign", "foreign_messages", "unwanted", "gaps")
        self.phases.append({name: getattr(counts, name) for name in names} | {"queued": self.wanted})

    def _note(self, event: object) -> None:
        if isinstance(event, Replaced):
            self.count()
        else:
            self.events.append(repr(event))


async def serve(network: Network, customers: Sequence[Customer], out: Path) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = [asyncio.create_task(each.follow(network)) for each in customers]
    while not ended.is_set():
        records = sum(each.wanted for each in customers)
        swapped = min(len(each.phases) for each in customers)
        print(json.dumps({"records": records, "cpu_s": time.process_time(), "replaced": swapped}), flush=True)
        try:
            await asyncio.wait_for(ended.wait(), TELL_EVERY_S)
        except TimeoutError:
            continue
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found: dict[str, Any] = {each.name: np.concatenate([np.empty(0, np.int64), *each.sequences]) for each in customers}
    told = {each.name: {"phases": each.phases, "events": each.events, "error": each.error} for each in customers}
    np.savez(out, told=np.array(json.dumps(told)), **found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop_customers")
    parser.add_argument("--network", type=Path, required=True)
    parser.add_argument("--interest", type=Path, required=True, help="JSON: each customer's symbols")
    parser.add_argument("--out", type=Path, required=True, help="where the findings go")
    parser.add_argument("name", nargs="+", help="the customers of this process")
    chosen = parser.parse_args(arguments)
    interest = json.loads(chosen.interest.read_text(encoding="utf-8"))
    customers = [Customer(name, interest[name]) for name in chosen.name]
    calm_garbage_collection()
    keep_freed_memory()
    asyncio.run(serve(load_network(chosen.network), customers, chosen.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
