"""FIX requests as order commands of 96 bytes (M2, M3): NewOrderSingle, cancel, replace, mass cancel.

A function returns the command and what the gateway notes of the request, or raises `EntryRefused`. The engine checks
orders; only what it cannot express is refused here (G3).
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from levelcast.market.entry.journal import RequestEntry
from levelcast.market.entry.listing import InstrumentList, Listed
from levelcast.market.entry.order_state import OrderChange, OrderRegistry, OrderState
from levelcast.market.entry.rights import TradingAccount, TradingLogin
from levelcast.market.entry.values import (
    ORDER_TYPES,
    SIDES,
    TIMES_IN_FORCE,
    CancelRejectReason,
    EntryRefused,
    OrderRejectReason,
    price_of,
    size_of,
)
from levelcast.market.fix.reader import Message
from levelcast.native.book_codes import UNDEFINED
from levelcast.records import ORDER, RTYPE_ORDER, WORD_BYTES

COMMAND_RECORD = Struct("<BBHIQQqIBBccQiIqQQQHcccccc")
"""All fields of an order record, in their order."""
assert COMMAND_RECORD.size == ORDER.itemsize
_WORDS = ORDER.itemsize // WORD_BYTES
_CHANNEL = 255

ACCOUNT, CL_ORD_ID, EXEC_INST, SECURITY_ID, ORDER_QTY, ORD_TYPE, ORIG_CL_ORD_ID = 1, 11, 18, 48, 38, 40, 41
PRICE, SIDE, SYMBOL, STOP_PX, TIME_IN_FORCE, MASS_TYPE = 44, 54, 55, 99, 59, 530
UNSUPPORTED = {
    110: "MinQty", 111: "MaxFloor", 210: "MaxShow", 152: "CashOrderQty", 516: "OrderPercent", 168: "EffectiveTime",
    211: "PegOffsetValue", 388: "DiscretionInst",
}  # fmt: skip
"""Fields whose meaning would be lost: an order with one of them is refused."""
_UNSUPPORTED_TAGS = UNSUPPORTED.keys()


def command(
    action: bytes, publisher: int, instrument: int, stamp_ns: int, client: int, account: int, *, original: int = 0,
    side: bytes = b"N", price: int = UNDEFINED, size: int = 0, stop: int = UNDEFINED, order_type: bytes = b"2",
    time_in_force: bytes = b"0", policy: bytes = b"N", kind: bytes = b"\0", exec_inst: bytes = b"\0",
    order_id: int = 0, correction_ns: int = 0,
) -> bytes:  # fmt: skip
    """Return an order record."""
    return COMMAND_RECORD.pack(
        _WORDS, RTYPE_ORDER, publisher, instrument, stamp_ns, order_id, price, size, 0, _CHANNEL, action, side, 0,
        correction_ns, 0, stop, client, original, account, 0, order_type, time_in_force, policy, kind, exec_inst,
        b"\0",
    )  # fmt: skip


def account_of(message: Message, login: TradingLogin) -> TradingAccount:
    """Return the account of a request: by FIX 1, or the session's first one."""
    if not login.accounts:
        raise EntryRefused(OrderRejectReason.ACCOUNT, "the session may not trade")
    if ACCOUNT not in message.fields:
        return login.accounts[0]
    name = message.get(ACCOUNT)
    text = name.decode("ascii", "replace")
    for account in login.accounts:
        if account.name == text:
            return account
    raise EntryRefused(OrderRejectReason.ACCOUNT, f"the session has no account {text}")


def instrument_of(message: Message, listing: InstrumentList) -> Listed:
    """Return the instrument of a request: by Symbol, or by SecurityID."""
    symbol = message.get(SYMBOL) or message.get(SECURITY_ID)
    found = listing.by_symbol.get(symbol)
    if found is None:
        raise EntryRefused(
            OrderRejectReason.UNKNOWN_SYMBOL, f"unknown instrument {symbol.decode('ascii', 'replace') or '(no symbol)'}"
        )
    return found


