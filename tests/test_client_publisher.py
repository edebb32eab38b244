"""A floor in a program of its own, before a ring that is one socket and witnesses what it is told to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import levelcast
from levelcast.client.packet_queue import MAX_PACKET_BYTES
from levelcast.client.publisher import MIN_PACKET_BYTES, Publisher
from levelcast.client.source_loop import SourceLoop
from levelcast.errors import NetError
from levelcast.network import Network, SymbolDirectory, parse_network
from levelcast.records import RecordArray, quotes, split, trades
from levelcast.storage.append_file import TapeError
from levelcast.wire.packets import DATA_OVERHEAD
from tests.publish_parts import OneSocketRing, network_text


@pytest.fixture
def network() -> Network:
    return parse_network(network_text(("XNYS", "XLON")))


@pytest.fixture
def ring(network: Network) -> Iterator[OneSocketRing]:
    ring = OneSocketRing(network)
    yield ring
    ring.close()


def some(network: Network, count: int, floor: str = "XNYS", first: int = 1) -> RecordArray:
    directory = SymbolDirectory(network)
    batch = trades(count)
    batch["publisher_id"] = directory.floor(floor).publisher
    batch["instrument_id"] = directory.id_of("IBM")
    batch["trade_id"] = np.arange(first, first + count)
    return batch


def wait_for(condition: object, limit_s: float = 10.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_is_published_comes_in_order_behind_its_definitions(network: Network, ring: OneSocketRing) -> None:
    records = some(network, 3000)
    with levelcast.Publisher(network, "XNYS") as floor:
        assert floor.publish(records) == 3000
    heard = ring.of(1)
    assert heard.tobytes() == records.tobytes()
    assert floor.settled
    assert floor.published == floor.witnessed == 3000
    packets = [ring.packets[1][key] for key in sorted(ring.packets[1])]
    assert {split(packet.payload)[0].kind.name for packet in packets[:2]} == {"instrument"}
    assert sorted(ring.of(1, "instrument")["raw_symbol"]) == [b"AIG", b"BAC", b"IBM", b"SPY"]
    assert all(len(split(packet.payload)) == 1 for packet in packets)
    most = (1400 - DATA_OVERHEAD) // 64
    assert max(packet.records for packet in packets) == most
    assert len(packets) < 2 + 3000 / most * 1.5  # packets are full, but for the borders between turns


def test_nothing_is_defined_where_nothing_is_published(network: Network, ring: OneSocketRing) -> None:
    with Publisher(network, "XNYS"):
        time.sleep(0.1)
    assert not ring.packets


def test_back_pressure_can_be_seen(network: Network, ring: OneSocketRing) -> None:
    ring.witnesses = False
    with Publisher(network, "XNYS", queue_records=100) as floor:
        assert floor.room == 100
        records = some(network, 5000)
        taken = floor.publish(records, timeout=0.3)
        assert 62 * 21 <= taken <= 62 * 21 + 100  # two of the 64 packets are definitions
        wait_for(lambda: floor.unwitnessed == 64)
        assert (floor.room, floor.waiting) == (0, 100)
        assert floor.publish(records[taken:], block=False) == 0
        assert floor.flush(timeout=0.05) is False
        ring.witnesses = True
        assert floor.publish(records[taken:]) == 5000 - taken
        assert floor.flush(timeout=20)
    assert ring.of(1).tobytes() == records.tobytes()


def test_small_publications_share_packets_when_credit_is_short(network: Network, ring: OneSocketRing) -> None:
    ring.witnesses = False
    with Publisher(network, "XNYS") as floor:
        for i in range(500):
            floor.publish(some(network, 1, first=1 + i))
        ring.witnesses = True
        assert floor.flush(timeout=20)
    assert ring.of(1)["trade_id"].tolist() == list(range(1, 501))


def test_packets_may_be_larger(network: Network, ring: OneSocketRing) -> None:
    with Publisher(network, "XNYS", packet_bytes=MAX_PACKET_BYTES) as floor:
        floor.publish(some(network, 3000))
    assert max(packet.records for packet in ring.packets[1].values()) > 500
    for size in (MIN_PACKET_BYTES - 1, MAX_PACKET_BYTES + 1):
        with pytest.raises(ValueError, match="packet_bytes"):
            Publisher(network, "XNYS", packet_bytes=size)


def test_kinds_of_records_may_be_mixed(network: Network, ring: OneSocketRing) -> None:
    quote = quotes(2)
    quote["publisher_id"], quote["instrument_id"] = 1, 1
    with Publisher(network, "XNYS") as floor:
        floor.publish(some(network, 2))
        floor.publish(quote)
        floor.publish(trades(0))
        floor.publish(some(network, 2, first=3))
    assert ring.of(1)["trade_id"].tolist() == [1, 2, 3, 4]
    assert len(ring.of(1, "quote")) == 2


@pytest.mark.parametrize("largest", [7, 2**20, 2**20 + 1, 2**32 - 1])
def test_ids_may_have_any_size(largest: int) -> None:
    network = parse_network(network_text(("XNYS",), ("IBM", "SPY")) + f"[instruments]\nIBM = 3\nSPY = {largest}\n")
    floor = Publisher(network, "XNYS")
    try:
        records = some(network, 4)
        records["instrument_id"] = [3, largest, 3, largest]
        assert floor.publish(records) == 4
        for foreign in {0, 2, 4, largest - 1, min(largest + 1, 2**32 - 2)}:
            records["instrument_id"][2] = foreign
            with pytest.raises(ValueError, match="instrument_id is not a symbol of XNYS"):
                floor.publish(records)
    finally:
        floor.close()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("publisher_id", 2, "publisher_id is not 1, the id of XNYS"),
        ("instrument_id", 99, "instrument_id is not a symbol of XNYS"),
        ("sequence", 1, "already has a sequence"),
        ("ts_recv", 1, "already has a ts_recv"),
        ("length", 12, "length or rtype differs"),
    ],
)
def test_records_that_no_tape_could_hold_are_refused(network: Network, field: str, value: int, says: str) -> None:
    floor = Publisher(network, "XNYS")
    records = some(network, 10)
    records[field][7] = value
    try:
        with pytest.raises(ValueError, match=says):
            floor.publish(records)
        with pytest.raises(ValueError, match="not an array of levelcast"):
            floor.publish(np.zeros(3, np.dtype([("rtype", "u1")])))
        assert floor.waiting == 0
    finally:
        floor.close()


def test_with_its_directory_it_goes_on_in_the_same_incarnation(
    network: Network, ring: OneSocketRing, tmp_path: Path
) -> None:
    ring.witnesses = False
    first = Publisher(network, "XNYS", data=tmp_path)
    first.publish(some(network, 100))
    wait_for(lambda: first.waiting == 0 and len(ring.of(1)) == 100)
    with pytest.raises(TapeError, match="another process is writing"):
        Publisher(network, "XNYS", data=tmp_path)
    first.close()
    ring.packets.clear()
    ring.witnesses = True
    with Publisher(network, "XNYS", data=tmp_path) as second:
        assert second.published == 100
        wait_for(lambda: len(ring.of(1)) == 100)  # sent again, without being asked
        second.publish(some(network, 50, first=101))
    assert ring.of(1)["trade_id"].tolist() == list(range(1, 151))
    assert {key[0] for key in ring.packets[1]} == {1}


def test_without_a_directory_every_start_is_a_higher_incarnation(network: Network, ring: OneSocketRing) -> None:
    for first in (1, 11):
        with Publisher(network, "XNYS") as floor:
            floor.publish(some(network, 10, first=first))
    assert ring.of(1)["trade_id"].tolist() == list(range(1, 21))
    assert len({key[0] for key in ring.packets[1]}) == 2


def test_who_is_superseded_is_told(network: Network, ring: OneSocketRing, tmp_path: Path) -> None:
    ring.newer, ring.witnesses = 2**60, False
    floor = Publisher(network, "XNYS", data=tmp_path)
    floor.publish(some(network, 10))
    with pytest.raises(NetError, match="with a higher incarnation"):
        floor.flush(timeout=10)
    floor.close()
    lines = [line.split(maxsplit=1)[1] for line in (tmp_path / "XNYS.log").read_text().splitlines()]
    assert lines[0].startswith("INFO XNYS start: version ")
    assert lines[1].startswith("ERROR XNYS superseded")
    assert lines[-1] == "INFO XNYS stop: closed"
    assert len((tmp_path / "XNYS.jsonl").read_text().splitlines()) == len(lines)


def test_floors_share_a_thread_and_sockets(network: Network, ring: OneSocketRing, tmp_path: Path) -> None:
    loop = SourceLoop(network)
    floors = {name: Publisher(network, name, data=tmp_path, loop=loop) for name in ("XNYS", "XLON")}
    for first in range(1, 1001, 100):
        for name, floor in floors.items():
            floor.publish(some(network, 100, name, first))
    for floor in floors.values():
        assert floor.flush(timeout=20)
        floor.close()
    loop.close()
    for source in (1, 2):
        assert ring.of(source)["trade_id"].tolist() == list(range(1, 1001))
    with pytest.raises(NetError, match="is closed"):
        floors["XNYS"].publish(some(network, 1))


def test_only_a_floor_publishes(network: Network) -> None:
    with pytest.raises(NetError, match='"a-1" is a receiver of the network'):
        Publisher(network, "a-1")
    with pytest.raises(NetError, match="not found in the network"):
        Publisher(network, "XTKS")


def test_an_error_leaves_at_once(network: Network) -> None:
    def trade() -> None:
        with Publisher(network, "XNYS") as floor:
            floor.publish(some(network, 10))  # there is no ring that could witness it
            raise RuntimeError("of the program")

    with pytest.raises(RuntimeError, match="of the program"):
        trade()


def test_what_ends_the_thread_is_raised_to_the_caller(network: Network, tmp_path: Path) -> None:
    floor = Publisher(network, "XNYS", data=tmp_path)

    def full(*_: object) -> None:
        raise TapeError("the disk is full")

    floor._driver.keeper.commit = full  # type: ignore[method-assign]
    floor.publish(some(network, 10))
    with pytest.raises(TapeError, match="the disk is full"):
        floor.flush(timeout=10)
    del floor._driver.keeper.commit
    floor.close()


def test_in_an_event_loop(network: Network, ring: OneSocketRing) -> None:
    async def trade() -> None:
        async with Publisher(network, "XNYS", queue_records=64) as floor:
            for first in range(1, 2001, 500):
                assert await floor.publish(some(network, 500, first=first)) == 500
            await floor.flush()
            assert (floor.unwitnessed, floor.waiting, floor.room) == (0, 0, 64)

    asyncio.run(asyncio.wait_for(trade(), 30))
    assert ring.of(1)["trade_id"].tolist() == list(range(1, 2001))


def test_waiting_in_an_event_loop_can_be_cancelled(network: Network) -> None:
    async def trade() -> None:
        floor = Publisher(network, "XNYS", queue_records=64)
        try:
            async with asyncio.timeout(0.2):
                async with floor as waiting:
                    await waiting.publish(some(network, 5000))
        finally:
            floor.close()

    with pytest.raises(TimeoutError):
        asyncio.run(trade())


def test_the_example_of_the_documentation_runs(
    network: Network, ring: OneSocketRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[1] / "docs" / "operations.md"
    example = page.read_text(encoding="utf-8").partition("```python\nimport levelcast\n")[2].partition("```")[0]
    assert "levelcast.Publisher(" in example
    core = network.core
    text = network_text(("XNYS", "XLON"))
    text = text[: text.index("[core]")] + f'[core]\naddress = "{core.address}"\nport = {core.port}\n'
    (tmp_path / "network.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec("import levelcast\n" + example, {})
    assert ring.of(1)["price"].tolist() == [181_520_000_000]
