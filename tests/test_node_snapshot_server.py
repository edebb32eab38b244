"""When clients of snapshots are accepted and served, next to a ring that must not wait for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from select import select

import pytest

from levelcast.node import snapshot_server
from levelcast.node.snapshot_server import CHECK_NS, PATIENCE_NS, RING_GAP_NS, SnapshotServer
from levelcast.runtime.sockets import LOOPBACK

NOW = 1_700_000_000_000_000_000
SOON = RING_GAP_NS - 1


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.setblocking(False)
        yield made


@pytest.fixture
def server(listener: socket.socket) -> Iterator[SnapshotServer]:
    made = SnapshotServer(listener, lambda now: b"snapshot")
    yield made
    made.close()


def wait(server: SnapshotServer) -> list[int]:
    """The descriptors that have work, once one of them has."""
    ready = select(server.filenos, (), (), 10)[0]
    assert ready
    return list(ready)


def test_a_client_is_served_when_the_ring_has_time(server: SnapshotServer, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        server.step(wait(server), NOW + RING_GAP_NS, NOW)
        assert client.recv(100) == b"snapshot"
        assert client.recv(100) == b""
    assert (server.served, server.wake_ns) == (1, None)


def test_nothing_is_done_shortly_before_the_ring_is_due(server: SnapshotServer, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        server.step((), None, NOW)
        server._accepted_ns = server._sent_ns = NOW
        server.step(wait(server), NOW + SOON, NOW)
        assert server._clients == {}
        assert server.filenos == (), "the client does not wake the loop"
        assert server.wake_ns == NOW + SOON + RING_GAP_NS // 10
        server.step((), NOW + PATIENCE_NS + SOON, NOW + PATIENCE_NS - 1)
        assert server._clients == {}
        server.step((), NOW + PATIENCE_NS + SOON, NOW + PATIENCE_NS)
        assert server.served == 1, "the ring is always due, so clients are served nevertheless"
        assert client.recv(100) == b"snapshot"


def test_a_client_that_is_being_served_waits_as_well(listener: socket.socket) -> None:
    server = SnapshotServer(listener, lambda now: bytes(32 << 20))
    with socket.create_connection(listener.getsockname()) as client:
        server.step(wait(server), None, NOW)
        (reader,) = server._clients.values()
        server.step(wait(server), NOW + SOON, NOW)
        rest = len(reader.rest)
        assert server.filenos == (listener.fileno(),)
        client.recv(1 << 20)
        server.step((), NOW + 1 + SOON, NOW + 1)
        assert len(reader.rest) == rest
    server.close()


def test_a_snapshot_that_takes_long_needs_more_time_before_the_ring(
    server: SnapshotServer, listener: socket.socket
) -> None:
    server._made_ns = 5 * RING_GAP_NS
    server._accepted_ns = NOW
    with socket.create_connection(listener.getsockname()):
        server.step(wait(server), NOW + 5 * RING_GAP_NS, NOW)
        assert server.served == 0
        server.step((), NOW + 7 * RING_GAP_NS, NOW)
        assert server.served == 1


def test_only_so_many_are_served_at_one_time_and_the_others_wait(
    server: SnapshotServer, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_server, "MAX_CLIENTS", 2)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    server._sent_ns = NOW
    while len(server._clients) < 2:
        server.step([listener.fileno()], NOW + SOON, NOW + PATIENCE_NS - 1)
        server._accepted_ns = 0
    assert listener.fileno() not in server.filenos
    server.step([listener.fileno()], NOW + SOON, NOW + PATIENCE_NS - 1)
    assert (len(server._clients), server.served) == (2, 0)
    while server.served < 3:
        server.step([*server.filenos], None, NOW)
    assert [each.recv(100) for each in clients] == [b"snapshot"] * 3
    assert server.dropped == 0
    for each in clients:
        each.close()


def test_no_more_descriptors_do_not_make_the_loop_spin(
    server: SnapshotServer, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: socket.socket) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", fail)
        server.step([listener.fileno()], NOW + CHECK_NS, NOW)
    assert server.filenos == ()
    assert server.wake_ns is not None
    assert server.wake_ns > NOW
