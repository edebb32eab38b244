"""The one flat schema of everything that the pipeline reads: the columns of the table `tape`, version 1.

A row is a record. What a record type does not have is null, and so is what the record leaves undefined. One
description, `COLUMNS`, gives the Arrow schema and the Spark schema; `to_arrow` fills it from record arrays.

- Spark has no unsigned numbers. Fields of 8 to 32 bits get the next wider type. A 64-bit identifier (`trade_id`,
  `order_id`, `client_order_id`, `original_client_order_id`, `account`) keeps its 64 bits in a signed column: from 2^63
  on it shows as negative, equality and joins are exact, and `unsigned` (`unsigned_column` in Spark) shows it as it was.
- Prices are whole numbers of 1e-9 and times nanoseconds UTC, both in 64 bits: Spark has no nanosecond timestamp.
- `day` is the UTC date of `ts_recv`. It follows from the record alone, is the same at every receiver, and grows with
  the sequence, so a day of a tape is complete when the next one begins. It is not the day of an exchange: the evening
  session of New York in winter, from 19:00 on, belongs to the next day.
- A quote whose `side` is B or A tells that side only, and the other one stands as it was; with N it tells both.
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
from levelcast.records import RECORD_TYPES, UNDEF_PRICE, UNDEF_TIMESTAMP, RecordArray

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import StructType

SCHEMA_VERSION = 1
VERSION_KEY = b"levelcast.schema"
DAY_NS = 86_400_000_000_000
_LARGEST_TABLE = 1 << 20
"""Ids below this are looked up in a table, and larger ones searched for."""

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_ARROW = {"short": pa.int16(), "int": pa.int32(), "long": pa.int64(), "string": pa.string(), "date": pa.date32()}
_NUMPY = {"short": np.int16, "int": np.int32, "long": np.int64}


class SchemaError(UserError):
    """A column or value does not fit the schema."""


class ColumnOf(NamedTuple):
    """One column: `source` are the fields of records that it comes from (`type.field`, or `field` of any type)."""

    name: str
    type: str
    nullable: bool
    rule: str
    """How the field becomes the column: `number`, `bits`, `price`, `time`, `id` (0 is none), `char`, `text`; or `own`
    for what `to_arrow` itself knows."""
    source: tuple[str, ...]


def _column(name: str, type: str, rule: str, *source: str, null: bool = True) -> ColumnOf:
    return ColumnOf(name, type, null, rule, source or (name,))


COLUMNS: tuple[ColumnOf, ...] = (
    # where it stands
    _column("stripe", "int", "own", null=False),
    _column("sequence", "long", "own", null=False),  # all 64 bits; the record itself has the low 32
    _column("slot", "long", "own"),  # of the ring; none where the record has not been through one
    _column("ts_recv", "long", "own", null=False),
    _column("ts_event", "long", "time"),
    _column("rtype", "short", "number", null=False),
    _column("kind", "string", "own", null=False),
    # what it is about
    _column("publisher_id", "int", "id"),
    _column("venue", "string", "own"),
    _column("instrument_id", "long", "id"),
    _column("symbol", "string", "own"),
    # trades, quotes, orders
    _column("action", "string", "char", "trade.action", "quote.action", "order.action"),
    _column("side", "string", "char"),
    _column("price", "long", "price"),
    _column("size", "long", "number"),
    _column("flags", "short", "number"),
    _column("condition", "long", "number"),
    _column("trade_id", "long", "bits"),
    _column("venue_sequence", "long", "number"),
    _column("bid_px", "long", "price", "bid_px_00"),
    _column("ask_px", "long", "price", "ask_px_00"),
    _column("bid_sz", "long", "number", "bid_sz_00"),
    _column("ask_sz", "long", "number", "ask_sz_00"),
    _column("bid_ct", "long", "number", "bid_ct_00"),
    _column("ask_ct", "long", "number", "ask_ct_00"),
    _column("order_id", "long", "bits"),
    _column("stop_price", "long", "price"),
    _column("client_order_id", "long", "bits"),
    _column("original_client_order_id", "long", "bits"),
    _column("account", "long", "bits"),
    _column("destination", "int", "number"),
    _column("order_type", "string", "char"),
    _column("time_in_force", "string", "char"),
    _column("self_trade_policy", "string", "char"),
    # status
    _column("status_action", "int", "number", "status.action"),
    _column("reason", "int", "number"),
    _column("trading_event", "int", "number"),
    _column("is_trading", "string", "char"),
    _column("is_quoting", "string", "char"),
    _column("is_short_sell_restricted", "string", "char"),
    # definitions; their symbol and venue are in the columns above
    _column("min_price_increment", "long", "price"),
    _column("expiration", "long", "time"),
    _column("currency", "string", "text"),
    _column("instrument_class", "string", "char"),
    _column("security_type", "string", "text"),
    # system messages, and the other name of a mapping
    _column("text", "string", "text", "system.msg", "mapping.stype_in_symbol"),
    # the partition
    _column("day", "date", "own", null=False),
)
NAMES = tuple(column.name for column in COLUMNS)
_BY_NAME = {column.name: column for column in COLUMNS}
_KIND_NAMES = [kind.name for kind in RECORD_TYPES]
_KIND_CODES = {kind.rtype: code for code, kind in enumerate(RECORD_TYPES)}


def chosen(columns: Sequence[str] | None) -> tuple[ColumnOf, ...]:
    """The columns of these names, in the order of the schema; all of them for None."""
    if columns is None:
        return COLUMNS
    unknown = [name for name in columns if name not in _BY_NAME]
    if unknown:
        raise SchemaError(f"there is no column {unknown[0]!r}: the columns are {', '.join(NAMES)}")
    return tuple(column for column in COLUMNS if column.name in columns)


def arrow_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema, with its version in the metadata."""
    fields = [pa.field(each.name, _ARROW[each.type], each.nullable) for each in chosen(columns)]
    return pa.schema(fields, {VERSION_KEY: str(SCHEMA_VERSION).encode()})


