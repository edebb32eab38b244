"""From a network file to a node's protocol class on its disk; and the floor that makes up its trades."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelcast.errors import NetError
from levelcast.market.synthetic import MOST_RECORDS
from levelcast.network import FiveCities, five_cities, parse_network
from levelcast.network.placement import all_places, links_to, place_of, places
from levelcast.network.stripe_config import ring_config
from levelcast.node.node import Node
from levelcast.node.options import NodeOptions
from levelcast.node.roles import ROLES
from levelcast.node.roles.base import NodeSetup
from levelcast.node.roles.receiver import ReceiverRole
from levelcast.node.roles.releasing import ReleasingRole
from levelcast.node.synthetic_floor import SyntheticFloor
from levelcast.protocol.clock import ClockGuard
from levelcast.protocol.effects import Release, Send
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import Event, RingEntered, TapeDamaged, TornTailCut
from levelcast.protocol.history import first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.records import TRADE
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.runtime.driver import CLOCK_TOLERANCE_NS, SystemClock
from levelcast.storage.append_file import TapeError
from levelcast.storage.disk import initialise_disk
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.wire.messages import Data, Mark, Packet, Token
from levelcast.wire.packets import open_packets, seal
from tests.net_edge_parts import some_network
from tests.network_parts import three_rooms
from tests.tape_parts import make_frames

NOW = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
CITIES = five_cities(FiveCities(network_id=os.getpid(), hold=None))
"""Another network in each process: they run at the same time, and a node runs only once."""
NETWORK = parse_network(CITIES)
CONFIG = ring_config(NETWORK)


@pytest.mark.parametrize(
    ("name", "machine", "parts"),
    [
        ("tokyo-1", Member, {"journal", "tape", "releases"}),
        ("reform-london", ReformationServer, {"journal"}),
        ("XLON", Source, {"journal"}),
    ],
)
def test_every_role_starts_on_an_empty_journal_and_again_on_its_own(
    name: str, machine: type, parts: set[str], tmp_path: Path
) -> None:
    place = place_of(NETWORK, name)
    directory = tmp_path / name
    initialise_disk(tmp_path, name, CONFIG.domain)
    for _ in range(2):
        role = ROLES[place.role.name](NodeSetup(NETWORK, place, CONFIG, directory, NOW))
        role.store.close()
        assert type(role.machine) is machine
        assert {path.name for path in directory.iterdir()} == parts


TREE = parse_network(
    CITIES.replace("# [stripes.main]\n# [stripes.slow]", "[stripes.main]\n[stripes.slow]")
    + '[[secondary]]\nname = "tokyo-2"\nsite = "tokyo"\n'
)


@pytest.mark.parametrize(
    ("name", "machine"), [("slow/tokyo-2", Secondary), ("slow/reform-london", ReformationAndGroupServer)]
)
def test_with_secondaries_there_are_two_more_machines(name: str, machine: type, tmp_path: Path) -> None:
    place = place_of(TREE, name)
    assert place.role.releases is (machine is Secondary)
    initialise_disk(tmp_path, place.part, ring_config(TREE, "slow").domain)
    for _ in range(2):
        role = ROLES[place.role.name](NodeSetup(TREE, place, ring_config(TREE, "slow"), tmp_path / place.part, NOW))
        role.store.close()
        assert type(role.machine) is machine


def test_a_node_has_a_part_in_each_stripe_and_a_floor_in_one() -> None:
    assert [place.part for place in places(NETWORK)] == list(NETWORK.node_names)
    assert place_of(TREE, "tokyo-1").part == "main/tokyo-1"
    assert place_of(TREE, "tokyo-1", "slow") == place_of(TREE, "slow/tokyo-1")
    assert place_of(TREE, "tokyo-1", "slow").stripe == "slow"
    assert place_of(TREE, "XTKS").part == "main/XTKS"
    everywhere = [place.part for place in all_places(TREE)]
    assert len(everywhere) == len(set(everywhere)) == 2 * len(TREE.node_names) - len(TREE.floors)
    with pytest.raises(NetError, match="XTKS sends on stripe main, not on slow"):
        place_of(TREE, "XTKS", "slow")
    with pytest.raises(NetError, match='stripe "fast" not found in the network file; choose one of main, slow'):
        place_of(TREE, "tokyo-1", "fast")


def test_a_secondary_of_the_second_stripe_tells_who_and_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    initialise_disk(tmp_path, "slow/tokyo-2", ring_config(TREE, "slow").domain)
    options = NodeOptions(realtime="off", status_port=0)
    node = Node(TREE, "tokyo-2", tmp_path, time.time_ns(), options, stripe="slow")
    try:
        node.driver.turn()
        told = node.status()
        assert (told["name"], told["part"], told["stripe"]) == ("tokyo-2", "slow/tokyo-2", "slow")
        assert (told["role"], told["state"], told["home"], told["primary"]) == ("secondary", "ALONE", "tokyo-1", None)
        assert told["datagrams_out"] == 1  # it asks for a group
    finally:
        node.close()


def test_no_node_makes_a_journal_by_itself(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="journal not found"):
        ReceiverRole(NodeSetup(NETWORK, place_of(NETWORK, "tokyo-1"), CONFIG, tmp_path, NOW))


def recorded(data: Path) -> Path:
    """A receiver that has a tape of twelve frames; the journal has nothing of them."""
    initialise_disk(data, "tokyo-1", CONFIG.domain)
    store = ReceiverStore.open(data / "tokyo-1", first_tip(CONFIG))
    for frame in make_frames(12, first=first_tip(CONFIG)):
        store.release(Release(frame, frame.timestamp_ns, False), store.content(frame), 1, frame.timestamp_ns)
    store.close()
    return next((data / "tokyo-1" / "tape").glob("*.active"))


def test_a_node_on_a_tape_with_a_changed_byte_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = {each: each.read_bytes() for each in path.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(TapeError, match=rf"{path}: damaged at byte") as caught:
            Node(NETWORK, "tokyo-1", tmp_path, time.time_ns(), NodeOptions(realtime="off", status_port=0))
        assert f"`levelcast tape repair {tmp_path / 'tokyo-1'} --from OTHER`" in str(caught.value)
        assert {each: each.read_bytes() for each in path.parent.iterdir()} == before


def test_a_node_reports_what_it_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    path = recorded(tmp_path)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"half a frame")
    reports: list[Event] = []
    options = NodeOptions(realtime="off", status_port=0)
    node = Node(NETWORK, "tokyo-1", tmp_path, time.time_ns(), options, reports.append)
    node.role.store.on_damage("found later")
    node.close()
    torn, damaged = reports
    assert isinstance(torn, TornTailCut)
    assert sentence(torn) == (
        f"{path}: the last write was incomplete; removed the bytes from {size:,} on and kept them in "
        f"{path.name}.torn-at-{size}"
    )
    assert isinstance(damaged, TapeDamaged)
    assert node.status()["reports"] == {"torn": 1, "tape-damaged": 1}


class SetClock(SystemClock):
    """The machine's clocks, of which somebody sets one."""

    set_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.set_ns

    def both_ns(self) -> tuple[int, int]:
        wall, monotonic = super().both_ns()
        return wall + self.set_ns, monotonic


