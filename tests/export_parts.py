"""Days on a tape, and the rows that every reader of an export must find: computed from the tape record by record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from levelcast.formats.trade_files import open_trades
from levelcast.network import SymbolDirectory, parse_network
from levelcast.protocol.history import GENESIS, Frame, make_frame
from levelcast.records import RecordArray, quotes, trades
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal
from tests.publish_parts import SYMBOLS, network_text
from tests.tape_parts import FIRST

DIRECTORY = SymbolDirectory(parse_network(network_text()))
"""Four symbols on thirteen venues. Databento has eleven of them: it has neither FINR nor CBSX."""
PUBLISHERS = {
    "XBOS": 3, "XCIS": 10, "EDGA": 7, "EDGX": 8, "XCHI": 12, "XNYS": 9, "ARCX": 43, "XNAS": 2, "XPSX": 4, "BATY": 6,
    "BATS": 5,
}  # fmt: skip
"""Databento's table of publishers, as its documentation has it."""
SLOT_NS = 20_000_000
EVENING = 1_785_542_395_000_000_000
"""Five seconds before midnight (UTC), so that a tape has trades of two days."""
PER_PACKET = 20


def packets_of(records: Sequence[bytes]) -> Iterator[bytes]:
    for at in range(0, len(records), PER_PACKET):
        yield b"".join(records[at : at + PER_PACKET])


def write_tape(
    directory: Path,
    slots: Iterable[tuple[int, Sequence[bytes]]],
    *,
    start_ns: int,
    records_per_segment: int = 100_000,
    definitions: bool = True,
) -> Path:
    """A node's directory with a tape: definitions of all floors, then in each slot (number, records) its records."""
    first: list[bytes] = []
    if definitions:
        for floor in DIRECTORY.floors:
            batch = DIRECTORY.definitions(floor, start_ns)
            first += [batch[i : i + 1].tobytes() for i in range(len(batch))]
    writer = TapeWriter.open(directory / "tape", FIRST, records_per_segment=records_per_segment)
    writer.extend(_frames([(1, first)] if first else [], slots, start_ns))
    writer.close()
    return directory


def _frames(
    first: list[tuple[int, list[bytes]]], slots: Iterable[tuple[int, Sequence[bytes]]], start_ns: int
) -> Iterator[Frame]:
    chain, sequence, number = GENESIS, 1, 0
    for group in (first, slots):
        for slot, records in group:
            payloads = list(packets_of(records))
            counts = [min(PER_PACKET, len(records) - at) for at in range(0, len(records), PER_PACKET)]
            sealed = [
                seal(Packet(201, 1, number + i, count, payload), 0)
                for i, (count, payload) in enumerate(zip(counts, payloads, strict=True), 1)
            ]
            frame = make_frame(slot, start_ns + slot * SLOT_NS, sequence, sealed, chain)
            chain, sequence, number = frame.chain, sequence + len(records), number + len(sealed)
            yield frame


def some_trades(count: int, seed: int = 1) -> RecordArray:
    """Trades of all floors with every field set, among them negative and undefined prices."""
    rng = np.random.default_rng(seed)
    batch = trades(count)
    batch["publisher_id"] = rng.integers(1, len(DIRECTORY.floors) + 1, count)
    batch["instrument_id"] = rng.integers(1, len(SYMBOLS) + 1, count)
    batch["ts_event"] = EVENING + rng.integers(0, 10**10, count).astype(np.uint64)
    batch["price"] = rng.integers(-(10**12), 10**15, count)
    batch["price"][::97] = 2**63 - 1
    batch["size"] = rng.integers(1, 2**32, count)
    batch["side"] = rng.choice([b"A", b"B", b"N"], count)
    batch["flags"] = rng.integers(0, 256, count)
    batch["trade_id"] = rng.integers(0, 2**63, count)
    batch["venue_sequence"] = rng.integers(0, 2**32, count)
    batch["condition"] = rng.integers(0, 2**32, count)
    return batch


def evening(directory: Path, count: int = 3_000, *, definitions: bool = True) -> Path:
    """A tape over midnight, in several segments: trades, quotes between, cancels and corrections, other tails."""
    batch = some_trades(count)
    batch["action"][50::100] = b"C"
    batch["action"][51::100] = b"M"
    records = [batch[i : i + 1].tobytes() for i in range(count)]
    for at in range(7, count, 60):
        records[at] = bytes([12]) + records[at][1:48]  # without a tail
        records[at + 1] = bytes([18]) + records[at + 1][1:] + b"longer!!"
    quote = quotes(1)
    quote["instrument_id"] = 2
    for at in range(0, count, 40):
        records.insert(at, quote.tobytes())
    slots = [(2 + n, records[at : at + 6]) for n, at in enumerate(range(0, len(records), 6))]
    return write_tape(directory, slots, start_ns=EVENING, records_per_segment=700, definitions=definitions)


def recorded_day(directory: Path, data: Path) -> Path:
    """All trades of 7 October 2013 on a tape."""
    files = sorted((data / "us_equities_tick_20131007").glob("*_trade.csv.gz"))
    day = date(2013, 10, 7)
    batch = np.concatenate(list(open_trades(files, DIRECTORY, format="lean", day=day)))
    records = [batch[i : i + 1].tobytes() for i in range(len(batch))]
    slots = ((2 + n, records[at : at + 400]) for n, at in enumerate(range(0, len(records), 400)))
    return write_tape(directory, slots, start_ns=1_381_147_200_000_000_000)


# -- rows -------------------------------------------------------------------------------------------------

ROW = (
    "ts_recv", "ts_event", "rtype", "publisher_id", "instrument_id", "action", "side", "depth", "price", "size",
    "flags", "ts_in_delta", "sequence",
)  # fmt: skip
"""Fields of DBN's trade message, without its length."""


def publisher_of(floor: int) -> int:
    """The publisher of an export, by the table above and the documented private range."""
    return PUBLISHERS.get(DIRECTORY.floor_of(floor).name, 32768 + floor)


def expected(node: Path, instruments: Sequence[int] = (), from_sequence: int = 1) -> pd.DataFrame:
    """The rows that a reader must find: trades with action T, and the symbol of each."""
    names = {number: symbol for symbol, number in DIRECTORY.symbols.items()}
    parts = []
    for frame in TapeReader(node / "tape").frames():
        for batch in (each for each in frame.batches() if each.kind.name == "trade"):
            part = pd.DataFrame({name: batch.records[name] for name in ROW})
            part["sequence"] = frame.line.first_sequence + batch.first + np.arange(len(part))
            parts.append(part)
    found = pd.concat(parts, ignore_index=True)
    found = found[(found["action"] == b"T") & (found["sequence"] >= from_sequence)]
    if instruments:
        found = found[found["instrument_id"].isin(instruments)]
    found["publisher_id"] = [publisher_of(floor) for floor in found["publisher_id"].tolist()]
    found["symbol"] = [names[number] for number in found["instrument_id"].tolist()]
    return normal(found)


def normal(frame: Any, columns: Sequence[str] = (*ROW, "symbol")) -> pd.DataFrame:
    """The same columns, types and index for every reader: numbers as 64-bit integers, letters as text."""
    found = pd.DataFrame(frame)
    out = pd.DataFrame(index=range(len(found)))
    for name in columns:
        values = found[name].to_numpy()
        if name in ("action", "side", "symbol"):
            out[name] = [each.decode() if isinstance(each, bytes) else str(each) for each in values.tolist()]
        elif values.dtype.kind in "iu":
            out[name] = values.astype(np.int64)
        else:
            out[name] = np.array([int(each) for each in values.tolist()], np.int64)
    return out
