"""The customer over real sockets: every record once and in order, from wherever it starts and whoever is lost."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import levelcast
from levelcast import records
from levelcast.client import subscriber as module
from levelcast.client.edge_sockets import join
from levelcast.client.streams import Stream
from levelcast.client.subscriber import Batch, Grade, Subscriber
from levelcast.edge.server.archive import Archive
from levelcast.edge.subscriber.delivery import Ended, Lost, Stuck, SubscriberConfig
from levelcast.errors import NetError
from levelcast.network import Network, five_cities, load_network, parse_network
from levelcast.protocol.history import GENESIS, Frame, make_frame
from levelcast.wire import mold
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal
from tests.net_edge_parts import Receiver, network_text, some_network
from tests.tape_parts import SLOT_NS, T0

MAIN = mold.session_name("main")
EXAMPLE = parse_network(five_cities())


def hurried() -> int:
    """A clock that runs ten times too fast, so that heartbeats come soon."""
    return T0 + 10 * time.monotonic_ns()


class Market:
    """Frames of trades with the directory's ids, definitions in front; the tape as one array."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.tape: list[np.ndarray] = []
        self._next, self._chain = 1, GENESIS
        definitions = records.instruments(2)
        definitions["instrument_id"], definitions["raw_symbol"] = [1, 77], [b"IBM", b"NEW"]
        definitions["publisher_id"] = 1
        self._add(2, definitions.tobytes())

    def _add(self, count: int, payload: bytes) -> Frame:
        number = len(self.frames) + 1
        packet = seal(Packet(1, 1, number, count, payload), 0)
        frame = make_frame(number, T0 + number * SLOT_NS, self._next, (packet,), self._chain)
        self._next, self._chain = self._next + count, frame.chain
        self.frames.append(frame)
        return frame

    def trade(self, count: int = 50) -> Frame:
        batch = records.trades(count)
        batch["publisher_id"] = 1
        batch["instrument_id"] = np.arange(count) % 4 + 1
        batch["trade_id"] = np.arange(count) + 1_000 * len(self.frames)
        frame = self._add(count, batch.tobytes())
        batch["sequence"] = frame.first_sequence + np.arange(count)
        batch["ts_recv"] = frame.timestamp_ns
        self.tape.append(batch)
        return frame

    @property
    def trades(self) -> np.ndarray:
        return np.concatenate(self.tape)


class Hearing:
    """A reader of its own, and what it has read."""

    def __init__(self, tape: Subscriber) -> None:
        self.batches: list[Batch] = []
        self._tape = tape
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for batch in self._tape:
            self.batches.append(batch)

    @property
    def trades(self) -> np.ndarray:
        found = [np.asarray(batch.records) for batch in self.batches if batch.kind.name == "trade"]
        return np.concatenate([records.trades(0), *found])

    async def until(self, receivers: list[Receiver], done: Callable[[], bool]) -> None:
        """Let the receivers turn until it is done."""
        async with asyncio.timeout(30):
            while not done():
                for each in receivers:
                    each.step()
                await asyncio.sleep(0.005)
                if self._task.done():
                    self._task.result()

    def stop(self) -> None:
        """Read no more; what is waiting was delivered too."""
        self._task.cancel()
        self.batches += self._tape._queue


@pytest.fixture
def network() -> Network:
    return some_network()


@pytest.fixture
def start(network: Network, tmp_path: Path) -> Iterator[Callable[[str], Receiver]]:
    made: list[Receiver] = []

    def begin(name: str) -> Receiver:
        made.append(Receiver(network, name, tmp_path, hurried))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


@asynccontextmanager
async def stepping(*receivers: Receiver) -> AsyncIterator[None]:
    """Receivers that turn by themselves."""

    async def turn() -> None:
        while True:
            for each in receivers:
                each.step()
            await asyncio.sleep(0.005)

    task = asyncio.create_task(turn())
    try:
        yield
    finally:
        task.cancel()


