"""Offsets of the fields of each record type, and blank records to fill in.

The table is `_LAYOUTS`; everything else about a type follows from its row. The DBN part has DBN's own field
names and order, so that a column has the same name in `databento` and here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.records.codes import (
    MAX_RECORD_BYTES,
    RTYPE_INSTRUMENT,
    RTYPE_MAPPING,
    RTYPE_ORDER,
    RTYPE_QUOTE,
    RTYPE_STATUS,
    RTYPE_SYSTEM,
    RTYPE_TRADE,
    WORD_BYTES,
)

__all__ = [
    "BY_RTYPE",
    "INSTRUMENT",
    "MAPPING",
    "ORDER",
    "QUOTE",
    "RECORD_TYPES",
    "STATUS",
    "SYSTEM",
    "TRADE",
    "RecordArray",
    "RecordType",
    "instruments",
    "mappings",
    "orders",
    "quotes",
    "statuses",
    "system_messages",
    "trades",
]

RecordArray = npt.NDArray[np.void]


@dataclass(frozen=True, eq=False, repr=False)
class RecordType:
    """One row of `RECORD_TYPES`. An offset is None where the DBN record has no such field."""

    name: str
    rtype: int
    dtype: np.dtype[np.void]
    base_dtype: np.dtype[np.void]
    """The fields of DBN, without our tail."""
    base_size: int
    sequence_offset: int | None
    ts_recv_offset: int | None
    blank: RecordArray
    """One record with header and undefined values filled in."""

    def __repr__(self) -> str:
        return f"<RecordType {self.name}>"


_HEADER = "length u1, rtype u1, publisher_id u2, instrument_id u4, ts_event u8?"

# (name, rtype, DBN fields, tail fields). `?` starts a field as undefined, `=X` as the character X, else 0.
_LAYOUTS = (
    (
        "trade",
        RTYPE_TRADE,
        """price i8?, size u4, action S1=T, side S1=N, flags u1, depth u1, ts_recv u8, ts_in_delta i4,
        sequence u4""",
        "trade_id u8, venue_sequence u4, condition u4",
    ),
    (
        "quote",
        RTYPE_QUOTE,
        """price i8?, size u4, action S1=N, side S1=N, flags u1, depth u1, ts_recv u8, ts_in_delta i4,
        sequence u4, bid_px_00 i8?, ask_px_00 i8?, bid_sz_00 u4, ask_sz_00 u4, bid_ct_00 u4, ask_ct_00 u4""",
        "venue_sequence u4, condition u4",
    ),
    (
        "order",
        RTYPE_ORDER,
        """order_id u8, price i8?, size u4, flags u1, channel_id u1?, action S1=A, side S1=N, ts_recv u8,
        ts_in_delta i4, sequence u4""",
        # original_client_order_id is FIX 41: a cancel or replacement need not wait for the floor's order id.
        """stop_price i8?, client_order_id u8, original_client_order_id u8, account u8, destination u2,
        order_type S1=2, time_in_force S1=0, self_trade_policy S1=A, command S1, exec_inst S1,
        _reserved S1""",
    ),
    (
        "instrument",
        RTYPE_INSTRUMENT,
        """ts_recv u8, min_price_increment i8?, display_factor i8?, expiration u8?, activation u8?,
        high_limit_price i8?, low_limit_price i8?, max_price_variation i8?, unit_of_measure_qty i8?,
        min_price_increment_amount i8?, price_ratio i8?, strike_price i8?, raw_instrument_id u8,
        leg_price i8?, leg_delta i8?, inst_attrib_value i4?, underlying_id u4, market_depth_implied i4?,
        market_depth i4?, market_segment_id u4?, max_trade_vol u4?, min_lot_size i4?, min_lot_size_block i4?,
        min_lot_size_round_lot i4?, min_trade_vol u4?, contract_multiplier i4?, decay_quantity i4?,
        original_contract_size i4?, leg_instrument_id u4, leg_ratio_price_numerator i4,
        leg_ratio_price_denominator i4, leg_ratio_qty_numerator i4, leg_ratio_qty_denominator i4,
        leg_underlying_id u4, appl_id i2?, maturity_year u2?, decay_start_date u2?, channel_id u2?,
        leg_count u2, leg_index u2, currency S4, settl_currency S4, secsubtype S6, raw_symbol S71,
        group S21, exchange S5, asset S11, cfi S7, security_type S7, unit_of_measure S31, underlying S21,
        strike_price_currency S4, leg_raw_symbol S71, instrument_class S1, match_algorithm S1= ,
        main_fraction u1?, price_display_format u1?, sub_fraction u1?, underlying_product u1?,
        security_update_action S1=A, maturity_month u1?, maturity_day u1?, maturity_week u1?,
        user_defined_instrument S1=N, contract_multiplier_unit i1?, flow_schedule_type i1?, tick_rule u1?,
        leg_instrument_class S1, leg_side S1=N, _reserved S17""",
        "",
    ),
    (
        "mapping",
        RTYPE_MAPPING,
        "stype_in u1=1, stype_in_symbol S71, stype_out u1, stype_out_symbol S71, start_ts u8?, end_ts u8?",
        "",
    ),
    (
        "status",
        RTYPE_STATUS,
        """ts_recv u8, action u2, reason u2, trading_event u2, is_trading S1=~, is_quoting S1=~,
        is_short_sell_restricted S1=~, _reserved S7""",
        "",
    ),
    ("system", RTYPE_SYSTEM, "msg S303, code u1?", ""),
)


def _fields(text: str) -> list[tuple[str, str, str]]:
    """Parse `name kind[?|=X], ...` into (name, numpy format, start)."""
    out = []
    for item in text.split(",") if text else []:
        name, _, rest = item.lstrip().partition(" ")
        kind, equals, start = rest.partition("=")
        if not equals:
            kind, start = (kind[:-1], "?") if kind.endswith("?") else (kind, "")
        out.append((name, kind if kind[0] == "S" else f"<{kind}", start))
    return out


def _record_type(name: str, rtype: int, base: str, tail: str) -> RecordType:
    base_fields = _fields(f"{_HEADER}, {base}")
    fields = base_fields + _fields(tail)
    dtype: np.dtype[np.void] = np.dtype([(field, kind) for field, kind, _ in fields])
    base_dtype: np.dtype[np.void] = np.dtype([(field, kind) for field, kind, _ in base_fields])
    assert dtype.itemsize % WORD_BYTES == 0, name
    assert dtype.itemsize <= MAX_RECORD_BYTES, name
    blank = np.zeros(1, dtype)
    for field, kind, start in fields:
        if start == "?":
            blank[field] = np.iinfo(kind).max
        elif start:
            blank[field] = start.encode() if kind[0] == "S" else int(start)
    blank["length"] = dtype.itemsize // WORD_BYTES
    blank["rtype"] = rtype
    blank.flags.writeable = False
    assert dtype.fields is not None
    offset = {field: int(place[1]) for field, place in dtype.fields.items()}
    places = base_dtype.itemsize, offset.get("sequence"), offset.get("ts_recv")
    return RecordType(name, rtype, dtype, base_dtype, *places, blank)


RECORD_TYPES: tuple[RecordType, ...] = tuple(_record_type(*layout) for layout in _LAYOUTS)
BY_RTYPE = {kind.rtype: kind for kind in RECORD_TYPES}

TRADE = BY_RTYPE[RTYPE_TRADE].dtype
QUOTE = BY_RTYPE[RTYPE_QUOTE].dtype
ORDER = BY_RTYPE[RTYPE_ORDER].dtype
INSTRUMENT = BY_RTYPE[RTYPE_INSTRUMENT].dtype
MAPPING = BY_RTYPE[RTYPE_MAPPING].dtype
STATUS = BY_RTYPE[RTYPE_STATUS].dtype
SYSTEM = BY_RTYPE[RTYPE_SYSTEM].dtype
assert (TRADE.itemsize, QUOTE.itemsize, ORDER.itemsize) == (64, 88, 96)


def trades(n: int) -> RecordArray:
    """Return `n` trades to fill in: header and undefined values set, `sequence` = `ts_recv` = 0, action T."""
    return BY_RTYPE[RTYPE_TRADE].blank.repeat(n)


def quotes(n: int) -> RecordArray:
    """Return `n` best quotes to fill in, both sides empty."""
    return BY_RTYPE[RTYPE_QUOTE].blank.repeat(n)


def orders(n: int) -> RecordArray:
    """Return `n` order commands to fill in: new limit orders for the day."""
    return BY_RTYPE[RTYPE_ORDER].blank.repeat(n)


def instruments(n: int) -> RecordArray:
    """Return `n` instrument definitions to fill in."""
    return BY_RTYPE[RTYPE_INSTRUMENT].blank.repeat(n)


def mappings(n: int) -> RecordArray:
    """Return `n` symbol mappings to fill in, from raw symbol to instrument id."""
    return BY_RTYPE[RTYPE_MAPPING].blank.repeat(n)


def statuses(n: int) -> RecordArray:
    """Return `n` status records to fill in (`StatusAction`)."""
    return BY_RTYPE[RTYPE_STATUS].blank.repeat(n)


def system_messages(n: int) -> RecordArray:
    """Return `n` system messages to fill in."""
    return BY_RTYPE[RTYPE_SYSTEM].blank.repeat(n)
