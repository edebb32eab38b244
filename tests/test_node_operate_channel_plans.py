"""Plans over real sockets: edges that replace theirs, customers that follow, and what an operator is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.client.subscriber import Subscriber
from levelcast.edge.subscriber.delivery import Stuck
from levelcast.edge.subscriber.plan_follower import Replaced
from levelcast.extras import arrow
from levelcast.network import Network, NetworkError, parse_network
from levelcast.node.operate.channel_plans import PlanRefused, make_channel_plan, symbols_left_out
from levelcast.planner.files import StoredPlan, read_plan, read_rates
from levelcast.planner.model import Plan
from levelcast.records import RTYPE_TRADE, RecordArray, split, trades
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.wire.channel_plan import session_of
from tests.net_edge_parts import Ear, Receiver, network_text
from tests.planned_parts import SYMBOLS, PlannedTape, planned_tape, some_plan
from tests.tape_parts import SLOT_NS, T0

NAMES = list(SYMBOLS.values())


def hurried() -> int:
    return T0 + 10 * time.monotonic_ns()


@pytest.fixture
def network() -> Network:
    for _ in range(100):
        text = network_text().replace('["IBM", "GE", "KO"]', json.dumps(NAMES)).replace('["VOD"]', '["S1", "S2"]')
        text = text.replace('region = "west"\n\n', 'region = "west"\ncount = 4\n\n')
        text = text.rstrip() + "\ncount = 4\n"
        with suppress(NetworkError):  # two blocks that overlap
            return parse_network(text)
    raise AssertionError("no room for the groups")


@pytest.fixture
def start(network: Network, tmp_path: Path) -> Iterator[Callable[[str], Receiver]]:
    made: list[Receiver] = []

    def begin(name: str) -> Receiver:
        made.append(Receiver(network, name, tmp_path, hurried))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def trades_of(tape: PlannedTape) -> RecordArray:
    runs = [run for frame in tape.frames for run in split(bytes(frame_bytes(frame)))]
    return np.concatenate([trades(0), *(run.records for run in runs if run.kind.rtype == RTYPE_TRADE)])


class Customer:
    def __init__(self, network: Network, symbols: list[str] | None, **more: Any) -> None:
        self.events: list[Any] = []
        self.batches: list[RecordArray] = []
        self.places: list[int] = []
        self.tape = Subscriber(network, "west", symbols=symbols, on_event=self.events.append, **more)

    async def follow(self) -> None:
        async with self.tape as tape:
            async for batch in tape:
                if batch.kind.rtype == RTYPE_TRADE and len(batch.records):
                    self.batches.append(np.asarray(batch.records))
                    if batch.global_sequences is not None:
                        self.places += batch.global_sequences.tolist()

    @property
    def trades(self) -> RecordArray:
        return np.concatenate([trades(0), *self.batches])


async def play(
    receivers: list[Receiver], tape: PlannedTape, customers: list[Customer], done: Callable[[], bool]
) -> None:
    """Release a tape at every receiver while customers follow, and let everybody turn until it is done."""
    tasks = [asyncio.create_task(each.follow()) for each in customers]
    try:
        async with asyncio.timeout(50):
            await asyncio.sleep(0.05)
            for frame in tape.frames:
                for receiver in receivers:
                    receiver.release(frame)
                    receiver.step()
                await asyncio.sleep(0.002)
            while not done():
                for receiver in receivers:
                    receiver.complete_ns = tape.frames[-1].timestamp_ns + 2 * SLOT_NS * 100
                    receiver.step()
                await asyncio.sleep(0.005)
                for task in tasks:
                    if task.done():
                        task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_customers_follow_plans_that_are_replaced(
    network: Network, start: Callable[[str], Receiver], seed: int
) -> None:
    tape = planned_tape(seed, 3)
    wanted = trades_of(tape)
    some = wanted[np.isin(wanted["instrument_id"], [3, 7])]

    async def story() -> None:
        receivers = [start("a-1"), start("b-1")]
        customers = [
            Customer(network, None),
            Customer(network, None, merged=True),
            Customer(network, ["S3", "S7"]),
            Customer(network, ["S3", "S7"], merged=True),
        ]
        counts = [len(wanted), len(wanted), len(some), len(some)]

        def done() -> bool:
            return all(len(each.trades) >= count for each, count in zip(customers, counts, strict=True))

        await play(receivers, tape, customers, done)
        for customer, expected in zip(customers, (wanted, wanted, some, some), strict=True):
            found = customer.trades
            assert np.array_equal(np.sort(found, order="sequence"), expected)
            assert [each for each in customer.events if isinstance(each, Replaced)] == [
                Replaced(0, number) for number in (1, 2, 3)
            ]
            assert not [each for each in customer.events if isinstance(each, Stuck)]
            assert customer.tape.counts.lost == 0
            assert customer.tape.plans == {"main": 3}
        assert np.array_equal(customers[1].trades, wanted)
        assert np.array_equal(customers[3].trades, some)
        places = customers[1].places
        assert len(places) > len(wanted) // 2
        assert places == wanted["sequence"][-len(places) :].tolist(), "known from the first watermark on"
        plan = some_plan(3, seed)
        indices = plan.sessions_of([3, 7])
        names = {session_of(3, 0, index).decode().rstrip() for index in indices}
        assert set(customers[2].tape.positions) == names
        status = receivers[0].edge.status()
        assert (status["plan"]["number"], status["plan"]["digest"]) == (3, plan.digest.hex())

    asyncio.run(story())


def test_a_restarted_edge_goes_on_and_a_late_joiner_has_everything_behind_its_snapshot(
    network: Network, start: Callable[[str], Receiver]
) -> None:
    tape = planned_tape(4, 2)
    before = len(tape.frames)
    tape.swap(some_plan(3, 4))
    tape.trade(4)

    async def story() -> None:
        receiver = start("a-1")
        for frame in tape.frames[:before]:
            receiver.release(frame)
        receiver.kill()
        receiver.start()
        assert receiver.edge.server.feed.plans.number == 2
        rest = PlannedTape.__new__(PlannedTape)
        rest.frames = tape.frames[before:]
        wanted = trades_of(rest)
        late = Customer(network, None, start="snapshot", merged=True)
        task = asyncio.create_task(late.follow())
        async with asyncio.timeout(50):
            while late.tape._core is None:
                receiver.step()
                await asyncio.sleep(0.005)
            for frame in rest.frames:
                receiver.release(frame)
                receiver.step()
                await asyncio.sleep(0.002)
            while len(late.trades) < len(wanted):
                receiver.complete_ns = rest.frames[-1].timestamp_ns + 2 * SLOT_NS * 100
                receiver.step()
                await asyncio.sleep(0.005)
        task.cancel()
        assert np.array_equal(late.trades, wanted)

    asyncio.run(story())


def test_each_session_is_heard_in_its_group_and_in_no_other(network: Network, start: Callable[[str], Receiver]) -> None:
    tape = PlannedTape(6)
    plan = some_plan(1, 6)
    tape.swap(plan)
    tape.trade(5)
    (block,) = network.groups_of_region("west")
    ears = [Ear(block.at(place).address, block.port) for place in range(4)]
    receiver = start("a-1")
    for frame in tape.frames:
        receiver.release(frame)
        receiver.step()
    groups = {session_of(1, 0, index): int(plan.groups[index]) for index in plan.used}
    for place, ear in enumerate(ears):
        heard = {datagram[:10] for datagram, _ in ear.all()}
        assert {name for name in heard if name in groups} == {name for name, at in groups.items() if at == place}
        ear.close()


def test_a_narrow_line_gets_what_it_carries_and_the_status_says_how_far_behind_it_is(tmp_path: Path) -> None:
    text = network_text().replace('region = "west"\n\n', 'region = "west"\nrate = "56kbit"\n\n')
    network = parse_network(text)
    (block,) = network.groups_of_region("west")
    assert block.rate_bytes == 7_000
    ear = Ear(block.address, block.port)
    now = [T0]
    receiver = Receiver(network, "a-1", tmp_path, lambda: now[0])
    tape = PlannedTape(1)
    tape.trade(40)
    heard = 0
    for frame in tape.frames:
        now[0] = frame.timestamp_ns
        receiver.release(frame)
        receiver.step()
        heard += sum(len(datagram) + 28 for datagram, _ in ear.all())
        assert heard <= 1_500 + 1_428 + 7_000 * (now[0] - T0) / 1e9 + 48
    (line,) = receiver.edge.status()["narrow"].values()
    assert line["behind_s"] > 1
    assert receiver.edge.wake_ns is not None
    for _ in range(10_000):
        if not receiver.edge.status()["narrow"][block.address]["behind_s"]:
            break
        now[0] = max(now[0] + 1, receiver.edge.wake_ns or 0)
        receiver.step()
    else:
        raise AssertionError("the line never catches up")
    ear.close()
    receiver.stop()


# -- what an operator is refused --------------------------------------------------------------------------


def stored(sessions: list[list[str]], groups: list[int]) -> StoredPlan:
    flows = [flow for session in sessions for flow in session]
    at = [number for number, session in enumerate(sessions) for _ in session]
    places, group = np.unique(groups, return_inverse=True)
    return StoredPlan(
        Plan(np.array(at, np.int32), group.astype(np.int32)),
        arrow().array(flows),
        np.arange(len(groups), dtype=np.int32),
        places.astype(np.int32),
        {},
    )


def test_a_plan_from_its_tables(network: Network) -> None:
    halves = [NAMES[:6], NAMES[6:]]
    plan = make_channel_plan(network, network.stripe(), stored(halves, [3, 0]), 5)
    assert plan.number == 5
    assert plan.instruments.tolist() == list(SYMBOLS)
    assert plan.sessions.tolist() == [0] * 6 + [1] * 6
    assert plan.groups.tolist() == [3, 0]
    numbers = [[str(number) for number in list(SYMBOLS)[:6]], [str(number) for number in list(SYMBOLS)[6:]]]
    assert make_channel_plan(network, network.stripe(), stored(numbers, [3, 0]), 5) == plan, "flows by id"


def test_symbols_that_a_plan_leaves_out_get_one_more_session(network: Network) -> None:
    left_out = stored([NAMES[:6], NAMES[6:-2]], [3, 0])
    plan = make_channel_plan(network, network.stripe(), left_out, 5)
    assert plan.instruments.tolist() == list(SYMBOLS)
    assert plan.sessions.tolist() == [0] * 6 + [1] * 4 + [2] * 2
    assert plan.groups.tolist() == [3, 0, 1], "a group that the plan does not use"
    assert plan.default == 2
    assert symbols_left_out(network, left_out) == tuple(NAMES[-2:])
    everywhere = stored([NAMES[:6], NAMES[6:7], NAMES[7:8], NAMES[8:-2]], [0, 1, 2, 3])
    assert make_channel_plan(network, network.stripe(), everywhere, 5).groups.tolist() == [0, 1, 2, 3, 1]
    assert make_channel_plan(network, network.stripe(), stored([], []), 5).groups.tolist() == [0]
    assert symbols_left_out(network, stored([NAMES], [0])) == ()


def test_a_plan_made_with_a_symbol_without_a_subscriber_can_be_applied(network: Network, tmp_path: Path) -> None:
    pairs = [f"{user},{flow}" for user in ("ann", "bob") for flow in NAMES[:-1]]
    (tmp_path / "interest.csv").write_text("\n".join(["user,flow", *pairs, ""]), encoding="utf-8")
    rates = [f"{flow},1.5" for flow in NAMES]
    (tmp_path / "rates.csv").write_text("\n".join(["flow,rate", *rates, ""]), encoding="utf-8")
    files = ["--interest", tmp_path / "interest.csv", "--rates", tmp_path / "rates.csv", "--out", tmp_path / "plan"]
    asked = ["plan", "make", *files, "--groups", 2, "--sessions", 4]
    assert CliRunner().invoke(app, [str(each) for each in asked]).exit_code == 0
    made = read_plan(tmp_path / "plan")
    assert symbols_left_out(network, made) == (NAMES[-1],)
    plan = make_channel_plan(network, network.stripe(), made, 1, read_rates(tmp_path / "rates.csv"))
    assert plan.instruments.tolist() == list(SYMBOLS)


@pytest.mark.parametrize(
    ("sessions", "groups", "reason"),
    [
        ([NAMES[:6], [*NAMES[6:], "XYZ"]], [0, 1], "for another symbol directory; no floor of the network trades XYZ"),
        ([NAMES[:6], NAMES[6:]], [0, 4], "group 4, and the smallest [[edge.group]] block of the network file has 4"),
        ([NAMES[:6], NAMES[6:]], [0, -1], "a group with a number below 0"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_is_refused(
    network: Network, sessions: list[list[str]], groups: list[int], reason: str
) -> None:
    with pytest.raises(PlanRefused) as refused:
        make_channel_plan(network, network.stripe(), stored(sessions, groups), 1)
    assert reason in str(refused.value)


def test_a_plan_that_does_not_fit_its_line_is_refused_with_the_figures() -> None:
    text = network_text().replace('region = "west"\n\n', 'region = "west"\nrate = "56kbit"\n\n')
    text = text.replace("[[edge.group]]", '[edge]\nwatermark = "1s"\n\n[[edge.group]]', 1)
    network = parse_network(text)
    flows = ["IBM", "GE", "KO", "VOD"]
    plan = stored([flows], [0])
    with pytest.raises(PlanRefused, match="the plan does not specify the expected rate"):
        make_channel_plan(network, network.stripe(), plan, 1)
    slow = make_channel_plan(network, network.stripe(), plan, 1, dict.fromkeys(flows, 5.0))
    assert slow.rates.tolist() == [20 * (66 + 48)]
    with pytest.raises(
        PlanRefused, match=r"group 0 is expected to have .* kbit/s, .* and its line carries 56.0 kbit/s"
    ):
        make_channel_plan(network, network.stripe(), plan, 1, dict.fromkeys(flows, 50.0))
    with pytest.raises(PlanRefused, match="the plan sends VOD, but its rate is missing; add it to --rates"):
        make_channel_plan(network, network.stripe(), plan, 1, dict.fromkeys(flows[:3], 5.0))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("count = 0", "must be"),
        ('rate = "fast"', "a rate in bit/s"),
        ("count = 70000", "must be"),
    ],
)
def test_a_block_that_is_none_is_refused(more: str, problem: str) -> None:
    text = network_text().replace('region = "west"\n\n', f'region = "west"\n{more}\n\n')
    with pytest.raises(NetworkError, match=problem):
        parse_network(text)


def test_blocks_stay_multicast_and_apart() -> None:
    text = network_text()
    west = text.split('name = "west"\naddress = "')[1].split('"')[0]
    with pytest.raises(NetworkError, match=r"beyond the last address 239.255.255.255"):
        parse_network(
            text.replace(f'"{west}"', '"239.255.255.254"').replace(
                'region = "west"\n\n', 'region = "west"\ncount = 3\n\n'
            )
        )
    east = text.split('name = "east"\naddress = "')[1].split('"')[0]
    text = text.replace(f'"{east}"', '"239.194.0.9"').replace(f'"{west}"', '"239.194.0.8"')
    with pytest.raises(NetworkError, match='has the address and port of edge group "west"'):
        parse_network(text.replace('region = "west"\n\n', 'region = "west"\ncount = 2\n\n'))
