"""Plans replaced while everything runs, in real processes: nobody loses or doubles anything; bad plans are refused.

Nothing here depends on how fast the machine is: what customers got is compared with the tapes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

import numpy as np
import pytest

import levelcast as api
from levelcast.extras import arrow
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.operate.channel_plans import apply_plan, plan_in_force
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.planner.files import StoredPlan, read_plan
from levelcast.records import RecordArray, trades
from levelcast.storage.tape.reader import TapeReader
from tests.network_parts import free_port, free_ports
from tests.system.processes import in_ring, levelcast, nodes_of, write_network

RECEIVERS = ("a-1", "b-1", "c-1")
OTHERS = ("reform-a", "reform-b")
NEW_YORK = ("IBM", "GE", "KO", "F", "T")
LONDON = ("VOD", "BP", "KO")
EDGE = """
[edge]
watermark = "50ms"

[[edge.group]]
name = "everywhere"
address = "239.193.{}.1"
port = {}
count = 4
"""
LIMIT_S = 60.0


def write_plan(
    directory: Path, sessions: Sequence[Sequence[str]], groups: Sequence[int], flows: int | None = None
) -> Path:
    """The two tables of a plan, whatever is wrong with it."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    directory.mkdir()
    pairs = [(flow, number) for number, session in enumerate(sessions) for flow in session][:flows]
    table = pa.table({"flow": [each[0] for each in pairs], "session": [each[1] for each in pairs]})
    parquet.write_table(table, str(directory / "flow_session.parquet"))
    table = pa.table({"session": list(range(len(groups))), "group": list(groups)})
    parquet.write_table(table, str(directory / "session_group.parquet"))
    return directory


class Customer:
    """A subscriber, and the trades that it was given."""

    def __init__(self, network: Network, symbols: Sequence[str] | None, *, merged: bool) -> None:
        self.symbols = symbols
        self.merged = merged
        self.batches: list[RecordArray] = []
        self.tape = api.Subscriber(network, symbols=symbols, merged=merged)

    @property
    def count(self) -> int:
        return sum(map(len, self.batches))

    async def follow(self) -> None:
        async with self.tape as tape:
            async for batch in tape:
                if batch.kind.name == "trade":
                    self.batches.append(np.asarray(batch.records))

    def wanted_of(self, tape: RecordArray, directory: SymbolDirectory) -> RecordArray:
        if self.symbols is None:
            return tape
        return tape[np.isin(tape["instrument_id"], [directory.id_of(each) for each in self.symbols])]

    def check(self, tape: RecordArray, directory: SymbolDirectory) -> None:
        found, wanted = np.concatenate([trades(0), *self.batches]), self.wanted_of(tape, directory)
        assert len(np.unique(found["sequence"])) == len(found), "nothing comes twice"
        assert self.tape.counts.lost == 0
        if self.merged:
            assert np.array_equal(found, wanted), "in the order of the tape"
        assert np.array_equal(np.sort(found, order="sequence"), np.sort(wanted, order="sequence"))
        for number in np.unique(found["instrument_id"]):
            assert (np.diff(found[found["instrument_id"] == number]["sequence"].astype(np.int64)) > 0).all()


def trades_on(tape: Path) -> RecordArray:
    found = [batch.records for frame in TapeReader(tape).frames() for batch in frame.batches()]
    return np.concatenate([each for each in found if each.dtype.names == trades(0).dtype.names])


def places(plan: StoredPlan) -> dict[str, tuple[int, int]]:
    """The session and the group of each symbol."""
    groups = plan.group_ids[plan.plan.group].tolist()
    sessions = zip(plan.flows.to_pylist(), plan.plan.session.tolist(), strict=True)
    return {flow: (session, groups[session]) for flow, session in sessions}


