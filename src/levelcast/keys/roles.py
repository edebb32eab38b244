"""The roles that may send each kind of message, as a table of every kind on the wire (K13).

Data are not in it: the key of a packet names its source (K6). A kind that is not in the table is refused, and a test
compares the table with the kinds of `levelcast.wire.codec`.

| column     | meaning                                                                                              |
|------------|------------------------------------------------------------------------------------------------------|
| `roles`    | roles by the statement whose nodes may be the sender in the header                                   |
| `authored` | others pass it on and its author may repeat it: exact repetitions are accepted, and cost no check    |
"""

from __future__ import annotations

from typing import NamedTuple

from levelcast.keys.statement import FLOOR, OPERATOR, RECEIVER, REFORMATION, SECONDARY
from levelcast.native.layout import KIND_DATA
from levelcast.wire.chain_codec import KIND_CHAIN_MESSAGE
from levelcast.wire.codec import KIND_PATH_ROW, KIND_RELEASE_ROW, KIND_REPAIR
from levelcast.wire.group_codec import KIND_GROUP
from levelcast.wire.line_codec import KIND_LINE_HOLDERS
from levelcast.wire.parity import KIND_PARITY
from levelcast.wire.reformation_codec import KIND_INVITE, KIND_JOIN, KIND_RING
from levelcast.wire.token_codec import (
    KIND_BEAT,
    KIND_CATCH_UP,
    KIND_CATCH_UP_PACKETS,
    KIND_REQUEST,
    KIND_TOKEN,
)
from levelcast.wire.wide_codec import KIND_WIDE_DATA

KIND_FAULT, KIND_PROMISED, KIND_GROUP_TOKEN, KIND_GROUP_REQUEST, KIND_GROUP_INVITE = 6, 9, 11, 12, 13
KIND_PROBE, KIND_ECHO, KIND_LINE_REQUEST = 15, 16, 19
WIDE_GROUP_KINDS, CHAIN_KINDS = range(23, 32), (*range(32, 36), 37)

_PRIMARIES = frozenset({RECEIVER})
_SECONDARIES = frozenset({SECONDARY})
_RELEASING = _PRIMARIES | _SECONDARIES
_SERVERS = frozenset({REFORMATION})
_CORE = _RELEASING | _SERVERS
_ALL = _CORE | {FLOOR, OPERATOR}


class KindRule(NamedTuple):
    """The senders of one kind."""

    roles: frozenset[str]
    authored: bool = False


RULES: dict[int, KindRule] = {
    KIND_TOKEN: KindRule(_PRIMARIES, authored=True),
    KIND_BEAT: KindRule(_PRIMARIES),
    KIND_REQUEST: KindRule(_RELEASING),
    KIND_REPAIR: KindRule(_CORE),
    KIND_CATCH_UP: KindRule(_RELEASING),
    KIND_CATCH_UP_PACKETS: KindRule(_RELEASING),
    KIND_FAULT: KindRule(_PRIMARIES),
    KIND_INVITE: KindRule(_SERVERS),
    KIND_JOIN: KindRule(_PRIMARIES),
    KIND_PROMISED: KindRule(_PRIMARIES),
    KIND_RING: KindRule(_SERVERS, authored=True),
    KIND_GROUP_TOKEN: KindRule(_SECONDARIES),
    KIND_GROUP_REQUEST: KindRule(_RELEASING),
    KIND_GROUP_INVITE: KindRule(_SERVERS),
    KIND_GROUP: KindRule(_SERVERS, authored=True),
    KIND_LINE_HOLDERS: KindRule(_SERVERS, authored=True),
    KIND_LINE_REQUEST: KindRule(_CORE),
    KIND_PROBE: KindRule(_ALL),
    KIND_ECHO: KindRule(_ALL),
    KIND_PATH_ROW: KindRule(_ALL),
    KIND_RELEASE_ROW: KindRule(_RELEASING),
    KIND_PARITY: KindRule(frozenset({FLOOR, OPERATOR})),
    **{kind: KindRule(_RELEASING, authored=kind == KIND_WIDE_DATA) for kind in WIDE_GROUP_KINDS},
    **{kind: KindRule(_PRIMARIES, authored=kind == KIND_CHAIN_MESSAGE) for kind in CHAIN_KINDS},
}
"""Every kind but Data. Timing records and membership are packets of source 0, which only the operator can seal."""

SEALED_BY_SOURCE = frozenset({KIND_DATA})


def may_send(kind: int, role: str) -> bool:
    """Return whether a node of a role may send a kind."""
    rule = RULES.get(kind)
    return rule is not None and role in rule.roles


def is_authored(kind: int) -> bool:
    """Return whether a kind is passed on by others than its author."""
    rule = RULES.get(kind)
    return rule is not None and rule.authored
