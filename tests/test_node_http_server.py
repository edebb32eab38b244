"""The small HTTP server in a node's loop: it answers, and nobody can make the ring wait for long."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from select import select

import pytest

from levelcast.errors import NetError
from levelcast.node.http_server import CLIENT_NS, EVERY_NS, MAX_CLIENTS, MAX_REQUEST, PATIENCE_NS, Page, Responder

MS = 1_000_000
NOW = 1_700_000_000_000_000_000


class Stage:
    """A responder, its clock, and what it was asked for."""

    def __init__(self) -> None:
        self.here = 0
        self.ring_ns: int | None = None
        self.made: list[int] = []
        self.body = "well"
        pages = {"/": lambda now: Page("text/plain", "index\n"), "/status": self._make}
        self.responder = Responder(("127.0.0.1", 0), pages, lambda: self.ring_ns, lambda: self.here)

    def _make(self, now: int) -> Page:
        self.made.append(now)
        return Page("application/json", self.body)

    def turn(self, after_ns: int = EVERY_NS) -> None:
        """One turn of the loop."""
        self.here += after_ns
        ready = select(self.responder.filenos, (), (), 0.02)[0]
        self.responder.step(ready, NOW + self.here)

    def client(self, request: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.responder.address, timeout=5)
        client.sendall(request)
        return client


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.responder.close()


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes; nothing if it reset the connection."""
    answer = b""
    with client:
        try:
            while chunk := client.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    return answer


def ask(stage: Stage, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    client = stage.client(request)
    for _ in range(5):
        stage.turn()
    head, _, body = read_all(client).partition(b"\r\n\r\n")
    return head, body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


def test_a_page_is_made_when_it_is_asked_for(stage: Stage) -> None:
    assert stage.made == []
    head, body = ask(stage, get("/status?x=1"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: application/json; charset=utf-8" in head
    assert b"Content-Length: 4" in head
    assert b"Connection: close" in head
    assert body == b"well"
    assert len(stage.made) == stage.responder.answered == 1


@pytest.mark.parametrize(
    ("request_", "first_line"),
    [
        (get("/nothing"), b"HTTP/1.1 404 Not Found"),
        (b"POST /status HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /status\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /status SPDY/9\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST, b"HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
def test_what_is_no_request_for_a_page_is_refused(request_: bytes, first_line: bytes, stage: Stage) -> None:
    head, _ = ask(stage, request_)
    assert head.split(b"\r\n")[0] == first_line
    assert stage.made == []


def test_head_gives_the_length_and_no_body(stage: Stage) -> None:
    head, body = ask(stage, b"HEAD /status HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 4" in head
    assert body == b""


def test_a_request_may_come_in_pieces(stage: Stage) -> None:
    client = stage.client(b"GET /stat")
    stage.turn()
    stage.turn()
    client.sendall(b"us HTTP/1.1\r\n\r")
    stage.turn()
    client.sendall(b"\n")
    for _ in range(3):
        stage.turn()
    assert read_all(client).endswith(b"well")


def test_a_page_that_cannot_be_made_does_not_end_the_node(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "made", None)
    head, body = ask(stage, get("/status"))
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b"AttributeError" in body


def test_no_page_is_made_just_before_the_ring_is_due(stage: Stage) -> None:
    client = stage.client(get("/status"))
    stage.turn()
    stage.ring_ns = NOW + stage.here + 10 * MS
    stage.turn(9_500_000)
    assert stage.made == []
    assert stage.responder.wake_ns is not None
    assert stage.responder.wake_ns >= stage.ring_ns
    stage.ring_ns = NOW + stage.here + 100 * MS
    stage.turn()
    assert len(stage.made) == 1
    client.close()


def test_a_ring_that_is_always_due_waits_after_a_while(stage: Stage) -> None:
    client = stage.client(get("/status"))
    stage.turn()
    asked = stage.here
    while not stage.made and stage.here < asked + 2 * PATIENCE_NS:
        stage.ring_ns = NOW + stage.here + EVERY_NS
        stage.turn()
    assert PATIENCE_NS <= stage.here - asked < PATIENCE_NS + 3 * EVERY_NS
    client.close()


def test_clients_are_few_and_slow_ones_are_dropped(stage: Stage) -> None:
    clients = [stage.client() for _ in range(MAX_CLIENTS)]
    for _ in range(2 * MAX_CLIENTS):
        stage.turn()
    late = stage.client(get("/status"))
    assert len(stage.responder.filenos) == MAX_CLIENTS  # and not the listener, which would wake the loop for nothing
    for _ in range(4):
        stage.turn()
    assert stage.made == []
    stage.turn(CLIENT_NS)
    assert stage.responder.dropped == MAX_CLIENTS
    for _ in range(4):
        stage.turn()
    assert read_all(late).endswith(b"well")
    assert all(read_all(client) == b"" for client in clients)


def test_somebody_is_let_in_and_answered_only_so_often(stage: Stage) -> None:
    clients = [stage.client(get("/status")) for _ in range(6)]
    for _ in range(60):
        stage.turn(MS)
    assert len(stage.made) == 6
    assert min(b - a for a, b in zip(stage.made, stage.made[1:], strict=False)) >= EVERY_NS
    for client in clients:
        client.close()


def test_a_long_answer_goes_out_as_the_client_takes_it(stage: Stage) -> None:
    stage.body = "x" * (8 << 20)
    client = stage.client(get("/status"))
    for _ in range(4):
        stage.turn()
    assert stage.responder.wake_ns is not None
    taken = b""
    deadline = time.monotonic() + 20
    while not taken.endswith(b"x" * 10) or len(taken) < len(stage.body):
        taken += client.recv(1 << 20)
        stage.turn(0)
        assert time.monotonic() < deadline
    client.close()


def test_who_takes_nothing_is_dropped_in_the_middle(stage: Stage) -> None:
    stage.body = "x" * (8 << 20)
    client = stage.client(get("/status"))
    for _ in range(4):
        stage.turn()
    stage.turn(CLIENT_NS)
    assert stage.responder.dropped == 1
    client.close()


def test_who_goes_away_is_forgotten(stage: Stage) -> None:
    for request in (b"", get("/status")):
        stage.client(request).close()
        for _ in range(3):
            stage.turn()
    assert len(stage.responder.filenos) == 1
    assert stage.responder.wake_ns is None


def test_a_clock_that_is_set_back_changes_nothing(stage: Stage) -> None:
    client = stage.client(get("/status"))
    for wall in (NOW, NOW - 3600 * 1000 * MS, NOW - 3600 * 1000 * MS):
        stage.here += EVERY_NS
        stage.responder.step(select(stage.responder.filenos, (), (), 0.02)[0], wall)
    assert read_all(client).endswith(b"well")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (None, r"cannot serve status at 127\.0\.0\.1 port \d+: port already in use; stop the other program"),
        (("192.0.2.1", 0), "this machine does not have the address"),
    ],
)
def test_a_port_that_cannot_be_had_is_one_sentence(address: tuple[str, int] | None, says: str, stage: Stage) -> None:
    with pytest.raises(NetError, match=says):
        Responder(address or stage.responder.address, {})


def test_without_clients_a_step_does_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> int:
        raise AssertionError("nobody has asked")

    monkeypatch.setattr(stage.responder, "_monotonic_ns", forbidden)
    stage.responder.step((), NOW)