def test_a_clock_that_is_set_silences_a_receiver_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelcast.runtime.driver.SystemClock", SetClock)
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    initialise_disk(tmp_path, "tokyo-1", CONFIG.domain)
    reports: list[Event] = []
    options = NodeOptions(realtime="off", status_port=0)
    node = Node(NETWORK, "tokyo-1", tmp_path, time.time_ns(), options, reports.append)
    told = []
    try:
        for set_ns in (0, 3_000_000_000, 3_000_000_000, 0):
            monkeypatch.setattr(SetClock, "set_ns", set_ns)
            node.driver.turn()
            node._watch_clock()
            status = node.status()
            told.append((status["clock_trusted"], status["state"]))
        assert told == [(True, "NEW"), (False, "SILENT"), (False, "SILENT"), (True, "NEW")]
        assert [each.KIND for each in reports if each.KIND.startswith("clock")] == ["clock-wrong", "clock-back"]
        assert node.status()["reports"]["clock-wrong"] == 1
    finally:
        node.close()


class ShiftedClock(SystemClock):
    """A wall clock that is behind. The kernel still dates arrivals by the right one, so half of it shows."""

    def wall_ns(self) -> int:
        return super().wall_ns() - 400_000_000

    def both_ns(self) -> tuple[int, int]:
        wall, monotonic = super().both_ns()
        return wall - 400_000_000, monotonic


