"""Secondary receivers and stripes as real processes over loopback: the same tapes in both layers, whoever is killed.

Nothing here depends on how fast the machine is: δ_N and τ_r leave room for one that is busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from levelcast.client.subscriber import Subscriber
from levelcast.network import Network, load_network
from levelcast.network.placement import all_places
from levelcast.network.roles import RECEIVER, SECONDARY
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.status_client import ask_all, in_one_ring, not_served
from levelcast.node.verdict import judge
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import TapeReader
from tests.network_parts import PATIENT_WIRES, free_group, free_ports, three_rooms

LIMIT_S = 60.0
PRIMARIES = ("a-1", "b-1", "c-1")
SECONDARIES = ("a-2", "a-3", "b-2")

SECOND_LAYER = """
[[floor]]
name = "XNYS"
publisher = 1
site = "a"

[[secondary]]
name = "a-2"
site = "a"
[[secondary]]
name = "a-3"
site = "a"
[[secondary]]
name = "b-2"
site = "c"
home = "b-1"
"""
TWO_STRIPES = """
[stripes.main]
[stripes.slow]
slot = "40ms"

[[floor]]
name = "XNYS"
publisher = 1
site = "a"
[[floor]]
name = "XFOR"
publisher = 2
site = "b"
stripe = "slow"

[[secondary]]
name = "c-2"
site = "c"

