"""Every role: its keys in the status, its place in the order of ports, and that only its own module knows it."""

from __future__ import annotations

import ast
import os
import socket
from pathlib import Path

import pytest

import levelcast
from levelcast.cli.live.status import _SUMMARIES
from levelcast.network import FiveCities, Network, five_cities, parse_network
from levelcast.network.placement import places
from levelcast.network.roles import ROLE_NAMED
from levelcast.network.roles import ROLES as KINDS
from levelcast.network.stripe_config import ring_config
from levelcast.node.node import Node
from levelcast.node.options import NodeOptions
from levelcast.node.roles import ROLES
from levelcast.storage.disk import initialise_disk

NOW = 1_700_000_000_000_000_000
CITIES = five_cities(FiveCities(network_id=os.getpid(), hold=None))
"""Another network in each process: they run at the same time, and a node runs only once."""
TREE = CITIES + '[[secondary]]\nname = "tokyo-2"\nsite = "tokyo"\n'
NAMES = {"receiver": "tokyo-1", "secondary": "tokyo-2", "reformation": "reform-london", "floor": "XLON"}

LINE = {
    *(
        "name",
        "id",
        "role",
        "stripe",
        "part",
        "site",
        "network",
        "keys",
        "clock_trusted",
        "datagrams_in",
        "datagrams_out",
    ),
    *("unknown_peer", "unknown_address", "send_refused", "malformed", "namesakes", "reports", "lost_on_purpose"),
    "detours",
}
PAGE = LINE | {
    *("version", "pid", "now_ns", "uptime_s", "cpu_s", "rss_bytes", "clock", "journal_bytes"),
    *("reformations", "events", "paths"),
}
RECEIVER_LINE = {
    *("state", "generation", "members", "ring", "have", "released_slot", "complete_upto_ns"),
    *("tape_records", "records", "frames", "late", "delayed", "max_behind_ns", "requests", "rings_entered", "edge"),
    *("tokens_sent", "tokens_delayed", "max_token_delay_ns"),
    "group",
}
SECONDARY_LINE = RECEIVER_LINE | {"home", "primary", "suspect"}
RECEIVER_PAGE = {
    *("life", "generation_number", "slot", "witnessed", "gaps", "late_share", "lateness", "membership"),
    "scheduling_delay",
    *("sources", "unlisted_sources", "tape_bytes", "tape_segments", "timing"),
}
SERVER_LINE = {"phase", "rings_formed", "groups", "groups_formed", "group_phase"}
FLOOR_LINE = {"packets_witnessed", "packets_unwitnessed", "published", "waiting"}
RECORDED = {
    "receiver": (LINE | RECEIVER_LINE, PAGE | RECEIVER_LINE | RECEIVER_PAGE),
    "secondary": (LINE | SECONDARY_LINE, PAGE | SECONDARY_LINE | RECEIVER_PAGE),
    "reformation": (LINE | SERVER_LINE, PAGE | SERVER_LINE | {"life"}),
    "floor": (LINE | FLOOR_LINE, PAGE | FLOOR_LINE | {"credit", "incarnation", "superseded"}),
}
"""Keys of the status line and of the status page, as programs of operators read them."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def keys_of(network: Network, name: str, data: Path) -> tuple[set[str], set[str]]:
    initialise_disk(data, name, ring_config(network).domain)
    node = Node(network, name, data, NOW, NodeOptions(realtime="off", status_port=free_port()))
    try:
        assert node._page is not None
        return set(node.status()), set(node._page.status(NOW))
    finally:
        node.close()


@pytest.mark.parametrize("role", list(NAMES))
def test_the_status_of_each_role_keeps_its_keys(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    line, page = RECORDED[role]
    assert keys_of(parse_network(TREE), NAMES[role], tmp_path) == (line, page)
    probing = parse_network(TREE + '[probe]\nevery = "1s"\n')
    assert keys_of(probing, NAMES[role], tmp_path) == (line | {"probes"}, page | {"probes"})


@pytest.mark.parametrize(("name", "absent"), [("tokyo-1", {"group"}), ("reform-london", {"groups", "groups_formed"})])
def test_without_secondaries_there_are_no_groups(
    name: str, absent: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)
    line, page = keys_of(parse_network(CITIES), name, tmp_path)
    assert not absent & (line | page)


def test_every_role_has_a_class_a_summary_and_its_place_in_the_order_of_ports() -> None:
    assert [kind.name for kind in KINDS] == ["receiver", "reformation", "floor", "secondary"]
    assert set(ROLES) == set(ROLE_NAMED) == {kind.name for kind in _SUMMARIES}
    assert all(ROLES[kind.name].KIND is kind for kind in KINDS)
    network = parse_network(TREE)
    assert [place.name for place in places(network)] == list(network.node_names)
    assert [place.role.name for place in places(network)] == sorted(
        (place.role.name for place in places(network)), key=[kind.name for kind in KINDS].index
    )


MACHINES = {"Listener", "Member", "Secondary", "ReformationServer", "ReformationAndGroupServer", "Source"}
SOURCE = Path(levelcast.__file__).parent
READERS = sorted(
    path
    for folder in ("node", "cli/live", "cli/demo", "client", "network/placement.py")
    for path in ((SOURCE / folder).rglob("*.py") if (SOURCE / folder).is_dir() else [SOURCE / folder])
    if "roles" not in path.parts
)


def switches_in(tree: ast.AST) -> list[str]:
    """Comparisons with a role's name, and checks for the class of a protocol machine."""
    found = []
    for node in ast.walk(tree):
        words = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
        compared = isinstance(node, ast.Compare) and "role" in ast.unparse(node) and texts & ROLE_NAMED.keys()
        checked = isinstance(node, ast.Call) and "isinstance" in words and words & MACHINES
        if compared or checked:
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_no_module_switches_on_a_role_or_on_the_class_of_a_machine(path: Path) -> None:
    assert switches_in(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_a_switch_would_be_found() -> None:
    for text in ('place.role == "floor"', 'said["role"] in ("receiver", "x")', "isinstance(m, Source | int)"):
        assert switches_in(ast.parse(text)) == [text.replace('"', "'")]