def new_order(
    message: Message, login: TradingLogin, listing: InstrumentList, publisher: int, client: int, stamp_ns: int
) -> tuple[bytes, OrderState]:
    """Return the command of a NewOrderSingle, and the order."""
    fields: dict[int, Any] = message.fields  # a group is not among the fields that are read here
    get = fields.get
    if not _UNSUPPORTED_TAGS.isdisjoint(fields):
        name = next(UNSUPPORTED[tag] for tag in UNSUPPORTED if tag in fields)
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, f"{name} is not supported")
    account = account_of(message, login)
    listed = instrument_of(message, listing)
    kind, tif, side = get(ORD_TYPE), get(TIME_IN_FORCE, b"0"), get(SIDE)
    exec_inst = get(EXEC_INST, b"")
    if kind not in ORDER_TYPES:
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, "OrdType is not 1, 2, 3 or 4")
    if tif not in TIMES_IN_FORCE:
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, "TimeInForce is not 0, 1, 2, 3, 4 or 7")
    if side not in SIDES:
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, "Side is not 1, 2 or 5")
    if exec_inst not in (b"", b"6"):
        raise EntryRefused(OrderRejectReason.UNSUPPORTED, "ExecInst is not 6 (post-only)")
    order = OrderState(login.number, client, get(CL_ORD_ID, b""))
    order.account, order.instrument, order.symbol = account.number, listed.id, listed.symbol
    order.side, order.order_type, order.time_in_force = side, kind, tif
    order.size = order.left = size_of(get(ORDER_QTY, b""))
    order.price, order.stop = price_of(get(PRICE, b"")), price_of(get(STOP_PX, b""))
    record = COMMAND_RECORD.pack(
        _WORDS, RTYPE_ORDER, publisher, listed.id, stamp_ns, 0, order.price, order.size, 0, _CHANNEL, b"A",
        SIDES[side], 0, 0, 0, order.stop, client, 0, account.number, 0, kind, tif, login.policy, b"\0",
        exec_inst or b"\0", b"\0",
    )  # fmt: skip
    return record, order


def change_order(
    message: Message, login: TradingLogin, registry: OrderRegistry, publisher: int, client: int, stamp_ns: int
) -> tuple[bytes, OrderChange]:
    """Return the command of an OrderCancelRequest or an OrderCancelReplaceRequest, and the change."""
    original = message.get(ORIG_CL_ORD_ID)
    order = registry.find(login.number, original)
    if order is None:
        raise EntryRefused(CancelRejectReason.UNKNOWN_ORDER, "unknown order")
    if (side := message.get(SIDE)) != order.side:
        raise EntryRefused(CancelRejectReason.OTHER, f"Side is {side.decode('ascii', 'replace')}, not the order's")
    named = registry.request(login.number, original)
    change = OrderChange(message.type, login.number, client, message.get(CL_ORD_ID), original, order)
    if message.type == b"F":
        record = command(
            b"C", publisher, order.instrument, stamp_ns, client, order.account, original=named.client,
        )  # fmt: skip
        return record, change
    kind = message.get(ORD_TYPE)
    if kind != order.order_type:
        raise EntryRefused(CancelRejectReason.OTHER, "OrdType cannot be changed")
    change.size, change.price = size_of(message.get(ORDER_QTY)), price_of(message.get(PRICE))
    change.stop = price_of(message.get(STOP_PX))
    record = command(
        b"M", publisher, order.instrument, stamp_ns, client, order.account, original=named.client,
        price=change.price, size=change.size, stop=change.stop, order_type=kind, side=SIDES[side],
    )  # fmt: skip
    return record, change


def mass_cancel(
    message: Message, login: TradingLogin, listing: InstrumentList, publisher: int, client: int, stamp_ns: int
) -> tuple[bytes, OrderChange]:
    """Return the commands of an OrderMassCancelRequest: one for each account of the session."""
    kind = message.get(MASS_TYPE)
    if kind not in (b"1", b"7"):
        raise EntryRefused(0, "MassCancelRequestType is not 1 (instrument) or 7 (all)")
    if not login.accounts:
        raise EntryRefused(CancelRejectReason.OTHER, "the session may not trade")
    instrument = instrument_of(message, listing).id if kind == b"1" else 0
    change = OrderChange(b"q", login.number, client + len(login.accounts) - 1, message.get(CL_ORD_ID), kind, None)
    commands = [
        command(b"R", publisher, instrument, stamp_ns, client + at, account.number)
        for at, account in enumerate(login.accounts)
    ]
    return b"".join(commands), change


def clients_of(commands: bytes) -> list[int]:
    """Return the client order ids of commands."""
    return [values[_CLIENT] for values in COMMAND_RECORD.iter_unpack(commands)]


_CLIENT, _ORIGINAL, _ACCOUNT = 16, 17, 18
"""Indices of the fields of a record."""


def restored(session: int, entry: RequestEntry, registry: OrderRegistry) -> OrderState | OrderChange:
    """Return the request of a journal entry."""
    values = COMMAND_RECORD.unpack(entry.commands[-COMMAND_RECORD.size :])
    client = values[_CLIENT]
    if entry.side not in SIDES:
        order = None if entry.side == b"q" else registry.find(session, entry.second)
        change = OrderChange(entry.side, session, client, entry.text, entry.second, order)
        change.price, change.size, change.stop = values[6], values[7], values[15]
        return change
    order = OrderState(session, client, entry.text)
    order.instrument, order.account, order.symbol, order.side = values[3], values[_ACCOUNT], entry.second, entry.side
    order.price, order.size, order.stop = values[6], values[7], values[15]
    order.left, order.order_type, order.time_in_force = order.size, values[20], values[21]
    return order
