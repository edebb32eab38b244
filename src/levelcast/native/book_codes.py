"""Codes of the matching engine: commands, parameters, phases, matching rules, events and the reasons in them.

`_book_state.h` has the same numbers for C, and a test compares them. `levelcast.market` has their names for users.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

COMMAND = Struct("<2xHIQQqI2xBB16xqQQQ2xBBBBBB")
"""Fields of an order command that the engine reads: publisher, instrument, stamp, order id, price, size, action,
side, stop price, client order id, original client order id, account, order type, time in force, self-trade policy,
command, execution instruction, reserved."""
EVENT = Struct("<BBBBIQQQQQqII")
"""Kind, reason, flags, side, instrument, command number, account, client order id, order id, trade id, price, size,
size left."""

UNDEFINED = 2**63 - 1
NO_SIZE = 2**32 - 1
MAX_PRICE = 2**62
MAX_NOTIONAL = 2**63 - 1
GATEWAY_BITS = 48
SECOND_NS = 1_000_000_000
KEPT_TRADES = 1 << 20
"""Trades that a bust can still name."""
FIRST_RULES, OLDEST_RULES, RULES_VERSION = 1, 1, 1
"""Version of the rules in which a tape begins; oldest and newest one that this release computes. A change of any event
that a tape gives is a new version, with the old one beside it or `OLDEST_RULES` above it."""

BUY, SELL = ord("B"), ord("A")
POST_ONLY = ord("6")
MARKET, LIMIT, STOP, STOP_LIMIT = b"1234"
DAY, TILL_CANCEL, AT_OPEN, IMMEDIATE, FILL_OR_KILL, AT_CLOSE = b"012347"


class BookPhase(IntEnum):
    """Phases of an instrument: the `action` of a status record."""

    PRE_OPEN = 1
    PRE_CROSS = 2
    CROSS = 4
    TRADING = 7
    HALT = 8
    PAUSE = 9
    PRE_CLOSE = 11
    CLOSE = 12
    UNAVAILABLE = 15


CALL_PHASES = frozenset({BookPhase.PRE_OPEN, BookPhase.PRE_CROSS, BookPhase.PRE_CLOSE})
NO_CHANGE = frozenset({0, 14})
"""Actions of status records that do not change the phase."""


class MatchRule(IntEnum):
    """Ways to match the orders of an instrument."""

    CONTINUOUS = 0
    BATCH = 1
    SEALED = 2
    DUTCH = 3


class PriceRule(IntEnum):
    """Rule for the price of a trade in continuous trading (M4)."""

    RESTING = 0
    BUYER = 1
    SELLER = 2
    MIDPOINT = 3


class InstrumentSetting(IntEnum):
    """Parameters that a command sets for an instrument: the number is in `order_id`, the value in `price`."""

    RULES = 0
    PRICE_RULE = 1
    MATCH_RULE = 2
    INTERVAL = 3
    MAKER_FEE = 4
    TAKER_FEE = 5
    BAND = 6
    PAUSE = 7
    DUTCH_START = 8
    DUTCH_STEP = 9
    REFERENCE = 10


class AccountSetting(IntEnum):
    """Parameters that a command sets for an account: the number is in `order_id`, the value in `price`."""

    OWNER = 1
    LARGEST_ORDER = 2
    LARGEST_OPEN = 3
    ORDERS_PER_SECOND = 4
    RESTRICTED = 5
    ALLOWED = 6
    SHORT_LIMIT = 7
    LOCKED = 8


class EventKind(IntEnum):
    """Kinds of events, as characters."""

    ACCEPTED = ord("A")
    BUSTED = ord("B")
    CANCELLED = ord("C")
    DEPOSITED = ord("D")
    EXPIRED = ord("E")
    FILL = ord("F")
    INDICATIVE = ord("I")
    LIMIT_SET = ord("L")
    REPLACED = ord("M")
    CROSSED = ord("O")
    PHASE = ord("P")
    MASS_CANCELLED = ord("Q")
    REJECTED = ord("R")
    TRIGGERED = ord("S")
    TRADE = ord("T")
    SET = ord("U")
    WAITING = ord("W")
    WITHDRAWN = ord("Y")


class BookReason(IntEnum):
    """Reasons of refusals, cancellations and expiries."""

    NONE = 0
    UNKNOWN_INSTRUMENT = 1
    UNKNOWN_ACCOUNT = 2
    UNKNOWN_ORDER = 3
    DUPLICATE_ID = 4
    ACCOUNT_LOCKED = 5
    RATE = 6
    NOT_ALLOWED = 7
    PHASE = 8
    ACTION = 9
    SIDE = 10
    ORDER_TYPE = 11
    TIME_IN_FORCE = 12
    SELF_TRADE_POLICY = 13
    INSTRUCTION = 14
    NO_PRICE = 15
    PRICE_LIMITS = 16
    TICK = 17
    SIZE = 18
    LOT = 19
    SIZE_LIMITS = 20
    NOTIONAL = 21
    NO_COLLAR = 22
    FUNDS = 23
    SHARES = 24
    ORDER_LIMIT = 25
    OPEN_LIMIT = 26
    POST_ONLY = 27
    FILL_OR_KILL = 28
    NOT_TREASURY = 29
    AMOUNT = 30
    UNKNOWN_TRADE = 31
    ALREADY_BUSTED = 32
    BUST_LACKS = 33
    SETTING = 34
    RULES_VERSION = 35
    BY_OWNER = 40
    BY_MASS_CANCEL = 41
    IMMEDIATE = 42
    SELF_TRADE = 43
    REDUCED = 44
    AFTER_CROSS = 45
    PRICE_BAND = 46
    END_OF_DAY = 47
    INSTRUMENT_ENDED = 48


ADD, CANCEL, REPLACE, MASS_CANCEL, NO_ACTION = b"ACMRN"
DEPOSIT, WITHDRAWAL, BUST, ACCOUNT_LIMIT, SETTING = b"DWBLP"
IGNORED_COMMANDS = b"HCUE"
"""Beats, claims, released claims and executions: for order entry and open offers, not for the engine."""
