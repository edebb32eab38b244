"""Measure what a node needs from its machine: multicast, socket buffers, priority, timers, writes to a disk.

Each function returns values without a judgement, needs no privilege, and leaves nothing behind.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from levelcast.runtime.realtime import sharpen_timers, take_realtime_priority
from levelcast.runtime.sockets import listener, usable

_RESEND_S = 0.05
_NONCE_BYTES = 16
_WRITE_BYTES = 4096
"""A few journal entries."""


def free_group(core: str) -> str:
    """Return another group of the core group's range (the same first 24 bits).

    >>> free_group("239.192.74.1"), free_group("239.192.74.254")
    ('239.192.74.254', '239.192.74.253')
    """
    last = IPv4Address(int(IPv4Address(core)) | 0xFF) - 1
    return str(last if str(last) != core else last - 1)


def multicast_delay_ns(group: str, interface: str, limit_s: float) -> int | None:
    """Send datagrams to a group until one is received on the same interface; return its delay, or None.

    The port is a free one, so no other program receives them. Raise NetError if the group cannot be used.
    """
    with (
        usable(interface),
        closing(listener(group, 0, interface)) as receiving,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sending,
    ):
        sending.bind((interface, 0))
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        receiving.settimeout(_RESEND_S)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            nonce, sent_ns = os.urandom(_NONCE_BYTES), time.monotonic_ns()
            sending.sendto(nonce, receiving.getsockname())
            try:
                if receiving.recv(_NONCE_BYTES) == nonce:
                    return time.monotonic_ns() - sent_ns
            except TimeoutError:
                continue
    return None


class BufferSizes(NamedTuple):
    """Sizes of the buffers of a socket."""

    receive_bytes: int
    send_bytes: int


def granted_buffers(wanted: BufferSizes) -> BufferSizes:
    """Return the buffers that the kernel grants; it doubles the requested sizes for its own bookkeeping."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted.receive_bytes)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted.send_bytes)
        return BufferSizes(
            udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
            udp.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2,
        )


class WakeUps(NamedTuple):
    """Delays of wake-ups after short sleeps."""

    realtime: bool
    """True if the kernel permitted real-time priority for them."""
    errors_ns: list[int]


def wake_errors(seconds: float, sleep_ns: int) -> WakeUps:
    """Sleep repeatedly as a receiver does before a release: without timer slack, with real-time priority if permitted.

    A thread of its own does it, because the kernel grants both to a thread. They end with it.
    """
    errors: list[int] = []
    permitted: list[bool] = []

    def sleep() -> None:
        sharpen_timers()
        permitted.append(take_realtime_priority())
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        while (now := time.monotonic_ns()) < end_ns:
            time.sleep(sleep_ns / 1e9)
            errors.append(time.monotonic_ns() - now - sleep_ns)

    thread = Thread(target=sleep, name="wake-ups")
    thread.start()
    thread.join()
    return WakeUps(permitted == [True], errors)


def sync_times_ns(directory: Path, count: int, limit_s: float) -> list[int]:
    """Append to a temporary file of the directory and sync it, `count` times or until the limit; return each duration.

    The file has no name, so it disappears even if the process is killed. Raise OSError if it cannot be written.
    """
    times: list[int] = []
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        while len(times) < count and time.monotonic() < deadline:
            began_ns = time.monotonic_ns()
            file.write(bytes(_WRITE_BYTES))
            os.fdatasync(file.fileno())
            times.append(time.monotonic_ns() - began_ns)
    return times