async def run(*arguments: object) -> tuple[int, str, str]:
    done = await asyncio.to_thread(levelcast, *arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_plans_are_replaced_under_load_and_bad_ones_refused(tmp_path: Path) -> None:
    file, data = write_network(tmp_path / "network.toml"), tmp_path / "data"
    text = file.read_text(encoding="utf-8")
    port = load_network(file).core.port
    for floor, symbols in (("XNYS", NEW_YORK), ("XLON", LONDON)):
        text = text.replace(f'name = "{floor}"', f'name = "{floor}"\nsymbols = {json.dumps(symbols)}')
    file.write_text(text + EDGE.format(port % 250 + 1, port), encoding="utf-8")
    network = load_network(file)
    directory = SymbolDirectory(network)
    first = write_plan(tmp_path / "first", [("IBM", "GE"), ("KO", "VOD"), ("F", "T", "BP")], [0, 1, 3])
    second = write_plan(tmp_path / "second", [("IBM", "KO", "BP", "GE"), ("F", "VOD", "T")], [2, 1])
    without_bp = write_plan(tmp_path / "without", [("IBM", "GE"), ("KO", "VOD"), ("F", "T")], [0, 1, 3])
    bad = {
        "is in a session that session_group.parquet does not have": write_plan(
            tmp_path / "unknown", [("IBM", "GE"), ("KO", "VOD"), ("F", "T", "BP")], [0, 1]
        ),
        "it has group 4, and the smallest [[edge.group]] block of the network file has 4": write_plan(
            tmp_path / "outside", [("IBM", "GE"), ("KO", "VOD"), ("F", "T", "BP")], [0, 1, 4]
        ),
        "the plan is for another symbol directory; no floor of the network trades XYZ": write_plan(
            tmp_path / "other", [("IBM", "GE", "XYZ"), ("KO", "VOD"), ("F", "T", "BP")], [0, 1, 3]
        ),
    }
    customers = [
        Customer(network, None, merged=False),
        Customer(network, None, merged=True),
        Customer(network, ["KO"], merged=False),
        Customer(network, ["IBM", "VOD", "T"], merged=True),
    ]
    assert levelcast("disk", "init", "--network", file, "--data", data, "--all").returncode == 0

    async def story() -> None:
        tasks = [asyncio.create_task(each.follow()) for each in customers]
        try:
            await asyncio.sleep(0.1)
            with nodes_of(file, tmp_path) as nodes:
                for name in (*RECEIVERS, *OTHERS):
                    nodes.start(name, data)
                await asyncio.to_thread(nodes.wait_for, lambda said: in_ring(said, *RECEIVERS))
                for floor in ("XNYS", "XLON"):
                    nodes.start(floor, data, "--rate", 300)
                await asyncio.to_thread(nodes.wait_for, lambda said: said["c-1"]["tape_records"] > 100)
                assert await asyncio.to_thread(plan_in_force, network) is None
                for number, plan in enumerate((first, second, without_bp, second), 1):
                    code, said, wrong = await run("plan", "apply", plan, "--network", file, "--json")
                    assert (code, wrong) == (0, "")
                    assert (json.loads(said)["number"], json.loads(said)["edges"]) == (number, 3)
                    if number == 2:
                        for reason, which in bad.items():
                            code, said, wrong = await run("plan", "apply", which, "--network", file)
                            assert (code, said) == (1, "")
                            assert reason in wrong
                            assert len(wrong.splitlines()) == 1
                        code, said, _ = await run("plan", "current", "--network", file, "--json")
                        plans = json.loads(said)
                        assert code == 0
                        assert [plans[name]["number"] for name in RECEIVERS] == [2, 2, 2]
                        told = await asyncio.to_thread(plan_in_force, network)
                        assert told is not None
                        assert places(told) == places(read_plan(second))
                    if number == 3:
                        assert json.loads(said)["added"] == ["BP"]
                        told = await asyncio.to_thread(plan_in_force, network)
                        assert told is not None
                        assert places(told)["BP"] == (3, 2), "a session and a group of its own"
                        assert nodes.end("b-1", 9) == -9
                        nodes.start("b-1", data)
                        await asyncio.to_thread(nodes.wait_for, lambda said: in_ring(said, *RECEIVERS))
                for floor in ("XNYS", "XLON"):
                    await asyncio.to_thread(nodes.end, floor)
                sent = await asyncio.to_thread(
                    nodes.wait_for, lambda said: len({said[name]["tape_records"] for name in RECEIVERS}) == 1
                )
                await asyncio.to_thread(
                    nodes.wait_for,
                    lambda said: all(said[name]["released_slot"] > sent[name]["have"] for name in RECEIVERS),
                )
                tape = trades_on(data / "a-1" / "tape")
                async with asyncio.timeout(LIMIT_S):
                    while any(each.count < len(each.wanted_of(tape, directory)) for each in customers):
                        await asyncio.sleep(0.05)
                assert [nodes.end(name) for name in (*RECEIVERS, *OTHERS)] == [0] * 5
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results), results

    asyncio.run(story())
    assert judge(data, RECEIVERS).problems == []
    tape = trades_on(data / "a-1" / "tape")
    for customer in customers:
        customer.check(tape, directory)
        assert customer.tape.plans == {"main": 4}
    assert set(customers[2].tape.positions) == {"4/0/0"}, "KO is in one session"


