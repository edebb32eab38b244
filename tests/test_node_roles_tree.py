"""What nodes tell of the second layer, from machines that a script has brought there."""

from __future__ import annotations

from levelcast.node.roles.receiver import covered_group
from levelcast.node.roles.reformation import groups_line
from levelcast.node.roles.secondary import service_line
from levelcast.protocol.history import first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.member import Member
from levelcast.ring.secondary import Secondary
from levelcast.wire.messages import Group, GroupToken
from tests.group_stage import EVERYBODY, GroupStage
from tests.ring_parts import START, make_config
from tests.ring_stage import A, B, C, P, Q, S, U

NAMES = {A: "a-1", B: "b-1", P: "p", Q: "q", U: "u"}


def test_a_secondary_tells_its_home_its_primary_and_its_group() -> None:
    stage = GroupStage()
    alone = Secondary(stage.config, P, JournalImage(), first_tip(stage.config), START)
    assert alone.status(START).standing == "ALONE"
    assert service_line(alone.status(START), NAMES) == {
        "home": "a-1",
        "primary": None,
        "suspect": None,
        "group": None,
    }
    stage.begin()
    said = stage.secondary(P).status(stage.world.now)
    assert said.standing == "FOLLOWS"
    told = service_line(said, NAMES)
    assert (told["home"], told["primary"], told["group"]["members"]) == ("a-1", "a-1", ["p", "q"])
    stage.take_away(A)
    stage.reform(S, {B, C}, announce_to=EVERYBODY - {A})
    said = stage.secondary(P).status(stage.world.now)
    assert (said.standing, service_line(said, NAMES)["suspect"]) == ("ORPHAN", "a-1")


def test_a_primary_tells_whom_it_covers_and_who_has_left_the_minimum() -> None:
    config = make_config()
    receiver = Member(config, A, JournalImage(), first_tip(config), START)
    assert covered_group(receiver.status(START), NAMES) == {"number": 0, "members": {}}
    stage = GroupStage()
    stage.begin()
    primary, now = stage.receiver(A), stage.world.now
    members = covered_group(primary.status(now), NAMES)["members"]
    assert set(members) == {"p", "q"}
    assert all(each["counts"] and each["have"] + each["lag"] == primary.have for each in members.values())
    late = covered_group(primary.status(now + 10 * int(stage.patience_ms * 1e6)), NAMES)["members"]
    assert not any(each["counts"] for each in late.values())


def test_a_group_is_told_before_its_members_have_spoken_and_a_stranger_by_its_id() -> None:
    config = make_config()
    receiver = Member(config, A, JournalImage(), first_tip(config), START)
    receiver.step((Group(5 << 32, S, A, (P, 999)), GroupToken(P, 1, 5 << 32, 1, 0)), START)
    group = covered_group(receiver.status(START), NAMES)
    assert group["number"] == 5
    assert group["members"]["999"] == {"have": None, "lag": None, "counts": False}
    assert set(group["members"]) == {"p", "999"}


def test_a_server_tells_the_groups_that_it_formed() -> None:
    stage = GroupStage()
    stage.begin()
    server = next(
        machine
        for node in stage.world.nodes.values()
        if isinstance(machine := node.machine, ReformationAndGroupServer) and machine.keeper.groups_formed
    )
    said = server.status(stage.world.now).groups
    assert said is not None
    told = groups_line(said, NAMES)
    assert told["groups"] == {"a-1": ["p", "q"], "b-1": ["u"]}
    assert told["groups_formed"] >= 1
    assert told["group_phase"] == "IDLE"
