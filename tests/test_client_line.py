"""A subscriber's line carries so many groups (MS §4.4), and names the symbols of the others."""

from __future__ import annotations

import pytest

from levelcast import Subscriber
from levelcast.client.edge_sockets import line_room
from levelcast.edge.subscriber.line_room import LineRoom
from levelcast.edge.subscriber.plan_follower import SEEK_NS, JoinGroup, Leave, PlanFollower, Unfit
from levelcast.errors import NetError
from levelcast.network import NetworkError, parse_network
from levelcast.wire import mold
from levelcast.wire.channel_plan import build_channel_plan, part_records, plan_session, session_of
from tests.net_edge_parts import network_text

RATED = ('region = "west"\n\n', 'region = "west"\nrate = "56kbit"\n\n')


@pytest.mark.parametrize(("line", "groups"), [("56kbit", 1), ("1.5Mbit", 26), ("45Mbit", 803)])
def test_a_line_carries_as_many_groups_as_its_rate_allows(line: str, groups: int) -> None:
    network = parse_network(network_text().replace(*RATED))
    room = line_room(network, network.groups_of_region("west"), line)
    assert room.fitting(1, range(1_000)) == set(range(groups))


def test_stripes_share_the_groups_of_a_line() -> None:
    room = LineRoom(3 * 7_000, 7_000)
    assert room.fitting(1, [5, 2]) == {2, 5}
    assert room.fitting(1, [5, 1, 0]) == {0, 5}
    assert room.fitting(1, [5, 2]) == {2, 5}
    assert room.fitting(2, [7, 8, 9, 10]) == {7, 8, 9}


def test_a_follower_joins_what_fits_and_reports_the_rest() -> None:
    plan = build_channel_plan(1, [(1, 0), (2, 1), (3, 2), (4, 2)], [0, 3, 4])
    follower = PlanFollower(room=LineRoom(14_000, 7_000))
    session, heard = session_of(1, 0, 0), plan_session(1, 0)
    follower.receive([mold.encode(mold.Heartbeat(session, 1))], 0)
    parts = part_records(plan, 0)
    effects = follower.receive([mold.encode(mold.EdgePacket(heard, 1, len(parts), len(parts[0]), b"".join(parts)))], 1)
    assert [each for each in effects if isinstance(each, Unfit)] == [Unfit(0, 1, (3, 4))]
    assert [each for each in effects if isinstance(each, JoinGroup | Leave)] == [JoinGroup(3)]


def test_a_stripe_that_did_not_fit_is_followed_again_under_a_plan_in_which_it_fits() -> None:
    """With room for one group, stripe 1 is not received under plan 1, and both stripes are under plan 2."""
    follower = PlanFollower(room=LineRoom(7_000, 7_000))

    def activate(number: int, stripe: int, instrument: int, group: int, now: int) -> list[object]:
        plan = build_channel_plan(number, [(instrument, 0)], [group])
        name, parts = plan_session(number, stripe), part_records(plan, stripe)
        heartbeat = mold.encode(mold.Heartbeat(session_of(number, stripe, 0), 1))
        packet = mold.encode(mold.EdgePacket(name, 1, len(parts), len(parts[0]), b"".join(parts)))
        return [*follower.receive([heartbeat], now), *follower.receive([packet], now)]

    activate(1, 0, 10, 0, 0)
    assert Unfit(1, 1, (11,)) in activate(1, 1, 11, 1, 1)
    assert follower.groups == {0}
    assert not follower.over
    assert Unfit(1, 2, ()) in activate(2, 1, 11, 0, 2)
    assert session_of(2, 1, 0) in follower.positions


@pytest.mark.parametrize("room", [None, LineRoom(2 * 7_000, 7_000)])
def test_a_follower_stays_in_group_0_until_it_knows_every_stripe(room: LineRoom | None) -> None:
    """A line with a rate does not wait for a stripe that is down."""
    follower = PlanFollower(stripes={b"one       ": 0, b"two       ": 1}, room=room)

    def activate(stripe: int, group: int, now: int) -> None:
        plan = build_channel_plan(1, [(10 + stripe, 0)], [group])
        parts = part_records(plan, stripe)
        packet = mold.EdgePacket(plan_session(1, stripe), 1, len(parts), len(parts[0]), b"".join(parts))
        follower.receive([mold.encode(mold.Heartbeat(session_of(1, stripe, 0), 1))], now)
        follower.receive([mold.encode(packet)], now)

    activate(0, 2, 0)
    assert follower.groups == {0, 2}
    follower.wake(SEEK_NS)
    assert follower.groups == ({0, 2} if room is None else {2})
    activate(1, 3, SEEK_NS + 1)
    assert follower.groups == {2, 3}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("8kbit", r"below one packet of 1,400 bytes per second, 11\.42 kbit/s"),
        ("fast", "is not a rate"),
        ("28kbit", "does not carry one group of 56 kbit/s"),
    ],
)
def test_a_line_that_carries_nothing_is_refused(line: str, why: str) -> None:
    network = parse_network(network_text().replace(*RATED))
    with pytest.raises(NetError, match=why):
        Subscriber(network, "west", line=line)


def test_a_line_needs_the_rates_of_groups() -> None:
    with pytest.raises(NetError, match="west has no rate in the network file"):
        Subscriber(parse_network(network_text()), "west", line="56kbit")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            'line = "a"\nrate = "11kbit"',
            r"11 kbit/s, below one packet of 1,400 bytes per second \(11\.42 kbit/s\); raise",
        ),
        (
            'rate = "22kbit"',
            r"11 kbit/s for each receiver, below one packet .* set line, so that one receiver sends",
        ),
    ],
)
def test_a_rate_below_one_packet_per_second_is_refused(keys: str, why: str) -> None:
    text = network_text().replace(RATED[0], f'region = "west"\n{keys}\n\n')
    with pytest.raises(NetworkError, match=why):
        parse_network(text)
