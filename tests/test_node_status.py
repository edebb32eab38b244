"""What a node tells of itself, and in what form."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from typing import Any

import pytest

from levelcast import __version__
from levelcast.network import Network, parse_network
from levelcast.network.stripe_config import ring_config
from levelcast.node.node import Node
from levelcast.node.options import NodeOptions
from levelcast.node.status import BOUNDS_S, KEPT, DelayBuckets, EventLog, StatusService
from levelcast.protocol.effects import Release
from levelcast.protocol.events import FaultReceived, FaultReported, PromiseMade, RingEntered, RingFormed, Witnessed
from levelcast.protocol.history import GENESIS, make_frame
from levelcast.runtime.clock_sync import KernelClock, kernel_clock
from levelcast.storage.disk import initialise_disk
from levelcast.wire.messages import FaultReason, Packet
from levelcast.wire.packets import seal
from tests.status_parts import metrics_of
from tests.test_network import SMALL

NOW = 1_700_000_000_000_000_000
US = 1_000
NAMES = {"receiver": "tokyo-1", "reformation": "reform", "floor": "XTKS"}


@pytest.fixture
def network() -> Network:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return parse_network(f'{SMALL}\n[core]\naddress = "239.192.74.9"\nport = {port}\n')


@pytest.fixture
def start(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Node]]:
    """A node with a status page on a free port; it is not run."""
    nodes: list[Node] = []
    monkeypatch.setattr("levelcast.node.node.calm_garbage_collection", lambda: None)

    def make(name: str) -> Node:
        initialise_disk(tmp_path, name, ring_config(network).domain)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        nodes.append(Node(network, name, tmp_path, NOW, NodeOptions(realtime="off", status_port=port)))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def page_of(node: Node) -> StatusService:
    assert node._page is not None
    return node._page


def fetch(node: Node, path: str) -> tuple[str, str]:
    """Content type and body, over TCP, from the node's own loop."""
    page = page_of(node)
    with socket.create_connection(page.address, timeout=5) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        client.setblocking(False)
        answer = b""
        for _ in range(200):
            node.driver.turn()
            if select([client], (), (), 0)[0]:
                chunk = client.recv(1 << 20)
                if not chunk:
                    break
                answer += chunk
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    found = re.search(r"Content-Type: (.*)", head)
    assert found is not None
    return found[1].strip(), body


@pytest.mark.parametrize(
    ("role", "keys"),
    [
        (
            "receiver",
            {
                *("generation", "state", "slot", "released_slot", "have", "witnessed", "gaps", "requests", "late"),
                *("late_share", "lateness", "members", "membership", "sources", "life"),
                *("journal_bytes", "tape_records", "tape_bytes", "tape_segments"),
            },
        ),
        ("reformation", {"phase", "rings_formed", "life", "journal_bytes"}),
        ("floor", {"published", "waiting", "packets_unwitnessed", "credit", "incarnation", "journal_bytes"}),
    ],
)
def test_every_role_tells_what_it_does(role: str, keys: set[str], start: Callable[[str], Node]) -> None:
    node = start(NAMES[role])
    kind, body = fetch(node, "/status")
    status = json.loads(body)
    assert kind == "application/json; charset=utf-8"
    assert keys <= status.keys()
    assert {"name", "id", "role", "clock", "malformed", "reformations", "events", "cpu_s", "uptime_s"} <= status.keys()
    assert (status["name"], status["role"], status["version"]) == (NAMES[role], role, __version__)
    assert status["rss_bytes"] > 1_000_000
    assert status["journal_bytes"] > 0
    assert status["clock"]["trusted"] is True
    _, index = fetch(node, "/")
    assert index.startswith(f"{NAMES[role]}, {role} of a Levelcast network")


def test_a_receiver_tells_the_configured_set_with_its_lives(start: Callable[[str], Node]) -> None:
    status = page_of(start("tokyo-1")).status(NOW)
    assert status["membership"] == {
        "version": 0,
        "stands": True,
        "members": [{"id": 1, "life": 1}, {"id": 2, "life": 1}, {"id": 3, "life": 1}],
    }
    assert (status["state"], status["slot"], status["tape_segments"]) == ("NEW", 0, 1)
    assert status["tape_bytes"] > 0


