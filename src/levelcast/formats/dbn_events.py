"""Read all records of a DBN file with a tape type: trades, best quotes, orders (MBO), definitions, statuses.

`levelcast.formats.dbn` reads trades for publication. This module is for analysis, so it does not need a network
file.

- `instrument_id` and `publisher_id` are the file's. The symbol is the latest that the file has for the id. The venue is
  that of a definition of Levelcast's own, or else the dataset's first part (`GLBX` of `GLBX.MDP3`). In a file of
  `levelcast tape export`, it is the venue of Databento's publisher.
- An MBO record with action T is a trade; all others, fills among them, are orders.
- `venue_sequence` is the file's `sequence` if a record does not have our tail.
- A record of another type (bars, statistics, deeper books) is refused. Definitions and mappings of versions 1 and 2
    have other layouts than the current ones: they define the symbols, and yield a row with only the symbol.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.formats import dbn
from levelcast.formats.columns import Coded, Ints, refusing
from levelcast.formats.event_batches import Chunk, Events, Noted, RefusedRow, shown
from levelcast.records import BY_RTYPE, RecordArray, RecordType, codes, trades, venue_of_publisher

_HEADER_BYTES = 16

Bytes = npt.NDArray[np.uint8]


def dbn_events(path: Path, venue: str | None = None) -> Iterator[Chunk]:
    """Yield the records of a file, and the refused records of types that a tape does not have."""
    with refusing(path), dbn.open_file(path) as stream:
        header = dbn.read_header(path, stream)
        symbols = dbn.Symbols(header, Noted())
        names = _Venues(header, venue)
        number = 1
        for octets in dbn.chunks(path, stream):
            chunk = Chunk([], [])
            for first, run in dbn.runs(path, octets, number):
                _take(run, first, header, symbols, names, chunk)
                number = first + len(run)
            yield chunk


class _Venues:
    """Names of the publishers."""

    def __init__(self, header: dbn.Header, venue: str | None) -> None:
        self._given = venue
        prefix = header.dataset.partition(".")[0]
        self._prefix = None if header.dataset in (codes.DATASET, codes.TRADES_DATASET) else prefix or None
        self._exported = header.dataset == codes.TRADES_DATASET
        self._told: dict[int, str] = {}

    def note(self, records: RecordArray) -> None:
        for publisher, name in zip(records["publisher_id"].tolist(), records["exchange"].tolist(), strict=True):
            if name:
                self._told[publisher] = name.decode("utf-8", "replace")

    def of(self, publishers: npt.NDArray[np.uint16]) -> Coded:
        found, at = np.unique(publishers, return_inverse=True)
        return Coded.named(at, [self._name(each) for each in found.tolist()])

    def _name(self, publisher: int) -> str:
        exported = venue_of_publisher(publisher) if self._exported else None
        return self._given or self._told.get(publisher) or exported or self._prefix or ""


def _take(run: Bytes, first: int, header: dbn.Header, symbols: dbn.Symbols, venues: _Venues, chunk: Chunk) -> None:
    count, size = run.shape
    place = np.arange(first, first + count)
    rtype = int(run[0, 1])
    kind = BY_RTYPE.get(rtype)
    tells_symbol = rtype in (codes.RTYPE_INSTRUMENT, codes.RTYPE_MAPPING)
    if tells_symbol:
        symbols.note(run)
    if kind is None:
        why = f"record type {rtype:#04x} does not exist on a tape; remove the record"
        chunk.refused.extend(RefusedRow(at, why, shown(row.tobytes())) for at, row in enumerate(run, first))
        return
    today = size >= kind.base_size and (not tells_symbol or header.version == codes.DBN_VERSION)
    records = _records(run, kind, size if today else _HEADER_BYTES)
    if rtype == codes.RTYPE_INSTRUMENT and today:
        venues.note(records)
    extra: dict[str, npt.NDArray[Any]] = {}
    fields = kind.dtype.names or ()
    if "sequence" in fields and size < kind.dtype.itemsize:
        told = records["sequence"].copy()
        if "venue_sequence" in fields:
            records["venue_sequence"] = told
        else:
            extra["venue_sequence"] = told.astype(np.int64)
    named = _symbols_of(records, symbols), venues.of(records["publisher_id"])
    if rtype == codes.RTYPE_ORDER and (traded := records["action"] == codes.ACTION_TRADE).any():
        chunk.events.append(
            _traded(records[traded], place[traded], *(each.only(np.flatnonzero(traded)) for each in named))
        )
        kept = np.flatnonzero(~traded)
        records, place, named = records[kept], place[kept], (named[0].only(kept), named[1].only(kept))
        extra = {name: values[kept] for name, values in extra.items()}
    if len(records):
        chunk.events.append(Events(records, place, *named, extra=extra))


def _traded(told: RecordArray, place: Ints, symbols: Coded, venues: Coded) -> Events:
    records = trades(len(told))
    for name in ("publisher_id", "instrument_id", "ts_event", "price", "size", "side", "flags", "ts_recv", "sequence"):
        records[name] = told[name]
    records["venue_sequence"] = told["sequence"]
    order_id = np.ma.array(told["order_id"].view(np.int64), mask=told["order_id"] == 0)
    return Events(records, place, symbols, venues, extra={"order_id": order_id})


def _records(run: Bytes, kind: RecordType, size: int) -> RecordArray:
    """Return the run with all fields of the type that it has."""
    full = kind.dtype.itemsize
    records = kind.blank.repeat(len(run))
    taken = full if size >= full else min(size, kind.base_size)
    records.view(np.uint8).reshape(len(run), full)[:, 1:taken] = run[:, 1:taken]
    records["length"] = full // codes.WORD_BYTES
    return records


def _symbols_of(records: RecordArray, symbols: dbn.Symbols) -> Coded:
    times = records["ts_event"]
    if "ts_recv" in (records.dtype.names or ()):  # ids are assigned by the day of receipt
        times = np.where(records["ts_recv"] == 0, times, records["ts_recv"])
    return symbols.coded(records["instrument_id"], times)
