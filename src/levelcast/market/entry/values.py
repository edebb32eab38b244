"""Values of FIX fields and of order commands: prices, sizes, sides, and the reasons of refusals."""

from __future__ import annotations

from functools import lru_cache

from levelcast.native.book_codes import NO_SIZE, UNDEFINED, BookReason
from levelcast.records import price_from_decimal

SCALE = 1_000_000_000
"""Prices and amounts are integers of 1e-9."""

SIDES = {b"1": b"B", b"2": b"A", b"5": b"A"}
"""FIX 54 to the side of a command; 5 is a short sale, for which the account's limit counts (S2)."""
ORDER_TYPES = frozenset((b"1", b"2", b"3", b"4"))
TIMES_IN_FORCE = frozenset((b"0", b"1", b"2", b"3", b"4", b"7"))


class EntryRefused(Exception):
    """A request that the gateway refuses: the reason by FIX, and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text.encode("ascii", "replace")


class OrderRejectReason:
    """FIX 103."""

    UNKNOWN_SYMBOL, CLOSED, EXCEEDS_LIMIT, UNKNOWN_ORDER, DUPLICATE = 1, 2, 3, 5, 6
    UNSUPPORTED, QUANTITY, ACCOUNT, OTHER = 11, 13, 15, 99


class CancelRejectReason:
    """FIX 102."""

    TOO_LATE, UNKNOWN_ORDER, DUPLICATE, OTHER = 0, 1, 6, 99


_TEXTS = {
    BookReason.UNKNOWN_INSTRUMENT: (1, 99, "unknown instrument"),
    BookReason.UNKNOWN_ACCOUNT: (15, 99, "the account has no deposit yet"),
    BookReason.UNKNOWN_ORDER: (5, 1, "the order is not live"),
    BookReason.DUPLICATE_ID: (6, 6, "the client order id was used before"),
    BookReason.ACCOUNT_LOCKED: (15, 99, "the account is locked"),
    BookReason.RATE: (3, 99, "more orders in a second than the account's limit"),
    BookReason.NOT_ALLOWED: (15, 99, "the account may not trade this instrument"),
    BookReason.PHASE: (2, 99, "the phase of the instrument does not allow this"),
    BookReason.SIDE: (11, 99, "unknown side"),
    BookReason.ORDER_TYPE: (11, 99, "this order type is not supported for the instrument"),
    BookReason.TIME_IN_FORCE: (11, 99, "this time in force is not supported here"),
    BookReason.SELF_TRADE_POLICY: (11, 99, "unknown self-trade policy"),
    BookReason.INSTRUCTION: (11, 99, "this execution instruction is not supported here"),
    BookReason.NO_PRICE: (11, 99, "the price is missing"),
    BookReason.PRICE_LIMITS: (3, 99, "the price is outside the limits of the instrument"),
    BookReason.TICK: (11, 99, "the price is not a multiple of the tick"),
    BookReason.SIZE: (13, 99, "the quantity is not valid"),
    BookReason.LOT: (13, 99, "the quantity is not a multiple of the lot"),
    BookReason.SIZE_LIMITS: (13, 99, "the quantity is outside the limits of the instrument"),
    BookReason.NOTIONAL: (3, 99, "price times quantity is too large"),
    BookReason.NO_COLLAR: (11, 99, "no price for a market order: there is no trade and no opposite order"),
    BookReason.FUNDS: (3, 99, "the funds are not sufficient"),
    BookReason.SHARES: (3, 99, "the shares are not sufficient"),
    BookReason.ORDER_LIMIT: (3, 99, "the quantity is above the account's largest order"),
    BookReason.OPEN_LIMIT: (3, 99, "the open value would be above the account's limit"),
    BookReason.POST_ONLY: (99, 99, "a post-only order would trade"),
    BookReason.FILL_OR_KILL: (99, 99, "a fill-or-kill order cannot be filled"),
    BookReason.NOT_TREASURY: (99, 99, "only the floor's operator may do this"),
    BookReason.AMOUNT: (99, 99, "the amount is not valid"),
    BookReason.UNKNOWN_TRADE: (99, 99, "unknown trade"),
    BookReason.ALREADY_BUSTED: (99, 99, "the trade was busted before"),
    BookReason.BUST_LACKS: (99, 99, "one side does not have what the bust takes back"),
    BookReason.SETTING: (99, 99, "the setting is not valid, or the instrument has orders"),
    BookReason.BY_OWNER: (99, 99, "the session was disconnected"),
    BookReason.BY_MASS_CANCEL: (99, 99, "mass cancel"),
    BookReason.IMMEDIATE: (99, 99, "the rest of an immediate order"),
    BookReason.SELF_TRADE: (99, 99, "self-trade prevention"),
    BookReason.REDUCED: (99, 99, "replaced by a quantity that is filled"),
    BookReason.AFTER_CROSS: (99, 99, "the auction is over"),
    BookReason.PRICE_BAND: (99, 99, "the price band stopped trading"),
    BookReason.END_OF_DAY: (99, 99, "end of the day"),
    BookReason.INSTRUMENT_ENDED: (99, 99, "the instrument has ended"),
}
_UNNAMED = (99, 99, "refused")


def order_reject(reason: int) -> tuple[int, bytes]:
    """Return FIX 103 and the text of an engine's reason."""
    code, _, text = _TEXTS.get(BookReason(reason), _UNNAMED)
    return code, text.encode()


def cancel_reject(reason: int) -> tuple[int, bytes]:
    """Return FIX 102 and the text of an engine's reason."""
    _, code, text = _TEXTS.get(BookReason(reason), _UNNAMED)
    return code, text.encode()


def reason_text(reason: int) -> str:
    return _TEXTS.get(BookReason(reason), _UNNAMED)[2]


@lru_cache(maxsize=65_536)
def price_of(text: bytes) -> int:
    """Return a price of a message, UNDEFINED without one."""
    if not text:
        return UNDEFINED
    try:
        return price_from_decimal(text.decode("ascii"))
    except ValueError as error:
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, str(error)) from None


@lru_cache(maxsize=65_536)
def price_text(price: int) -> bytes:
    """Return a price or an amount as decimal text, without trailing zeros."""
    sign, price = (b"-", -price) if price < 0 else (b"", price)
    whole, rest = divmod(price, SCALE)
    if not rest:
        return b"%b%d" % (sign, whole)
    return b"%b%d.%b" % (sign, whole, (b"%09d" % rest).rstrip(b"0"))


@lru_cache(maxsize=4_096)
def size_of(text: bytes) -> int:
    """Return a quantity: a positive integer below 2^32 - 1."""
    whole, _, rest = text.partition(b".")
    if not whole.isdigit() or rest.strip(b"0") or not 0 < int(whole) < NO_SIZE:
        raise EntryRefused(
            OrderRejectReason.QUANTITY, f"the quantity {text.decode('ascii', 'replace')} is not a whole number above 0"
        )
    return int(whole)
