"""Bodies of the messages about orders: ExecutionReport (8), OrderCancelReject (9), OrderMassCancelReport (r).

OrderID (37) is the gateway's number of an order, SecondaryOrderID (198) the engine's, by which the public order feed
names it. ExecID (17) is the number of the engine's event; a letter before it marks a report of the gateway itself.
"""

from __future__ import annotations

from levelcast.market.entry.order_state import OrderChange, OrderState
from levelcast.market.entry.values import price_text

COPY_MARK = b"797=Y\x01"
"""CopyMsgIndicator: a drop copy."""


def execution(
    order: OrderState, exec_id: bytes, exec_type: bytes, time: bytes, *, text: bytes = b"", original: bytes = b"",
    left: int | None = None, more: bytes = b"", status: bytes = b"",
) -> bytes:  # fmt: skip
    """Return an ExecutionReport of the order as it is; `text` is another ClOrdID than its own."""
    return b"37=%d\x01%b11=%b\x01%b17=%b\x01150=%b\x0139=%b\x01%b151=%d\x0114=%d\x016=%b\x01%b60=%b\x01" % (
        order.id,
        b"198=%d\x01" % order.number if order.number else b"",
        text or order.text,
        b"41=%b\x01" % original if original else b"",
        exec_id,
        exec_type,
        status or order.status,
        order.fixed,
        (order.left if order.is_open else 0) if left is None else left,
        order.filled,
        order.average,
        more,
        time,
    )


def fill(order: OrderState, number: int, trade: int, price: int, size: int, liquidity: int, time: bytes) -> bytes:
    """Return the ExecutionReport of a trade (150=F); the shortest path, as there is one for each side of each trade."""
    return (
        b"37=%d\x01198=%d\x01527=%d\x0111=%b\x0117=%d\x01150=F\x0139=%b\x01%b32=%d\x0131=%b\x01151=%d\x0114=%d\x01"
        b"6=%b\x0160=%b\x01851=%d\x01"
        % (
            order.id, order.number, trade, order.text, number, order.status, order.fixed, size, price_text(price),
            order.left, order.filled, order.average, time, liquidity,
        )
    )  # fmt: skip


def bust(order: OrderState, exec_id: bytes, reference: int, trade: int, price: int, size: int, time: bytes) -> bytes:
    """Return the ExecutionReport of a bust (150=H, S6): `reference` is the ExecID of the fill."""
    more = b"19=%d\x01527=%d\x0132=%d\x0131=%b\x01" % (reference, trade, size, price_text(price))
    return execution(order, exec_id, b"H", time, more=more)


def refused_order(
    text: bytes, symbol: bytes, side: bytes, size: bytes, exec_id: bytes, code: int, why: bytes, time: bytes,
    exec_type: bytes = b"8",
) -> bytes:  # fmt: skip
    """Return the ExecutionReport of an order that never was one (150=8)."""
    return (
        b"37=NONE\x0111=%b\x0117=%b\x01150=%b\x0139=8\x01103=%d\x0155=%b\x0154=%b\x01%b151=0\x0114=0\x016=0\x01"
        b"60=%b\x0158=%b\x01" % (
            text, exec_id, exec_type, code, symbol, side, b"38=%b\x01" % size if size else b"", time, why,
        )
    )  # fmt: skip


def cancel_refused(
    kind: bytes, text: bytes, original: bytes, order: OrderState | None, code: int, why: bytes, time: bytes
) -> bytes:
    """Return an OrderCancelReject for a request of type F or G."""
    return b"37=%b\x0111=%b\x0141=%b\x0139=%b\x01434=%d\x01102=%d\x0160=%b\x0158=%b\x01" % (
        b"%d" % order.id if order else b"NONE",
        text,
        original,
        order.status if order else b"8",
        1 if kind == b"F" else 2,
        code,
        time,
        why,
    )


def mass_cancelled(change: OrderChange, count: int, time: bytes) -> bytes:
    return b"11=%b\x0137=%d\x01530=%b\x01531=%b\x01533=%d\x0160=%b\x01" % (
        change.text, change.client, change.original, change.original, count, time,
    )  # fmt: skip


def mass_cancel_refused(text: bytes, kind: bytes, code: int, why: bytes, time: bytes) -> bytes:
    return b"11=%b\x0137=NONE\x01530=%b\x01531=0\x01532=%d\x0160=%b\x0158=%b\x01" % (text, kind, code, time, why)
