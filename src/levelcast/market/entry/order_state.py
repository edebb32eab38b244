"""Orders of a gateway, as requests and events have left them. It is rebuilt from the journal and the tape (G2)."""

from __future__ import annotations

from collections import deque

from levelcast.market.entry.values import price_text

MAX_CLOSED = 200_000
"""Orders that are over and can still be queried."""


class OrderState:
    """One order, with all of its replacements."""

    __slots__ = (
        "account", "change", "client", "filled", "fixed", "id", "instrument", "left", "notional", "number",
        "order_type", "pending", "price", "session", "side", "size", "status", "stop", "symbol", "text",
        "time_in_force",
    )  # fmt: skip

    def __init__(self, session: int, client: int, text: bytes) -> None:
        self.session, self.client, self.text = session, client, text
        self.id = client
        """FIX 37, the same for the life of the order."""
        self.change = b"D"
        self.number = 0
        """The engine's number, which the public sees (FIX 198); 0 before it is accepted."""
        self.account = self.instrument = self.size = self.price = self.stop = 0
        self.symbol = self.side = self.order_type = self.time_in_force = self.fixed = b""
        self.filled = self.left = self.notional = 0
        self.status = b"A"
        """FIX 39."""
        self.pending: list[OrderChange] = []
        """Changes without an answer, in the order of their commands."""

    def fix_fields(self, account: bytes) -> None:
        """Write the fields that all reports have, after an order is new or replaced."""
        stop = b"99=%b\x01" % price_text(self.stop) if self.order_type in (b"3", b"4") else b""
        price = b"44=%b\x01" % price_text(self.price) if self.order_type in (b"2", b"4") else b""
        self.fixed = b"1=%b\x0155=%b\x0154=%b\x0138=%d\x0140=%b\x01%b%b59=%b\x01" % (
            account, self.symbol, self.side, self.size, self.order_type, price, stop, self.time_in_force,
        )  # fmt: skip

    @property
    def order(self) -> OrderState:
        """The order of a request; a change has one of its own."""
        return self

    @property
    def average(self) -> bytes:
        """Return FIX 6."""
        return price_text(self.notional // self.filled) if self.filled else b"0"

    @property
    def is_open(self) -> bool:
        return self.status in (b"A", b"0", b"1")


class OrderChange:
    """A request to cancel or replace an order, or to cancel many: F, G or q."""

    __slots__ = ("change", "client", "order", "original", "price", "session", "size", "stop", "text")

    def __init__(
        self, change: bytes, session: int, client: int, text: bytes, original: bytes, order: OrderState | None
    ) -> None:
        self.change, self.session, self.client, self.text = change, session, client, text
        self.original, self.order = original, order
        self.size = self.price = self.stop = 0


class OrderRegistry:
    """Requests by the engine's client order id, and by the ClOrdID of their session."""

    def __init__(self) -> None:
        self.by_client: dict[int, OrderState | OrderChange] = {}
        self._by_text: dict[int, dict[bytes, OrderState | OrderChange | None]] = {}
        """By session; None: the ClOrdID was used, and what it named is forgotten."""
        self._closed: deque[OrderState] = deque()
        self._open: dict[int, dict[int, OrderState]] = {}
        """Orders that are not over, by session and id."""
        self._by_id: dict[int, OrderState] = {}

    def add(self, request: OrderState | OrderChange) -> None:
        self.by_client[request.client] = request
        self._texts(request.session)[request.text] = request
        if isinstance(request, OrderState):
            self._open.setdefault(request.session, {})[request.id] = request
            self._by_id[request.id] = request

    def refuse(self, session: int, text: bytes) -> None:
        """Note a ClOrdID that was used for a request without a command."""
        self._texts(session).setdefault(text, None)

    def is_known(self, session: int, text: bytes) -> bool:
        return text in self._texts(session)

    def request(self, session: int, text: bytes) -> OrderState | OrderChange:
        """Return the request with a ClOrdID that `find` has found."""
        found = self._texts(session)[text]
        if found is None:
            raise KeyError(text)
        return found

    def find(self, session: int, text: bytes) -> OrderState | None:
        """Return the order that a ClOrdID names."""
        found = self._texts(session).get(text)
        return found.order if found is not None else None

    def order_of(self, client: int) -> OrderState | None:
        """Return the order of an engine's client order id."""
        found = self.by_client.get(client)
        return found.order if found is not None else None

    def by_id(self, number: int) -> OrderState | None:
        """Return an order by its OrderID."""
        return self._by_id.get(number)

    def close(self, order: OrderState) -> None:
        """Note that an order is over; forget the oldest one that is."""
        self._open[order.session].pop(order.id, None)
        self._closed.append(order)
        if len(self._closed) > MAX_CLOSED:
            old = self._closed.popleft()
            self.by_client.pop(old.client, None)
            self._by_id.pop(old.id, None)
            self._texts(old.session)[old.text] = None

    def replaced(self, order: OrderState, change: OrderChange) -> None:
        """Note that a replacement is accepted: events name the order by its id from now on."""
        self.by_client.pop(order.client, None)
        self.by_client[change.client] = order
        order.client, order.text = change.client, change.text

    def drop(self, change: OrderChange) -> None:
        """Note that a change is answered and is not the current request of its order."""
        self.by_client.pop(change.client, None)

    def open_orders(self, session: int) -> list[OrderState]:
        """Return the orders of a session that are not over, oldest first."""
        return list(self._open.get(session, {}).values())

    def forget_texts(self, session: int) -> None:
        """Allow the ClOrdIDs of a session again: its numbers began at 1."""
        self._by_text[session] = {
            text: request
            for text, request in self._texts(session).items()
            if request is not None and request.order is not None and request.order.is_open
        }

    def _texts(self, session: int) -> dict[bytes, OrderState | OrderChange | None]:
        found = self._by_text.get(session)
        if found is None:
            found = self._by_text[session] = {}
        return found