STRIPED = """
[network]
name = "one room, two stripes"

[[site]]
name = "room"

[links]
delay = "200us"

[timing]
slot = "20ms"
process = "10ms"
clock_error = "1ms"

[stripes.one]
[stripes.two]

[[receiver]]
name = "a-1"
id = 101
site = "room"

[[reformation]]
name = "reform"
id = 201
site = "room"

[[floor]]
name = "XNYS"
publisher = 1
site = "room"
stripe = "one"
symbols = ["IBM", "GE", "KO"]
[[floor]]
name = "XLON"
publisher = 2
site = "room"
stripe = "two"
symbols = ["VOD", "KO"]

[core]
address = "239.193.{place}.1"
port = {port}

[edge]
watermark = "50ms"

[[edge.group]]
name = "edge"
address = "239.193.{place}.16"
port = {port}
count = 4

[status]
port = {status}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_stripes_get_their_plans_and_are_merged_in_one_order(tmp_path: Path) -> None:
    chance = SystemRandom()
    file = tmp_path / "network.toml"
    text = STRIPED.format(place=chance.randint(1, 254), port=free_port(), status=free_ports())
    file.write_text(text, encoding="utf-8")
    network = load_network(file)
    plans = [
        read_plan(write_plan(tmp_path / "first", [("IBM", "VOD"), ("KO", "GE")], [0, 1])),
        read_plan(write_plan(tmp_path / "second", [("IBM",), ("KO", "GE", "VOD")], [3, 2])),
    ]
    customers = [Customer(network, None, merged=True), Customer(network, ["KO"], merged=True)]
    cluster = Cluster(network, file, tmp_path / "data", NodeOptions(rate=200))
    life = ClusterRun(cluster, None, 60.0)

    def live() -> None:
        for _ in life.steps():
            if stopping.is_set() and life.phase == "running":
                life.interrupted = True
            if life.phase == "draining" and not drained.is_set():
                drained.set()
                done.wait(LIMIT_S)

    stopping, drained, done = threading.Event(), threading.Event(), threading.Event()

    def tapes() -> RecordArray:
        """Both tapes in the order of rule 15."""
        found = [
            (index, trades_on(tmp_path / "data" / part / "tape")) for index, part in enumerate(("one/a-1", "two/a-1"))
        ]
        rows = np.concatenate([rows for _, rows in found])
        stripes = np.concatenate([np.full(len(rows), index) for index, rows in found])
        return rows[np.lexsort((rows["sequence"], stripes, rows["ts_recv"]))]

    async def story() -> None:
        tasks = [asyncio.create_task(each.follow()) for each in customers]
        living = asyncio.create_task(asyncio.to_thread(live))
        try:
            async with asyncio.timeout(4 * LIMIT_S):
                while not all(member.status.get("records", 0) > 50 for member in cluster.of_role(RECEIVER)):
                    await asyncio.sleep(0.1)
                for number in range(3):
                    applied = await asyncio.to_thread(apply_plan, network, plans[number % 2], None, 60.0)
                    assert (applied.number, applied.edges) == (number + 1, 2)
                stopping.set()
                await asyncio.to_thread(drained.wait)
                ko = SymbolDirectory(network).id_of("KO")
                while True:
                    wanted = tapes()
                    if (
                        len(wanted) == customers[0].count
                        and (wanted["instrument_id"] == ko).sum() == customers[1].count
                    ):
                        break
                    await asyncio.sleep(0.2)
        finally:
            stopping.set()
            done.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await living
        assert np.array_equal(np.concatenate(customers[0].batches), wanted)
        assert np.array_equal(np.concatenate(customers[1].batches), wanted[wanted["instrument_id"] == ko])
        assert customers[0].tape.plans == {"one": 3, "two": 3}

    asyncio.run(story())
    assert life.problems == []
