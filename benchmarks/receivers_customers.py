"""Customers of `benchmarks.receivers`, several in one process: `python -m benchmarks.receivers_customers`.

Each is a `levelcast.Subscriber` of its own, with its own sockets, grade and region. The process tells as JSON lines how
far the slowest is; it ends when all sessions have ended, or on SIGTERM, and writes what each has found to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np

from levelcast.client.subscriber import Batch, Subscriber
from levelcast.edge.subscriber.delivery import Grade
from levelcast.network import Network, load_network
from levelcast.records import RTYPE_TRADE, RecordArray
from levelcast.runtime.realtime import calm_garbage_collection, keep_freed_memory

SESSION = "main"
TELL_EVERY_S = 0.25


@dataclass(slots=True)
class Found:
    """What one customer has received, as plain values for JSON."""

    name: str
    region: str
    grade: str
    records: int = 0
    next_sequence: int = 1
    """The global sequence behind the last record."""
    jumps: int = 0
    """Times that a record was not the next one of the tape."""
    back: int = 0
    """Where the grade is latest only, records of an instrument that came behind a newer one of it."""
    digest: str = ""
    """Where the grade is guaranteed, of all records, in the order in which they came."""
    newest: dict[int, int] = field(default_factory=dict)
    """Where the grade is latest only, by instrument the newest trade."""
    lost: int = 0
    gaps: int = 0
    requests: int = 0
    missing: int = 0
    """Messages that did not come on one of its lines."""
    ended: bool = False
    error: str = ""
    came_ns: list[int] = field(default_factory=list)
    """When records came."""


class Customer:
    """Takes in the batches of one subscriber."""

    def __init__(self, name: str, region: str, grade: str) -> None:
        self.found = Found(name, region, grade)
        self._hash = blake2b(digest_size=16)
        self._newest = np.zeros(0, np.int64)
        """By instrument; 0 where there was no trade."""

    def take(self, batch: Batch, now: int) -> None:
        found, rows = self.found, batch.records
        if not len(rows):
            return
        found.came_ns.append(now)
        found.records += len(rows)
        if batch.kind.sequence_offset is None:  # a definition takes a sequence, and has no field for it
            found.next_sequence += len(rows)
        else:
            sequences = rows["sequence"].astype(np.int64)
            steps = np.diff(sequences, prepend=found.next_sequence - 1)
            found.jumps += int(np.count_nonzero(steps != 1))
            found.next_sequence = int(sequences[-1]) + 1
        if found.grade == Grade.GUARANTEED.value:
            self._hash.update(rows.tobytes())
        elif found.grade == Grade.LATEST_ONLY.value and batch.kind.rtype == RTYPE_TRADE:
            self._note_newest(rows)

    def _note_newest(self, rows: RecordArray) -> None:
        """Trade ids of the floor grow, so they tell which of two trades of an instrument is newer."""
        instruments = rows["instrument_id"].astype(np.int64)
        order = np.argsort(instruments, kind="stable")
        instruments, ids = instruments[order], rows["trade_id"].astype(np.int64)[order]
        if instruments[-1] >= len(self._newest):
            self._newest = np.concatenate([self._newest, np.zeros(instruments[-1] + 1 - len(self._newest), np.int64)])
        first = np.diff(instruments, prepend=-1) != 0
        before = np.where(first, self._newest[instruments], np.concatenate([[0], ids[:-1]]))
        self.found.back += int(np.count_nonzero(ids < before))
        np.maximum.at(self._newest, instruments, ids)

    def finish(self) -> Found:
        """Everything, when nothing more comes."""
        self.found.digest = self._hash.hexdigest()
        self.found.newest = {int(each): int(self._newest[each]) for each in np.flatnonzero(self._newest)}
        return self.found

    async def follow(self, network: Network) -> None:
        found = self.found
        feed = Subscriber(network, found.region, grade=Grade(found.grade), start={SESSION: 1})
        try:
            async with feed:
                async for batch in feed:
                    self.take(batch, time.time_ns())
            found.ended = True
        except asyncio.CancelledError:
            pass
        except Exception as error:  # it is part of what came of the run
            found.error = str(error) or type(error).__name__
        counts = feed.counts
        found.lost, found.gaps, found.requests = counts.lost, counts.gaps, counts.requests
        found.missing = sum(line.counts.missing for line in feed.lines.values())


async def _tell(customers: Sequence[Customer]) -> None:
    while True:
        slowest = min(each.found.records for each in customers)
        print(json.dumps({"records": slowest, "next": min(each.found.next_sequence for each in customers)}), flush=True)
        await asyncio.sleep(TELL_EVERY_S)


async def serve(network: Network, customers: Sequence[Customer]) -> None:
    tasks = [asyncio.create_task(each.follow(network)) for each in customers]
    telling = asyncio.create_task(_tell(customers))

    def stop() -> None:
        for task in tasks:
            task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(*tasks, return_exceptions=True)
    telling.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.receivers_customers")
    parser.add_argument("--network", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="where the findings go")
    parser.add_argument("customer", nargs="+", help="NAME:REGION:GRADE")
    chosen = parser.parse_args(arguments)
    customers = [Customer(*text.split(":")) for text in chosen.customer]
    calm_garbage_collection()
    keep_freed_memory()
    asyncio.run(serve(load_network(chosen.network), customers))
    chosen.out.write_text(json.dumps([asdict(each.finish()) for each in customers]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
