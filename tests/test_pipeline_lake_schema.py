"""The flat schema: what each record type puts into its columns, and that nothing is lost on the way."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

import numpy as np
import pytest

from levelcast.formats.columns import Coded
from levelcast.pipeline.lake.schema import (
    COLUMNS,
    NAMES,
    SCHEMA_VERSION,
    VERSION_KEY,
    Names,
    RecordRows,
    SchemaError,
    arrow_schema,
    spark_schema,
    to_arrow,
)
from levelcast.records import (
    RECORD_TYPES,
    SIDE_BID,
    StatusAction,
    instruments,
    mappings,
    orders,
    quotes,
    statuses,
    system_messages,
    trades,
)

NOON = 1_381_147_200_000_000_000  # 2013-10-07 12:00 UTC


def numbered(first: int, count: int) -> Any:
    return np.arange(first, first + count, dtype=np.int64)


def test_trades_keep_every_bit() -> None:
    batch = trades(3)
    batch["trade_id"] = [1, 2**63, 2**64 - 1]
    batch["size"] = [0, 1, 2**32 - 1]
    batch["price"][:2] = [-1, 10**18]
    batch["venue_sequence"] = 2**32 - 1
    batch["condition"] = 2**31
    batch["ts_event"][0] = NOON
    batch["ts_recv"] = NOON + 1
    batch["publisher_id"] = [1, 2, 0]
    batch["instrument_id"] = [2**32 - 1, 5, 0]
    part = RecordRows(batch, numbered(2**40, 3), slot=numbered(7, 3))
    rows = to_arrow([part], stripe=3, symbols=Names({2**32 - 1: "SPY"}), venues=Names({1: "XNYS", 2: "XLON"}))
    assert rows.schema == arrow_schema()
    found = rows.to_pydict()
    assert found["stripe"] == [3, 3, 3]
    assert found["sequence"] == [2**40, 2**40 + 1, 2**40 + 2]
    assert found["slot"] == [7, 8, 9]
    assert [value % 2**64 for value in found["trade_id"]] == [1, 2**63, 2**64 - 1]
    assert found["trade_id"] == [1, -(2**63), -1]
    assert found["size"] == [0, 1, 2**32 - 1]
    assert found["price"] == [-1, 10**18, None]
    assert found["venue_sequence"] == [2**32 - 1] * 3
    assert found["condition"] == [2**31] * 3
    assert found["ts_event"] == [NOON, None, None]
    assert found["ts_recv"] == [NOON + 1] * 3
    assert found["publisher_id"] == [1, 2, None]
    assert found["instrument_id"] == [2**32 - 1, 5, None]
    assert found["symbol"] == ["SPY", None, None]
    assert found["venue"] == ["XNYS", "XLON", None]
    assert (found["kind"], found["action"], found["side"]) == (["trade"] * 3, ["T"] * 3, ["N"] * 3)
    assert found["day"] == [date(2013, 10, 7)] * 3
    assert found["bid_px"] == found["order_id"] == found["text"] == [None] * 3


def one_of_each() -> dict[str, Any]:
    made = {
        "trade": trades(1),
        "quote": quotes(1),
        "order": orders(1),
        "instrument": instruments(1),
        "mapping": mappings(1),
        "status": statuses(1),
        "system": system_messages(1),
    }
    assert list(made) == [kind.name for kind in RECORD_TYPES]
    made["quote"]["bid_px_00"], made["quote"]["bid_sz_00"], made["quote"]["side"] = 99, 7, SIDE_BID
    made["order"]["order_id"], made["order"]["account"] = 2**64 - 5, 2**63
    made["instrument"]["raw_symbol"], made["instrument"]["exchange"] = b"VOD", b"XLON"
    made["instrument"]["currency"] = b"GBP"
    made["mapping"]["stype_in_symbol"], made["mapping"]["stype_out_symbol"] = b"VOD.L", b"VOD"
    made["status"]["action"] = StatusAction.HALT
    made["system"]["msg"] = b"hello"
    return made


def test_types_are_mixed_in_order_of_the_sequence() -> None:
    made = one_of_each()
    places = list(range(len(made)))
    Random(3).shuffle(places)
    times = np.array([NOON], np.uint64)
    parts = [
        RecordRows(batch, numbered(10 + place, 1), ts_recv=times)
        for place, batch in zip(places, made.values(), strict=True)
    ]
    rows = {row["kind"]: row for row in to_arrow(parts).to_pylist()}
    assert [row["sequence"] - 10 for row in rows.values()] == sorted(places)
    assert set(rows) == set(made)
    assert (rows["quote"]["bid_px"], rows["quote"]["bid_sz"], rows["quote"]["ask_px"]) == (99, 7, None)
    assert rows["quote"]["side"] == "B"
    assert (rows["order"]["order_id"] % 2**64, rows["order"]["account"] % 2**64) == (2**64 - 5, 2**63)
    assert (rows["order"]["order_type"], rows["order"]["stop_price"]) == ("2", None)
    assert (rows["instrument"]["symbol"], rows["instrument"]["venue"]) == ("VOD", "XLON")
    assert (rows["instrument"]["currency"], rows["instrument"]["expiration"]) == ("GBP", None)
    assert (rows["mapping"]["symbol"], rows["mapping"]["text"]) == ("VOD", "VOD.L")
    assert (rows["status"]["status_action"], rows["status"]["action"]) == (8, None)
    assert (rows["status"]["is_trading"], rows["system"]["text"]) == ("~", "hello")
    assert all(row["slot"] is None and row["ts_recv"] == NOON for row in rows.values())
    filled = {name for row in rows.values() for name, value in row.items() if value is not None}
    assert {"trade_id", "order_id", "text", "status_action", "currency"} <= filled


def test_a_record_without_a_receive_time_has_that_of_its_event() -> None:
    batch = trades(2)
    batch["ts_event"] = [NOON, NOON + 1]
    batch["ts_recv"] = [0, NOON + 13 * 3600 * 10**9]
    found = to_arrow([RecordRows(batch, numbered(1, 2))]).to_pydict()
    assert found["ts_recv"] == [NOON, NOON + 13 * 3600 * 10**9]
    assert found["day"] == [date(2013, 10, 7), date(2013, 10, 8)]


def test_what_a_part_names_itself_and_what_its_records_have_no_field_for() -> None:
    batch = trades(2)
    batch["ts_event"] = NOON
    words = Coded(np.array([1, -1]), ["A", "B"])
    order_id = np.ma.array(np.array([2**64 - 1, 3], np.uint64).view(np.int64), mask=[False, True])
    found = to_arrow([RecordRows(batch, numbered(1, 2), symbol=words, extra={"order_id": order_id})]).to_pydict()
    assert found["symbol"] == ["B", None]
    assert found["order_id"] == [-1, None]


@pytest.mark.parametrize("largest", [9, 2**32 - 1])
def test_names_are_found_by_number(largest: int) -> None:
    words = Names({3: "THREE", largest: "LAST", 1: "ONE"}).words(np.array([1, 2, 3, largest, 0, 2**32 - 2], np.uint32))
    assert [words.names[code] if code >= 0 else None for code in words.codes] == [
        "ONE",
        None,
        "THREE",
        "LAST",
        None,
        None,
    ]


def test_columns_are_chosen_by_name() -> None:
    batch = trades(1)
    batch["ts_event"] = NOON
    rows = to_arrow([RecordRows(batch, numbered(4, 1))], columns=["price", "sequence"])
    assert rows.schema.names == ["sequence", "price"]
    assert to_arrow([], columns=["symbol", "price"]).num_rows == 0
    assert to_arrow([]).schema == arrow_schema()
    with pytest.raises(SchemaError, match="unknown column 'prize'; the columns are stripe, sequence"):
        to_arrow([], columns=["prize"])


def test_the_version_is_in_the_schema() -> None:
    assert arrow_schema().metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()


def test_spark_has_the_same_columns() -> None:
    pytest.importorskip("pyspark")
    made = spark_schema()
    assert tuple(made.names) == NAMES
    spark_names = {"short": "smallint", "long": "bigint"}
    wanted = [spark_names.get(column.type, column.type) for column in COLUMNS]
    assert [each.dataType.simpleString() for each in made] == wanted
    required = [each.name for each in made if not each.nullable]
    assert required == ["stripe", "sequence", "ts_recv", "rtype", "kind", "day"]
