"""Serve snapshots over TCP: each client that connects receives one, then the connection is closed.

Nothing blocks. A client that does not read is dropped.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SnapshotServer"]

MAX_CLIENTS = 32
"""Clients that may be reading a snapshot at one time."""
CLIENT_CHUNK = 256 << 10
CLIENT_POLL_NS = 1_000_000
CLIENT_SILENCE_NS = 5_000_000_000
"""A client that reads nothing for this long is dropped, and one that has not finished in `CLIENT_LIMIT_NS`."""
CLIENT_LIMIT_NS = 60_000_000_000


@dataclass(slots=True)
class _Client:
    socket: socket.socket
    rest: memoryview
    until_ns: int
    silent_ns: int


class SnapshotServer:
    """Accept clients on `listener`; `snapshot` returns the bytes for one client."""

    def __init__(self, listener: socket.socket, snapshot: Callable[[int], bytes]) -> None:
        self.served = 0
        self.dropped = 0
        self.wake_ns: int | None = None
        """Time at which clients are served again."""
        self._listener = listener
        self._snapshot = snapshot
        self._clients: list[_Client] = []
        listener.listen(MAX_CLIENTS)

    def step(self, now: int, *, ready: bool) -> None:
        """Accept clients if the listener is `ready`, and send every client as much as its receive window allows."""
        if ready:
            self._accept(now)
        if self._clients:
            self._serve(now)

    def _accept(self, now: int) -> None:
        for _ in range(MAX_CLIENTS):
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if len(self._clients) >= MAX_CLIENTS:
                client.close()
                self.dropped += 1
                continue
            client.setblocking(False)
            limits = (now + CLIENT_LIMIT_NS, now + CLIENT_SILENCE_NS)
            self._clients.append(_Client(client, memoryview(self._snapshot(now)), *limits))

    def _serve(self, now: int) -> None:
        for client in list(self._clients):
            try:
                sent = client.socket.send(client.rest[:CLIENT_CHUNK])
                client.rest = client.rest[sent:]
                client.silent_ns = now + CLIENT_SILENCE_NS
            except BlockingIOError:
                pass
            except OSError:  # disconnected
                client.until_ns = 0
            done = not client.rest
            if done or now >= min(client.until_ns, client.silent_ns):
                self._clients.remove(client)
                client.socket.close()
                self.served += done
                self.dropped += not done
        self.wake_ns = now + CLIENT_POLL_NS if self._clients else None

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._clients.clear()
        self._listener.close()