def run(story: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await story

    asyncio.run(within())


# -- records ----------------------------------------------------------------------------------------------


def test_every_record_comes_once_in_order_from_two_receivers(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    async def story() -> None:
        one, other = start("a-1"), start("b-1")
        market = Market()
        async with levelcast.Subscriber(network, region="west") as tape:
            hearing = Hearing(tape)
            for frame in [market.frames[0], *(market.trade() for _ in range(20))]:
                one.release(frame)
                other.release(frame)
            await hearing.until([one, other], lambda: len(hearing.trades) == 1_000)
            assert np.array_equal(hearing.trades, market.trades)
            await hearing.until([one, other], lambda: "main" in tape.watermarks)
            assert tape.counts.gaps == 0
            assert tape.counts.duplicates > 0
            assert tape.symbols[77] == "NEW"
            assert tape.symbols[4] == "VOD"
            assert all(not batch.records.flags.writeable for batch in hearing.batches)
            assert {batch.session for batch in hearing.batches} == {"main"}

    run(story())


def test_what_is_lost_is_asked_for_where_packets_came_from(
    network: Network, start: Callable[[str], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        async with Subscriber(network, "east") as tape:
            hearing = Hearing(tape)
            receiver.release(market.frames[0])
            for number in range(20):
                lost = number % 3 == 1
                groups = receiver.edge.server.groups
                if lost:
                    receiver.edge.server.groups = ()
                receiver.release(market.trade())
                receiver.edge.server.groups = groups
            await hearing.until([receiver], lambda: len(hearing.trades) == 1_000)
            assert np.array_equal(hearing.trades, market.trades)
            assert tape.counts.gaps > 0
            assert tape.counts.requests > 0
            assert receiver.edge.status()["retransmitted"] > 0

    run(story())


def test_a_dead_receiver_is_not_asked_for_ever(network: Network, start: Callable[[str], Receiver]) -> None:
    """The answer comes from another receiver of the region, by the same numbers."""

    async def story() -> None:
        one, other = start("a-1"), start("b-1")
        market = Market()
        groups = one.edge.server.groups
        async with Subscriber(network, "west") as tape:
            hearing = Hearing(tape)
            for number in range(10):
                frame = market.frames[0] if number == 0 else market.trade()
                for each in (other, one):  # the one that dies is heard last
                    each.edge.server.groups = () if number in (3, 4) else groups
                    each.release(frame)
            one.kill()
            await hearing.until([other], lambda: len(hearing.trades) == 450)
            assert np.array_equal(hearing.trades, market.trades)
        one.start()

    run(story())


def test_best_effort_gives_up_and_says_so(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        events: list[Any] = []
        async with Subscriber(network, "east", grade="best effort", on_event=events.append) as tape:
            hearing = Hearing(tape)
            groups = receiver.edge.server.groups
            for number in range(5):
                receiver.edge.server.groups = () if number == 2 else groups
                receiver.release(market.frames[0] if number == 0 else market.trade())
            await hearing.until([receiver], lambda: len(hearing.trades) == 150)
            assert [type(event) for event in events] == [Lost]
            assert tape.counts.lost == 50
            assert tape.counts.requests == 0

    run(story())


def test_latest_only_does_not_wait_and_does_not_ask_for_what_is_out_of_date(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        groups = receiver.edge.server.groups
        async with Subscriber(network, "east", grade="latest only", symbols=["IBM"]) as tape:
            hearing = Hearing(tape)
            for number in range(5):
                receiver.edge.server.groups = () if number == 2 else groups
                receiver.release(market.frames[0] if number == 0 else market.trade())
            await hearing.until([receiver], lambda: tape.counts.superseded > 0)
            assert tape.counts.superseded == 50
            assert tape.counts.requests == 0
            newest = market.trades[market.trades["instrument_id"] == 1]
            assert hearing.trades[-1] == newest[-1]
            assert (np.diff(hearing.trades["sequence"].astype(np.int64)) > 0).all()

    run(story())


def test_latest_only_asks_for_what_may_be_a_newest_price(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        groups = receiver.edge.server.groups
        async with Subscriber(network, "east", grade="latest only") as tape:
            hearing = Hearing(tape)
            receiver.release(market.frames[0])
            receiver.edge.server.groups = ()
            receiver.release(market.trade(4))  # of instruments 1 to 4
            receiver.edge.server.groups = groups
            receiver.release(market.trade(3))
            await hearing.until([receiver], lambda: len(hearing.trades) == 4)
            assert hearing.trades["instrument_id"].tolist() == [1, 2, 3, 4]
            assert hearing.trades[3] == market.tape[0][3]
            late = next(batch for batch in hearing.batches if batch.records["instrument_id"][0] == 4)
            assert late.sequence == 6
            assert tape.counts.superseded == 3

    run(story())


def test_who_is_stuck_is_told_and_may_skip(
    network: Network, start: Callable[[str], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archive, "takes", lambda *_: False)

    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        events: list[Any] = []
        quick = SubscriberConfig(reorder_ns=10**5, retry_ns=10**6, attempts=2)
        for number in range(3):
            receiver.release(market.frames[0] if number == 0 else market.trade())
        receiver.step()  # what was sent is kept
        receiver.edge.server.feed.retransmitter.forget(MAIN)  # it is gone
        async with Subscriber(network, "east", start={"main": 1}, on_event=events.append, config=quick) as tape:
            hearing = Hearing(tape)
            receiver.release(market.trade())
            await hearing.until([receiver], lambda: bool(events))
            assert isinstance(events[0], Stuck)
            assert len(hearing.trades) == 0
            tape.skip("main")
            await hearing.until([receiver], lambda: len(hearing.trades) == 50)
            assert np.array_equal(hearing.trades, market.tape[-1])

    run(story())


# -- beginnings -------------------------------------------------------------------------------------------


def test_what_comes_before_the_beginning_is_bounded_by_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EARLY", 10)
    tape = Subscriber(EXAMPLE, "europe")
    blocks = [mold.Block(MAIN, 1 + 4 * number, 4, 64, bytes(256), 4) for number in range(3)]
    tape._receive([*blocks, b"one", b"other"], 0)
    assert list(tape._early) == [*blocks[1:], b"one", b"other"]
    tape._receive([blocks[0]], 0)
    assert list(tape._early) == [blocks[2], b"one", b"other", blocks[0]]


def test_a_late_joiner_begins_behind_the_snapshot_without_a_hole(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        for number in range(10):
            receiver.release(market.frames[0] if number == 0 else market.trade())
        before = len(market.trades)
        async with stepping(receiver), Subscriber(network, "east", start="snapshot") as tape:
            assert tape.snapshot is not None
            assert tape.snapshot.next_global == before + 3
            assert {batch.kind.name for batch in tape.last} == {"trade", "instrument"}
            last = next(batch for batch in tape.last if batch.kind.name == "trade")
            assert last.global_sequences is not None
            assert last.global_sequences.tolist() == [before - 1, before, before + 1, before + 2]
            assert np.array_equal(last.records, market.trades[-4:])
            hearing = Hearing(tape)
            for _ in range(5):
                receiver.release(market.trade())
            await hearing.until([], lambda: len(hearing.trades) == 250)
            assert np.array_equal(hearing.trades, market.trades[before:])
            found = [batch.global_sequences for batch in hearing.batches if batch.kind.name == "trade"]
            assert np.array_equal(np.concatenate(found), market.trades["sequence"][before:])  # type: ignore[arg-type]

    run(story())


def test_a_session_can_be_read_from_its_beginning_and_gone_on_with(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        for number in range(40):
            receiver.release(market.frames[0] if number == 0 else market.trade())
        async with stepping(receiver):
            async with Subscriber(network, "east", start={"main": 1}) as tape:
                first = Hearing(tape)
                await first.until([], lambda: len(first.trades) >= 1_000)
                position = tape.positions["main"]
                first.stop()
            async with Subscriber(network, "east", start={"main": position}) as tape:
                second = Hearing(tape)
                await second.until([], lambda: len(first.trades) + len(second.trades) == len(market.trades))
        assert np.array_equal(np.concatenate((first.trades, second.trades)), market.trades)

    run(story())


def test_a_snapshot_server_that_says_nonsense_is_passed_over(
    network: Network, start: Callable[[str], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_AGAIN_S", 0.01)

    async def story() -> None:
        receiver, liar = start("a-1"), start("b-1")
        receiver.release(Market().frames[0])
        monkeypatch.setattr(liar.edge.server.feed, "snapshot", lambda: b"nonsense" * 100)
        async with stepping(receiver, liar), Subscriber(network, "west", start="snapshot") as tape:
            assert tape.snapshot is not None

    run(story())


def test_only_wanted_symbols_come_with_their_sequences(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        receiver.release(market.frames[0])
        async with stepping(receiver), Subscriber(network, "east", symbols=["GE", 4], start="snapshot") as tape:
            hearing = Hearing(tape)
            receiver.release(market.trade())
            await hearing.until([], lambda: len(hearing.trades) == 25)
            wanted = market.trades[np.isin(market.trades["instrument_id"], [2, 4])]
            assert np.array_equal(hearing.trades, wanted)
            assert tape.counts.unwanted == len(market.trades) - len(wanted)
            batch = next(batch for batch in hearing.batches if batch.kind.name == "trade")
            assert batch.global_sequence == int(batch.records["sequence"][0])

    run(story())


def test_a_symbol_that_only_the_tape_defines_is_known_from_the_snapshot(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    async def story() -> None:
        receiver = start("c-1")
        receiver.release(Market().frames[0])
        async with stepping(receiver):
            async with Subscriber(network, "east", symbols=["NEW"]) as tape:
                assert tape.symbols[77] == "NEW"
            with pytest.raises(
                NetError, match='no instrument of this network has the symbol "NWE"; did you mean "NEW"'
            ):
                async with Subscriber(network, "east", symbols=["NWE"]):
                    pass

    run(story())


# -- ends and limits --------------------------------------------------------------------------------------


def test_it_ends_with_its_sessions(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        events: list[Any] = []
        async with Subscriber(network, "east", sessions=["main"], on_event=events.append) as tape:
            receiver.release(market.frames[0])
            receiver.release(market.trade())
            receiver.edge.end_sessions()
            receiver.step()
            found = [batch async for batch in tape]
        assert sum(len(batch.records) for batch in found) == 52
        assert [type(event) for event in events] == [Ended]

    run(story())


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(network_text(), encoding="utf-8")
    text = (Path(__file__).resolve().parents[1] / "docs" / "edge.md").read_text(encoding="utf-8")
    example = next(each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "asyncio.run" in each)
    assert 'region="europe"' in example
    command = [sys.executable, "-c", example.replace('region="europe"', 'region="east"')]
    receiver = Receiver(load_network(file), "c-1", tmp_path, hurried)
    market = Market()
    receiver.release(market.frames[0])
    receiver.release(market.trade(4))
    shown = tmp_path / "shown"
    with shown.open("w") as output:
        customer = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while receiver.edge.status()["snapshots"] == 0 and time.monotonic() < deadline:
            receiver.step()
            time.sleep(0.01)
        receiver.release(market.trade(4))
        receiver.edge.end_sessions()
        while customer.poll() is None and time.monotonic() < deadline:
            receiver.step()
            time.sleep(0.01)
    finally:
        customer.kill()
        _, complaints = customer.communicate()
        receiver.stop()
    assert (customer.returncode, complaints) == (0, "")
    lines = shown.read_text().splitlines()
    assert lines[:2] == ["last trade 4", "last instrument 2"]
    assert [line.split()[0] for line in lines[2:]] == ["IBM", "GE", "KO", "VOD"]


def test_watermarks_are_given_to_who_wants_them(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        async with Subscriber(network, "east", watermarks=True) as tape:
            hearing = Hearing(tape)
            receiver.release(market.frames[0])
            receiver.complete_ns += 10**9
            await hearing.until([receiver], lambda: any(batch.watermark for batch in hearing.batches))
            marks = [batch for batch in hearing.batches if batch.watermark is not None]
            assert all(len(batch.records) == 0 for batch in marks)
            assert marks[-1].watermark == tape.watermarks["main"]

    run(story())


def test_who_does_not_keep_up_misses_nothing(
    network: Network, start: Callable[[str], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 4)
    monkeypatch.setattr(module, "MAX_DRAIN", 2)

    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        async with Subscriber(network, "east") as tape:
            receiver.release(market.frames[0])
            for _ in range(100):
                receiver.release(market.trade(20))
            while tape._sockets.reading:
                await asyncio.sleep(0.01)
            assert len(tape._queue) <= 8
            hearing = Hearing(tape)
            await hearing.until([receiver], lambda: len(hearing.trades) == 2_000)
            assert np.array_equal(hearing.trades, market.trades)

    run(story())


def test_noise_in_the_group_is_counted_and_goes_no_further(network: Network, start: Callable[[str], Receiver]) -> None:
    async def story() -> None:
        receiver = start("c-1")
        market = Market()
        group = network.groups_of_region("east")[0]
        async with Subscriber(network, "east") as tape:
            hearing = Hearing(tape)
            for noise in (b"", b"x", b"\xff" * 40, bytes(1_000)):
                receiver.edge._udp.sendto(noise, (group.address, group.port))
            receiver.release(market.frames[0])
            receiver.release(market.trade())
            await hearing.until([receiver], lambda: len(hearing.trades) == 50)
            assert sum(tape.counts.malformed.values()) == 4
            receiver.edge.end_sessions()
            await hearing.until([receiver], tape._is_over)

    run(story())


def test_sequences_beyond_32_bits_are_whole_again() -> None:
    stream = Stream(MAIN)
    assert stream.whole(5) is None
    stream.near = 2**32 + 10
    assert stream.whole(5) == 2**32 + 5
    assert stream.whole(2**32 - 3) == 2**32 - 3
    stream.near = 2**33 - 1
    assert stream.whole(2) == 2**33 + 2


# -- what can be in the way -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"region": "Europe"},
            'region "Europe" has no edge group in the network file; choose one of americas, asia-pacific, europe',
        ),
        ({}, "region not specified; choose one of americas, asia-pacific, europe"),
        ({"region": "europe", "start": "yesterday"}, 'start must be "now", "snapshot", or a sequence'),
        ({"region": "europe", "start": {"main": 0}}, 'start must be "now", "snapshot", or a sequence'),
        ({"region": "europe", "grade": "fast"}, 'is not a grade of service; use one of "guaranteed", "best effort"'),
        ({"region": "europe", "sessions": ["a name too long"]}, "is not a session name"),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(NetError, match=says):
        Subscriber(EXAMPLE, **arguments)


def test_a_network_without_edge_groups_is_one_sentence() -> None:
    text = network_text()
    with pytest.raises(NetError, match="has no edge group"):
        Subscriber(parse_network(text[: text.index("[[edge.group]]")]), "west")


def test_the_only_region_need_not_be_named() -> None:
    text = network_text()
    one = parse_network(text[: text.rindex("[[edge.group]]")])
    assert [group.name for group in Subscriber(one).groups] == ["west"]


def test_a_port_that_another_program_has_is_one_sentence(network: Network) -> None:
    group = network.groups_of_region("west")[0]

    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("", group.port))
            with pytest.raises(NetError, match="port already in use"):
                async with Subscriber(network, "west"):
                    pass

    run(story())


@pytest.mark.parametrize("interface", ["203.0.113.7"])
def test_an_interface_that_is_not_here_is_one_sentence(network: Network, interface: str) -> None:
    async def story() -> None:
        with pytest.raises(NetError, match=r"203\.0\.113\.7"):
            async with Subscriber(network, "west", interface=interface):
                pass
        with pytest.raises(NetError, match="not found on this machine"):
            join(network.groups_of_region("west")[0], interface)

    run(story())


def test_the_grades_can_be_named() -> None:
    assert Subscriber(EXAMPLE, "europe", grade="best effort")._config.grade is Grade.BEST_EFFORT
    assert Subscriber(EXAMPLE, "europe", grade="latest only")._config.grade is Grade.LATEST_ONLY
    assert levelcast.Subscriber is Subscriber
    with pytest.raises(AttributeError):
        getattr(levelcast, "Oracle")  # noqa: B009
