"""The overlay reaches every node once: control directly, packets over coordinators and forwarders (O1 to O4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.overlay.fanout import CONTROL, DATA, FORWARD, OWN_SITE, Fanout, Hop, OverlayNode, used_by
from levelcast.wire.codec import KIND_REPAIR
from levelcast.wire.reformation_codec import KIND_INVITE
from levelcast.wire.token_codec import KIND_BEAT, KIND_TOKEN

LIVE_NS, GUEST_NS = 1_000, 5_000
A1, A2, A3, B1, B2, C1, C2 = range(1, 8)
SERVER, FLOOR_A, FLOOR_D, GUEST = 11, 21, 22, 31
NODES = [
    OverlayNode(A1, "a", "receiver"),
    OverlayNode(A2, "a", "receiver"),
    OverlayNode(A3, "a", "secondary"),
    OverlayNode(B1, "b", "receiver"),
    OverlayNode(B2, "b", "receiver"),
    OverlayNode(C1, "c", "receiver"),
    OverlayNode(C2, "c", "receiver"),
    OverlayNode(SERVER, "b", "server"),
    OverlayNode(FLOOR_A, "a", "floor"),
    OverlayNode(FLOOR_D, "d", "floor"),
    OverlayNode(GUEST, "", "guest"),
]
RECEIVERS = {each.node for each in NODES if each.receives}
SITES = {each.node: each.site for each in NODES}


def distance(one: str, other: str) -> float:
    return abs(ord(one or "z") - ord(other or "z"))


def fanout(here: int, large: tuple[str, ...] = (), *, heard: tuple[int, ...] = (), now: int = 0) -> Fanout:
    made = Fanout(here, NODES, large, distance, LIVE_NS, GUEST_NS)
    for node in heard:
        made.hear(node, now)
    return made


def reached(source: int, large: tuple[str, ...], heard: tuple[int, ...], *down: int) -> list[int]:
    """Carry packets of a source over all hops; return the receivers that get them, once for each copy."""
    found: list[int] = []
    forwarded: set[int] = set()
    queue = [(source, hop) for hop in fanout(source, large, heard=heard).packets(0)]
    while queue:
        sender, hop = queue.pop(0)
        site = [node for node in RECEIVERS if SITES[node] == SITES[sender] and node != sender]
        for node in site if hop.to == OWN_SITE else [hop.to]:
            if node in down:
                continue
            found.append(node)
            if hop.channel == FORWARD and node not in forwarded:
                forwarded.add(node)
                queue += [(node, each) for each in fanout(node, large, heard=heard).forwarded(source, 0)]
    return found


def test_control_goes_to_each_node_that_uses_it_directly() -> None:
    here = fanout(A1, heard=(GUEST,))
    assert {hop.to for hop in here.control(used_by(KIND_BEAT), 0)} == RECEIVERS - {A1}
    assert {hop.to for hop in here.control(used_by(KIND_REPAIR), 0)} == RECEIVERS - {A1}
    assert {hop.to for hop in here.control(used_by(KIND_TOKEN), 0)} == RECEIVERS - {A1} | {FLOOR_A, FLOOR_D, GUEST}
    everyone = {each.node for each in NODES} - {A1}
    assert {hop.to for hop in here.control(used_by(KIND_INVITE), 0)} == everyone
    assert all(hop.channel == CONTROL for hop in here.control(used_by(KIND_INVITE), 0))
    assert here.servers() == (Hop(SERVER, CONTROL),)


def test_a_guest_gets_messages_only_while_it_sends_some() -> None:
    here = fanout(A1, heard=(GUEST,))
    assert Hop(GUEST, CONTROL) in here.control(used_by(KIND_TOKEN), GUEST_NS - 1)
    assert Hop(GUEST, CONTROL) not in here.control(used_by(KIND_TOKEN), GUEST_NS)
    assert Hop(GUEST, CONTROL) not in fanout(A1).control(used_by(KIND_TOKEN), 0)


def test_control_within_a_large_site_is_one_multicast() -> None:
    hops = fanout(A1, ("a",)).control(used_by(KIND_BEAT), 0)
    assert sorted(hop.to for hop in hops) == [OWN_SITE, B1, B2, C1, C2]
    assert sorted(hop.to for hop in fanout(B1, ("a",)).control(used_by(KIND_BEAT), 0)) == [A1, A2, A3, B2, C1, C2]


def test_a_floor_with_a_receiver_sends_to_it_and_to_the_two_nearest_others() -> None:
    assert fanout(FLOOR_A, heard=(A1, A2)).packets(0) == [Hop(A1, FORWARD), Hop(B1, DATA), Hop(B2, DATA)]
    assert sorted(fanout(A1).forwarded(FLOOR_A, 0)) == [(A2, DATA), (A3, DATA), (C1, DATA), (C2, DATA)]
    assert fanout(A2).forwarded(FLOOR_D, 0) == []


def test_a_floor_takes_another_coordinator_when_the_first_is_silent_and_sends_to_all_without_one() -> None:
    assert fanout(FLOOR_A, heard=(A2,)).packets(0)[0] == Hop(A2, FORWARD)
    alone = fanout(FLOOR_A, heard=(A1,))
    assert {hop.to for hop in alone.packets(LIVE_NS)} == RECEIVERS
    assert {hop.to for hop in fanout(FLOOR_D, heard=(A1, B1)).packets(0)} == RECEIVERS


def test_a_large_site_gets_two_copies_for_forwarders_that_are_not_silent() -> None:
    hops = fanout(C1, ("a",), heard=(A2,)).packets(0)
    assert [hop for hop in hops if hop.channel == FORWARD] == [(A2, FORWARD), (A3, FORWARD)]
    assert fanout(A2, ("a",)).forwarded(C1, 0) == [Hop(OWN_SITE, DATA)]
    assert fanout(A1, ("a",)).packets(0)[-1] == Hop(OWN_SITE, DATA)


TREE = {FLOOR_A: (A1, B1), A1: (A2, A3), B1: (B2, C1), C1: (C2,)}


def in_tree(here: int, *heard: int) -> Fanout:
    made = Fanout(here, NODES, (), distance, LIVE_NS, GUEST_NS, {FLOOR_A: TREE})
    for node in heard:
        made.hear(node, 0)
    return made


def test_packets_take_the_tree_of_their_floor() -> None:
    assert in_tree(FLOOR_A, A1, B1).packets(0) == [Hop(A1, FORWARD), Hop(B1, FORWARD)]
    assert in_tree(B1, C1).forwarded(FLOOR_A, 0) == [Hop(B2, DATA), Hop(C1, FORWARD)]
    assert in_tree(C1).forwarded(FLOOR_A, 0) == [Hop(C2, DATA)]
    assert in_tree(C2).forwarded(FLOOR_A, 0) == []
    assert {hop.to for hop in in_tree(FLOOR_D).packets(0)} == RECEIVERS


def test_the_children_of_a_silent_node_get_packets_from_its_parent() -> None:
    assert in_tree(FLOOR_A, A1).packets(0) == [
        Hop(A1, FORWARD),
        Hop(B1, DATA),
        Hop(B2, DATA),
        Hop(C1, DATA),
        Hop(C2, DATA),
    ]
    assert in_tree(FLOOR_A, A1, C1).packets(0) == [Hop(A1, FORWARD), Hop(B1, DATA), Hop(B2, DATA), Hop(C1, FORWARD)]


def test_only_a_receiver_forwards() -> None:
    assert fanout(SERVER, ("b",)).forwarded(FLOOR_A, 0) == []


LARGE = st.sets(st.sampled_from(("a", "b", "c"))).map(lambda sites: tuple(sorted(sites)))


@given(
    source=st.sampled_from((A1, B2, C1, FLOOR_A, FLOOR_D, GUEST)),
    large=LARGE,
    heard=st.sets(st.sampled_from(sorted(RECEIVERS))).map(lambda nodes: tuple(sorted(nodes))),
)
def test_every_receiver_gets_packets_and_a_small_site_only_once(
    source: int, large: tuple[str, ...], heard: tuple[int, ...]
) -> None:
    found = reached(source, large, heard)
    assert set(found) >= RECEIVERS - {source}
    assert all(found.count(node) == 1 for node in RECEIVERS - {source} if SITES[node] not in large)


@pytest.mark.parametrize("victim", [A1, A2])
def test_a_large_site_survives_the_failure_of_one_forwarder(victim: int) -> None:
    found = reached(C1, ("a",), (A1, A2), victim)
    assert set(found) == RECEIVERS - {C1, victim}
