"""Refuse to start a node that already runs, before it writes a file or takes part in the ring.

Two processes under one name would each make tokens and promises for the same slots. A process on this machine is found
by a socket with the node's name, which the kernel removes when the process ends. One on another machine is found by a
probe under the node's own id: only a process that runs under the same id answers it (`Driver`).
"""

from __future__ import annotations

import os
import socket
import struct
import time

from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP
from levelcast.runtime.driver import Security
from levelcast.runtime.sockets import CoreSockets
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed, sender_of
from levelcast.wire.messages import Echo, Probe

PROBES = 3
WAIT_S = 0.1
"""Wait for the answer to each probe: longer than a round trip between any two sites of a region."""
_CREDENTIALS = struct.Struct("3i")


def claim_name(name: str, node: int, domain: int, group: str, port: int) -> socket.socket:
    """Return a socket that marks the node as running while it is open; raise NetError if another process has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address = f"\0levelcast {domain:x} {node} {group}:{port}"
    try:
        claim.bind(address)
        claim.listen(1)
    except OSError:
        claim.close()
        raise NetError(f"{name} is already running on this machine{_process(address)}; stop it first") from None
    return claim


def _process(address: str) -> str:
    """Return the process that has the socket, for a message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(address)
            found = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return ""
    pid, _, _ = _CREDENTIALS.unpack(found)
    return f", as process {pid}" if pid not in (0, os.getpid()) else ""


def require_no_namesake(
    name: str, node: int, domain: int, sockets: CoreSockets, security: Security | None = None
) -> None:
    """Raise NetError with its address if a process on another machine runs this node."""
    for number in range(PROBES):
        probe = Probe(node, number, time.time_ns())
        if security is not None:
            security.begin_turn(probe.sent_ns)
        sockets.send(GROUP, [encode(probe, domain)] if security is None else security.seal(probe))
        until = time.monotonic() + WAIT_S
        while (left := until - time.monotonic()) > 0:
            if not sockets.wait(left)[0]:
                break
            for datagram, source, _ in sockets.drain():
                if isinstance(datagram, bytes) and sender_of(datagram) == node and _is_echo(datagram, domain, security):
                    raise NetError(f"{name} is already running at {source[0]}; stop it first")


def _is_echo(datagram: bytes, domain: int, security: Security | None) -> bool:
    try:
        opened = decode(datagram) if security is None else security.open(datagram, ("", 0))
    except Malformed:
        return False
    return opened is not None and opened.domain == domain and isinstance(opened.message, Echo)
