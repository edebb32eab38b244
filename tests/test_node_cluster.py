"""How the nodes of a cluster are started, and what a receiver tells of its ring."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from levelcast.cli.network_file.hold import missing_holds
from levelcast.network import FiveCities, five_cities, parse_network
from levelcast.network.placement import Placement
from levelcast.network.roles import RECEIVER, SECONDARY
from levelcast.node.cluster import Cluster, Launcher
from levelcast.node.options import NodeOptions
from levelcast.node.roles.releasing import ring_as_json
from levelcast.ring.member import Member
from levelcast.storage.journal.file import JournalFile
from levelcast.wire.header import domain_of
from tests.ring_parts import START, Seat, make_config, make_ring, seat_in_ring


class NoProcess:
    """What stands where a process would be."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.command = command
        self.stdout = io.StringIO('{"name": "tokyo-1"}\n{"name"')
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        return 0


def nowhere_else(place: Placement) -> tuple[list[str], list[str]]:
    return [], []


def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> list[str]:
    """The command by which tokyo-1 is started."""
    monkeypatch.setattr(subprocess, "Popen", NoProcess)
    cluster = Cluster(parse_network(five_cities()), Path("n.toml"), tmp_path, NodeOptions(), launcher)
    cluster.start("tokyo-1")
    member = cluster.members["tokyo-1"]
    assert isinstance(member.process, NoProcess)
    assert member.reader is not None
    member.reader.join()
    assert member.status == {"name": "tokyo-1"}  # a line that was cut off says nothing
    return member.process.command


def test_a_launcher_puts_a_node_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launcher(place: Placement) -> tuple[list[str], list[str]]:
        return ["ip", "netns", "exec", place.site], ["--interface", "10.0.0.4"]

    plain = launched(tmp_path, monkeypatch, nowhere_else)
    assert plain[:4] == [sys.executable, "-m", "levelcast", "node"]
    moved = launched(tmp_path, monkeypatch, launcher)
    assert moved == ["ip", "netns", "exec", "tokyo", *plain, "--interface", "10.0.0.4"]


def test_a_cluster_runs_every_stripe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", NoProcess)
    text = five_cities(FiveCities(hold=None)).replace(
        "# [stripes.main]\n# [stripes.slow]", "[stripes.main]\n[stripes.slow]"
    )
    network = parse_network(text + '[[secondary]]\nname = "tokyo-2"\nsite = "tokyo"\n')
    cluster = Cluster(network, Path("n.toml"), tmp_path, NodeOptions(), nowhere_else)
    cluster.start_all(SECONDARY)
    commands: dict[str, list[str]] = {}
    for name, member in cluster.members.items():
        if isinstance(member.process, NoProcess):
            commands[name] = member.process.command[4:]
    assert set(commands) == {"main/tokyo-2", "slow/tokyo-2"}
    assert commands["slow/tokyo-2"][-2:] == ["--stripe", "slow"]
    opened = [JournalFile.open(tmp_path / name / "journal")[0] for name in commands]
    assert {journal.identity.domain for journal in opened} == {domain_of(network.id, stripe) for stripe in (0, 1)}
    for journal in opened:
        journal.close()
    assert len(cluster.releasing) == 2 * 6


def test_a_receiver_tells_by_which_schedule_it_sends() -> None:
    assert Seat(make_config()).receiver.status(START).listener.ring is None
    receiver: Member = seat_in_ring(ring=make_ring(members=(1, 2, 3), start_slot=7)).receiver
    assert ring_as_json(receiver.status(START).listener.ring) == {
        "start_slot": 7,
        "start_ns": START,
        "slot_ns": receiver.timing.slot_ns,
        "members": [1, 2, 3],
    }


def test_nodes_are_given_the_hold_time_of_their_stripe_if_the_file_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", NoProcess)
    network = parse_network(five_cities(FiveCities(hold=None)))
    holds = missing_holds(network, quiet=True)
    assert holds == {"main": 417_000_000}
    assert missing_holds(parse_network(five_cities())) == {}
    cluster = Cluster(network, Path("n.toml"), tmp_path, NodeOptions(), nowhere_else, holds=holds)
    cluster.start_all(RECEIVER)
    for member in cluster.of_role(RECEIVER):
        assert isinstance(member.process, NoProcess)
        command = member.process.command
        assert command[command.index("--hold") + 1] == "417ms"
