"""The two ends of the benchmark of filtering as processes: an edge with two sessions in one group, and a customer.

`python -m benchmarks.filtering_roles edge|customer --port N`; each reads commands as JSON lines, one after the other,
and answers each with one. They end when nobody gives commands any more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from benchmarks.way import Case, network_text
from levelcast.client.subscriber import Subscriber
from levelcast.edge.server.feed import Feed
from levelcast.edge.server.packetizer import GatherConfig, SessionMap
from levelcast.network import Network, parse_network
from levelcast.protocol.history import GENESIS
from levelcast.records import TRADE, trades
from levelcast.runtime.realtime import calm_garbage_collection, keep_freed_memory
from levelcast.runtime.sockets import LOOPBACK, SendCounts, Sender
from levelcast.wire.mold import DEFAULT_PACKET_BYTES, HEADER_SIZE, LENGTH_SIZE, session_name

REGION = "a"
SESSIONS = ("ONE", "TWO")
NOBODYS = "NOBODYS"
"""A session of which nothing comes."""
INSTRUMENTS = 50
"""In each of the two: 1 to 50, 51 to 100."""
WANTS = {"all": range(1, 2 * INSTRUMENTS + 1), "none": range(1_001, 1_001 + 2 * INSTRUMENTS)}
"""A hundred instruments: all of those that come, or none of them."""
TICK_NS = 5_000_000
"""A slot: what it releases leaves at once."""
SEND_BUFFER = 4 << 20

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Place(NamedTuple):
    """A frame's place on a tape that is not written."""

    slot: int
    timestamp_ns: int
    first_sequence: int
    chain: bytes = GENESIS


def the_network(port: int) -> Network:
    return parse_network(network_text(Case("filtering", DEFAULT_PACKET_BYTES, DEFAULT_PACKET_BYTES, False), port))


class Edge:
    """Makes the packets of a plan of two sessions with `Feed`, and sends them slot by slot."""

    def __init__(self, port: int) -> None:
        group = the_network(port).groups_of_region(REGION)[0]
        self._to = (group.address, group.port)
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((LOOPBACK, 0))
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        self._udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        self._slots: list[tuple[bytes, bytes]] = []

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        return self._send(command["trains"]) if "trains" in command else self._prepare(**command)

    def _prepare(self, h: int, packets: int, slots: int) -> dict[str, Any]:
        """So many packets of h records of each session in every slot, in turn.

        Each pair of packets is a frame's: an edge never fills up a packet with what the next frame has.
        """
        sessions = {i + 1: session_name(SESSIONS[i // INSTRUMENTS]) for i in range(2 * INSTRUMENTS)}
        largest = max(DEFAULT_PACKET_BYTES, HEADER_SIZE + h * (TRADE.itemsize + LENGTH_SIZE))
        feed = Feed(SessionMap(sessions), config=GatherConfig(packet_bytes=largest))
        batch = trades(2 * h)
        batch["instrument_id"] = [i % h % INSTRUMENTS + i // h * INSTRUMENTS + 1 for i in range(2 * h)]
        batch["publisher_id"], batch["price"], batch["size"] = 1, 100_000_000_000, 100
        content = batch.tobytes()
        sent = dict.fromkeys(SESSIONS, 0)
        self._slots, number, begun = [], 0, time.time_ns()
        for slot in range(slots):
            made = []
            for i in range(packets):
                at = begun + slot * TICK_NS + i
                made += feed.release(Place(number + 1, at, number * len(batch) + 1), content, at)
                number += 1
            for out in made:
                sent[out.session.decode().rstrip()] += out.packets
            starts = accumulate((len(out.buffer) for out in made), initial=0)
            ends = [np.frombuffer(out.ends, "<u4") + start for out, start in zip(made, starts, strict=False)]
            joined = np.concatenate(ends).astype("<u4").tobytes()
            self._slots.append((b"".join([out.buffer for out in made]), joined))
        return sent

    def _send(self, trains: bool) -> dict[str, Any]:
        counts = SendCounts()
        sender = Sender(self._udp, counts, trains)
        begun, late_ns = time.monotonic_ns(), 0
        for number, (buffer, ends) in enumerate(self._slots):
            wait_ns = begun + number * TICK_NS - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            late_ns = max(late_ns, -wait_ns)
            sender.send_buffer(self._to, buffer, ends)
        seconds = (time.monotonic_ns() - begun) / 1e9
        return {"sent": counts.sent, "trains": counts.trains, "seconds": seconds, "late_ms": late_ns / 1e6}


class Customer:
    """A `levelcast.Subscriber` for each command; the next line that comes ends it."""

    def __init__(self, port: int) -> None:
        self._network = the_network(port)

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        return asyncio.run(self._follow(**command))

    async def _follow(self, sessions: int, wants: str) -> dict[str, Any]:
        """None, one or both of the sessions, and "all" or "none" of their instruments."""
        names = SESSIONS[:sessions] or (NOBODYS,)
        async with Subscriber(self._network, REGION, names, symbols=WANTS[wants]) as tape:
            stop = asyncio.Event()
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
            records = 0

            async def read() -> None:
                nonlocal records
                async for batch in tape:
                    records += len(batch.records)

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            print(json.dumps({"ready": True}), flush=True)
            before = time.process_time()
            await stop.wait()
            used = time.process_time() - before
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            reading.cancel()
        sys.stdin.readline()
        counts = tape.counts
        return {
            "cpu_s": used,
            "records": records,
            "packets": counts.packets,
            "foreign": counts.foreign,
            "gaps": counts.gaps,
        }


def answer_all(answer: Answer) -> None:
    """One line for each that comes."""
    while line := sys.stdin.readline():
        print(json.dumps(answer(json.loads(line))), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filtering_roles")
    parser.add_argument("role", choices=["edge", "customer"])
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    calm_garbage_collection()
    keep_freed_memory()
    role = Edge(options.port) if options.role == "edge" else Customer(options.port)
    answer_all(role.answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
