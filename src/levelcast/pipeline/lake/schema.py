"""The flat schema of all records that the pipeline reads: the columns of the table `tape`, version 1.

A row is a record. Fields that a record type does not have, or that the record leaves undefined, are null. One
description, `COLUMNS`, defines the Arrow schema and the Spark schema; `to_arrow` fills it from record arrays.

- Spark has no unsigned numbers. Fields of 8 to 32 bits get the next wider type. A 64-bit identifier (`trade_id`,
  `order_id`, `client_order_id`, `original_client_order_id`, `account`) keeps its 64 bits in a signed column: from 2^63
  on it shows as negative, equality and joins are exact.
- Prices are integers in units of 1e-9 and times nanoseconds UTC, both in 64 bits: Spark has no nanosecond timestamp.
- `day` is the UTC date of `ts_recv`. It follows from the record alone, is the same at every receiver, and grows with
  the sequence, so a day of a tape is complete when the next one begins. It is not the day of an exchange: the evening
  session of New York in winter, from 19:00 on, belongs to the next day.
- A quote with `side` B or A updates that side only, and the other stays unchanged; with N it updates both.
- An order record with the flag `FLAG_MBP` is the new total of a price level, not a single order (as in DBN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from levelcast.errors import UserError
from levelcast.formats.columns import Coded
from levelcast.records import RECORD_TYPES, UNDEF_PRICE, UNDEF_TIMESTAMP, RecordArray

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA_VERSION = 1
VERSION_KEY = b"levelcast.schema"
DAY_NS = 86_400_000_000_000
_LARGEST_TABLE = 1 << 20
"""Ids below this are looked up in a table, larger ones by search."""

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

ARROW = {
    **{"short": pa.int16(), "int": pa.int32(), "long": pa.int64(), "decimal(38,0)": pa.decimal128(38, 0)},
    **{"string": pa.string(), "date": pa.date32(), "double": pa.float64(), "boolean": pa.bool_()},
}
_UNDEFINED = {"price": UNDEF_PRICE, "time": np.uint64(UNDEF_TIMESTAMP), "id": 0}
_NUMPY = {"short": np.int16, "int": np.int32, "long": np.int64}


class SchemaError(UserError):
    """A column or value that does not fit the schema."""


class Column(NamedTuple):
    """One column of a table, with a description."""

    name: str
    type: str
    says: str
    rule: str = "own"
    """Conversion of a record field to the column: `number`, `bits`, `price`, `time`, `id` (0 is none), `char`, `text`;
    or `own` for columns that `to_arrow` computes itself."""


PRICE_UNIT = "in units of 1e-9"
COLUMNS: tuple[Column, ...] = (
    # position
    Column("stripe", "int", "The stripe of the ring; 0 for files."),
    Column("sequence", "long", "The global sequence in its stripe, all 64 bits; for files a number for each row."),
    Column("slot", "long", "The slot of the token that acknowledged it; none for files."),
    Column("ts_recv", "long", "The acknowledgement's timestamp, ns UTC: the tape's time, the same at every receiver."),
    Column("ts_event", "long", "The time that the floor gave it, ns UTC.", "time"),
    Column("rtype", "short", "The DBN record type.", "number"),
    Column("kind", "string", "trade, quote, order, instrument, mapping, status or system."),
    # subject
    Column("publisher_id", "int", "The number of the floor.", "id"),
    Column("venue", "string", "The floor's name, usually a MIC."),
    Column("instrument_id", "long", "The directory's number of the instrument.", "id"),
    Column("symbol", "string", "The instrument's symbol."),
    # trades, quotes, orders
    Column("action", "string", "T trade, C cancel (bust), M correction; of orders A, M, C, F, R as in DBN.", "char"),
    Column("side", "string", "B bid, A ask, N none; of a quote the side that it updates, N both.", "char"),
    Column("price", "long", f"The price {PRICE_UNIT}.", "price"),
    Column("size", "long", "The quantity.", "number"),
    Column("flags", "short", "DBN's flags.", "number"),
    Column("condition", "long", "The sale condition as in the source; for LEAN its bits.", "number"),
    Column("trade_id", "long", "The floor's number of the trade, 64 bits in a signed column.", "bits"),
    Column("venue_sequence", "long", "The floor's own sequence.", "number"),
    Column("bid_px", "long", f"The best bid {PRICE_UNIT}; none if there is none, or if the side is A.", "price"),
    Column("ask_px", "long", f"The best offer {PRICE_UNIT}; none if there is none, or if the side is B.", "price"),
    Column("bid_sz", "long", "The quantity at the best bid.", "number"),
    Column("ask_sz", "long", "The quantity at the best offer.", "number"),
    Column("bid_ct", "long", "The orders at the best bid.", "number"),
    Column("ask_ct", "long", "The orders at the best offer.", "number"),
    Column("order_id", "long", "The floor's number of the order.", "bits"),
    Column("stop_price", "long", f"The stop price {PRICE_UNIT}.", "price"),
    Column("client_order_id", "long", "The client's number of the order.", "bits"),
    Column("original_client_order_id", "long", "The client's number of the order that this one changes.", "bits"),
    Column("account", "long", "The account.", "bits"),
    Column("destination", "int", "The floor that the order is for.", "number"),
    Column("order_type", "string", "FIX 40: 1 market, 2 limit, 3 stop, 4 stop limit.", "char"),
    Column(
        "time_in_force", "string", "FIX 59: 0 day, 1 good till cancel, 3 immediate or cancel, 4 fill or kill.", "char"
    ),
    Column("self_trade_policy", "string", "A allow, N cancel newest, O oldest, B both, D decrement.", "char"),
    # status
    Column("status_action", "int", "DBN's action of a status record: trading, halt, close.", "number"),
    Column("reason", "int", "DBN's reason of a status record.", "number"),
    Column("trading_event", "int", "DBN's trading event of a status record.", "number"),
    Column("is_trading", "string", "Y, N or ~ for unknown.", "char"),
    Column("is_quoting", "string", "Y, N or ~ for unknown.", "char"),
    Column("is_short_sell_restricted", "string", "Y, N or ~ for unknown.", "char"),
    # definitions; their symbol and venue are in the columns above
    Column("min_price_increment", "long", f"The tick {PRICE_UNIT}.", "price"),
    Column("expiration", "long", "When the instrument expires, ns UTC.", "time"),
    Column("currency", "string", "The currency of the instrument.", "text"),
    Column("instrument_class", "string", "DBN's class: K stock, F future, and so on.", "char"),
    Column("security_type", "string", "The kind of security as the floor calls it.", "text"),
    # system messages, and the other name of a mapping
    Column("text", "string", "The text of a system message; the other name of a mapping.", "text"),
    # the partition
    Column("day", "date", "The UTC day of ts_recv."),
)
_REQUIRED = frozenset({"stripe", "sequence", "ts_recv", "rtype", "kind", "day"})
_SOURCES = {
    "action": ("trade.action", "quote.action", "order.action"),
    "status_action": ("status.action",),
    "text": ("system.msg", "mapping.stype_in_symbol"),
}
"""Source fields of columns with another name, as `type.field`; those of a quote end in `_00`."""
NAMES = tuple(column.name for column in COLUMNS)
BY_NAME = {column.name: column for column in COLUMNS}
_KIND_NAMES = [kind.name for kind in RECORD_TYPES]
_KIND_CODES = {kind.rtype: code for code, kind in enumerate(RECORD_TYPES)}


def chosen(columns: Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns of these names, in the order of the schema; all of them for None."""
    if columns is None:
        return COLUMNS
    unknown = [name for name in columns if name not in BY_NAME]
    if unknown:
        raise SchemaError(f"unknown column {unknown[0]!r}; the columns are {', '.join(NAMES)}")
    return tuple(column for column in COLUMNS if column.name in columns)