def spark_schema(columns: Sequence[str] | None = None) -> StructType:
    """The same as Spark's StructType."""
    from pyspark.sql.types import DateType, IntegerType, LongType, ShortType, StringType, StructField, StructType

    types = {"short": ShortType(), "int": IntegerType(), "long": LongType(), "string": StringType(), "date": DateType()}
    return StructType([StructField(each.name, types[each.type], each.nullable) for each in chosen(columns)])


def unsigned(value: int) -> int:
    """A 64-bit identifier as it was before it became signed."""
    return value & UNDEF_TIMESTAMP


def signed(value: int) -> int:
    """A 64-bit identifier as the column has it."""
    return value - 2**64 if value >= 2**63 else value


def unsigned_column(column: SparkColumn) -> SparkColumn:
    """A 64-bit identifier as decimal(20): the number that it was before it became signed."""
    from pyspark.sql import functions as f

    wide = column.cast("decimal(21,0)")
    return f.when(column < 0, wide + f.lit(2**64).cast("decimal(21,0)")).otherwise(wide).cast("decimal(20,0)")


# -- from records to rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """A text for each row: its place in `names`, -1 for none."""

    codes: Ints
    names: Sequence[str]

    def column(self) -> pa.Array:
        names = pa.array([*self.names, None], pa.string())
        return names.take(pa.array(np.where(self.codes < 0, len(self.names), self.codes)))


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

    def words(self, numbers: Array) -> Words:
        """The text of each number."""
        wanted = numbers.astype(np.int64)
        if not len(self._ids):
            return Words(np.full(len(wanted), -1, np.int64), self.names)
        if self._table is not None:
            return Words(self._table[np.minimum(wanted, len(self._table) - 1)], self.names)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return Words(np.where(self._ids[at] == wanted, at, -1), self.names)


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Records of one type, and what is known of each beside its bytes."""

    records: RecordArray
    sequence: Ints
    slot: Ints | None = None
    ts_recv: Array | None = None
    """None: as the records have it, or else their `ts_event`."""
    symbol: Words | None = None
    venue: Words | None = None
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
    """Rows of all parts by sequence. `symbols` and `venues` name what a part does not name itself."""
    rows = _Rows([part for part in parts if len(part.records)], stripe, symbols or Names(), venues or Names())
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([rows.column(_BY_NAME[name]) for name in schema.names], schema=schema)


class _Rows:
    """The parts of one batch; column after column is gathered from them."""

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

    def column(self, column: ColumnOf) -> Any:
        if column.rule == "own":
            return self._own[column.name]()
        if column.type == "string":
            return self._words([self._text(part, column) for part in self.parts])
        return self._numbers([self._number(part, column) for part in self.parts], column.type)

    # -- columns of their own

    def _received(self) -> Ints:
        times = []
        for part in self.parts:
            given = part.ts_recv
            if given is None:
                names = part.records.dtype.names or ()
                event = part.records["ts_event"]
                given = (
                    np.where(part.records["ts_recv"] == 0, event, part.records["ts_recv"])
                    if "ts_recv" in names
                    else event
                )
            times.append(given.astype(np.int64))
        return self._in_order(np.concatenate(times) if times else np.zeros(0, np.int64))

    def _kinds(self) -> Any:
        return self._words([Words(_coded(part.records["rtype"], _KIND_CODES), _KIND_NAMES) for part in self.parts])

    def _symbol(self, part: RecordRows) -> Words:
        for name in ("raw_symbol", "stype_out_symbol"):
            if name in (part.records.dtype.names or ()):
                return _texts(part.records[name])
        return self.symbols.words(part.records["instrument_id"])

    def _venue(self, part: RecordRows) -> Words:
        if "exchange" in (part.records.dtype.names or ()):
            return _texts(part.records["exchange"])
        return self.venues.words(part.records["publisher_id"])

    # -- columns from fields

    def _field(self, part: RecordRows, column: ColumnOf) -> Array | None:
        if column.name in part.extra:
            return part.extra[column.name]
        kind = RECORD_TYPES[_KIND_CODES[int(part.records["rtype"][0])]].name
        for source in column.source:
            of, dot, name = source.rpartition(".")
            if (not dot or of == kind) and name in (part.records.dtype.names or ()):
                found: Array = part.records[name]
                return found
        return None

    def _number(self, part: RecordRows, column: ColumnOf) -> tuple[Array | None, Array | None]:
        values = self._field(part, column)
        if values is None:
            return None, None
        if column.name in part.extra and np.ma.isMaskedArray(values):
            return np.ma.getdata(values), np.ma.getmaskarray(values)
        missing: Array | None = None
        if column.rule == "price":
            missing = values == UNDEF_PRICE
        elif column.rule == "time":
            missing = values == np.uint64(UNDEF_TIMESTAMP)
        elif column.rule == "id":
            missing = values == 0
        if values.dtype == np.uint64:
            values = values.view(np.int64) if values.flags.c_contiguous else values.astype(np.int64)
        return values, missing

    def _numbers(self, parts: list[tuple[Array | None, Array | None]], type: str) -> Any:
        counts = [len(part.records) for part in self.parts]
        if all(values is None for values, _ in parts):
            return pa.nulls(self.count, _ARROW[type])
        whole = [
            np.zeros(n, _NUMPY[type]) if values is None else values
            for (values, _), n in zip(parts, counts, strict=True)
        ]
        numbers = self._in_order(np.concatenate([values.astype(_NUMPY[type]) for values in whole]))
        if all(values is not None and missing is None for values, missing in parts):
            return pa.array(numbers)
        gaps = [
            np.full(n, values is None) if missing is None else missing
            for (values, missing), n in zip(parts, counts, strict=True)
        ]
        return pa.array(numbers, mask=self._in_order(np.concatenate(gaps)))

    def _text(self, part: RecordRows, column: ColumnOf) -> Words:
        values = self._field(part, column)
        if values is None:
            return Words(np.full(len(part.records), -1, np.int64), ())
        return _letters(values) if column.rule == "char" else _texts(values)

    def _words(self, parts: list[Words]) -> Any:
        if not parts:
            return pa.array([], pa.string())
        if all(not part.names for part in parts):
            return pa.nulls(self.count, pa.string())
        names: list[str] = []
        codes = []
        for part in parts:
            codes.append(np.where(part.codes < 0, -1, part.codes + len(names)))
            names += part.names
        return Words(self._in_order(np.concatenate(codes)), names).column()

    def _in_order(self, values: Array) -> Array:
        return values if self.order is None else values[self.order]


def _coded(values: Array, codes: Mapping[int, int]) -> Ints:
    table = np.full(256, -1, np.int64)
    for value, code in codes.items():
        table[value] = code
    return table[values]


def _letters(values: Array) -> Words:
    """Fields of one character; an empty one is null."""
    octets = np.ascontiguousarray(values).view(np.uint8)
    found = np.flatnonzero(np.bincount(octets, minlength=256))
    kept = found[found > 0]
    return Words(_coded(octets, {int(octet): code for code, octet in enumerate(kept)}), [chr(octet) for octet in kept])


def _texts(values: Array) -> Words:
    """Fields of text; an empty one is null."""
    found, codes = np.unique(values, return_inverse=True)
    texts = [value.decode("utf-8", "replace") for value in found.tolist()]
    empty = np.array([not text for text in texts], bool)
    return Words(np.where(empty[codes], -1, codes).astype(np.int64), texts)
