"""Serve HTTP/1.1 from a node's event loop: GET, one response per connection, no blocking calls.

The ring has priority. So everything here is bounded: the number of clients, the length of a request, the duration of
a connection, and the rates of accepted connections and of responses. A page is generated on request, while the ring
is idle for `GAP_NS`, or after waiting `PATIENCE_NS`.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from levelcast.errors import NetError
from levelcast.runtime.sockets import Address, why_not_bound

MAX_CLIENTS = 8
MAX_REQUEST = 4096
CLIENT_NS = 2_000_000_000
"""Maximum duration of a connection; then it is dropped."""
GAP_NS = 1_000_000
"""A page is generated only if the ring is idle for this long."""
PATIENCE_NS = 100_000_000
EVERY_NS = 5_000_000
"""Minimum interval between accepted connections, and between responses: limits the cost of a flood."""
RETRY_NS = 10_000_000
"""Interval between retries while a client's receive window is full."""

_END = b"\r\n\r\n"


class Page(NamedTuple):
    """The content of a path."""

    content_type: str
    body: str


Pages = Mapping[str, Callable[[int], Page]]
"""By path: a function that returns the page at a time."""


@dataclass(slots=True)
class Client:
    """One connection: receive a request, then send the response."""

    socket: socket.socket
    until: int
    request: bytearray = field(default_factory=bytearray)
    asked: int | None = None
    """Time at which the request was complete."""
    answer: memoryview | None = None
    """Unsent part of the response."""

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0


class Responder:
    """Listen on one TCP port and serve `pages`. `busy_ns` returns the wall-clock time at which the ring is due next.

    Its own times are from the monotonic clock: it must respond even when the wall clock is wrong.
    """

    def __init__(
        self,
        address: Address,
        pages: Pages,
        busy_ns: Callable[[], int | None] = lambda: None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.answered = 0
        self.dropped = 0
        """Clients that exceeded the time limit or disconnected."""
        self.wake_ns: int | None = None
        self._pages = pages
        self._busy_ns = busy_ns
        self._monotonic_ns = monotonic_ns
        self._listener = _listen(address)
        self.address: Address = self._listener.getsockname()
        self._clients: dict[int, Client] = {}
        self._listens = True
        self._next_accept = 0
        self._next_answer = 0

    @property
    def filenos(self) -> Sequence[int]:
        """Sockets of clients with an incomplete request, and the listener while connections are accepted."""
        waiting = [fileno for fileno, client in self._clients.items() if client.asked is None]
        return [self._listener.fileno(), *waiting] if self._listens else waiting

    def step(self, ready: Collection[int], now: int) -> None:
        """Receive requests, respond to one client, continue to send, drop slow clients."""
        if not self._clients and self._listens and not ready:
            return
        here = self._monotonic_ns()
        if self._listener.fileno() in ready:
            self._accept(here)
        for fileno in [fileno for fileno in ready if fileno in self._clients]:
            self._receive(self._clients[fileno], here)
        self._answer_one(here, now)
        for client in list(self._clients.values()):
            if client.answer is not None:
                self._send(client)
            if here >= client.until and client.is_open:
                self._drop(client)
        self._listens = len(self._clients) < MAX_CLIENTS and here >= self._next_accept
        self.wake_ns = self._next_wake(here, now)

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
        self._listener.close()

    # -- requests -----------------------------------------------------------------------------------------

    def _accept(self, here: int) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # disconnected, or no descriptor left: clients retry
            return
        accepted.setblocking(False)
        self._clients[accepted.fileno()] = Client(accepted, here + CLIENT_NS)
        self._next_accept = here + EVERY_NS

    def _receive(self, client: Client, here: int) -> None:
        try:
            chunk = client.socket.recv(MAX_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(client)
            return
        client.request += chunk
        if _END in client.request or len(client.request) >= MAX_REQUEST:
            client.asked = here

    # -- responses ----------------------------------------------------------------------------------------

    def _answer_one(self, here: int, now: int) -> None:
        """Respond to the client that has waited longest, if the ring is idle."""
        waiting = [client for client in self._clients.values() if client.asked is not None and client.answer is None]
        if not waiting or here < self._next_answer:
            return
        client = min(waiting, key=lambda each: each.asked or 0)
        due_ns = self._busy_ns()
        if due_ns is not None and due_ns - now < GAP_NS and here - (client.asked or 0) < PATIENCE_NS:
            return
        self._next_answer = here + EVERY_NS
        client.answer = memoryview(self._answer(bytes(client.request), now))
        self.answered += 1

    def _answer(self, request: bytes, now: int) -> bytes:
        method, path, code = _read(request)
        make = self._pages.get(path)
        if code != 200 or make is None:
            code = 404 if code == 200 else code
            return _response(
                code, Page("text/plain", f"{HTTPStatus(code).phrase}; pages: {' '.join(self._pages)}\n"), method
            )
        try:
            return _response(200, make(now), method)
        except Exception as error:  # no failure of a page may stop a node of the ring
            return _response(500, Page("text/plain", f"{type(error).__name__}: {error}\n"), method)

    def _send(self, client: Client) -> None:
        assert client.answer is not None
        try:
            sent = client.socket.send(client.answer)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        client.answer = client.answer[sent:]
        if not client.answer:
            self._finish(client)

    def _finish(self, client: Client) -> None:
        """Close the connection. Read remaining input first, or the kernel would reset it and discard the response."""
        with suppress(OSError):
            client.socket.shutdown(socket.SHUT_WR)
            client.socket.recv(MAX_REQUEST)
        self._forget(client)

    def _drop(self, client: Client) -> None:
        self.dropped += 1
        self._forget(client)

    def _forget(self, client: Client) -> None:
        del self._clients[client.socket.fileno()]
        client.socket.close()

    def _next_wake(self, here: int, now: int) -> int | None:
        """Return the next wake-up by the wall clock, which the loop uses."""
        clients = self._clients.values()
        wakes = [client.until for client in clients]
        if not self._listens and len(clients) < MAX_CLIENTS:
            wakes.append(self._next_accept)
        if any(client.answer is not None for client in clients):
            wakes.append(here + RETRY_NS)
        if any(client.asked is not None and client.answer is None for client in clients):
            due_ns = self._busy_ns() or now
            wakes.append(max(self._next_answer, here + max(0, min(due_ns - now, PATIENCE_NS)) + 1))
        return now + min(wakes) - here if wakes else None


def _listen(address: Address) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_CLIENTS)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise NetError(_why_not(address, error)) from error
    return listener


def _why_not(address: Address, error: OSError) -> str:
    where = f"cannot serve status at {address[0]} port {address[1]}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine does not have the address; change it in [status] of the network file"
    return f"{where}: {why_not_bound(error, '[status]')}"


def _read(request: bytes) -> tuple[str, str, int]:
    """Return method, path and status code of a request."""
    if _END not in request:
        return "GET", "", 431
    try:
        method, target, version = request.partition(b"\r\n")[0].decode("ascii").split(" ")
    except ValueError:
        return "GET", "", 400
    if not version.startswith("HTTP/1."):
        return "GET", "", 400
    return method, target.partition("?")[0], 200 if method in ("GET", "HEAD") else 405


def _response(code: int, page: Page, method: str) -> bytes:
    body = page.body.encode()
    head = (
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: {page.content_type}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n"
    )
    if code == 405:
        head += "Allow: GET, HEAD\r\n"
    return f"{head}\r\n".encode() + (b"" if method == "HEAD" else body)