def test_releases_are_counted_by_how_late_they_came(start: Callable[[str], Node]) -> None:
    page = page_of(start("tokyo-1"))
    frame = make_frame(1, NOW, 1, (seal(Packet(1, 1, 1, 1, b"x" * 64), 0),), GENESIS)
    for behind_ns in (-3 * US, 0, 10 * US, 11 * US, 999 * US, 60_000_000 * US):
        page.released(Release(frame, NOW, False), b"", NOW + behind_ns)
    lateness = page.status(NOW)["lateness"]
    assert lateness["counts"][:2] == [3, 1]
    assert lateness["counts"][BOUNDS_S.index(1e-3)] == 1
    assert lateness["counts"][-1] == 1
    assert lateness["sum_s"] == pytest.approx(60.00102)


def test_the_scheduling_delay_is_counted_apart_from_the_lateness(start: Callable[[str], Node]) -> None:
    page = page_of(start("tokyo-1"))
    frame = make_frame(1, NOW, 1, (seal(Packet(1, 1, 1, 1, b"x" * 64), 0),), GENESIS)
    page.released(Release(frame, NOW, True, ready_ns=NOW + 50_000 * US), b"", NOW + 50_010 * US)
    status = page.status(NOW)
    assert status["scheduling_delay"]["counts"][0] == 1
    assert status["lateness"]["counts"][0] == 0


def test_a_bound_belongs_to_its_bucket() -> None:
    lateness = DelayBuckets()
    for bound in BOUNDS_S:
        lateness.add(round(bound * 1e9))
    assert lateness.as_json()["counts"] == [1] * len(BOUNDS_S) + [0]


GENERATION = 2 << 32 | 201 << 16
EVENT_NAMES = {1: "tokyo-1", 3: "sydney-1", 102: "london-1", 103: "zurich-1", 201: "reform-london"}


def test_a_reformation_has_the_fault_before_it_as_its_cause() -> None:
    log = EventLog("tokyo-1", EVENT_NAMES)
    log.note(FaultReported(5, FaultReason.TOKEN_MISSING, 3), 10)
    log.note(PromiseMade(5, GENERATION), 11)
    log.note(RingEntered(6, GENERATION, (1, 2)), 12)
    log.note(RingEntered(9, GENERATION + (1 << 32), (1, 2, 3)), 20)
    told = log.as_json()
    assert [(each["at_ns"], each["cause"], each["slot"]) for each in told["reformations"]] == [
        (12, "tokyo-1 reported a missing token of sydney-1", 6),
        (20, "invited", 9),
    ]
    assert [each["kind"] for each in told["events"]] == ["fault", "promised", "entered", "entered"]
    assert told["events"][2]["detail"] == "generation 2@reform-london, members tokyo-1, 2"
    assert (told["events"][0]["reason"], told["events"][0]["suspect"]) == (FaultReason.TOKEN_MISSING, 3)


def test_a_server_reports_the_slot_at_which_a_ring_starts_and_the_fault_it_received() -> None:
    log = EventLog("tokyo-1", EVENT_NAMES)
    log.note(FaultReceived(0, FaultReason.TOKEN_MISSING, 102, 103), 10)
    log.note(RingFormed(0, GENERATION, 40, (101, 102)), 11)
    told = log.as_json()
    assert [(each["cause"], each["slot"]) for each in told["reformations"]] == [
        ("london-1 reported a missing token of zurich-1", 40)
    ]
    assert told["events"][1]["slot"] == 40


def test_only_the_last_reports_are_kept() -> None:
    log = EventLog("tokyo-1", EVENT_NAMES)
    for number in range(3 * KEPT):
        log.note(RingEntered(number, GENERATION, (1, 2)), number)
    assert [each.slot for each in log.reformations] == list(range(2 * KEPT, 3 * KEPT))
    assert len(log.events) == KEPT


def test_reports_of_the_ring_reach_the_page(start: Callable[[str], Node]) -> None:
    node = start("tokyo-1")
    node._note(Witnessed(4))
    node._note(FaultReported(5, FaultReason.TOKEN_MISSING, 3))
    node._note(FaultReported(5, FaultReason.OUTSIDE, 0))
    events = page_of(node).status(NOW)["events"]
    assert [(each["kind"], each["detail"]) for each in events] == [
        ("fault", "reports a missing token of osaka-2"),
        ("request", "asks to join the ring"),
    ]


# -- metrics ----------------------------------------------------------------------------------------------

_SAMPLE = re.compile(r'(levelcast_[a-z0-9_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')


def read_metrics(text: str) -> dict[str, dict[str, float]]:
    """Samples by family, as a strict reader of the format takes them: HELP, TYPE, then the family's samples."""
    families: dict[str, dict[str, float]] = {}
    family = kind = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families, "a family is in one piece"
            assert len(line.split(" ", 3)[3]) > 5
            families[family] = {}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family
            assert kind in ("counter", "gauge", "histogram")
            assert (kind == "counter") == name.endswith("_total")
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert match[1] in {family + suffix for suffix in suffixes}
            families[family][f"{match[1]}{{{match[2]}}}"] = float(match[3])
    return families


