"""Subscribers with a bound deliver each record at its release time plus the bound, over real sockets."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import levelcast
from levelcast import records
from levelcast.client import subscriber as module
from levelcast.client.subscriber import Subscriber
from levelcast.errors import NetError
from levelcast.network import Network, parse_network
from levelcast.protocol.history import GENESIS, Frame, make_frame
from levelcast.runtime.clock_sync import ChronyTracking, KernelClock
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal
from tests.net_edge_parts import Receiver, network_text, some_network

MS = 1_000_000
HOLD_NS = 60 * MS
FRAMES = 30


class WallMarket:
    """Frames of trades with timestamps of now, less the hold time: they are released now."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._next, self._chain = 1, GENESIS

    def frame(self) -> Frame:
        batch = records.trades(3)
        batch["publisher_id"], batch["instrument_id"] = 1, 1
        number, payload = len(self.frames) + 1, batch.tobytes()
        packet = seal(Packet(1, 1, number, 3, payload), 0)
        timestamp_ns = time.time_ns() - HOLD_NS
        made = make_frame(number, timestamp_ns, self._next, (packet,), self._chain)
        self._next, self._chain = self._next + 3, made.chain
        self.frames.append(made)
        return made


def play(receiver: Receiver, subscribers: list[Subscriber], late_ns: int = 0) -> list[list[tuple[int, int]]]:
    """Release frames; return (timestamp, time of delivery) of each batch of trades of each subscriber."""
    market = WallMarket()

    async def read(tape: Subscriber, found: list[tuple[int, int]]) -> None:
        async with tape:
            async for batch in tape:
                now = time.time_ns()
                found += [(each, now) for each in np.unique(batch.records["ts_recv"]).tolist()]

    async def story() -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = [[] for _ in subscribers]
        tasks = [asyncio.create_task(read(tape, times)) for tape, times in zip(subscribers, found, strict=True)]
        await asyncio.sleep(0.7)  # a clock is checked first
        for number in range(FRAMES):
            frame = market.frame()
            await asyncio.sleep(late_ns / 1e9 if number >= FRAMES // 2 else 0)
            receiver.release(frame)
            for _ in range(4):
                receiver.step()
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        return found

    return asyncio.run(story())


@pytest.fixture
def network() -> Network:
    return some_network()


@pytest.fixture
def receiver(network: Network, tmp_path: Path) -> Any:
    made = Receiver(network, "a-1", tmp_path, time.time_ns, hold_ns=HOLD_NS)
    yield made
    made.stop()


def test_every_record_is_delivered_at_its_release_and_the_bound(network: Network, receiver: Receiver) -> None:
    tapes = [levelcast.Subscriber(network, region="west", together=each) for each in ("40ms", "40ms", "off")]
    found = play(receiver, tapes)
    assert all(len(times) == FRAMES for times in found)
    for times in found[:2]:
        assert all(at >= timestamp_ns + HOLD_NS + 40 * MS for timestamp_ns, at in times[10:])
    spreads = [abs(one[1] - other[1]) for one, other in zip(*found[:2], strict=True)]
    assert np.median(spreads) < 5 * MS
    assert np.median([at - timestamp_ns - HOLD_NS for timestamp_ns, at in found[2]]) < 40 * MS
    counts = tapes[0].together
    assert counts is not None
    assert counts.records >= 3 * (FRAMES - 10)
    assert tapes[2].together is None
    assert tapes[0].positions == tapes[2].positions


def test_who_misses_the_bound_delivers_immediately_and_counts(network: Network, receiver: Receiver) -> None:
    tape = levelcast.Subscriber(network, region="west", together="15ms")
    ((times),) = play(receiver, [tape], late_ns=25 * MS)
    assert [timestamp_ns for timestamp_ns, _ in times] == sorted(timestamp_ns for timestamp_ns, _ in times)
    assert len(times) == FRAMES
    counts = tape.together
    assert counts is not None
    assert counts.late >= 3 * FRAMES // 2
    assert counts.largest_late_ns >= 10 * MS


def test_the_edge_tells_who_misses_the_bound(
    network: Network, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORT_EVERY_NS", 100 * MS)
    tapes = [levelcast.Subscriber(network, region="west", together=each) for each in ("40ms", "1ms")]
    play(receiver, tapes, late_ns=25 * MS)
    receiver.step()
    found = receiver.edge.status()["together"]
    assert found["subscribers"] == 2
    assert found["missing"] >= 1
    assert found["worst"][-1]["bound_ns"] == MS
    assert found["worst"][-1]["address"].startswith("127.0.0.1:")


def test_merged_records_are_delivered_together_too(network: Network, receiver: Receiver) -> None:
    tapes = [levelcast.Subscriber(network, region="west", merged=True, together="40ms") for _ in range(2)]
    one, other = play(receiver, tapes)
    assert len(one) > FRAMES // 2
    spreads = [abs(mine[1] - theirs[1]) for mine, theirs in zip(one, other, strict=False)]
    assert np.median(spreads) < 5 * MS
    assert all(at >= timestamp_ns + HOLD_NS + 40 * MS for timestamp_ns, at in one[10:])


def test_the_bound_is_that_of_the_network_file_unless_it_is_overridden() -> None:
    text = network_text() + '\n[edge]\ntogether = "25ms"\n'
    network = parse_network(text)
    assert Subscriber(network, region="west").together_ns == 25 * MS
    assert Subscriber(network, region="west", together="30ms").together_ns == 30 * MS
    assert Subscriber(network, region="west", together="off").together_ns is None
    assert Subscriber(some_network(), region="west").together_ns is None


@pytest.mark.parametrize("text", ["25", "0ms", "-1ms", "11s", "soon", ""])
def test_a_wrong_bound_is_one_sentence(text: str, network: Network) -> None:
    with pytest.raises(NetError, match=r'is not a time up to 10 s, such as "25ms", nor "off"'):
        Subscriber(network, region="west", together=text)


@pytest.mark.parametrize(
    ("kernel", "tracking", "says"),
    [
        (KernelClock(True, 0, 1, 1), None, None),
        (KernelClock(False, 0, 1, 1), ChronyTracking("PHC0", 1, 0, 1), None),
        (KernelClock(False, 0, 1, 1), None, "the kernel reports it as unsynchronised"),
        (None, None, "the kernel does not report its clock's state"),
    ],
)
def test_a_clock_for_which_nothing_vouches_is_reported(
    kernel: KernelClock | None, tracking: ChronyTracking | None, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "kernel_clock", lambda: kernel)
    monkeypatch.setattr(module, "chrony_tracking", lambda: tracking)
    found = module.clock_doubt()
    assert found is None if says is None else found is not None and says in found
