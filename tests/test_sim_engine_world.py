"""One seed is one history, bit for bit; and a node that is killed between two effects keeps what it had persisted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from random import Random

import pytest

from levelcast.protocol.effects import GROUP, SERVERS, Effect, Persist, Promise, Send
from levelcast.protocol.events import RingEntered, Voided
from levelcast.protocol.machine import Machine
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.engine.trace_text import narrate
from levelcast.sim.engine.world import SLOW_BATCH, START_NS, SimNode, World
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.wire.messages import Data, Invite, Message, Token
from levelcast.wire.packets import join
from tests.ring_parts import MS, make_config, make_data, make_ring, make_token

SEEDS = (9001, 9002, 9003)


class Puppet(Machine):
    """A machine that does what the test says and notes what it is given."""

    def __init__(self, effects: Iterable[Effect] = (), wake_ns: int | None = None) -> None:
        self.wake_ns = wake_ns
        self.effects = list(effects)
        self.batches: list[tuple[int, list[Message]]] = []
        self.trusted: list[bool] = []

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self.batches.append((now, list(batch)))
        self.trusted.append(clock_trusted)
        if self.wake_ns is not None and self.wake_ns <= now:
            self.wake_ns = None
        return self.effects

    @property
    def messages(self) -> list[Message]:
        return [message for _, batch in self.batches for message in batch]


def make_world(machines: dict[int, Puppet], listens: frozenset[type] | None = None) -> World:
    """Started nodes, 5 ms from each other."""
    config = make_config()
    delays = {(a, b): 5 * MS for a in machines for b in machines if a != b}
    rng = Random(1)
    world = World(config, 1, VirtualNetwork(rng, delays, {}, Weather()), rng)
    for node in machines:
        added = SimNode(world, node, f"node {node}", lambda host: machines[host.id], Disk(config, 1))
        if listens is not None:
            added.listens = listens
        world.nodes[node] = added
        added.start()
    return world


def fingerprint(seed: int) -> dict[str, object]:
    history = RingHistory(seed)
    outcome = asdict(history.run())
    trace = "\n".join(narrate(history.world.trace_lines))
    return {"outcome": outcome, "lines": trace.count("\n"), "trace": hashlib.sha256(trace.encode()).hexdigest()}


IN_SUBPROCESS = """
import json, sys
from tests.test_sim_engine_world import fingerprint
print(json.dumps([fingerprint(int(seed)) for seed in sys.argv[1:]]))
"""


def test_a_seed_gives_the_same_history_here_again_and_in_a_process_that_hashes_otherwise() -> None:
    first = [fingerprint(seed) for seed in SEEDS]
    assert [fingerprint(seed) for seed in SEEDS] == first
    assert len({str(each["trace"]) for each in first}) == len(SEEDS)
    hashes = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", IN_SUBPROCESS, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == first


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_node_that_is_killed_between_two_effects_has_done_exactly_those_before(done: int) -> None:
    packet = make_data(201, 1)
    effects: list[Effect] = [Persist(Promise(3)), Send(GROUP, Invite(3, 101)), Persist(packet), Send(2, packet)]
    world = make_world({1: Puppet(effects), 2: Puppet()})
    node = world.nodes[1]

    class Killer:
        left = done + 1

        def on_effect(self, node: SimNode, effect: Effect) -> None:
            self.left -= 1
            if self.left == 0:
                node.crash()

    world.watchers.append(Killer())
    node.step(())
    world.run(START_NS + 50 * MS)
    other = world.nodes[2].machine
    assert isinstance(other, Puppet)
    assert node.disk.journal.promised == 3
    assert other.messages == [Invite(3, 101), packet][: (done + 1) // 2]
    assert bool(node.disk.journal.packets) is (done >= 2)
    assert (node.up, node.crashes) == (False, 1)


def test_a_crash_loses_the_inbox_and_the_timers_but_not_the_disk_and_a_dead_node_hears_nothing() -> None:
    puppet = Puppet(wake_ns=START_NS + 30 * MS)
    world = make_world({1: puppet, 2: Puppet()})
    node = world.nodes[1]
    node.disk.journal.apply(Promise(4))
    node.service_ns = 10 * MS
    node.arrive(Invite(9, 101))
    node.crash()
    world.send(world.nodes[2], 1, Invite(8, 101))
    world.run(START_NS + 100 * MS)
    assert puppet.batches == []
    assert node.disk.journal.promised == 4
    node.service_ns = 0
    node.start()
    world.send(world.nodes[2], 1, Invite(7, 101))
    world.run(START_NS + 200 * MS)
    assert puppet.messages == [Invite(7, 101)]


def test_messages_arrive_as_they_were_sent_after_their_delay_and_only_where_they_are_listened_to() -> None:
    machines = {1: Puppet(), 2: Puppet(), 3: Puppet()}
    world = make_world(machines, listens=frozenset({Token}))
    token = make_token(make_ring(), 2)
    world.send(world.nodes[1], GROUP, token)
    world.send(world.nodes[1], GROUP, make_data(201, 1))
    world.run(START_NS + 50 * MS)
    assert machines[1].batches == []
    assert machines[2].batches == machines[3].batches == [(START_NS + 5 * MS, [token])]


def test_a_message_to_the_servers_reaches_them_and_nobody_else() -> None:
    machines = {1: Puppet(), 2: Puppet(), 3: Puppet()}
    world = make_world(machines)
    world.servers = (2, 3)
    world.send(world.nodes[2], SERVERS, Invite(3, 2))
    world.run(START_NS + 50 * MS)
    assert [len(machines[node].messages) for node in (1, 2, 3)] == [0, 0, 1]


def test_a_damaged_datagram_is_rejected_and_counted() -> None:
    machines = {1: Puppet(), 2: Puppet()}
    world = make_world(machines)
    world.network.weather = Weather(corrupt=1.0)
    for number in range(1, 101):
        world.send(world.nodes[1], 2, make_data(201, number))
    world.run(START_NS + 50 * MS)
    assert machines[2].messages == []
    assert sum(world.nodes[2].malformed.values()) == 100


def test_a_node_is_woken_when_its_own_clock_says_so() -> None:
    puppet = Puppet(wake_ns=START_NS + 30 * MS)
    world = make_world({1: puppet})
    world.nodes[1].crash()
    world.nodes[1].set_clock(4 * MS)
    world.nodes[1].start()
    world.run(START_NS + 100 * MS)
    assert [now for now, _ in puppet.batches] == [START_NS + 30 * MS]
    assert puppet.trusted == [True]


def test_a_clock_that_steps_is_not_trusted_until_it_is_set_right() -> None:
    puppet = Puppet()
    world = make_world({1: puppet})
    node = world.nodes[1]
    node.step(())
    node.clock_offset_ns += 100 * MS
    node.step(())
    node.clock_offset_ns -= 100 * MS
    node.step(())
    assert puppet.trusted == [True, False, True]


def test_a_slow_node_takes_batches_and_control_before_data() -> None:
    puppet = Puppet()
    world = make_world({1: puppet})
    node = world.nodes[1]
    node.service_ns = 10 * MS
    packets = [make_data(201, number) for number in range(1, SLOW_BATCH + 1)]
    for packet in packets:
        node.arrive(packet)
    node.arrive(Invite(9, 101))
    world.run(START_NS + 100 * MS)
    assert puppet.batches == [
        (START_NS + 10 * MS, [Invite(9, 101), *join(packets[:-1])]),
        (START_NS + 20 * MS, packets[-1:]),
    ]


def test_a_paused_node_does_nothing_until_it_goes_on() -> None:
    puppet = Puppet(wake_ns=START_NS + 10 * MS)
    world = make_world({1: puppet})
    node = world.nodes[1]
    node.paused_until_ns = START_NS + 40 * MS
    node.arrive(make_data(201, 1))
    world.run(START_NS + 39 * MS)
    assert puppet.batches == []
    world.run(START_NS + 60 * MS)
    assert {now for now, _ in puppet.batches} == {START_NS + 40 * MS}
    assert [type(message) for message in puppet.messages] == [Data]


def test_events_happen_in_the_order_of_time_and_then_of_planning() -> None:
    world = make_world({})
    seen: list[str] = []
    for delay, name in ((20, "c"), (10, "a"), (10, "b")):
        world.after(delay * MS, lambda name=name: seen.append(name))  # type: ignore[misc]
    world.run(START_NS + 10 * MS)
    assert (seen, world.now) == (["a", "b"], START_NS + 10 * MS)
    world.run(START_NS + 30 * MS)
    assert seen == ["a", "b", "c"]


@pytest.mark.asserts
def test_a_node_that_wakes_without_end_is_found() -> None:
    class Restless(Puppet):
        def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
            self.wake_ns = now
            return []

    world = make_world({1: Restless(wake_ns=START_NS)})
    with pytest.raises(AssertionError, match="endless loop"):
        world.run(START_NS + 1)


def test_reports_are_counted_by_kind_and_voided_slots_added_up() -> None:
    world = make_world({1: Puppet([Voided(5, 3), RingEntered(5, 2, (1,))])})
    world.nodes[1].step(())
    world.nodes[1].step(())
    assert world.report_counts == {"voided": 2, "entered": 2}
    assert world.voided_slots == 6
