"""Exactly once, whenever the process dies: at every write, in the middle of one, before and after it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Condition

import numpy as np
import pytest

from levelcast.client.packet_queue import PacketQueue
from levelcast.client.publisher import open_floor
from levelcast.client.replay import resume_from
from levelcast.network import SymbolDirectory, parse_network
from levelcast.network.placement import place_of
from levelcast.network.stripe_config import ring_config
from levelcast.node.roles.base import NodeSetup
from levelcast.node.roles.floor import FloorRole
from levelcast.records import RecordArray, split, trades
from levelcast.runtime.driver import Driver
from levelcast.runtime.sockets import Address, Arrival
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.disk import initialise_disk
from levelcast.storage.publication import COMPACT_BYTES, Point, Progress, ProgressKeeper, hasher
from levelcast.wire.codec import decode, encode
from levelcast.wire.messages import Data, Mark, Token
from levelcast.wire.packets import open_packets
from tests.publish_parts import network_text

NETWORK = parse_network(network_text(("XNYS",)))
CONFIG = ring_config(NETWORK)
PLACE = place_of(NETWORK, "XNYS")
DIRECTORY = SymbolDirectory(NETWORK)
RING: Address = ("127.0.0.1", 9)


class Killed(BaseException):
    """kill -9, at a write."""


def records(count: int, seed: int) -> RecordArray:
    batch = trades(count)
    batch["publisher_id"], batch["instrument_id"] = 1, 1
    batch["venue_sequence"] = batch["trade_id"] = np.arange(1, count + 1)
    batch["price"] = Random(seed).getrandbits(40) + np.arange(count)
    return batch


class Wire:
    """What anybody has ever heard from the floor, by number; and the tokens that it hears."""

    def __init__(self) -> None:
        self.heard: dict[int, bytes] = {}
        self.inbox: list[Arrival] = []

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return bool(self.inbox), []

    def drain(self, domain: int | None = None) -> list[Arrival]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def learn(self, node: int, address: Address) -> None: ...

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None:
        starts = (0, *(end for (end,) in struct.iter_unpack("<I", ends)))
        self.send(to, [buffer[start:end] for start, end in pairwise(starts)])

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            _, data = decode(datagram)
            assert isinstance(data, Data)
            (packet,) = open_packets(data)
            assert self.heard.setdefault(packet.number, packet.payload) == packet.payload, "one number, two packets"

    def close(self) -> None: ...


class Floor:
    """One life of the publishing process."""

    def __init__(self, data: Path, wire: Wire, everything: RecordArray, packet_bytes: int) -> None:
        source, keeper, progress = open_floor(NETWORK, CONFIG, PLACE, data, 0)
        assert isinstance(keeper, ProgressKeeper)
        assert progress is not None
        self.keeper, self.wire, self.source = keeper, wire, source
        self.feed = PacketQueue(source, DIRECTORY.definitions(PLACE.floor, 0), progress, Condition(), packet_bytes)  # type: ignore[arg-type]
        self.position, hashed = resume_from([everything], {1: progress.points}).get(1, (0, hasher()))
        self.feed.begin(self.position, hashed)
        self.driver = Driver(PLACE.id, CONFIG.domain, source, wire, keeper, work=self.feed)

    def live(self, everything: RecordArray, rng: Random) -> None:
        """Publish the rest, in turns of any size, while the ring witnesses now and then."""
        at = self.position
        while at < len(everything) or self.feed.waiting or self.source.unwitnessed:
            if at < len(everything):
                count = rng.randint(1, 60)
                self.feed.put(everything[at : at + count])
                at += len(everything[at : at + count])
            if rng.random() < 0.5:
                last = max(self.wire.heard, default=0)  # a ring witnesses what it has heard
                mark = Mark(PLACE.id, self.source.incarnation, rng.randint(min(last, self.source.witnessed), last))
                token = Token(1, 5, 10**18, 901, 4, 64, (), (mark,) if mark.number else ())
                self.wire.inbox.append((encode(token, CONFIG.domain), RING, 0))
            self.driver.turn()

    def abandon(self) -> None:
        """What the kernel does with a process that is gone."""
        journal = self.keeper.journal
        for file in journal._segments.values():
            os.close(file.fd)
        os.close(journal._lock)
        if self.keeper.progress._file is not None:
            os.close(self.keeper.progress._file.fd)


def deadly(rng: Random, after: int, append: Callable[..., None]) -> Callable[..., None]:
    """An `append` in which the process dies: before it, in the middle of it, or after it."""
    left = after

    def write(file: AppendFile, *contents: bytes) -> None:
        nonlocal left
        left -= 1
        if left:
            append(file, *contents)
            return
        content = b"".join(contents)
        part = rng.choice((0, rng.randint(0, len(content)), len(content)))
        os.pwrite(file.fd, content[:part], file.size)
        raise Killed

    return write


def trades_heard(wire: Wire) -> bytes:
    heard = [batch for number in sorted(wire.heard) for batch in split(wire.heard[number])]
    return b"".join(batch.records.tobytes() for batch in heard if batch.kind.name == "trade")


@pytest.mark.parametrize("seed", range(40))
def test_killed_at_any_write_every_trade_goes_out_exactly_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    everything, wire = records(rng.randint(400, 900), seed), Wire()
    append, lives = AppendFile.append, 0
    while True:
        lives += 1
        if lives < 25:
            monkeypatch.setattr(AppendFile, "append", deadly(rng, rng.randint(1, 12), append))
        else:
            monkeypatch.setattr(AppendFile, "append", append)
        floor = None
        try:
            floor = Floor(tmp_path, wire, everything, rng.choice((700, 1400, 9000)))
            floor.live(everything, rng)
            break
        except Killed:
            if floor is not None:
                floor.abandon()
    assert sorted(wire.heard) == list(range(1, len(wire.heard) + 1))
    assert trades_heard(wire) == everything.tobytes()
    assert lives > 1


def test_other_trades_begin_a_new_publication_and_old_ones_are_still_known(tmp_path: Path) -> None:
    wire, rng = Wire(), Random(1)
    first, second = records(300, 1), records(200, 2)
    for everything, expected in ((first, 0), (second, 0), (first, 300), (second, 200), (records(500, 1), 300)):
        floor = Floor(tmp_path, wire, everything, 1400)
        assert floor.position == expected
        floor.live(everything, rng)
        floor.driver.close()
    assert trades_heard(wire) == first.tobytes() + second.tobytes() + records(500, 1)[300:].tobytes()


# -- the file ---------------------------------------------------------------------------------------------


def point(number: int, publication: int = 1, incarnation: int = 1) -> Point:
    return Point(publication, incarnation, number, 10 * number, 10 * number, hasher().digest())


@pytest.mark.parametrize("last", [2, 3])
def test_a_point_that_the_journal_does_not_know_is_cut_off(tmp_path: Path, last: int) -> None:
    path = tmp_path / "progress"
    progress = Progress.open(path, 1, 0)
    for number in (1, 2, 3):
        progress.note(point(number))
        progress.commit()
    progress.close()
    found = Progress.open(path, 1, last)
    assert [each.number for each in found.points] == [last]
    assert found.total == 10 * last
    found.close()
    assert len(path.read_bytes()) == 16 + 60


def test_a_file_that_has_grown_long_is_begun_anew(tmp_path: Path) -> None:
    progress = Progress.open(tmp_path / "progress", 1, 0)
    for number in range(1, COMPACT_BYTES // 60 + 500):
        progress.note(point(number))
        if number % 50 == 0:
            progress.commit()
    progress.commit()
    progress.close()
    assert (tmp_path / "progress").stat().st_size < 60_000
    assert Progress.open(tmp_path / "progress", 1, number).points == (point(number),)


@pytest.mark.parametrize("content", [b"", b"something else entirely", b"LVLCPROG" + bytes(8)])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress").write_bytes(content)
    with pytest.raises(TapeError, match="progress"):
        Progress.open(tmp_path / "progress", 1, 0)


def test_a_floor_node_s_directory_serves_too(tmp_path: Path) -> None:
    """What `levelcast node` has begun, a publisher goes on with, in the same incarnation."""
    initialise_disk(tmp_path, "XNYS", CONFIG.domain)
    role = FloorRole(NodeSetup(NETWORK, PLACE, CONFIG, tmp_path / "XNYS", 0))
    role.store.close()
    ours, ours_keeper, _ = open_floor(NETWORK, CONFIG, PLACE, tmp_path, 0)
    ours_keeper.close()
    assert ours.incarnation == role.machine.incarnation
