"""The DBN file headers of a tape and of exported trades."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from levelcast.records.codes import (
    DATASET,
    DBN_VERSION,
    SCHEMA_TRADES,
    STYPE_INSTRUMENT_ID,
    STYPE_RAW_SYMBOL,
    SYMBOL_FIELD_BYTES,
    SYMBOL_MAX_CHARS,
    TRADES_DATASET,
    UNDEF_TIMESTAMP,
)

__all__ = ["dbn_metadata", "trades_metadata"]

_PREFIX = struct.Struct("<3sBI")
_FIXED = struct.Struct("<16sHQQQBBBH53xI")
_COUNT = struct.Struct("<I")
_DATES = struct.Struct("<II")
_NO_SCHEMA, _NO_STYPE = 0xFFFF, 0xFF


def dbn_metadata() -> bytes:
    """Return the DBN file header of every tape: no schema (mixed), no end, no mappings; ids in `instrument_id`.

    The start is 0, not the first record's time, so that a segment's header does not depend on its content.
    """
    return _header(DATASET, _NO_SCHEMA, 0, UNDEF_TIMESTAMP, _NO_STYPE, [], [])


def trades_metadata(first_ns: int, last_ns: int, symbols: Mapping[int, str]) -> bytes:
    """Return the DBN file header of trades with `ts_recv` from `first_ns` to `last_ns`, and the symbol of each id.

    A mapping of DBN holds from one date to another, the latter excluded: here from the first day (UTC) to the day after
    the last one.
    """
    ids: dict[str, list[int]] = {}
    for number, name in sorted(symbols.items(), key=lambda each: (each[1], each[0])):
        ids.setdefault(name, []).append(number)
    days = _DATES.pack(_date(first_ns), _date(last_ns, days_later=1))
    mappings = [
        _name(name) + _COUNT.pack(len(numbers)) + b"".join(days + _name(str(number)) for number in numbers)
        for name, numbers in ids.items()
    ]
    names = [_name(name) for name in ids]
    return _header(TRADES_DATASET, SCHEMA_TRADES, first_ns, last_ns + 1, STYPE_RAW_SYMBOL, names, mappings)


def _header(
    dataset: str,
    schema: int,
    start_ns: int,
    end_ns: int,
    stype_in: int,
    symbols: Sequence[bytes],
    mappings: Sequence[bytes],
) -> bytes:
    no_limit, ts_out, definition_bytes = 0, 0, 0
    fixed = _FIXED.pack(
        dataset.encode(),
        schema,
        start_ns,
        end_ns,
        no_limit,
        stype_in,
        STYPE_INSTRUMENT_ID,
        ts_out,
        SYMBOL_FIELD_BYTES,
        definition_bytes,
    )
    none: Sequence[bytes] = ()  # symbols found on a part of the days, and symbols not found
    body = fixed + b"".join(_COUNT.pack(len(each)) + b"".join(each) for each in (symbols, none, none, mappings))
    return _PREFIX.pack(b"DBN", DBN_VERSION, len(body)) + body


def _name(text: str) -> bytes:
    return text.encode("ascii", "replace")[:SYMBOL_MAX_CHARS].ljust(SYMBOL_FIELD_BYTES, b"\0")


def _date(ns: int, days_later: int = 0) -> int:
    """Return the day (UTC) of a time as a number such as 20131007."""
    day = np.datetime64(ns, "ns").astype("datetime64[D]") + days_later
    return int(str(day).replace("-", ""))
