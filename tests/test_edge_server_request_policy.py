"""Requests of many customers: one that asks too fast, and several that miss the same."""

from __future__ import annotations

from levelcast.edge.server.packetizer import Outgoing
from levelcast.edge.server.request_policy import RequestPolicy, RequestPolicyConfig, Route
from levelcast.wire.mold import RetransmitRequest
from tests.edge_parts import ALPHA, BETA

MS = 1_000_000
SECOND = 1_000 * MS


def answer(first: int, count: int, size: int = 100) -> Outgoing:
    return Outgoing(ALPHA, first, count, bytes(size), b"\0" * 4)


def test_a_customer_has_a_burst_and_then_a_rate() -> None:
    desk = RequestPolicy(RequestPolicyConfig(requests_a_second=100, burst=10))
    assert [desk.admit("a", 0) for _ in range(15)] == [True] * 10 + [False] * 5
    assert desk.admit("b", 0), "another one has its own"
    assert [desk.admit("a", 30 * MS) for _ in range(5)] == [True] * 3 + [False] * 2
    assert [desk.admit("a", 20 * MS) for _ in range(2)] == [False, False], "a clock that was set back gives nothing"
    assert sum(desk.admit("a", 100 * SECOND) for _ in range(50)) == 10
    assert desk.counts.too_fast == 5 + 2 + 2 + 40


def test_buckets_are_bounded() -> None:
    desk = RequestPolicy(RequestPolicyConfig(burst=1, max_customers=2))
    for customer in ("a", "b", "a", "c", "b"):
        desk.admit(customer, 0)
    assert len(desk._customers) == 2
    assert not desk.admit("c", 0)


def test_the_second_customer_makes_it_the_groups_and_the_third_needs_nothing() -> None:
    desk = RequestPolicy()
    assert desk.route("a", RetransmitRequest(ALPHA, 10, 5), 0) is Route.CUSTOMER
    assert desk.answered("a", answer(10, 5), Route.CUSTOMER, 0) is Route.CUSTOMER
    assert desk.route("a", RetransmitRequest(ALPHA, 10, 5), MS) is Route.CUSTOMER, "it asks again for itself"
    assert desk.route("b", RetransmitRequest(ALPHA, 20, 5), MS) is Route.CUSTOMER, "other messages"
    assert desk.route("b", RetransmitRequest(BETA, 10, 5), MS) is Route.CUSTOMER
    assert desk.route("b", RetransmitRequest(ALPHA, 8, 4), MS) is Route.GROUP
    assert desk.answered("b", answer(8, 4), Route.GROUP, MS) is Route.GROUP
    assert desk.route("c", RetransmitRequest(ALPHA, 8, 9), 2 * MS) is Route.NOBODY
    assert desk.route("a", RetransmitRequest(ALPHA, 11, 1), 2 * MS) is Route.NOBODY
    assert desk.route("c", RetransmitRequest(ALPHA, 12, 5), 2 * MS) is Route.GROUP, "not in what went to the group"
    assert (desk.counts.shared, desk.counts.to_group) == (3, 1)


def test_who_asks_again_after_the_window_is_answered() -> None:
    desk = RequestPolicy()
    desk.answered("a", answer(1, 5), Route.GROUP, 0)
    assert desk.route("b", RetransmitRequest(ALPHA, 1, 5), desk.config.window_ns - 1) is Route.NOBODY
    assert desk.route("b", RetransmitRequest(ALPHA, 1, 5), desk.config.window_ns) is Route.CUSTOMER
    desk.answered("a", answer(1, 5), Route.GROUP, 10 * SECOND)
    assert desk.route("b", RetransmitRequest(ALPHA, 1, 5), 5 * SECOND) is Route.CUSTOMER, "the clock was set back"


def test_what_goes_to_the_group_is_bounded() -> None:
    desk = RequestPolicy(RequestPolicyConfig(group_burst=1_000, group_bytes_a_second=1_000))
    routes = [desk.answered("a", answer(number, 1, 400), Route.GROUP, 0) for number in range(4)]
    assert routes == [Route.GROUP, Route.GROUP, Route.CUSTOMER, Route.CUSTOMER]
    assert desk.answered("a", answer(9, 1, 400), Route.GROUP, SECOND) is Route.GROUP
