"""Generated order flow: commands of many accounts over many symbols, for demonstrations and benchmarks.

Symbols are chosen by Zipf's law. Of the commands, 54 % are new orders, 42 % cancels and 4 % replacements; new orders
are around a price that wanders, and some reach the other side. The flow is a function of its seed.
"""

from __future__ import annotations

import numpy as np

from levelcast.native.book import BookKernel
from levelcast.native.book_codes import NO_SIZE, UNDEFINED, BookPhase
from levelcast.records import RecordArray, orders

USD = int.from_bytes(b"USD\0", "little")
TICK = 10_000_000
MIDDLE = 10_000 * TICK
ACCOUNT_COUNT = 500
_ADDS, _CANCELS = 0.54, 0.42
_DEPTH_TICKS = 12
_RECENT = 400


def order_flow(count: int, symbols: int, seed: int = 1, start_ns: int = 0) -> RecordArray:
    """Return `count` commands over `symbols` instruments, which are numbered from 1 on."""
    rng = np.random.default_rng(seed)
    made = orders(count)
    kind = rng.random(count)
    added = (kind < _ADDS) | (np.arange(count) < 100)
    weights = 1.0 / np.arange(1, symbols + 1)
    made["instrument_id"] = rng.choice(symbols, count, p=weights / weights.sum()) + 1
    made["account"] = rng.integers(1, ACCOUNT_COUNT + 1, count)
    made["client_order_id"] = np.arange(1, count + 1)
    made["ts_event"] = start_ns + np.arange(count) * 1_000
    made["time_in_force"] = b"1"
    made["side"] = np.where(rng.random(count) < 0.5, b"B", b"A")
    made["size"] = 1 + rng.integers(0, 100, count)
    drift = np.cumsum(rng.integers(-1, 2, count)) // 64
    offset = rng.geometric(1 / _DEPTH_TICKS, count) - 3
    away = np.where(made["side"] == b"B", -offset, offset)
    made["price"] = MIDDLE + (drift + away) * TICK
    made["action"] = np.where(added, b"A", np.where(kind < _ADDS + _CANCELS, b"C", b"M"))
    _name_targets(made, np.flatnonzero(added), np.flatnonzero(~added), rng)
    return made


def _name_targets(made: RecordArray, adds: np.ndarray, changes: np.ndarray, rng: np.random.Generator) -> None:
    """Let each cancel and replacement name one of the orders that were added lately."""
    before = np.searchsorted(adds, changes)
    back = np.minimum(rng.geometric(1 / _RECENT, len(changes)), before)
    target = adds[before - back]
    for name in ("instrument_id", "account", "side"):
        made[name][changes] = made[name][target]
    made["original_client_order_id"][changes] = made["client_order_id"][target]
    moves = rng.integers(-2, 3, len(changes)) * TICK
    made["price"][changes] = made["price"][target] + moves


def prepared(kernel: BookKernel, symbols: int, *, accounts: bool) -> None:
    """Define the instruments, fund the accounts and open trading."""
    for instrument in range(1, symbols + 1):
        kernel.define(instrument, TICK, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, USD)
    if accounts:
        numbers = np.arange(1, ACCOUNT_COUNT + 1)
        paid = orders(ACCOUNT_COUNT * (symbols + 1))
        paid["action"], paid["command"], paid["price"] = b"N", b"D", 2**60
        paid["account"] = np.repeat(numbers, symbols + 1)
        paid["instrument_id"] = np.tile(np.arange(symbols + 1), ACCOUNT_COUNT)
        paid["order_id"] = np.where(paid["instrument_id"] == 0, USD, 0)
        kernel.run(paid.tobytes())
    kernel.status(0, int(BookPhase.TRADING))
