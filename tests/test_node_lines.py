"""A customer on two lines, over real sockets: what comes first counts, and one line may die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import levelcast
from levelcast.client.line_stats import LineStats
from levelcast.network import Network
from levelcast.records import trades
from levelcast.wire import mold
from levelcast.wire.mold import Block, Heartbeat
from tests.net_edge_parts import Receiver, some_network
from tests.tape_parts import T0, make_frames

LINE_OF = {"a-1": "west", "b-1": "east"}
MAIN = mold.session_name("main")


@pytest.fixture
def network() -> Network:
    found = some_network()
    west, east = found.edge.groups
    groups = (replace(west, line="a"), replace(east, region="west", line="b"))
    return replace(found, edge=replace(found.edge, groups=groups))


@pytest.fixture
def two(network: Network, tmp_path: Path) -> Iterator[tuple[Receiver, Receiver]]:
    def held_by(name: str) -> Callable[[int], tuple[str, ...]]:
        return lambda _: (LINE_OF[name],)

    made = tuple(Receiver(network, name, tmp_path, lambda: T0, held=held_by(name)) for name in LINE_OF)
    for each in made:
        each.step()
    yield made[0], made[1]
    for each in made:
        each.stop()


@asynccontextmanager
async def reading(tape: levelcast.Subscriber, found: list[int]) -> AsyncIterator[None]:
    async def read() -> None:
        async for batch in tape:
            found.extend(range(batch.sequence, batch.sequence + len(batch.records)))

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()


async def until(position: int, tape: levelcast.Subscriber, line: str, packets: int) -> None:
    """Until the session is there, and so much has come on a line."""
    async with asyncio.timeout(30):
        while tape.positions.get("main", 0) < position or tape.lines[line].counts.packets < packets:
            await asyncio.sleep(0.001)


def test_which_line_came_first_and_what_was_missing_on_each(network: Network, two: tuple[Receiver, Receiver]) -> None:
    one, other = two
    frames = make_frames(30)

    async def story() -> None:
        found: list[int] = []
        async with levelcast.Subscriber(network, "west", arrivals=True) as tape, reading(tape, found):
            for number, frame in enumerate(frames):
                for each, line in ((one, "a"), (other, "b")) if number % 3 else ((other, "b"), (one, "a")):
                    groups = each.edge.server.groups
                    if each is other and number in (10, 11):
                        each.edge.server.groups = ()
                    each.release(frame)
                    each.edge.server.groups = groups
                    sent = each.edge.counts.packets
                    await until(each.edge.server.feed.next_sequences[MAIN], tape, line, sent)
            a, b = (tape.lines[name].counts for name in "ab")
            assert tape.counts.gaps == 0
            assert a.missing == 0
            lost = b.missing
            assert lost > 0
            assert a.messages == b.messages + lost
            assert a.first + b.first == a.messages == tape.counts.records
            assert a.share_first > 0.5 > b.share_first > 0.2
            slots = [frame.timestamp_ns for frame in frames]
            assert list(tape.lines["a"].arrivals) == slots
            assert list(tape.lines["b"].arrivals) == [*slots[:10], *slots[12:]]
            came = list(tape.lines["a"].arrivals.values())
            assert came == sorted(came)
            assert tape.lines["b"].arrivals[slots[0]] <= tape.lines["a"].arrivals[slots[0]]

    asyncio.run(story())


def test_a_line_that_dies_leaves_no_gap(network: Network, two: tuple[Receiver, Receiver]) -> None:
    one, other = two
    frames = make_frames(60)

    async def story() -> None:
        found: list[int] = []
        async with levelcast.Subscriber(network, "west") as tape, reading(tape, found):
            for number, frame in enumerate(frames):
                if number == 20:
                    one.kill()
                for each in (one, other) if number < 20 else (other,):
                    each.release(frame)
                await until(other.edge.server.feed.next_sequences[MAIN], tape, "b", other.edge.counts.packets)
            assert (tape.counts.lost, tape.counts.gaps, tape.counts.requests) == (0, 0, 0)
        assert found == sorted(set(found))

    asyncio.run(story())
    one.start()


def test_what_a_line_notes_of_odd_packets() -> None:
    line = LineStats("a", arrivals=True)
    assert line.take(b"", 1, 9) == 0
    assert line.take(mold.encode(Heartbeat(MAIN, 7)), 1, 9) == 0
    batch = trades(4)
    batch["ts_recv"] = [5, 5, 6, 6]
    block = Block(MAIN, 1, 4, 64, batch.tobytes(), 2)
    assert line.take(block, 100, 9) == 4
    assert line.arrivals == {5: 100, 6: 100}
    later = Block(MAIN, 9, 4, 64, batch.tobytes(), 2)
    assert line.take(later, 200, 9) == 4
    assert line.arrivals == {5: 100, 6: 100}
    assert line.counts.missing == 4
    assert line.take(Block(MAIN, 5, 4, 64, batch.tobytes(), 2), 300, 9) == 4
    assert line.counts.missing == 0
    assert line.take(Block(b"other     ", 5, 4, 64, batch.tobytes(), 2), 300, 1) == 4
    assert len(line._tops) == 1
    (single,) = mold.encode_payload(
        MAIN, 13, batch[:1].tobytes() + batch[:1].tobytes()[:48].replace(b"\x10", b"\x0c", 1)
    )
    assert line.take(single, 400, 9) == 2
