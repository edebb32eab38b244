"""Codes in the fields of a record: DBN's, and FIX's for the order tail."""

from __future__ import annotations

from enum import IntEnum

DBN_VERSION = 3
DATASET = "LVLCAST"
TRADES_DATASET = "LVLCAST.TRADES"
"""Dataset of an export: its publishers are Databento's (`levelcast.records.publishers`), those of a tape are floors."""

WORD_BYTES = 4
MAX_RECORD_BYTES = 255 * WORD_BYTES

UNDEF_PRICE = 2**63 - 1
UNDEF_TIMESTAMP = 2**64 - 1
UNDEF_ORDER_SIZE = 2**32 - 1
SYMBOL_FIELD_BYTES = 71
SYMBOL_MAX_CHARS = SYMBOL_FIELD_BYTES - 1
"""A symbol's field ends in a NUL. numpy truncates longer text without an error: check before assigning."""

RTYPE_TRADE = 0x00
RTYPE_QUOTE = 0x01
RTYPE_STATUS = 0x12
RTYPE_INSTRUMENT = 0x13
RTYPE_MAPPING = 0x16
RTYPE_SYSTEM = 0x17
RTYPE_ORDER = 0xA0

STATE_RTYPES = (RTYPE_TRADE, RTYPE_QUOTE, RTYPE_STATUS, RTYPE_INSTRUMENT, RTYPE_MAPPING)
"""Types of which the last record of an instrument and floor is current; a snapshot contains those."""
NO_INSTRUMENT = 0
"""`instrument_id` of a record for all instruments: a venue's halt, a system message."""

ACTION_ADD = b"A"
ACTION_MODIFY = b"M"
ACTION_CORRECT = ACTION_MODIFY  # of a trade
ACTION_CANCEL = b"C"
ACTION_BUST = ACTION_CANCEL  # of a trade
ACTION_TRADE = b"T"
ACTION_FILL = b"F"
ACTION_CLEAR = b"R"
ACTION_NONE = b"N"

SIDE_ASK = b"A"
SIDE_BID = b"B"
SIDE_NONE = b"N"

FLAG_LAST = 1 << 7
FLAG_TOB = 1 << 6
FLAG_SNAPSHOT = 1 << 5
FLAG_MBP = 1 << 4
FLAG_BAD_TS_RECV = 1 << 3
FLAG_MAYBE_BAD_BOOK = 1 << 2
FLAG_PUBLISHER_SPECIFIC = 1 << 1

SCHEMA_TRADES = 4

STYPE_INSTRUMENT_ID = 0
STYPE_RAW_SYMBOL = 1

# The order tail uses the codes of FIX 4.4, so that a FIX gateway copies fields 40 and 59 unchanged.
ORDER_TYPE_MARKET = b"1"
ORDER_TYPE_LIMIT = b"2"
ORDER_TYPE_STOP = b"3"
ORDER_TYPE_STOP_LIMIT = b"4"

TIME_IN_FORCE_DAY = b"0"
TIME_IN_FORCE_GOOD_TILL_CANCEL = b"1"
TIME_IN_FORCE_AT_OPENING = b"2"
TIME_IN_FORCE_IMMEDIATE_OR_CANCEL = b"3"
TIME_IN_FORCE_FILL_OR_KILL = b"4"
TIME_IN_FORCE_AT_CLOSE = b"7"

# FIX 4.4 has no field for this one.
SELF_TRADE_ALLOW = b"A"
SELF_TRADE_CANCEL_NEWEST = b"N"
SELF_TRADE_CANCEL_OLDEST = b"O"
SELF_TRADE_CANCEL_BOTH = b"B"
SELF_TRADE_DECREMENT = b"D"


class StatusAction(IntEnum):
    """`action` of a status record."""

    NONE = 0
    PRE_OPEN = 1
    PRE_CROSS = 2
    QUOTING = 3
    CROSS = 4
    ROTATION = 5
    NEW_PRICE_INDICATION = 6
    TRADING = 7
    HALT = 8
    PAUSE = 9
    SUSPEND = 10
    PRE_CLOSE = 11
    CLOSE = 12
    POST_CLOSE = 13
    SSR_CHANGE = 14
    NOT_AVAILABLE_FOR_TRADING = 15
