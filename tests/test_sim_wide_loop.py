"""Protocols of a wide-area group in virtual time: numbers of messages and rounds, delivery and receipt under loss."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices, CopiesBy
from levelcast.overlay.wide.measure import kind_of
from levelcast.overlay.wide.plan import MessagePlan
from levelcast.sim.wide.loop import BEGIN_NS, GroupLoop, Lost
from levelcast.wire.messages import Message
from tests.wide_parts import MS, H, K, O, U, equal_matrix, group, tt_matrix

DELAY_MS = 10
SIZES = range(2, 51)
VARIANTS = {
    **WIDE_PROTOCOLS,
    **{f"{name} forwarded": WIDE_PROTOCOLS[name]._replace(copies=CopiesBy.FORWARDED) for name in ("B", "M", "N", "D")},
}


def one_message(name: str, destinations: int) -> GroupLoop:
    loop = GroupLoop(group(name, equal_matrix(destinations + 1, DELAY_MS), margin_ns=1_000 * MS), 1)
    loop.submit(1, b"one")
    loop.run()
    assert loop.is_quiet()
    return loop


def rounds(loop: GroupLoop) -> float:
    """Time until all processes know of the receipt, in units of the delay."""
    (times,) = loop.times.values()
    return max(times.known_ns.values()) / MS / DELAY_MS - BEGIN_NS / MS / DELAY_MS


@pytest.mark.parametrize(("name", "sizes"), [("B", SIZES), ("M", (2, 3, 10, 50))])
def test_distributed_confirmation_takes_two_rounds_and_s_times_s_confirmations(name: str, sizes: Iterable[int]) -> None:
    for destinations in sizes:
        loop = one_message(name, destinations)
        # Each destination confirms to the source and to all others.
        assert loop.sent == {"data": destinations, "statements": destinations**2}
        assert rounds(loop) == 2


def test_decentralised_confirmation_takes_three_rounds_and_3s_messages() -> None:
    for destinations in SIZES:
        loop = one_message("D", destinations)
        assert loop.datagrams == 3 * destinations
        assert loop.sent == {"data": destinations, "statements": 2 * destinations}
        assert rounds(loop) == 3


@pytest.mark.parametrize("destinations", [2, 5, 20])
def test_messages_are_linear_with_piggybacked_and_deferred_confirmations(destinations: int) -> None:
    matrix, per_process, gap_ns = equal_matrix(destinations + 1, DELAY_MS), 4, 30 * MS
    loop = GroupLoop(group("B", matrix, margin_ns=2_000 * MS, defer_ns=100 * MS), 1)
    for turn in range(per_process):
        for source in matrix.processes:
            loop.at(BEGIN_NS + turn * gap_ns + source * MS // 10, lambda source=source: loop.submit(source))  # type: ignore[misc]
    loop.run()
    messages = per_process * len(matrix.processes)
    assert loop.is_quiet()
    assert loop.sent["data"] == messages * destinations
    # Confirmations ride on the next message. Only those of the last turn need datagrams, one for each pair.
    assert loop.sent["statements"] <= destinations * len(matrix.processes)
    assert loop.datagrams <= 2 * destinations * messages < (destinations + destinations**2) * messages


def test_without_messages_to_ride_on_deferred_confirmations_go_together() -> None:
    loop = GroupLoop(group("B", equal_matrix(4, DELAY_MS), margin_ns=1_000 * MS, defer_ns=50 * MS), 1)
    for number in range(5):
        loop.at(BEGIN_NS + number * MS, lambda: loop.submit(1))
    loop.run()
    assert loop.sent == {"data": 15, "statements": 9}
    assert loop.is_quiet()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_protocol_delivers_everything_and_knows_it(name: str) -> None:
    choices: Choices = VARIANTS[name]
    config = group(choices, tt_matrix(), near_ns=60 * MS, spacing_ns=20 * MS)
    loop = GroupLoop(config, 1, jitter_ns=6 * MS)
    for number in range(40):
        some = None if number % 3 else (1 + (number + 1) % 5, 1 + (number + 2) % 5)
        loop.at(BEGIN_NS + number * 90 * MS, lambda number=number, some=some: loop.submit(1 + number % 5, b"x", some))  # type: ignore[misc]
    loop.run()
    assert loop.is_quiet()
    assert len(loop.times) == 40
    for times in loop.times.values():
        assert set(times.delivered_ns) == set(times.members)
        assert set(times.known_ns) == {*times.members, times.source}
    assert loop.sent["data"] > sum(len(times.members) for times in loop.times.values())


def test_a_run_is_the_same_for_the_same_seed() -> None:
    def counts(seed: int) -> tuple[int, int]:
        loop = GroupLoop(group("MR", tt_matrix()), seed, jitter_ns=5 * MS)
        for number in range(20):
            loop.at(BEGIN_NS + number * 400 * MS, lambda: loop.submit(1))
        loop.run()
        return loop.datagrams, loop.now

    assert counts(3) == counts(3) != counts(4)


def kept(name: str) -> float:
    """Messages times seconds that all processes have kept, per message."""
    loop = GroupLoop(group(name, tt_matrix(), near_ns=60 * MS), 7)
    for number in range(40):
        loop.at(BEGIN_NS + number * 3_000 * MS, lambda number=number: loop.submit(1 + number % 5))  # type: ignore[misc]
    loop.run()
    return sum(each.kept_ns for each in loop.buffers.values()) / 1e9 / 40


def test_b_and_d_keep_the_least_and_m_the_most() -> None:
    found = {name: kept(name) for name in ("B", "M", "N", "D")}
    assert max(found["B"], found["D"]) < found["N"] < found["M"]


class Recorded(GroupLoop):
    """Records what is sent, and loses the first copies on some paths."""

    def __init__(self, name: str | Choices, lost_once: set[tuple[int, int]]) -> None:
        config = group(name, tt_matrix((H, U, O, K), loss=0.0), near_ns=45 * MS, margin_ns=10 * MS)
        losing = {pair: self._once(pair) for pair in lost_once}
        self.log: list[tuple[int, int, int, str]] = []
        super().__init__(config, 1, lost=losing)

    def _once(self, pair: tuple[int, int]) -> Lost:
        left = [True]
        return lambda _: bool(left and left.pop())

    def _send(self, sender: int, to: int, message: Message) -> None:
        self.log.append(((self.now - BEGIN_NS) // MS, sender, to, kind_of(message)))
        super()._send(sender, to, message)

    def data_to(self, to: int) -> list[tuple[int, int]]:
        """Senders of the message to one process, with times in ms."""
        return [(sender, at) for at, sender, receiver, kind in self.log if receiver == to and kind == "data"]

    def delivered_ms(self, process: int) -> int:
        (times,) = self.times.values()
        return (times.delivered_ns[process] - BEGIN_NS) // MS


def sent_by_h(name: str | Choices, lost_once: set[tuple[int, int]]) -> Recorded:
    loop = Recorded(name, lost_once)
    loop.submit(H, b"m", (U, O, K))
    loop.run()
    assert loop.is_quiet()
    return loop


def test_figure_5_a_near_destination_repairs_sooner_than_the_sender() -> None:
    by_sender, by_nearest = (sent_by_h(name, {(H, O)}) for name in ("B", "M"))
    # The sender notices after a round trip, and its copy takes 160 ms more; U is 40 ms away.
    assert by_sender.data_to(O) == [(H, 0), (H, 2 * 160 + 10)]
    assert by_sender.delivered_ms(O) == 3 * 160 + 10
    assert by_nearest.data_to(O) == [(H, 0), (U, 160 + 40 + 10)]
    assert by_nearest.delivered_ms(O) == 160 + 2 * 40 + 10


def test_figure_7_1_the_sender_repairs_in_b() -> None:
    assert [sender for sender, _ in sent_by_h("B", {(H, K)}).data_to(K)] == [H, H]


def test_figure_7_2_o_forwards_to_k_in_m() -> None:
    assert [sender for sender, _ in sent_by_h("M", {(H, K)}).data_to(K)] == [H, O]


def test_figure_7_3_coordinators_of_the_nested_group() -> None:
    loop = sent_by_h("N", {(U, O)})
    # H sends to the coordinators U and K, and U resends to O (not as printed: H to U, which forwards to O and K).
    assert [(sender, to) for _, sender, to, kind in loop.log if kind == "data"] == [(H, U), (H, K), (U, O), (U, O)]


def test_figure_7_4_o_forwards_on_receipt_in_the_replicated_d() -> None:
    choices = WIDE_PROTOCOLS["D"]._replace(copies=CopiesBy.FORWARDED)
    config = group(choices, tt_matrix((H, U, O, K)), near_ns=45 * MS, margin_ns=10 * MS)
    plan = MessagePlan(config.rules, config.subgroups, H, (U, O, K), (H, U, O, K))
    assert K in plan.forwards(O)
    assert config.matrix.delay_ns(O, K) < config.matrix.delay_ns(H, K)