[[edge.group]]
name = "all"
address = "{0}"
port = 31999
"""


def made(tmp_path: Path, text: str) -> Cluster:
    """A cluster with a group and ports that no other test has; its floors trade until they are ended."""
    file = tmp_path / "network.toml"
    status = f"[status]\nport = {free_ports()}\n"
    file.write_text(three_rooms(text, "two layers", PATIENT_WIRES) + status, encoding="utf-8")
    return Cluster(load_network(file), file, tmp_path / "data", NodeOptions(rate=1000))


Story = Iterator[Callable[[], bool]]
"""What happens, as conditions to be waited for, with deeds between them."""


def play(cluster: Cluster, story: Story) -> None:
    """Run a cluster through a story; then the floors stop, all is released, and the tapes of each stripe are equal."""
    run = ClusterRun(cluster, None, LIMIT_S)
    condition = next(story)
    since = time.monotonic()
    for _ in run.steps():
        if run.phase != "running" or run.interrupted:
            continue
        if condition():
            since = time.monotonic()
            try:
                condition = next(story)
            except StopIteration:
                run.interrupted = True
        elif time.monotonic() - since > LIMIT_S:
            pytest.fail(f"never: {_told(cluster)}")
    for stripe in cluster.network.stripes:
        parts = [member.place.part for member in cluster.releasing if member.place.stripe == stripe.name]
        verdict = judge(cluster.data, parts, run.problems)
        assert verdict.problems == []
        assert len({each.chain for each in verdict.receivers}) == 1
        assert verdict.receivers[0].records > 0


def _told(cluster: Cluster) -> dict[str, Any]:
    keys = ("state", "generation", "primary", "group", "have", "released_slot")
    return {name: {key: member.status.get(key) for key in keys} for name, member in cluster.members.items()}


def status(cluster: Cluster, name: str) -> dict[str, Any]:
    """What a node said last; nothing if it is down."""
    member = cluster.members[name]
    return member.status if member.running else {}


def is_whole(cluster: Cluster) -> bool:
    """Every node is there, each stripe has one ring of all primaries, and every secondary follows it and counts."""
    said = {name: status(cluster, name) for name in cluster.members}
    if not all(said.values()):
        return False
    for member in cluster.releasing:
        here = said[member.place.part]
        ring = said[member.place.part.replace(member.place.name, "a-1")]
        if here["generation"] != ring["generation"] or len(here["members"]) != len(PRIMARIES):
            return False
        if here["state"] != ("ACTIVE" if member.place.role is RECEIVER else "FOLLOWS"):
            return False
        if member.place.role is SECONDARY:
            covers = said[member.place.part.replace(member.place.name, here["primary"])]
            if not covers["group"]["members"].get(member.place.name, {}).get("counts"):
                return False
    return True


def all_at_home(cluster: Cluster) -> bool:
    """It is whole, and every secondary is where the file puts it: one that came before its primary was elsewhere."""
    secondaries = [status(cluster, member.place.part) for member in cluster.of_role(SECONDARY)]
    return is_whole(cluster) and all(said["primary"] == said["home"] for said in secondaries)


def goes_on(cluster: Cluster, *names: str, slots: int = 25) -> Callable[[], bool]:
    """Wait until these have released so many more slots."""
    before = {name: status(cluster, name)["released_slot"] for name in names}
    return lambda: all(status(cluster, name).get("released_slot", 0) >= before[name] + slots for name in names)


def test_secondaries_have_the_tape_of_the_primaries_and_their_death_is_their_groups_affair(tmp_path: Path) -> None:
    cluster = made(tmp_path, SECOND_LAYER)
    before: dict[str, Any] = {}

    def story() -> Story:
        yield lambda: all_at_home(cluster)
        assert status(cluster, "a-2")["home"] == "a-1"
        assert status(cluster, "b-2")["primary"] == "b-1"
        assert set(status(cluster, "a-1")["group"]["members"]) == {"a-2", "a-3"}
        yield goes_on(cluster, *PRIMARIES, *SECONDARIES)
        answers = ask_all(cluster.network)
        assert all(answer.ok for answer in answers)
        assert in_one_ring(answers)
        assert not_served(answers) == []
        before.update({name: dict(status(cluster, name)) for name in PRIMARIES})
        cluster.kill("a-2")
        yield lambda: status(cluster, "a-3")["group"]["members"] == ["a-3"]
        yield goes_on(cluster, *PRIMARIES, "a-3", "b-2")
        assert set(status(cluster, "a-1")["group"]["members"]) == {"a-3"}
        cluster.start("a-2")
        yield lambda: is_whole(cluster) and status(cluster, "a-3")["group"]["members"] == ["a-2", "a-3"]
        yield goes_on(cluster, *PRIMARIES, *SECONDARIES)

    play(cluster, story())
    for name in PRIMARIES:
        last = cluster.members[name].status
        assert last["generation"] == before[name]["generation"]
        assert last["reports"].get("fault", 0) == before[name]["reports"].get("fault", 0)


def test_orphans_of_a_dead_primary_get_another_one(tmp_path: Path) -> None:
    cluster = made(tmp_path, SECOND_LAYER)
    others = ("b-1", "c-1")

    def story() -> Story:
        yield lambda: all_at_home(cluster)
        yield goes_on(cluster, *PRIMARIES, *SECONDARIES)
        cluster.kill("a-1")
        yield lambda: all(
            status(cluster, name)["state"] == "FOLLOWS" and status(cluster, name)["primary"] in others
            for name in ("a-2", "a-3")
        )
        yield goes_on(cluster, *others, *SECONDARIES)
        cluster.start("a-1")
        yield lambda: all_at_home(cluster)
        yield goes_on(cluster, *PRIMARIES, *SECONDARIES)

    play(cluster, story())
    assert cluster.members["a-1"].kills == 1


class Listener(Thread):
    """A guaranteed customer of one stripe, from its first record on; both stripes send to the group that it joins."""

    def __init__(self, network: Network, session: str) -> None:
        super().__init__(daemon=True)
        self.content = bytearray()
        self._feed = Subscriber(network, sessions=[session], start={session: 1})
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._follow())

    async def _follow(self) -> None:
        async with self._feed as feed:
            async for batch in feed:
                self.content += batch.records.tobytes()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop)])
        self.join()


def content_of(directory: Path) -> bytes:
    """All records of a tape."""
    return b"".join(frame.data() for frame in TapeReader(tape_directory(directory)).frames())


def test_every_stripe_has_a_ring_tapes_and_customers_of_its_own(tmp_path: Path) -> None:
    cluster = made(tmp_path, TWO_STRIPES.format(free_group()))
    customers = {stripe: Listener(cluster.network, stripe) for stripe in ("main", "slow")}
    parts = [place.part for place in all_places(cluster.network)]
    assert list(cluster.members) == parts
    assert {"main/a-1", "slow/a-1", "main/c-2", "slow/c-2", "main/XNYS", "slow/XFOR"} < set(parts)

    def story() -> Story:
        for customer in customers.values():
            customer.start()
        yield lambda: is_whole(cluster)
        answers = ask_all(cluster.network)
        assert [answer.name for answer in answers if answer.ok] == parts
        assert in_one_ring(answers)
        yield goes_on(cluster, "main/a-1", "slow/a-1", "main/c-2", "slow/c-2")
        cluster.kill("slow/c-2")
        cluster.start("slow/c-2")
        yield lambda: is_whole(cluster)
        tapes = {stripe: content_of(cluster.data / stripe / "a-1") for stripe in customers}
        assert all(tapes.values())
        yield lambda: all(len(customer.content) >= len(tapes[stripe]) for stripe, customer in customers.items())

    try:
        play(cluster, story())
    finally:
        for customer in customers.values():
            customer.end()
    for stripe, customer in customers.items():
        assert content_of(cluster.data / stripe / "a-1").startswith(customer.content)
    tapes = {stripe: judge(cluster.data / stripe, PRIMARIES).receivers[0].chain for stripe in ("main", "slow")}
    assert tapes["main"] != tapes["slow"]
