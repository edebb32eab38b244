"""A network file becomes a world: its delays, losses and clocks, its trades, and the verdict on the tapes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from levelcast.network import Floor, Network, five_cities, parse_network
from levelcast.network.model import Link
from levelcast.records import TRADE, count_records, dbn_metadata
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.network import LinkNetwork
from levelcast.sim.engine.world import START_NS
from levelcast.sim.floors import MOST_RECORDS, Trading, judge, tape_bytes, tape_fault
from levelcast.sim.rehearsal import Deployment, Rehearsal, with_loss
from levelcast.units import quantile

SECOND = 1_000_000_000


def network() -> Network:
    return parse_network(five_cities())


def rehearsed(seconds: float = 2, seed: int = 1, loss: float | None = None, kill: str | None = None) -> Rehearsal:
    deployment = Deployment(network() if loss is None else with_loss(network(), loss), seed)
    victims = () if kill is None else deployment.receivers_at(kill)
    rehearsal = Rehearsal(deployment, int(seconds * SECOND), victims)
    for _ in rehearsal.steps():
        pass
    return rehearsal


@pytest.fixture(scope="module")
def killed() -> Rehearsal:
    return rehearsed(12, kill="tokyo")


# -- the nodes and the links between them -------------------------------------------------------------------


def test_every_link_has_the_delay_jitter_and_loss_of_its_sites() -> None:
    deployment = Deployment(network(), 1)
    links = deployment.world.network
    assert isinstance(links, LinkNetwork)
    new_york, london, sydney, xlon = 101, 102, 105, 2
    assert links.links[new_york, london] == links.links[london, new_york] == Link(35_600_000, 6_000_000, 0.01)
    assert links.links[new_york, sydney].jitter_ns == 10_000_000
    assert links.links[xlon, sydney].loss_ratio == 0.01
    assert links.links[xlon, london] == Link(100_000)
    delays = {copy.delay_ns for _ in range(500) for copy in links.copies(new_york, [sydney], b"")}
    assert 116_400_000 <= min(delays) < max(delays) <= 126_400_000
    assert 0 < links.lost < 25


def test_floors_without_a_link_between_them_do_not_hear_each_other() -> None:
    text, pairs = five_cities(), ""
    for name, publisher in (("lima", 6), ("perth", 7)):
        text += f'\n[[site]]\nname = "{name}"\n'
        text += f'\n[[floor]]\nname = "F00{publisher}"\npublisher = {publisher}\nsite = "{name}"\n'
        for site in ("new-york", "london", "frankfurt", "tokyo", "sydney"):
            pairs += f'    {{ between = ["{name}", "{site}"], delay = "20ms" }},\n'
    deployment = Deployment(parse_network(text.replace("pairs = [\n", f"pairs = [\n{pairs}")), 1)
    assert (6, 7) in deployment.world.network.cut
    assert (6, 101) not in deployment.world.network.cut


def test_members_know_who_is_nearest_and_clocks_are_wrong_within_bounds() -> None:
    deployment = Deployment(network(), 1)
    assert deployment.config.nearness[103] == (102, 101, 104, 105)
    deployment.start()
    offsets = set()
    for second in range(1, 20):
        deployment.world.run(START_NS + second * SECOND)
        offsets |= {node.clock_offset_ns for node in deployment.world.nodes.values()}
    assert -1_000_000 <= min(offsets) < -100_000
    assert 100_000 < max(offsets) <= 1_000_000


def test_a_site_is_known_by_its_name_its_city_and_its_receiver() -> None:
    deployment = Deployment(network(), 1)
    for name in ("new-york", "New York", "NEW-YORK-1"):
        assert [node.id for node in deployment.receivers_at(name)] == [101]
    assert deployment.receivers_at("paris") == []


def test_another_loss_derives_the_timing_anew() -> None:
    lossless = with_loss(network(), 0.0)
    assert lossless.timing().attempts == 1
    assert lossless.timing().hold_ns < network().timing().hold_ns


# -- the trades ---------------------------------------------------------------------------------------------


def floor() -> Floor:
    return Floor("XTKS", 4, 4, "tokyo", "main", ("7203", "SONY"))


def test_trades_walk_on_the_tick_grid_in_round_lots_and_in_order() -> None:
    trading = Trading(floor(), 1)
    for i in range(300):
        trading.burst(START_NS + i * 10_000_000)
    records = np.frombuffer(trading.records(), TRADE)
    assert len(records) == trading.made > 300
    assert np.array_equal(records["trade_id"], np.arange(1, len(records) + 1))
    assert np.all(np.diff(records["ts_event"].astype(np.int64)) >= 0)
    assert not (records["size"] % 100).any()
    assert records["size"].min() >= 100
    assert not records["sequence"].any()
    for symbol in trading.symbols:
        prices = records["price"][records["instrument_id"] == symbol.instrument_id]
        assert len(set(prices.tolist())) > 5
        assert not (prices % symbol.tick).any()
        assert np.abs(np.diff(prices)).max() <= 60 * symbol.tick


def test_the_trades_depend_on_the_seed_and_not_on_the_network() -> None:
    assert Trading(floor(), 1).burst(START_NS).tobytes() == Trading(floor(), 1).burst(START_NS).tobytes()
    assert Trading(floor(), 1).burst(START_NS).tobytes() != Trading(floor(), 2).burst(START_NS).tobytes()
    calm, lossy = rehearsed(1, loss=0.0), rehearsed(1, loss=0.05)
    made = [[feed.trading.made for feed in run.deployment.feeds] for run in (calm, lossy)]
    assert made[0] == made[1]


def test_packets_have_up_to_twenty_records_and_queue_without_credit(killed: Rehearsal) -> None:
    packets = [packet for frame in killed.deployment.receivers[0].disk.tape.frames for packet in frame.packets]
    counts = [packet.records for packet in packets]
    assert {count_records(packet.payload) for packet in packets} == set(counts)
    assert min(counts) == 1
    assert max(counts) == MOST_RECORDS


# -- the run ------------------------------------------------------------------------------------------------


def test_a_killed_site_returns_and_all_tapes_are_identical(killed: Rehearsal) -> None:
    assert killed.done
    verdict = killed.verdict()
    assert verdict.identical
    assert len({tape.sha256 for tape in verdict.prints}) == 1
    assert verdict.prints[0].records == sum(feed.trading.made for feed in killed.deployment.feeds) > 5000
    tokyo, london = killed.ledger.of[104], killed.ledger.of[102]
    assert (tokyo.rings, london.rings) == (2, 3)
    timing = killed.deployment.config.timing
    assert 0 < london.late * timing.slot_ns < timing.recovery_ns, "the survivors are late while the ring is reformed"
    assert tokyo.late > london.late
    assert killed.deployment.world.report_counts["caught-up"] > 0


def test_without_a_death_everything_is_on_time_and_within_the_clocks_error() -> None:
    calm = rehearsed(2)
    assert calm.done
    hold_ns = calm.deployment.config.timing.hold_ns
    for figures in calm.ledger.of.values():
        assert (figures.late, figures.rings) == (0, 1)
        # A trade just before its slot, at a receiver whose clock is ahead of true time.
        assert hold_ns - 2 * 1_000_000 < figures.latency_ns(0.0)
        assert figures.latency_ns(0.0) < figures.latency_ns(0.5) < hold_ns + SECOND // 2
        assert figures.requests >= figures.repaired
    assert sum(figures.repaired for figures in calm.ledger.of.values()) > 0
    assert 0 < max(calm.ledger.spreads_ns()) <= 2 * 1_000_000


def test_the_same_seed_is_the_same_run() -> None:
    first, again, other = rehearsed(1, 5), rehearsed(1, 5), rehearsed(1, 6)
    assert first.verdict() == again.verdict()
    assert first.deployment.world.events == again.deployment.world.events
    assert first.verdict().prints != other.verdict().prints


def test_quantiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    Random(1).shuffle(values)
    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
    assert quantile([], 0.5) == 0


# -- the verdict finds what is wrong ------------------------------------------------------------------------


def test_a_tape_that_differs_is_found_by_chain_and_by_bytes(killed: Rehearsal) -> None:
    tapes = [(node.name, list(node.disk.tape.frames)) for node in killed.deployment.receivers]
    floors = [feed.trading for feed in killed.deployment.feeds]
    assert judge(tapes, floors).identical
    frame = tapes[2][1][7]
    tapes[2][1][7] = frame._replace(chain=bytes(32))
    assert judge(tapes, floors).problems == [f"the tapes of New York and Frankfurt differ from slot {frame.slot} on"]
    packet = frame.packets[0]
    size = len(packet.payload)
    tapes[2][1][7] = frame._replace(content=packet.payload[:-1] + b"\xff" + frame.content[size:])
    problems = judge(tapes, floors).problems
    assert "differ from those the floor sent" in problems[0]
    assert problems[1] == "the tapes of New York and Frankfurt have different bytes for the same frames"


def test_a_short_tape_is_incomplete_and_a_broken_promise_counts(killed: Rehearsal) -> None:
    tapes = [(node.name, list(node.disk.tape.frames)) for node in killed.deployment.receivers]
    floors = [feed.trading for feed in killed.deployment.feeds]
    del tapes[3][1][-1]
    (problem,) = judge(tapes, floors).problems
    assert problem.startswith("Tokyo released ")
    assert judge(tapes[:1], floors, "liveness: stuck").problems == ["liveness: stuck"]


def test_wrong_stamps_and_strangers_are_found(killed: Rehearsal) -> None:
    frames = killed.deployment.receivers[0].disk.tape.frames
    floors = [feed.trading for feed in killed.deployment.feeds]
    good = tape_bytes(frames)
    start = len(dbn_metadata())

    def fault_with(field: str, value: int) -> str | None:
        records = np.frombuffer(good[start:], TRADE).copy()
        records[field][3] = value
        return tape_fault(good[:start] + records.tobytes(), frames, floors, whole=True)

    assert tape_fault(good, frames, floors, whole=True) is None
    assert fault_with("sequence", 3) == "sequence numbers have a gap"
    assert fault_with("ts_recv", 1) == "the timestamps of a record and its frame differ"
    assert fault_with("publisher_id", 99) == "publisher 99 is not a floor"
    assert "differ from those the floor sent" in (fault_with("size", 1) or "")


def test_a_promise_broken_on_the_way_is_in_the_verdict() -> None:
    deployment = Deployment(network(), 1)
    rehearsal = Rehearsal(deployment, SECOND, ())

    def broken(*_: object) -> None:
        raise InvariantBroken("agreement", "two tapes")

    deployment.world.at(START_NS + SECOND, broken)
    for _ in rehearsal.steps():
        pass
    assert not rehearsal.verdict().identical
    assert rehearsal.verdict().problems[0] == "agreement: two tapes"