def arrow_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema, with its version in the metadata."""
    fields = [pa.field(each.name, ARROW[each.type], each.name not in _REQUIRED) for each in chosen(columns)]
    return pa.schema(fields, {VERSION_KEY: str(SCHEMA_VERSION).encode()})


def spark_schema(columns: Sequence[str] | None = None) -> StructType:
    """Return the schema as Spark's StructType."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(columns))


# -- from records to rows ---------------------------------------------------------------------------------


class Names:
    """Texts by number: the symbols of instruments, or the names of floors."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        known = sorted((names or {}).items())
        self._ids: Ints = np.array([number for number, _ in known], np.int64)
        self.names = [name for _, name in known]
        self._table: Ints | None = None
        if known and known[-1][0] < _LARGEST_TABLE:
            self._table = np.full(known[-1][0] + 2, -1, np.int64)
            self._table[self._ids] = np.arange(len(known))

    def words(self, numbers: Array) -> Coded:
        """Return the text of each number."""
        wanted = numbers.astype(np.int64)
        if not len(self._ids):
            return Coded(np.full(len(wanted), -1, np.int64), self.names)
        if self._table is not None:
            return Coded(self._table[np.minimum(wanted, len(self._table) - 1)], self.names)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return Coded(np.where(self._ids[at] == wanted, at, -1), self.names)


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Records of one type, and values for each that its bytes do not contain."""

    records: RecordArray
    sequence: Ints
    slot: Ints | None = None
    ts_recv: Array | None = None
    """None: as in the records, or else their `ts_event`."""
    symbol: Coded | None = None
    venue: Coded | None = None
    """The code of a row without a name is -1."""
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Columns that the record type has no field for, such as the order id of a trade."""


def to_arrow(
    parts: Iterable[RecordRows],
    *,
    stripe: int = 0,
    symbols: Names | None = None,
    venues: Names | None = None,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return rows of all parts by sequence. `symbols` and `venues` provide names that a part does not have itself."""
    rows = _Rows([part for part in parts if len(part.records)], stripe, symbols or Names(), venues or Names())
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([rows.column(BY_NAME[name]) for name in schema.names], schema=schema)


