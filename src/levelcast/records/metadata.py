"""The DBN file header of a tape."""

from __future__ import annotations

import struct

from levelcast.records.codes import DATASET, DBN_VERSION, STYPE_INSTRUMENT_ID, SYMBOL_FIELD_BYTES, UNDEF_TIMESTAMP

__all__ = ["dbn_metadata"]


def dbn_metadata() -> bytes:
    """Return the DBN file header of every tape: no schema (mixed), no end, no mappings; ids in `instrument_id`.

    The start is 0, not the first record's time, so that a segment's header does not depend on its content.
    """
    no_schema, no_stype_in, no_end, no_limit, start_ns, ts_out = 0xFFFF, 0xFF, UNDEF_TIMESTAMP, 0, 0, 0
    body = struct.pack(
        "<16sHQQQBBBH53xI",
        DATASET.encode(),
        no_schema,
        start_ns,
        no_end,
        no_limit,
        no_stype_in,
        STYPE_INSTRUMENT_ID,
        ts_out,
        SYMBOL_FIELD_BYTES,
        0,  # bytes of schema definition
    ) + struct.pack("<4I", 0, 0, 0, 0)  # symbols, partial, not found, mappings
    return b"DBN" + struct.pack("<BI", DBN_VERSION, len(body)) + body