@pytest.mark.parametrize("role", list(NAMES))
def test_metrics_are_in_the_format_that_prometheus_reads(role: str, start: Callable[[str], Node]) -> None:
    kind, text = fetch(start(NAMES[role]), "/metrics")
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = read_metrics(text)
    labels = f'node="{NAMES[role]}",role="{role}"'
    assert families["levelcast_info"] == {f'levelcast_info{{{labels},version="{__version__}"}}': 1}
    assert families["levelcast_clock_trusted"] == {f"levelcast_clock_trusted{{{labels}}}": 1}
    assert families["levelcast_cpu_seconds_total"][f"levelcast_cpu_seconds_total{{{labels}}}"] > 0
    assert ("levelcast_release_lateness_seconds" in families) == (role == "receiver")


def example_status() -> dict[str, Any]:
    lateness = DelayBuckets()
    for behind_ns in (5 * US, 30 * US, 30 * US, 60_000_000 * US):
        lateness.add(behind_ns)
    return {
        "name": "tokyo-1",
        "role": "receiver",
        "version": "1",
        "state": "ACTIVE",
        "late": 2,
        "malformed": {"bad seal": 3, 'a "quoted" one\\': 1},
        "edge": {"packets": 7, "refused": {"gone": 2}, "unsent": {}, "address": "127.0.0.1:4"},
        "lateness": lateness.as_json(),
        "clock": {
            "trusted": False,
            "drift_ns": 1_500_000,
            "kernel": None,
            "vouched": True,
            "error_ns": 250_000,
            "group_offset_ns": None,
            "leap_announced": False,
            "members": {"london-1": {"offset_ns": -2_000_000}, "new-york-1": {"offset_ns": None}},
        },
    }


def test_a_histogram_adds_up_and_labels_are_escaped() -> None:
    families = read_metrics(metrics_of(example_status()))
    labels = 'node="tokyo-1",role="receiver"'
    lateness = families["levelcast_release_lateness_seconds"]
    prefix = "levelcast_release_lateness_seconds"
    assert lateness[f'{prefix}_bucket{{{labels},le="1e-05"}}'] == 1
    assert lateness[f'{prefix}_bucket{{{labels},le="5e-05"}}'] == 3
    assert lateness[f'{prefix}_bucket{{{labels},le="10"}}'] == 3
    assert lateness[f'{prefix}_bucket{{{labels},le="+Inf"}}'] == lateness[f"{prefix}_count{{{labels}}}"] == 4
    assert families["levelcast_malformed_total"] == {
        f'levelcast_malformed_total{{{labels},reason="a \\"quoted\\" one\\\\"}}': 1,
        f'levelcast_malformed_total{{{labels},reason="bad seal"}}': 3,
    }
    assert families["levelcast_late_releases_total"] == {f"levelcast_late_releases_total{{{labels}}}": 2}
    assert families["levelcast_clock_trusted"] == {f"levelcast_clock_trusted{{{labels}}}": 0}
    assert families["levelcast_clock_drift_seconds"] == {f"levelcast_clock_drift_seconds{{{labels}}}": 0.0015}
    assert families["levelcast_clock_error_bound_seconds"] == {
        f"levelcast_clock_error_bound_seconds{{{labels}}}": 0.00025
    }
    offsets = {f'levelcast_clock_member_offset_seconds{{{labels},peer="london-1"}}': -0.002}
    assert families["levelcast_clock_member_offset_seconds"] == offsets
    assert families["levelcast_clock_vouched"] == {f"levelcast_clock_vouched{{{labels}}}": 1}
    assert "levelcast_clock_group_offset_seconds" not in families
    assert "levelcast_clock_synchronised" not in families
    assert families["levelcast_edge_packets_total"] == {f"levelcast_edge_packets_total{{{labels}}}": 7}
    assert families["levelcast_edge_refused_total"] == {f'levelcast_edge_refused_total{{{labels},reason="gone"}}': 2}
    assert "levelcast_edge_unsent_total" not in families
    assert families["levelcast_state"][f'levelcast_state{{{labels},state="ACTIVE"}}'] == 1
    assert sum(families["levelcast_state"].values()) == 1


def test_the_kernel_is_asked_and_nothing_is_changed() -> None:
    told = kernel_clock()
    assert told is None or isinstance(told, KernelClock)
    assert told is None or told.max_error_ns >= 0
