"""Write DBN files for `levelcast tape export`: standard trades, or the records as they are on the tape."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from levelcast.extras import arrow
from levelcast.network import SymbolDirectory, load_network
from levelcast.records import dbn_metadata, record_places
from levelcast.storage.tape.blocks import RecordBlock, TapeBlocks
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.trade_export import TradeExport

ZSTD = ".dbn.zst"
_ID_AT, _ID_BYTES = 4, 4
_MOST_NAMED = 5


def open_dbn(path: Path, *, zstd: bool) -> IO[bytes]:
    """Open a file for writing; `zstd` compresses it."""
    if not zstd:
        return path.open("wb")
    stream: IO[bytes] = arrow().output_stream(str(path), compression="zstd")
    return stream


def write_native(file: IO[bytes], reader: TapeReader, from_sequence: int, symbols: list[int] | None) -> int:
    """Write the records as they are on the tape, with their tails; return their number."""
    file.write(dbn_metadata())
    count = 0
    for block in TapeBlocks(reader, from_sequence):
        number, content = _chosen(block, from_sequence, symbols)
        file.write(content)
        count += number
    return count


def _chosen(block: RecordBlock, from_sequence: int, symbols: list[int] | None) -> tuple[int, memoryview]:
    offsets, sizes = record_places(block.data)
    chosen = np.arange(block.first_sequence, block.first_sequence + len(offsets)) >= from_sequence
    octets = np.frombuffer(block.data, np.uint8)
    if symbols:
        ids = octets[offsets[:, None] + np.arange(_ID_AT, _ID_AT + _ID_BYTES)].view("<u4").ravel()
        chosen &= np.isin(ids, symbols)
    if chosen.all():
        return len(offsets), block.data
    return int(chosen.sum()), octets[np.repeat(chosen, sizes)].data


def write_trades(
    file: IO[bytes], reader: TapeReader, from_sequence: int, symbols: list[int] | None, network: Path | None
) -> tuple[int, list[str]]:
    """Write standard trades; return their number, and remarks on what is missing."""
    directory = None if network is None else SymbolDirectory(load_network(network))
    trades = TradeExport(
        reader,
        from_sequence,
        symbols,
        symbols={} if directory is None else {number: name for name, number in directory.symbols.items()},
        venues={} if directory is None else {floor.publisher: floor.name for floor in directory.floors},
    )
    file.write(trades.header())
    count = 0
    for batch in trades:
        file.write(batch.data)
        count += len(batch)
    return count, [*_left_out(trades), *_unnamed(trades)]


def _left_out(trades: TradeExport) -> list[str]:
    found = [f"{kind} {count:,}" for kind, count in sorted(trades.left_out.items()) if count]
    if not found:
        return []
    return [f"Left out records that are not trades ({', '.join(found)}); --native writes all records"]


def _unnamed(trades: TradeExport) -> list[str]:
    if not trades.unnamed:
        return []
    listed = ", ".join(map(str, sorted(trades.unnamed)[:_MOST_NAMED]))
    more = len(trades.unnamed) - _MOST_NAMED
    return [
        f"No symbol for instrument {listed}{f' and {more:,} more' if more > 0 else ''}: the tape has no definition; "
        "pass --network FILE"
    ]
