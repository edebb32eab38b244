"""Serve snapshots over TCP: each client that connects receives one, then the connection is closed.

Nothing blocks, and releases come first, so that many clients can join at one time:

- All clients share the bytes of one snapshot. A new one is made when a client is accepted and the last one is too old.
- Clients beyond `MAX_CLIENTS` wait in the kernel's queue of connections, and are accepted in turn.
- Only clients whose connection accepts data are visited, for a short time (`TURN_NS`) in each turn of the loop.
- No work begins shortly before the ring is due; if the ring always is, it begins every `PATIENCE_NS`.
- A client that does not read is dropped.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["SnapshotServer"]

MAX_CLIENTS = 256
"""Clients that may be reading a snapshot at one time. A process may have 1,024 open files by default."""
MAX_WAITING = 4096
"""Clients that may wait for their turn; the kernel may have a lower limit (`net.core.somaxconn`)."""
CLIENT_CHUNK = 256 << 10
CLIENT_SILENCE_NS = 5_000_000_000
"""A client that reads nothing for this long is dropped, and one that has not finished in `CLIENT_LIMIT_NS`."""
CLIENT_LIMIT_NS = 60_000_000_000
CHECK_NS = 250_000_000
"""Time between two searches for clients to drop."""
TURN_NS = 400_000
"""Maximum time in a turn for accepting clients, and for sending to them; the last one of each may exceed it."""
RING_GAP_NS = 1_000_000
"""Minimum time before the ring is due to begin work."""
PATIENCE_NS = 20_000_000


@dataclass(slots=True)
class _Client:
    socket: socket.socket
    rest: memoryview
    until_ns: int
    silent_ns: int


class SnapshotServer:
    """Accept clients on `listener`; `snapshot` returns the bytes for a client that is accepted at a time."""

    def __init__(self, listener: socket.socket, snapshot: Callable[[int], bytes]) -> None:
        self.served = 0
        self.dropped = 0
        self.wake_ns: int | None = None
        """Time at which clients are served again, apart from those that become ready."""
        self._listener = listener
        self._snapshot = snapshot
        self._clients: dict[int, _Client] = {}
        self._writable = select.epoll()
        self._checked_ns = 0
        self._sent_ns = 0
        self._accepted_ns = 0
        self._waits_to_send = False
        self._waits_to_accept = False
        """The ring is due before clients are served, or before others are accepted."""
        self._made_ns = 0
        """Time that a snapshot took, recently."""
        listener.listen(MAX_WAITING)

    @property
    def filenos(self) -> tuple[int, ...]:
        """Descriptors that are readable when there is work: a waiting client, and clients that accept data."""
        accepts = len(self._clients) < MAX_CLIENTS and not self._waits_to_accept
        sends = bool(self._clients) and not self._waits_to_send
        return ((self._listener.fileno(),) if accepts else ()) + ((self._writable.fileno(),) if sends else ())

    def step(self, ready: Collection[int], ring_ns: int | None, now: int) -> None:
        """Accept and serve clients, unless the ring is due soon; `ready` are the readable ones of `filenos`."""
        sends = self._waits_to_send or self._writable.fileno() in ready
        accepts = self._waits_to_accept or self._listener.fileno() in ready
        if not (self._clients or sends or accepts):
            return
        if self._clients and now - self._checked_ns >= CHECK_NS:
            self._drop_silent(now)
        gap_ns = PATIENCE_NS if ring_ns is None else ring_ns - now
        if accepts:
            enough_ns = RING_GAP_NS + self._made_ns
            self._waits_to_accept = gap_ns < enough_ns and 0 <= now - self._accepted_ns < PATIENCE_NS
            if not self._waits_to_accept:
                self._accept(now)
        if sends or accepts:
            self._waits_to_send = gap_ns < RING_GAP_NS and 0 <= now - self._sent_ns < PATIENCE_NS
            if not self._waits_to_send:
                self._send(now)
        self.wake_ns = self._checked_ns + CHECK_NS if self._clients else None
        if self._waits_to_send or self._waits_to_accept:
            self.wake_ns = now + max(0, gap_ns) + RING_GAP_NS // 10

    def _accept(self, now: int) -> None:
        self._accepted_ns, began = now, time.perf_counter_ns()
        if not self._clients:
            self._checked_ns = now
        while len(self._clients) < MAX_CLIENTS and time.perf_counter_ns() - began < TURN_NS:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files, or the client is gone
                self._waits_to_accept = True
                return
            client.setblocking(False)
            asked = time.perf_counter_ns()
            content = memoryview(self._snapshot(now))
            self._made_ns = max(time.perf_counter_ns() - asked, self._made_ns * 255 // 256)
            accepted = _Client(client, content, now + CLIENT_LIMIT_NS, now + CLIENT_SILENCE_NS)
            self._clients[client.fileno()] = accepted
            self._writable.register(client.fileno(), select.EPOLLOUT)

    def _send(self, now: int) -> None:
        """Send to clients in turn, each as much as its receive window allows."""
        self._sent_ns, began = now, time.perf_counter_ns()
        for fileno, _ in self._writable.poll(0) if self._clients else ():
            client = self._clients[fileno]
            try:
                sent = client.socket.send(client.rest[:CLIENT_CHUNK])
                client.rest = client.rest[sent:]
                client.silent_ns = now + CLIENT_SILENCE_NS
            except BlockingIOError:
                pass
            except OSError:  # disconnected
                self._forget(fileno, served=False)
                continue
            if not client.rest:
                self._forget(fileno, served=True)
            if time.perf_counter_ns() - began >= TURN_NS:
                return

    def _drop_silent(self, now: int) -> None:
        self._checked_ns = now
        for fileno, client in list(self._clients.items()):
            if now >= min(client.until_ns, client.silent_ns):
                self._forget(fileno, served=False)

    def _forget(self, fileno: int, *, served: bool) -> None:
        client = self._clients.pop(fileno)
        with suppress(OSError):
            self._writable.unregister(fileno)
        client.socket.close()
        self.served += served
        self.dropped += not served

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
        self._writable.close()
        self._listener.close()
