"""The table of roles has every kind on the wire, and no role may send what another one must."""

from __future__ import annotations

from typing import get_args

import pytest

from levelcast.keys import roles
from levelcast.keys.roles import RULES, SEALED_BY_SOURCE, is_authored, may_send
from levelcast.keys.statement import AUTHORITY, ROLES
from levelcast.wire import codec
from levelcast.wire.chain_messages import ChainEvidence, ChainMessage, ChainRequest, ChainStatement, ChainSuccession
from levelcast.wire.messages import (
    Beat,
    CatchUp,
    CatchUpPackets,
    Echo,
    Fault,
    Group,
    GroupInvite,
    GroupRequest,
    GroupToken,
    Invite,
    Join,
    LineHolders,
    LineRequest,
    Parity,
    PathRow,
    Probe,
    Promised,
    ReleaseRow,
    Repair,
    Request,
    Ring,
    Token,
)
from levelcast.wire.wide_messages import WideData, WideMessage

KINDS = {message: kind.kind for message, kind in codec._CODECS.items()}
WIDE = get_args(WideMessage)
CHAIN = (ChainMessage, ChainRequest, ChainEvidence, ChainStatement, ChainSuccession)
SENDERS = {
    "receiver": (
        *(Token, Beat, Request, Repair, CatchUp, CatchUpPackets, Fault, Join, Promised),
        *(GroupRequest, LineRequest, PathRow, ReleaseRow, Probe, Echo, *WIDE, *CHAIN),
    ),
    "secondary": (
        *(Request, Repair, CatchUp, CatchUpPackets, GroupToken, GroupRequest),
        *(LineRequest, PathRow, ReleaseRow, Probe, Echo, *WIDE),
    ),
    "reformation": (Repair, Invite, Ring, GroupInvite, Group, LineHolders, LineRequest, PathRow, Probe, Echo),
    "floor": (PathRow, Probe, Echo, Parity),
    "operator": (PathRow, Probe, Echo, Parity),
    "authority": (),
}


def test_every_kind_on_the_wire_is_in_the_table() -> None:
    assert set(RULES) | SEALED_BY_SOURCE == set(KINDS.values())
    assert not set(RULES) & SEALED_BY_SOURCE


def test_the_numbers_of_kinds_are_those_of_the_codec() -> None:
    for message, name in (
        (Fault, "FAULT"),
        (Promised, "PROMISED"),
        (GroupToken, "GROUP_TOKEN"),
        (GroupRequest, "GROUP_REQUEST"),
        (GroupInvite, "GROUP_INVITE"),
        (Probe, "PROBE"),
        (Echo, "ECHO"),
        (LineRequest, "LINE_REQUEST"),
    ):
        assert getattr(roles, f"KIND_{name}") == KINDS[message]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sends_its_kinds_and_no_others(role: str) -> None:
    assert {kind for kind in KINDS.values() if may_send(kind, role)} == {KINDS[each] for each in SENDERS[role]}


def test_messages_that_others_pass_on_are_authored() -> None:
    assert {kind for kind in KINDS.values() if is_authored(kind)} == {
        KINDS[each] for each in (Token, Ring, Group, LineHolders, WideData, ChainMessage)
    }


def test_unknown_kinds_and_roles_send_nothing() -> None:
    assert not may_send(200, "receiver")
    assert not is_authored(200)
    assert not may_send(KINDS[Token], AUTHORITY)
    assert not may_send(KINDS[Token], "nobody")
