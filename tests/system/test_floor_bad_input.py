"""What a peer of a gateway may do wrong costs it its own session only: garbage, floods, silence, many logons."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from levelcast.client.trader import Trader
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import HeadWriter
from levelcast.node.floor import connections
from tests.floor_parts import PASSWORD, add_accounts, open_floor, prepare, running

LOGON = b"98=0\x01108=0\x01553=%b\x01554=%b\x01"


def message(kind: bytes, seq: int, body: bytes, sender: bytes = b"BOB", target: bytes = b"FLOOR") -> bytes:
    return HeadWriter(sender, target).message(kind, seq, time_text(time.time_ns()), body)


def logon(name: bytes = b"BOB", password: str = PASSWORD, **names: bytes) -> bytes:
    return message(b"A", 1, LOGON % (name, password.encode()), **{"sender": name, **names})


@contextmanager
def peer(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        yield client


def answer(client: socket.socket) -> str:
    """Return what the gateway sends before it closes the connection, or a message."""
    try:
        return client.recv(65_536).replace(b"\x01", b"|").decode("latin-1")
    except ConnectionResetError:
        return ""


async def trades(address: str, count: int = 3) -> None:
    """Check that another session trades."""
    async with Trader(address, "ANN", PASSWORD) as ann:
        for _ in range(count):
            order = await ann.place("IBM", "buy", 1, "100.00")
            await ann.cancel(order)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: b"GET / HTTP/1.1\r\n\r\n", ""),
        (lambda: bytes(range(256)) * 40, ""),
        (lambda: message(b"D", 1, b"11=A\x01"), ""),
        (lambda: logon(target=b"OTHER"), ""),
        (lambda: logon(b"NOBODY"), ""),
        (lambda: logon().replace(b"FIX.4.4", b"FIX.4.2"), ""),
        (lambda: logon(password="wrong"), "|58=wrong password|"),
        (lambda: message(b"A", 1, LOGON.replace(b"98=0", b"98=1") % (b"BOB", PASSWORD.encode())), "EncryptMethod"),
        (lambda: b"8=FIX.4.4\x019=999999999\x0135=A\x01", ""),
    ],
    ids=[
        "another protocol", "every octet", "an order", "another target", "a stranger", "another version",
        "a wrong password", "encryption", "too long",
    ],
)  # fmt: skip
def test_a_wrong_first_message_ends_the_connection(tmp_path: Path, made: Callable[[], bytes], expected: str) -> None:
    """Messages state when they are sent, so each is made when it is."""
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path)
    prepare(floor, "ann")
    with running(floor) as address:
        with peer(address) as client:
            client.sendall(made())
            found = answer(client)
            assert expected in found
            assert bool(found) == bool(expected)
        asyncio.run(trades(address, 1))


def test_a_second_logon_of_a_session_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path)
    prepare(floor, "ann")
    with running(floor) as address, peer(address) as first, peer(address) as second:
        first.sendall(logon())
        assert "|35=A|" in answer(first)
        second.sendall(logon())
        assert answer(second) == ""
        first.sendall(message(b"1", 2, b"112=X\x01"))
        assert "|112=X|" in answer(first)


def test_the_queue_of_a_peer_that_never_reads_is_bounded() -> None:
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    with theirs:
        connection = connections.GatewayConnection(mine, ("peer", 1), 1, None, 10**9)
        fits = True
        for _ in range(200):
            connection.send(bytes(1 << 17))
            fits = connection.flush()
            if not fits:
                break
        assert not fits
        assert not connection.reads
        assert connection.queued <= connections.MAX_QUEUED + (1 << 17)
        connection.close()


def test_a_flood_is_read_at_the_rate_of_a_connection(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path, rate_bytes=20_000)
    prepare(floor, "ann", "bob")
    with running(floor) as address, peer(address) as client:
        client.sendall(logon())
        assert "|35=A|" in answer(client)
        client.setblocking(False)
        began, sent = time.monotonic(), 0
        while time.monotonic() < began + 1:
            try:
                sent += client.send(b"garbage " * 1_000)
            except BlockingIOError:
                time.sleep(0.01)
        asyncio.run(trades(address, 1))
        read = floor.counts["bytes_in"]
        allowed = connections.BURST_BYTES * 3 + 20_000 * (time.monotonic() - began)
        assert read <= allowed


def test_many_logons_at_once_do_not_stop_a_session(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path)
    prepare(floor, "ann")
    with running(floor) as address:
        asyncio.run(trades(address, 1))
        host, _, port = address.rpartition(":")
        clients = [socket.create_connection((host, int(port)), timeout=20) for _ in range(100)]
        for client in clients:
            client.sendall(logon(password="wrong"))
        answers = [answer(client) for client in clients[:80]]
        asyncio.run(trades(address, 1))
        for client in clients:
            client.close()
    assert all("wrong" in text or "logons" in text or text == "" for text in answers)
