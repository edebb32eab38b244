"""Generated order flow: commands of many accounts over many symbols, for demonstrations and benchmarks.

Symbols are chosen by Zipf's law. Of the commands, 54 % are new orders, 42 % cancels and 4 % replacements. An order is
cancelled or replaced at most once, some time after its entry. New orders are around a price that wanders, and some
reach the other side. The flow is a function of its seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from levelcast.native.book import BookKernel
from levelcast.native.book_codes import NO_SIZE, UNDEFINED, BookPhase
from levelcast.records import RecordArray, StatusAction, instruments, orders, statuses

USD = int.from_bytes(b"USD\0", "little")
TICK = 10_000_000
MIDDLE = 10_000 * TICK
ACCOUNT_COUNT = 500
START_NS = 1_767_364_200_000_000_000  # 2026-01-02 14:30 UTC
_PER_FRAME = 100
_ADDS, _CANCELS = 0.54, 0.42
_DEPTH_TICKS = 12
_LIFE = 400
"""Mean number of new orders between the entry of an order and its cancel or replacement."""


def order_flow(count: int, symbols: int, seed: int = 1, start_ns: int = 0) -> RecordArray:
    """Return `count` commands over `symbols` instruments, which are numbered from 1 on."""
    rng = np.random.default_rng(seed)
    made = orders(count)
    action, target = _actions(count, rng)
    added = np.flatnonzero(action == b"A")
    weights = 1.0 / np.arange(1, symbols + 1)
    made["instrument_id"] = (rng.choice(symbols, len(added), p=weights / weights.sum()) + 1)[target]
    made["account"] = rng.integers(1, ACCOUNT_COUNT + 1, len(added))[target]
    buys = (rng.random(len(added)) < 0.5)[target]
    made["action"], made["side"] = action, np.where(buys, b"B", b"A")
    made["client_order_id"] = np.arange(1, count + 1)
    made["original_client_order_id"] = np.where(action == b"A", 0, added[target] + 1)
    made["ts_event"] = start_ns + np.arange(count) * 1_000
    made["time_in_force"] = b"1"
    made["size"] = 1 + rng.integers(0, 100, count)
    drift = np.cumsum(rng.integers(-1, 2, count))[added] // 64
    offset = (rng.geometric(1 / _DEPTH_TICKS, len(added)) - 3)[target]
    ticks = drift[target] + np.where(buys, -offset, offset)
    made["price"] = MIDDLE + np.where(action == b"M", ticks + rng.integers(-2, 3, count), ticks) * TICK
    return made


def _actions(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the action of each command, and the number of its order among the new ones."""
    adds, cancels = max(1, round(_ADDS * count)), round(_CANCELS * count)
    entry = np.arange(adds)
    later = rng.permutation(adds)[: count - adds]
    life = np.minimum(rng.exponential(_LIFE, len(later)), rng.random(len(later)) * (adds - later))
    sequence = np.argsort(np.concatenate([entry, later + life]), kind="stable")
    action = np.where(np.arange(count) < adds, b"A", np.where(np.arange(count) < adds + cancels, b"C", b"M"))
    return action[sequence], np.concatenate([entry, later])[sequence]


def deposits(symbols: int, treasury: int = 0) -> RecordArray:
    """Return the commands of the treasury that fund every account with money and shares."""
    numbers = np.arange(1, ACCOUNT_COUNT + 1)
    paid = orders(ACCOUNT_COUNT * (symbols + 1))
    paid["action"], paid["command"], paid["price"], paid["publisher_id"] = b"N", b"D", 2**60, treasury
    paid["account"] = np.repeat(numbers, symbols + 1)
    paid["instrument_id"] = np.tile(np.arange(symbols + 1), ACCOUNT_COUNT)
    paid["order_id"] = np.where(paid["instrument_id"] == 0, USD, 0)
    return paid


def prepared(kernel: BookKernel, symbols: int, *, accounts: bool) -> None:
    """Define the instruments, fund the accounts and open trading."""
    for instrument in range(1, symbols + 1):
        kernel.define(instrument, TICK, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, USD)
    if accounts:
        kernel.run(deposits(symbols).tobytes())
    kernel.status(0, int(BookPhase.TRADING))


def order_frames(
    count: int, symbols: int, seed: int = 1, start_ns: int = START_NS, treasury: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield time and records of frames: definitions, deposits, the opening, and then `count` commands."""
    defined, opened = instruments(symbols), statuses(1)
    defined["instrument_id"], defined["currency"] = np.arange(1, symbols + 1), b"USD"
    defined["min_price_increment"], defined["raw_symbol"] = TICK, [f"SYM{n}" for n in range(1, symbols + 1)]
    opened["action"] = int(StatusAction.TRADING)
    paid, flow = deposits(symbols, treasury), order_flow(count, symbols, seed, start_ns)
    parts = [defined, *(paid[at : at + _PER_FRAME] for at in range(0, len(paid), _PER_FRAME)), opened]
    for at, part in enumerate(parts):
        yield start_ns - len(parts) + at, part.tobytes()
    for at in range(0, count, _PER_FRAME):
        part = flow[at : at + _PER_FRAME]
        yield int(part["ts_event"][-1]), part.tobytes()
