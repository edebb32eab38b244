"""What the tests of publishing share: a network with venues, files of trades, and what is on the tapes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np

from levelcast.formats.lean import VENUES
from levelcast.network import Network
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.effects import GROUP
from levelcast.records import RecordArray, split, trades
from levelcast.runtime.sockets import CoreSockets
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Data, Mark, Packet, Run, Token
from levelcast.wire.packets import open_packets
from tests.network_parts import free_group, free_port

SYMBOLS = ("AIG", "BAC", "IBM", "SPY")
SITE = 901
RECEIVERS = ("a-1", "b-1", "c-1")


def network_text(floors: tuple[str, ...] = tuple(VENUES.values()), symbols: tuple[str, ...] = SYMBOLS) -> str:
    """Three rooms with a little loss between them; a group and a port that no other test has."""
    parts = ['[links]\ndelay = "500us"\njitter = "500us"\nloss = 0.01\n']
    parts.append('[timing]\nslot = "10ms"\nprocess = "10ms"\n')
    for number, room in enumerate("abc"):
        parts.append(f'[[site]]\nname = "{room}"\n')
        parts.append(f'[[receiver]]\nname = "{room}-1"\nid = {901 + number}\nsite = "{room}"\n')
    for number, room in enumerate("ab"):
        parts.append(f'[[reformation]]\nname = "reform-{room}"\nid = {951 + number}\nsite = "{room}"\n')
    for number, floor in enumerate(floors, 1):
        listed = ", ".join(f'"{symbol}"' for symbol in symbols)
        parts.append(
            f'[[floor]]\nname = "{floor}"\npublisher = {number}\nsite = "{"abc"[number % 3]}"\nsymbols = [{listed}]\n'
        )
    parts.append(f'[core]\naddress = "{free_group()}"\nport = {free_port()}\n')
    return "".join(parts)


def batches_of(directory: Path, kind: str) -> Iterator[RecordArray]:
    """The records of one kind on a receiver's tape, in order."""
    for frame in TapeReader(tape_directory(directory)).frames():
        for batch in frame.batches():
            if batch.kind.name == kind:
                yield batch.records


def trades_on(directory: Path) -> RecordArray:
    """All trades of a tape, with the ring's stamps taken off."""
    found = np.concatenate(list(batches_of(directory, "trade")))
    found["sequence"] = found["ts_recv"] = 0
    return found


def write_csv(path: Path, rows: int, floors: tuple[str, ...], first_ns: int = 1_700_000_000_000_000_000) -> Path:
    """Trades of several floors and symbols, each row different."""
    lines = ["ts_event,symbol,price,size,floor"]
    for i in range(rows):
        floor, symbol = floors[i * 7 % len(floors)], SYMBOLS[i % len(SYMBOLS)]
        lines.append(f"{first_ns + i * 1000},{symbol},{100 + i % 900}.{i % 100:02},{1 + i % 5000},{floor}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class OneSocketRing:
    """Hears packets and, while it is told to, says that it has witnessed them: all that a source needs of a ring."""

    def __init__(self, network: Network) -> None:
        group = network.core_group()
        self.packets: dict[int, dict[tuple[int, int], Packet]] = {}
        self.witnesses = True
        self.newer: int | None = None
        """An incarnation to acknowledge that is none of the packets'."""
        self._sockets = CoreSockets(group.address, group.port)
        self._domain = ring_config(network).domain
        self._ending = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        slot = 0
        while not self._ending:
            if self._sockets.wait(0.01)[0]:
                for datagram, *_ in self._sockets.drain():
                    assert isinstance(datagram, bytes)
                    self._take(datagram)
            slot += 1
            runs = tuple(Run(source, self.newer, 1, 1) for source in self.packets) if self.newer else ()
            token = Token(1, slot, time.time_ns(), SITE, 0, 64, runs, self._marks())
            self._sockets.send(GROUP, [encode(token, self._domain)])

    def _take(self, datagram: bytes) -> None:
        try:
            _, packet = decode(datagram)
        except Malformed:
            return
        if isinstance(packet, Data):
            self.packets.setdefault(packet.source, {})[packet.incarnation, packet.first] = open_packets(packet)[0]

    def _marks(self) -> tuple[Mark, ...]:
        if not self.witnesses:
            return ()
        last = {source: max(packets) for source, packets in self.packets.items()}
        return tuple(
            Mark(source, incarnation, number)
            for source, (incarnation, number) in sorted(last.items())
            if all((incarnation, n) in self.packets[source] for n in range(max(1, number - 64), number + 1))
        )

    def of(self, source: int, kind: str = "trade") -> RecordArray:
        packets = self.packets.get(source, {})
        batches = [batch for key in sorted(packets) for batch in split(packets[key].payload)]
        found = [batch.records for batch in batches if batch.kind.name == kind]
        return np.concatenate(found) if found else trades(0)

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        self._sockets.close()