class _Rows:
    """The parts of one batch; columns are collected from them in turn."""

    def __init__(self, parts: list[RecordRows], stripe: int, symbols: Names, venues: Names) -> None:
        self.parts = parts
        self.stripe = stripe
        self.symbols, self.venues = symbols, venues
        self.count = sum(len(part.records) for part in parts)
        self.order = self._order()
        self._own: dict[str, Callable[[], Any]] = {
            "stripe": lambda: pa.array(np.full(self.count, self.stripe, np.int32)),
            "sequence": lambda: self._numbers([(part.sequence, None) for part in self.parts], "long"),
            "slot": lambda: self._numbers([(part.slot, None) for part in self.parts], "long"),
            "ts_recv": lambda: pa.array(self._received()),
            "kind": self._kinds,
            "venue": lambda: self._words([part.venue or self._venue(part) for part in self.parts]),
            "symbol": lambda: self._words([part.symbol or self._symbol(part) for part in self.parts]),
            "day": lambda: pa.array((self._received() // DAY_NS).astype(np.int32)).view(pa.date32()),
        }

    def _order(self) -> Ints | None:
        if len(self.parts) < 2:
            return None
        sequence = np.concatenate([part.sequence for part in self.parts])
        if bool((sequence[1:] > sequence[:-1]).all()):
            return None
        return np.argsort(sequence, kind="stable")

    def column(self, column: Column) -> Any:
        if column.rule == "own":
            return self._own[column.name]()
        if column.type == "string":
            return self._words([self._text(part, column) for part in self.parts])
        return self._numbers([self._number(part, column) for part in self.parts], column.type)

    # -- computed columns

    def _received(self) -> Ints:
        times = [np.zeros(0, np.int64)]
        for part in self.parts:
            given = part.ts_recv
            if given is None:
                given = part.records["ts_event"]
                if "ts_recv" in (part.records.dtype.names or ()):
                    received = part.records["ts_recv"]
                    given = np.where(received == 0, given, received)
            times.append(given.astype(np.int64))
        return self._in_order(np.concatenate(times))

    def _kinds(self) -> Any:
        return self._words([Coded(_coded(part.records["rtype"], _KIND_CODES), _KIND_NAMES) for part in self.parts])

    def _symbol(self, part: RecordRows) -> Coded:
        for name in ("raw_symbol", "stype_out_symbol"):
            if name in (part.records.dtype.names or ()):
                return _texts(part.records[name])
        return self.symbols.words(part.records["instrument_id"])

    def _venue(self, part: RecordRows) -> Coded:
        if "exchange" in (part.records.dtype.names or ()):
            return _texts(part.records["exchange"])
        return self.venues.words(part.records["publisher_id"])

    # -- columns from fields

    def _field(self, part: RecordRows, column: Column) -> Array | None:
        if column.name in part.extra:
            return part.extra[column.name]
        kind = RECORD_TYPES[_KIND_CODES[int(part.records["rtype"][0])]].name
        for source in _SOURCES.get(column.name, (column.name, f"{column.name}_00")):
            of, dot, name = source.rpartition(".")
            if (not dot or of == kind) and name in (part.records.dtype.names or ()):
                found: Array = part.records[name]
                return found
        return None

    def _number(self, part: RecordRows, column: Column) -> tuple[Array | None, Array | None]:
        values = self._field(part, column)
        if values is None:
            return None, None
        if column.name in part.extra and np.ma.isMaskedArray(values):
            return np.ma.getdata(values), np.ma.getmaskarray(values)
        missing = values == _UNDEFINED[column.rule] if column.rule in _UNDEFINED else None
        if values.dtype == np.uint64:
            values = values.view(np.int64) if values.flags.c_contiguous else values.astype(np.int64)
        return values, missing

    def _numbers(self, parts: list[tuple[Array | None, Array | None]], type: str) -> Any:
        if all(values is None for values, _ in parts):
            return pa.nulls(self.count, ARROW[type])
        whole, gaps = [], []
        for (values, missing), part in zip(parts, self.parts, strict=True):
            count = len(part.records)
            whole.append(np.zeros(count, _NUMPY[type]) if values is None else values.astype(_NUMPY[type]))
            gaps.append(np.full(count, values is None) if missing is None else missing)
        numbers = self._in_order(np.concatenate(whole))
        if all(values is not None and missing is None for values, missing in parts):
            return pa.array(numbers)
        return pa.array(numbers, mask=self._in_order(np.concatenate(gaps)))

    def _text(self, part: RecordRows, column: Column) -> Coded:
        values = self._field(part, column)
        if values is None:
            return Coded(np.full(len(part.records), -1, np.int64), ())
        return _letters(values) if column.rule == "char" else _texts(values)

    def _words(self, parts: list[Coded]) -> Any:
        if not parts:
            return pa.array([], pa.string())
        if all(not part.names for part in parts):
            return pa.nulls(self.count, pa.string())
        names: list[str] = []
        codes = []
        for part in parts:
            codes.append(np.where(part.codes < 0, -1, part.codes + len(names)))
            names += part.names
        placed = self._in_order(np.concatenate(codes))
        return pa.array([*names, None], pa.string()).take(pa.array(np.where(placed < 0, len(names), placed)))

    def _in_order(self, values: Array) -> Array:
        return values if self.order is None else values[self.order]


def _coded(values: Array, codes: Mapping[int, int]) -> Ints:
    table = np.full(256, -1, np.int64)
    for value, code in codes.items():
        table[value] = code
    return table[values]


def _letters(values: Array) -> Coded:
    """Fields of one character; an empty one is null."""
    octets = np.ascontiguousarray(values).view(np.uint8)
    found = np.flatnonzero(np.bincount(octets, minlength=256))
    kept = found[found > 0]
    return Coded(_coded(octets, {int(octet): code for code, octet in enumerate(kept)}), [chr(octet) for octet in kept])


def _texts(values: Array) -> Coded:
    """Fields of text; an empty one is null."""
    found, codes = np.unique(values, return_inverse=True)
    texts = [value.decode("utf-8", "replace") for value in found.tolist()]
    empty = np.array([not text for text in texts], bool)
    return Coded(np.where(empty[codes], -1, codes).astype(np.int64), texts)
