"""A very small HTTP/1.1 server inside a node's loop: GET, one answer a connection, nothing that blocks.

The ring's instants go first. So everything here is bounded: how many clients there are, what a request may be long,
how long a client may take, how often somebody is let in and answered. A page is made when it is asked for, in a gap
between two instants of the ring; if there is none for `PATIENCE_NS`, then all the same.
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
"""What a client may take for all of it; then it is dropped."""
GAP_NS = 1_000_000
"""A page is made only if the ring has nothing to do for this long."""
PATIENCE_NS = 100_000_000
EVERY_NS = 5_000_000
"""Somebody is let in, and somebody is answered, at most this often: a flood costs the ring little."""
RETRY_NS = 10_000_000
"""When to try again what a client's receive window had no room for."""

_END = b"\r\n\r\n"


class Page(NamedTuple):
    """What a path gives."""

    content_type: str
    body: str


Pages = Mapping[str, Callable[[int], Page]]
"""By path: what makes the page, at a time."""


@dataclass(slots=True)
class Client:
    """One connection: first a request comes in, then its answer goes out."""

    socket: socket.socket
    until: int
    request: bytearray = field(default_factory=bytearray)
    asked: int | None = None
    """When the request was complete."""
    answer: memoryview | None = None
    """What is still to be sent."""

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0


class Responder:
    """Listens on one TCP port and answers with `pages`. `busy_ns` says when the ring is due next, by the wall clock.

    Its own times are by the monotonic clock: it must answer above all when the wall clock is wrong.
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
        """Clients that took too long, or went away."""
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
        """The clients that have not asked yet, and the listener while somebody may come in."""
        waiting = [fileno for fileno, client in self._clients.items() if client.asked is None]
        return [self._listener.fileno(), *waiting] if self._listens else waiting

    def step(self, ready: Collection[int], now: int) -> None:
        """Take in what has come, answer one client, send on, drop who is slow."""
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

    # -- in -----------------------------------------------------------------------------------------------

    def _accept(self, here: int) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor left: who wants something will come back
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

    # -- out ----------------------------------------------------------------------------------------------

    def _answer_one(self, here: int, now: int) -> None:
        """Answer whoever has waited longest, if the ring has the time."""
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
                code, Page("text/plain", f"{HTTPStatus(code).phrase}: there is {' '.join(self._pages)}\n"), method
            )
        try:
            return _response(200, make(now), method)
        except Exception as error:  # whatever it is, a page that cannot be made must not end a node of the ring
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
        """All is sent. What came beyond the request is read first, or the kernel would take back the answer."""
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
        """By the wall clock, as the loop wants it."""
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
    where = f"cannot tell the status at {address[0]} port {address[1]}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine has no such address; give [status] another one in the network file"
    return f"{where}: {why_not_bound(error, '[status]')}"


def _read(request: bytes) -> tuple[str, str, int]:
    """Method, path and status code of a request."""
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
