"""The live picture of the demo fits the terminal and says who is where."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from levelcast.cli.demo.event_text import EventText
from levelcast.cli.demo.screen import picture
from levelcast.network import five_cities, parse_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster, NodeKilled
from levelcast.node.demo.run import Show
from levelcast.node.options import NodeOptions

WORLD = "delays ÷ 5: 1.5 to 30 ms, 1 % loss; a token every 20 ms, release 1.53 s after it"


class Running:
    """A process that is there."""

    pid = 1

    def poll(self) -> int | None:
        return None


class Dead(Running):
    def poll(self) -> int | None:
        return -9


@pytest.fixture
def show(tmp_path: Path) -> Show:
    network = parse_network(five_cities())
    cluster = Cluster(network, tmp_path / "network.toml", tmp_path, NodeOptions(rate=1))
    show = Show(cluster, 12.0, 10.0)
    for name, member in cluster.members.items():
        member.process = cast("subprocess.Popen[str]", Dead() if name == "tokyo-1" else Running())
        if member.place.role is RECEIVER:
            member.status = {"state": "ACTIVE", "generation": "3@201", "members": [101, 102, 103, 105]}
            member.status |= {"have": 1_234, "tape_records": 123_456, "requests": 12_345, "lost_on_purpose": 12_345}
        else:
            member.status = {"published": 123_456, "waiting": 1_234, "packets_unwitnessed": 64}
    cluster.members["sydney-1"].status["have"] = 100
    cluster.members["london-1"].status["generation"] = "2@201"
    show.lives.look()
    return show


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_it_fits_the_terminal_and_nothing_is_cut(show: Show, width: int, height: int) -> None:
    tale = EventText(show.cluster.network)
    for _ in range(50):
        tale.add(99.9, "tokyo-1", NodeKilled(0))
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(show, tale, WORLD, width, height))
    lines = capture.get().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "…" not in capture.get()
    assert "ring 3, 4 members" in lines[0]
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "DOWN" in rows["tokyo-1"]
    assert "catch-up" in rows["sydney-1"]
    assert "old ring" in rows["london-1"]
    assert "in ring" in rows["new-york-1"]
    assert "123,456" in rows["XASX"]
    assert "tokyo-1 is killed" in lines[-1]


def test_where_there_are_many_floors_the_rest_are_added_up(show: Show) -> None:
    console = Console(width=80, height=20, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(show, EventText(show.cluster.network), WORLD, 80, 18))
    assert "+ 3" in capture.get()
    assert "370,368" in capture.get()
