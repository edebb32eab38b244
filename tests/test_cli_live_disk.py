"""`levelcast disk`, as an operator meets it; the ring itself is in tests/system/test_disk.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.cli.live import disk as live_disk
from levelcast.network import Network
from levelcast.node.status_client import Answer
from levelcast.storage.advice import MARKER
from levelcast.storage.disk import lives
from levelcast.storage.journal.file import life_of
from levelcast.wire.messages import MemberLife, Membership
from tests.test_network import SMALL

runner = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(f"{SMALL}\n[status]\nport = 1\n", encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def run(command: str, *arguments: object) -> tuple[int, str]:
    result = runner.invoke(main.app, ["disk", command, *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def told(name: str, life: int, *lives_: int, version: int = 0, stands: bool = True) -> Answer:
    """A receiver's answer, in which the members 1, 2, 3 have these lives."""
    members = [{"id": member, "life": each} for member, each in enumerate(lives_, 1)]
    membership = {"version": version, "stands": stands, "members": members}
    return Answer(name, {"name": name, "life": life, "membership": membership, "sources": {"21": {"incarnation": 4}}})


class Running:
    """What the running receivers answer, and what is published to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[Answer] = []
        self.published: list[Membership] = []
        monkeypatch.setattr(live_disk, "ask_all", self._ask)
        monkeypatch.setattr(live_disk, "publish", self._publish)

    def _ask(self, network: Network, names: list[str], timeout_s: float) -> list[Answer]:
        told = {answer.name: answer for answer in self.answers}
        return [told.get(name, Answer(name, problem="not running")) for name in names]

    def _publish(self, network: Network, stripe: str, membership: Membership, incarnation: int, *_: Any) -> None:
        assert incarnation > 1_700_000_000_000_000_000
        self.published.append(membership)
        self.answers = [told("osaka-1", 1, *(each.life for each in membership.members), version=membership.version)]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(monkeypatch)


def test_every_stripe_has_a_journal_of_its_own(file: Path, data: Path) -> None:
    secondary = '[[secondary]]\nname = "tokyo-2"\nsite = "tokyo"\n'
    file.write_text(f"[stripes.main]\n[stripes.fx]\n{SMALL}{secondary}", encoding="utf-8")
    code, output = run("init", "--network", file, "--name", "tokyo-2", "--stripe", "fx", "--data", data)
    assert (code, output) == (0, f"{data / 'fx' / 'tokyo-2'}: created an empty journal, life 1\n")
    code, output = run("init", "--network", file, "--all", "--data", data)
    assert code == 0
    assert output.count("an empty journal, life 1") == 2 * 5  # a floor is in one stripe, and one was made before
    assert set(lives(data)) >= {"main/tokyo-2", "fx/tokyo-2", "main/XTKS", "fx/reform"}
    assert "fx/XTKS" not in lives(data)
    shutil.rmtree(data / "fx" / "tokyo-2")
    code, output = run("lost", "--network", file, "--name", "fx/tokyo-2", "--data", data)
    assert code == 0
    assert life_of(data / "fx" / "tokyo-2" / "journal") == 2
    assert "--name fx/tokyo-2" in output
    assert "replace" not in output  # nobody counts a secondary
    code, output = run("init", "--network", file, "--name", "XTKS", "--stripe", "fx", "--data", data)
    assert (code, output) == (2, "levelcast: XTKS sends on stripe main, not on fx\n")


def test_init_makes_every_journal_once(file: Path, data: Path) -> None:
    code, output = run("init", "--network", file, "--all", "--data", data)
    assert code == 0
    assert output.count("an empty journal, life 1") == 5
    assert lives(data) == dict.fromkeys(("tokyo-1", "osaka-1", "osaka-2", "reform", "XTKS"), 1)
    code, output = run("init", "--network", file, "--name", "tokyo-1", "--data", data)
    assert (code, output) == (0, f"{data / 'tokyo-1'}: already has a journal\n")
    shutil.rmtree(data / "tokyo-1")
    code, output = run("init", "--network", file, "--name", "tokyo-1", "--data", data)
    assert (code, output.count("\n")) == (2, 1)
    assert "so it is not a first start" in output


@pytest.mark.parametrize("arguments", [(), ("--all", "--name", "tokyo-1")])
def test_init_is_for_one_or_for_all(arguments: tuple[str, ...], file: Path, data: Path) -> None:
    code, output = run("init", "--network", file, "--data", data, *arguments)
    assert code == 2
    assert "pass either --name or --all" in output


def test_an_unknown_name_makes_nothing(file: Path, data: Path) -> None:
    code, output = run("init", "--network", file, "--name", "nobody", "--data", data)
    assert (code, output.count("\n")) == (2, 1)
    assert 'node "nobody" not found in the network' in output
    assert not data.exists()


def test_lost_takes_the_next_life_and_says_how_to_go_on(file: Path, data: Path, running: Running) -> None:
    run("init", "--network", file, "--all", "--data", data)
    code, output = run("lost", "--network", file, "--name", "tokyo-1", "--data", data)
    assert code == 0
    assert life_of(data / "tokyo-1" / "journal") == 2
    assert f"The remaining files are in {data / 'tokyo-1.lost-1'}" in output
    assert f"levelcast node --network {file} --name tokyo-1 --data {data}" in output
    assert f"levelcast disk replace --network {file} --name tokyo-1 --data {data}" in output


def test_the_ring_may_know_of_a_higher_life_than_the_directory(file: Path, data: Path, running: Running) -> None:
    running.answers = [told("osaka-1", 1, 1, 1, 1), told("osaka-2", 1, 3, 1, 1, version=2)]
    code, _ = run("lost", "--network", file, "--name", "tokyo-1", "--data", data)
    assert (code, life_of(data / "tokyo-1" / "journal")) == (0, 4)
    code, output = run("lost", "--network", file, "--name", "XTKS", "--data", data)
    assert (code, life_of(data / "XTKS" / "journal")) == (0, 5)
    assert "replace" not in output


@pytest.mark.parametrize("name", ["tokyo-1", "reform", "XTKS"])
def test_a_life_that_nobody_knows_has_to_be_given(name: str, file: Path, data: Path, running: Running) -> None:
    code, output = run("lost", "--network", file, "--name", name, "--data", data)
    assert (code, output.count("\n")) == (2, 1)
    assert "pass --life with a number higher than every earlier life (2 if its disk was never lost)" in output
    assert not data.exists()
    assert run("lost", "--network", file, "--name", name, "--data", data, "--life", 7)[0] == 0
    assert json.loads((data / MARKER).read_text())["lives"] == {name: 7}
    code, output = run("lost", "--network", file, "--name", name, "--data", data, "--life", 7)
    assert code == 2
    assert "has had life 7 here" in output


def test_the_disk_of_a_running_node_is_not_lost(file: Path, data: Path, running: Running) -> None:
    running.answers = [told("tokyo-1", 1, 1, 1, 1)]
    code, output = run("lost", "--network", file, "--name", "tokyo-1", "--data", data)
    assert code == 2
    assert "tokyo-1: still running" in output
    assert not data.exists()


def test_replace_publishes_the_next_version(file: Path, data: Path, running: Running) -> None:
    run("init", "--network", file, "--all", "--data", data)
    run("lost", "--network", file, "--name", "tokyo-1", "--data", data)
    running.answers = [told("osaka-1", 1, 1, 1, 1, version=3), told("osaka-2", 1, 1, 1, 1, version=2)]
    code, output = run("replace", "--network", file, "--name", "tokyo-1", "--data", data)
    assert code == 0
    assert running.published == [Membership(4, (MemberLife(1, 2), MemberLife(2, 1), MemberLife(3, 1)))]
    assert output == "Version 4 of the configured set is witnessed: tokyo-1 has life 2 in it.\n"
    code, output = run("replace", "--network", file, "--name", "tokyo-1", "--data", data)
    assert (code, len(running.published)) == (0, 1)
    assert "already has life 2 in the configured set" in output


def test_replace_takes_the_life_from_the_node_itself(file: Path, running: Running) -> None:
    running.answers = [told("osaka-1", 1, 1, 1, 1), told("tokyo-1", 5, 1, 1, 1)]
    code, output = run("replace", "--network", file, "--name", "tokyo-1", "--life", 6)
    assert (code, running.published) == (2, [])
    assert "tokyo-1 runs in life 5, but --life is 6" in output
    assert run("replace", "--network", file, "--name", "tokyo-1")[0] == 0
    assert running.published[0].members[0] == MemberLife(1, 5)


@pytest.mark.parametrize(
    ("answers", "arguments", "says"),
    [
        ([], ("--life", 2), "no receiver of the network replies"),
        ([told("osaka-1", 1, 1, 1, 1)], (), "start it, or pass --data or --life"),
        ([told("osaka-1", 1, 4, 1, 1)], ("--life", 2), "has life 4 in the configured set; life 2 is older"),
        (
            [told("osaka-1", 1, 1, 1, 1, stands=False)],
            ("--life", 2),
            "version 0 of the configured set is not witnessed",
        ),
        ([Answer("osaka-1", told("osaka-1", 1).status)], ("--life", 2), "node 1 is not in version 0"),
    ],
)
def test_what_cannot_be_replaced_is_one_sentence(
    answers: list[Answer], arguments: tuple[object, ...], says: str, file: Path, running: Running
) -> None:
    running.answers = answers
    code, output = run("replace", "--network", file, "--name", "tokyo-1", *arguments)
    assert (code, output.count("\n"), running.published) == (2, 1, [])
    assert says in output


def test_only_receivers_are_replaced(file: Path, running: Running) -> None:
    code, output = run("replace", "--network", file, "--name", "reform", "--life", 2)
    assert code == 2
    assert "reform is not a primary receiver" in output


def test_another_change_that_came_first_is_noticed(
    file: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.answers = [told("osaka-1", 1, 1, 1, 1)]

    def another_comes_first(*_: object) -> None:
        running.answers = [told("osaka-1", 1, 1, 9, 1, version=1)]

    monkeypatch.setattr(live_disk, "publish", another_comes_first)
    code, output = run("replace", "--network", file, "--name", "tokyo-1", "--life", 2)
    assert code == 2
    assert "another change of the configured set was witnessed first" in output