def test_three_nodes_compare_their_clocks_by_probes_and_the_wrong_one_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real sockets. On one machine no offset counts, so it is told that there are several."""
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    options = NodeOptions(realtime="off", status_port=0)
    network = parse_network(three_rooms(""))
    names = [receiver.name for receiver in network.receivers]
    nodes: list[Node] = []
    try:
        for name in names:
            initialise_disk(tmp_path, name, ring_config(network).domain)
            node = Node(network, name, tmp_path, time.time_ns(), options)
            nodes.append(node)
            check = node.driver.clock_check
            assert check is not None
            check._limit_ns = 150_000_000  # far above what busy cores add
            check._one_machine = False
            if name == names[2]:
                node.driver._clock = ShiftedClock()
                node.driver._guard = ClockGuard(*node.driver._clock.both_ns(), CLOCK_TOLERANCE_NS)
            check._reset(time.monotonic_ns())
        checks = [node.driver.clock_check for node in nodes]
        by_s = time.monotonic() + 60.0
        while time.monotonic() < by_s and [check and check.doubt for check in checks] != [None, None, "offset"]:
            for node in nodes:
                node.driver.turn()
        assert [node.driver.clock_trusted for node in nodes] == [True, True, False]
        assert nodes[2].driver.counters.reports["clock-doubted"] == 1
        status = nodes[2]._complete()["clock"]
        assert (status["doubt"], status["heard"], status["needed"]) == ("offset", 3, 2)
        assert status["members"][names[0]]["offset_ns"] < -150_000_000
    finally:
        for node in nodes:
            node.close()


def test_a_floor_whose_time_is_over_stays_until_all_it_sent_is_witnessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    initialise_disk(tmp_path, "XTKS", CONFIG.domain)
    now = time.time_ns()
    node = Node(NETWORK, "XTKS", tmp_path, now, NodeOptions(run_ns=1, status_port=0))
    try:
        machine = node.driver.machine
        assert isinstance(machine, Source)
        assert node._is_over(now + 2)
        machine.submit(bytes(64), 1, now)
        assert not node._is_over(now + 2)
    finally:
        node.close()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NetError, match=r'"osaka-1" not found in the network file; choose one of new-york-1, .*XASX'):
        place_of(NETWORK, "osaka-1")


def test_links_are_those_of_the_sites() -> None:
    links = links_to(NETWORK, place_of(NETWORK, "tokyo-1"))
    assert set(links) == {place.id for place in places(NETWORK)}
    assert links[105] == NETWORK.link("tokyo", "sydney")


def floor_at(rate: float, until_ns: int | None = None, journal: JournalImage | None = None) -> SyntheticFloor:
    source = Source(CONFIG, 1, 1, journal or JournalImage(), NOW)
    return SyntheticFloor(NETWORK.floors[0], source, rate, NOW, until_ns, seed=1)


def packets_of(floor: SyntheticFloor, now: int) -> list[Packet]:
    sent = [effect.message for effect in floor.step(now) if isinstance(effect, Send)]
    return [packet for message in sent if isinstance(message, Data) for packet in open_packets(message)]


def witness(floor: SyntheticFloor, number: int) -> None:
    floor.source.step([Token(1, 1, NOW, 101, 0, 64, (), (Mark(1, 1, number),))], NOW)


def test_a_floor_keeps_its_rate_and_stops_in_time() -> None:
    floor = floor_at(1000, until_ns=NOW + SECOND)
    packets: list[Packet] = []
    for ms in range(0, 2000, 5):
        packets += packets_of(floor, NOW + ms * 1_000_000)
        witness(floor, len(packets))
    assert 900 < floor.published < 1100
    assert max(packet.records for packet in packets) <= MOST_RECORDS
    ids = np.concatenate([np.frombuffer(packet.payload, TRADE)["trade_id"] for packet in packets])
    assert np.array_equal(ids, np.arange(1, floor.published + 1))
    assert floor.wake_ns is None


def test_without_credit_a_floor_waits_and_makes_no_more_trades() -> None:
    floor = floor_at(100_000)
    sent = len(packets_of(floor, NOW))
    for second in range(1, 5):
        sent += len(packets_of(floor, NOW + second * SECOND))
    assert sent == CONFIG.credit
    waiting = floor.waiting
    assert waiting > 0
    witness(floor, CONFIG.credit)
    assert len(packets_of(floor, NOW + 5 * SECOND)) == CONFIG.credit
    assert floor.waiting < waiting


def test_a_floor_that_starts_again_uses_no_trade_id_twice() -> None:
    journal = JournalImage()
    for number in (1, 2, 3):
        journal.apply(seal(Packet(1, 1, number, MOST_RECORDS, b"x" * MOST_RECORDS), 0))
    floor = floor_at(1000, journal=journal)
    (first, *_) = packets_of(floor, NOW)
    assert first.number == 4
    assert np.frombuffer(first.payload, TRADE)["trade_id"][0] == 3 * MOST_RECORDS + 1


def test_a_node_reports_its_status_as_soon_as_it_is_in_a_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    monkeypatch.setattr("levelcast.node.node.STATUS_EVERY_NS", 10**18)
    network, name = some_network(), "a-1"
    initialise_disk(tmp_path, name, ring_config(network).domain)
    node = Node(network, name, tmp_path, time.time_ns(), NodeOptions(realtime="off", run_ns=300_000_000))
    told: list[int] = []

    def on_status(_: dict[str, Any]) -> None:
        told.append(len(told))
        if len(told) == 1:
            node._note(RingEntered(1, 1 << 32, (1,)))

    node.run(on_status)
    assert told == [0, 1]


def test_sigusr1_ends_the_sessions_of_a_receiver_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    network, name = some_network(), "a-1"
    initialise_disk(tmp_path, name, ring_config(network).domain)
    now = time.time_ns()
    node = Node(network, name, tmp_path, now, NodeOptions(realtime="off", run_ns=300_000_000))
    assert isinstance(node.role, ReleasingRole)
    edge = node.role.edge
    assert edge is not None
    told: list[bool] = []

    def on_status(_: dict[str, Any]) -> None:
        told.append(edge.server.feed.ended)
        os.kill(os.getpid(), signal.SIGUSR1)

    node.run(on_status)
    assert told[0] is False
    assert edge.server.feed.ended
