"""The contract is enough: a protocol of twenty lines, which is not the ring, runs under both drivers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from threading import Thread

from benchmarks.room import free_ports
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.machine import Machine
from levelcast.runtime.driver import Driver
from levelcast.runtime.sockets import LOOPBACK, CoreSockets
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.world import START_NS, SimNode, World
from levelcast.storage.journal.file import JournalFile, initialise
from levelcast.storage.node_store import JournalStore
from levelcast.wire.messages import Message, Promised
from tests.ring_parts import MS, make_config


class Counting(Machine):
    """Members count together: whoever hears a number says the next one, up to a limit. The lowest begins."""

    LISTENS = frozenset({Promised})

    def __init__(self, member: int, limit: int, now: int) -> None:
        self.member, self.limit, self.highest = member, limit, 0
        self.wake_ns = now if member == 1 else None

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        heard = max((each.generation for each in batch if isinstance(each, Promised)), default=0)
        begins = self.wake_ns is not None and now >= self.wake_ns and not self.highest
        self.wake_ns = None
        if (heard > self.highest or begins) and heard < self.limit:
            self.highest = heard + 1
            return [Send(GROUP, Promised(self.member, self.highest))]
        self.highest = max(self.highest, heard)
        return []


LIMIT = 20


def test_under_the_simulator() -> None:
    config, rng = make_config(), Random(1)
    delays = {(a, b): 5 * MS for a in (1, 2) for b in (1, 2) if a != b}
    world = World(config, 1, VirtualNetwork(rng, delays, {}, Weather()), rng)
    for member in (1, 2):
        node = SimNode(
            world,
            member,
            f"node {member}",
            lambda host: Counting(host.id, LIMIT, host.local_ns),
            Disk(config, 1),
            Counting.LISTENS,
        )
        world.nodes[member] = node
        node.start()
    world.run(START_NS + 1_000 * MS)
    machines = [node.machine for node in world.nodes.values()]
    assert [machine.highest for machine in machines if isinstance(machine, Counting)] == [LIMIT, LIMIT]


def test_over_sockets(tmp_path: Path) -> None:
    port = free_ports(2)
    drivers = []
    for member in (2, 1):
        initialise(tmp_path / str(member), 1)
        store = JournalStore(JournalFile.open(tmp_path / str(member))[0])
        sockets = CoreSockets("239.192.74.78", port, LOOPBACK)
        drivers.append(Driver(member, 0, Counting(member, LIMIT, 0), sockets, store))
    machines = [driver.machine for driver in drivers]
    ends = time.monotonic() + 30

    def is_over() -> bool:
        done = all(isinstance(machine, Counting) and machine.highest == LIMIT for machine in machines)
        return done or time.monotonic() > ends

    threads = [Thread(target=driver.run, args=(is_over,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for driver in drivers:
        driver.close()
    assert [machine.highest for machine in machines if isinstance(machine, Counting)] == [LIMIT, LIMIT]
