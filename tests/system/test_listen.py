"""A listener that knows nothing of Levelcast gets every record over real multicast, and stays in forty lines."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from levelcast import records
from levelcast.edge.server.packetizer import Packetizer, SessionMap
from tests.edge_parts import ALPHA, BETA, GAMMA, KINDS
from tests.network_parts import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
LISTEN = REPOSITORY / "examples" / "listen.py"
GROUP = "239.192.75.77"
MS = 1_000_000


def some_frames(count: int) -> list[np.ndarray]:
    chance = np.random.default_rng(7)
    frames = []
    for number in range(count):
        batch = records.trades(100)
        batch["publisher_id"] = 1
        batch["instrument_id"] = chance.integers(1, 4, 100)
        batch["ts_event"] = np.arange(100) + 100 * number
        batch["price"] = chance.integers(1, 1_000, 100) * 250_000_000
        batch["size"] = chance.integers(1, 500, 100)
        frames.append(batch)
    return frames


def test_the_bare_listener_gets_every_record() -> None:
    session_of = {1: ALPHA, 2: BETA, 3: GAMMA}
    gatherer = Packetizer(SessionMap(session_of), 0)
    frames = some_frames(20)
    port = free_port()
    command = [sys.executable, str(LISTEN), GROUP, str(port), "127.0.0.1"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as edge,
    ):
        try:
            assert listener.stderr is not None
            assert "listening" in listener.stderr.readline()
            edge.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            for slot, batch in enumerate(frames, 1):
                # Definitions and watermarks go past the listener, which reads trades only.
                payload = KINDS[4][:4] + b"\1\0\0\0" + KINDS[4][8:] + batch.tobytes()
                for out in gatherer.release(slot * 30 * MS, 1, payload, 0):
                    for datagram in out.datagrams:
                        edge.sendto(datagram, (GROUP, port))
            for out in gatherer.heartbeats(10**12) + gatherer.end():
                edge.sendto(out.buffer, (GROUP, port))
            shown, problems = listener.communicate(timeout=60)
        finally:
            listener.kill()
    assert listener.returncode == 0
    assert problems == ""
    found: dict[str, list[tuple[float, ...]]] = {}
    for line in shown.splitlines():
        name, _, *fields = line.split(",")
        found.setdefault(name, []).append(tuple(map(float, fields)))
    everything = np.concatenate(frames)
    for instrument, session in session_of.items():
        mine = everything[everything["instrument_id"] == instrument]
        wanted = zip(
            mine["publisher_id"],
            mine["instrument_id"],
            mine["ts_event"],
            mine["price"] / 1e9,
            mine["size"],
            strict=True,
        )
        assert found[session.decode().rstrip()] == list(wanted)


def test_it_needs_neither_levelcast_nor_more_than_forty_lines() -> None:
    source = LISTEN.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 40
    imported = {
        alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported == {"socket", "struct", "sys"}
