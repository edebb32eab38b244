"""The last record of each instrument on each floor, as if it were kept one by one."""

from __future__ import annotations

import doctest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.edge.server import last_records
from levelcast.edge.server.last_records import Latest
from tests.edge_parts import payloads

KEPT = [records.RTYPE_TRADE, records.RTYPE_QUOTE, records.RTYPE_STATUS, records.RTYPE_INSTRUMENT, records.RTYPE_MAPPING]


def slowly(frames: list[bytes]) -> bytes:
    """The rule, one record at a time."""
    found: dict[tuple[int, int, int], bytes] = {}
    for payload in frames:
        for batch in records.split(payload):
            for record in batch.records:
                if batch.kind.rtype not in KEPT:
                    continue
                if batch.kind.rtype == records.RTYPE_TRADE and record["action"] != b"T":
                    continue
                whole = np.zeros(1, batch.kind.dtype)
                for name in batch.kind.dtype.names or ():
                    whole[name] = record[name]
                whole["length"] = batch.kind.dtype.itemsize // 4
                key = (KEPT.index(batch.kind.rtype), int(record["instrument_id"]), int(record["publisher_id"]))
                found[key] = whole.tobytes()
    return b"".join(found[key] for key in sorted(found))


@given(st.lists(payloads(20, instruments=4), max_size=5))
def test_the_last_of_each_is_kept(frames: list[bytes]) -> None:
    kept = Latest()
    for payload in frames:
        kept.update(payload)
    assert kept.payload() == slowly(frames)
    again = Latest()
    again.update(kept.payload())
    assert again.payload() == kept.payload()
    assert len(again) == len(kept) == sum(len(batch.records) for batch in records.split(kept.payload()))


def test_a_bust_or_a_correction_is_no_price() -> None:
    batch = records.trades(3)
    batch["instrument_id"], batch["price"] = 7, [1, 2, 3]
    batch["action"] = [b"T", b"C", b"M"]
    kept = Latest()
    kept.update(batch[1:].tobytes())
    assert len(kept) == 0
    kept.update(batch.tobytes())
    assert records.split(kept.payload())[0].records["price"].tolist() == [1]


def test_the_example_in_the_text() -> None:
    assert doctest.testmod(last_records).failed == 0
