"""A floor that is killed (kill -9) under load: every session resumes, and no order is executed twice.

`LEVELCAST_KILLS` is the number of kills, for a campaign of 200.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
from collections import Counter
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from levelcast.client.trader import Trader, TradeReport
from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.floor.machine import OPERATOR
from levelcast.native.pure_book_snapshot import BALANCE
from levelcast.storage.tape.reader import TapeReader
from tests.floor_parts import PASSWORD, add_accounts, open_floor, prepare

KILLS = int(os.environ.get("LEVELCAST_KILLS", "3"))
NAMES = ("ann", "bob", "cyd")
_FORK = multiprocessing.get_context("fork")


def run_floor(directory: Path, port: int) -> None:
    open_floor(directory, address=("127.0.0.1", port)).run()


def start(directory: Path, port: int) -> BaseProcess:
    process = _FORK.Process(target=run_floor, args=(directory, port), daemon=True)
    process.start()
    return process


class Load:
    """A trader that sends random orders and keeps what comes back."""

    def __init__(self, name: str, address: str, directory: Path, seed: int) -> None:
        self.trader = Trader(address, name.upper(), PASSWORD, journal=directory / f"{name}.journal")
        self.chance = Random(seed)
        self.sent: list[str] = []
        self.reports: list[TradeReport] = []
        self.stopping = False

    async def run(self) -> None:
        async with self.trader as trader:
            reader = asyncio.create_task(self._read())
            while not self.stopping:
                price = f"{100 + self.chance.randrange(5)}.00"
                side = "buy" if self.chance.random() < 0.5 else "sell"
                self.sent.append(trader.submit("IBM", side, self.chance.randrange(1, 9), price).id)  # type: ignore[arg-type]
                await asyncio.sleep(0.01)
            async with asyncio.timeout(120):
                while not self.answered >= set(self.sent):
                    await asyncio.sleep(0.05)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    @property
    def answered(self) -> set[str]:
        return {report.order.id for report in self.reports if report.kind in ("accepted", "refused")}

    async def _read(self) -> None:
        async for report in self.trader:
            self.reports.append(report)


async def campaign(directory: Path, port: int, kills: int) -> list[Load]:
    chance = Random(kills)
    process = start(directory, port)
    loads = [Load(name, f"127.0.0.1:{port}", directory.parent, seed) for seed, name in enumerate(NAMES)]
    for _ in range(100):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
        await asyncio.sleep(0.1)
    tasks = [asyncio.create_task(load.run()) for load in loads]
    for _ in range(kills):
        before = [len(load.reports) for load in loads]
        async with asyncio.timeout(60):  # every session resumes after the kill before
            while any(len(load.reports) <= count for load, count in zip(loads, before, strict=True)):
                await asyncio.sleep(0.02)
        await asyncio.sleep(chance.random())
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        process = start(directory, port)
    await asyncio.sleep(0.5)
    for load in loads:
        load.stopping = True
    await asyncio.gather(*tasks)
    process.terminate()
    process.join(timeout=30)
    return loads


def test_a_killed_floor_executes_nothing_twice(tmp_path: Path) -> None:
    directory = tmp_path / "floor"
    add_accounts(directory, *NAMES)
    floor = open_floor(directory)
    prepare(floor, *NAMES)
    port = floor.listener.address[1]
    floor.close()
    loads = asyncio.run(campaign(directory, port, KILLS))
    for load in loads:
        exec_ids = [report.exec_id for report in load.reports]
        assert len(exec_ids) == len(set(exec_ids))
        received = Counter(report.order.id for report in load.reports if report.kind == "received")
        assert received == Counter(load.sent)
        accepted = Counter(report.order.id for report in load.reports if report.kind == "accepted")
        assert set(accepted.values()) == {1}
    engine = MatchingEngine(treasury=OPERATOR)
    for found in TapeReader(directory / "tape").frames():
        frame = found.frame()
        engine.frame(BookFrame(frame.first_sequence + frame.records - 1, frame.timestamp_ns, frame.content))
    sums: Counter[int] = Counter()
    for _, asset, _, _, free, reserved in BALANCE.iter_unpack(engine.kernel.balances()):
        sums[asset] += int.from_bytes(free, "little", signed=True) + int.from_bytes(reserved, "little", signed=True)
    assert sorted(sums.values()) == sorted((len(NAMES) * 10_000, len(NAMES) * 10**15))
    bought = sum(report.size for load in loads for report in load.reports if report.kind == "fill")
    assert bought > 0
