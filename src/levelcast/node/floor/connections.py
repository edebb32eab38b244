"""TCP connections of a gateway: kernel receive stamps (E1), TLS over memory buffers, limits of each connection.

- A read is one `recvmsg`; its control message has the time at which the kernel received the newest segment in it. The
  messages that end in these bytes get this stamp, with TLS too: the bytes pass the TLS object in memory.
- A connection is read at most at `rate_bytes`, with a burst, and not at all while too much is queued for it. TCP then
  slows the peer down. One that still does not read when the queue is full is closed; its session keeps the messages.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

from levelcast.errors import NetError
from levelcast.runtime.sockets import Address

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_CONTROL_BYTES = 64
READ_BYTES = 16_384
"""Of one read: about 100 orders, three milliseconds of work."""
TLS_READ_BYTES = 16_384 + 512
"""A TLS record with its head."""
BURST_BYTES = 65_536
MAX_QUEUED, MAX_QUEUED_READING = 4 << 20, 256 << 10
"""Bytes queued for a peer that does not read: the connection is closed, or not read."""
HANDSHAKE_NS = 10 * 10**9


class TlsFailed(Exception):
    """The peer does not speak TLS, or not a version that is allowed."""


class GatewayConnection:
    """One connection of a peer."""

    def __init__(self, sock: socket.socket, peer: Address, number: int, tls: ssl.SSLContext | None, rate: int) -> None:
        self.socket, self.peer, self.number = sock, peer, number
        self.fileno = sock.fileno()
        self.closing = False
        """What is queued is sent, then the connection is closed."""
        self.watched = select.EPOLLIN
        """What the loop waits for."""
        self.paused_until_ns = 0
        self._rate = rate
        self._credit = float(BURST_BYTES)
        self._credit_ns = time.monotonic_ns()
        self._queue = bytearray()
        self._tls: ssl.SSLObject | None = None
        self._established = tls is None
        if tls is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def reads(self) -> bool:
        return not self.closing and not self.paused_until_ns and len(self._queue) < MAX_QUEUED_READING

    def receive(self) -> tuple[bytes, int] | None:
        """Return received bytes and the kernel's time of them; None at the end of the connection.

        Raises BlockingIOError if there are none, and TlsFailed.
        """
        try:
            size = READ_BYTES if self._tls is None else TLS_READ_BYTES
            data, control, _, _ = self.socket.recvmsg(size, _CONTROL_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            return None
        if not data:
            return None
        self._spend(len(data))
        stamp = 0
        for level, kind, content in control:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, rest = _TIMESPEC.unpack_from(content)
                stamp = seconds * 1_000_000_000 + rest
        return (data if self._tls is None else self._decrypted(data)), stamp or time.time_ns()

    def _spend(self, size: int) -> None:
        now = time.monotonic_ns()
        self._credit = min(self._credit + (now - self._credit_ns) * self._rate / 1e9, BURST_BYTES) - size
        self._credit_ns = now
        if self._credit < 0:
            self.paused_until_ns = time.time_ns() + int(-self._credit * 1e9 / self._rate) + 1

    def _decrypted(self, data: bytes) -> bytes:
        assert self._tls is not None
        self._incoming.write(data)
        parts = []
        try:
            if not self._established:
                self._tls.do_handshake()
                self._established = True
            while part := self._tls.read(65_536):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise TlsFailed(error.reason or "TLS failed") from None
        finally:
            self._queue += self._outgoing.read()
        return b"".join(parts)

    def send(self, data: bytes) -> None:
        """Queue bytes; `flush` sends them."""
        if self._tls is None:
            self._queue += data
            return
        with suppress(ssl.SSLError):
            self._tls.write(data)
        self._queue += self._outgoing.read()

    def flush(self) -> bool:
        """Send what the kernel accepts; return False if the connection is lost or its queue is full."""
        if self._queue:
            try:
                sent = self.socket.send(self._queue)
                del self._queue[:sent]
            except BlockingIOError:
                pass
            except OSError:
                return False
        return len(self._queue) <= MAX_QUEUED

    def close(self) -> None:
        self.socket.close()


class GatewayListener:
    """The gateway's port."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, rate: int) -> None:
        self._tls, self._rate = tls, rate
        self._count = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)  # connections inherit it
            self._socket.bind(address)
            self._socket.listen(1_024)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise NetError(_why_not(address, error)) from error
        self.address: Address = self._socket.getsockname()
        self.fileno = self._socket.fileno()

    def accept(self, most: int = 64) -> Iterator[GatewayConnection]:
        """Yield new connections."""
        for _ in range(most):
            try:
                sock, peer = self._socket.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._count += 1
            yield GatewayConnection(sock, peer, self._count, self._tls, self._rate)

    def close(self) -> None:
        self._socket.close()


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS settings of a gateway."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise NetError(f"{certificate}, {key}: cannot load the certificate and its key ({error})") from error
    return context


def _why_not(address: Address, error: OSError) -> str:
    where = f"gateway at {address[0]} port {address[1]}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: port already in use; stop the other program, or pass another --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine does not have the address; pass another --address"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: permission denied; pass a --port of 1024 or above"
    return f"{where}: {error.strerror or error}"
