"""`levelcast status`, against responders that say what a network might say."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.cli.live.status import _p99
from levelcast.errors import NetError
from levelcast.network import Network, load_network, parse_network
from levelcast.node.http_server import Page, Responder
from levelcast.node.status_client import Answer, ask_all, in_one_ring
from tests.network_parts import free_ports
from tests.test_network import SMALL

runner = CliRunner()
NODES = ("tokyo-1", "osaka-1", "osaka-2", "reform", "XTKS")
NOW = 1_700_000_000_000_000_000
Status = dict[str, Any]


def common(name: str, role: str) -> Status:
    clock = {"trusted": True, "drift_ns": 0, "kernel": None}
    return {"name": name, "id": 7, "role": role, "clock": clock, "now_ns": NOW, "reformations": [], "events": []}


def receiver(name: str) -> Status:
    return common(name, "receiver") | {
        **{"state": "ACTIVE", "generation": "2@11", "slot": 1240, "have": 1239, "released_slot": 1200, "gaps": 1},
        **{"requests": 3, "late": 2, "late_share": 0.01, "records": 900, "tape_records": 1234, "rings_entered": 2},
        "complete_upto_ns": NOW - 500_000_000,
        "scheduling_delay": {"bounds_s": [0.0005, 0.001], "counts": [980, 11, 9], "sum_s": 0.5},
    }


def all_well() -> dict[str, Status]:
    """By name, what each node says."""
    formed = {"at_ns": NOW, "cause": "token missing from 3", "slot": 9, "detail": "generation 2 at slot 9: 1, 2"}
    server = common("reform", "reformation") | {"phase": "IDLE", "rings_formed": 2, "reformations": [formed]}
    floor = common("XTKS", "floor") | {"published": 1000, "waiting": 5, "packets_unwitnessed": 3, "credit": 64}
    return {**{name: receiver(name) for name in NODES[:3]}, "reform": server, "XTKS": floor}


class Served:
    """Responders at the ports that a network file gives its nodes, in a thread."""

    def __init__(self, network: Network, statuses: dict[str, Status]) -> None:
        self.statuses = statuses
        self.responders: dict[str, Responder] = {}
        for name in network.node_names:
            address = network.status_address(name)
            assert address is not None
            self.responders[name] = Responder(address, {"/status": self._page(name)})
        self.hung: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _page(self, name: str) -> Callable[[int], Page]:
        return lambda now: Page("application/json", json.dumps(self.statuses[name]))

    def silence(self, name: str) -> None:
        """The node goes away: nobody listens there any more."""
        self._stop()
        self.responders.pop(name).close()
        self._ended.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            responders = [each for name, each in self.responders.items() if name not in self.hung]
            ready = select([fileno for each in responders for fileno in each.filenos], (), (), 0.005)[0]
            for each in responders:
                each.step([fileno for fileno in ready if fileno in each.filenos], time.time_ns())

    def _stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def close(self) -> None:
        self._stop()
        for each in self.responders.values():
            each.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A network file whose status ports nobody has."""
    path = tmp_path / "network.toml"
    path.write_text(f"{SMALL}\n[status]\nport = {free_ports(len(NODES))}\n", encoding="utf-8")
    return path


@pytest.fixture
def served(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("COLUMNS", "220")
    made = Served(load_network(file), all_well())
    yield made
    made.close()


def run(*arguments: object) -> tuple[int, str]:
    result = runner.invoke(main.app, ["status", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_network_that_is_well_is_exit_code_0(served: Served, file: Path) -> None:
    code, output = run("--network", file, "--timeout", "5s")
    assert code == 0
    for name in NODES:
        assert name in output
    assert re.search(r"tokyo-1 +7 +receiver +ACTIVE +2@11 +1,240 +1,239 +1 +3 +2 \(1\.0%\) +≤ 1 ms", output)
    assert "1,234 records on tape, complete up to 0.50 s ago" in output
    assert "1,000 records published, 5 waiting; 3 of 64 packets unwitnessed" in output
    assert re.search(r"reform +token missing from 3 +generation 2 at slot 9: 1, 2", output)
    assert "not in one ring" not in output


def test_the_p99_of_the_scheduling_delay_is_that_of_its_bucket() -> None:
    bounds = [0.0005, 0.001]
    assert _p99({"bounds_s": bounds, "counts": [990, 10, 0]}) == "≤ 0.5 ms"
    assert _p99({"bounds_s": bounds, "counts": [989, 11, 0]}) == "≤ 1 ms"
    assert _p99({"bounds_s": bounds, "counts": [0, 0, 5]}) == "> 0.001 s"
    assert _p99({"bounds_s": bounds, "counts": [0, 0, 0]}) == ""


def test_a_node_that_does_not_answer_is_shown_and_exit_code_1(served: Served, file: Path) -> None:
    served.silence("osaka-2")
    code, output = run("--network", file, "--timeout", "5s")
    assert code == 1
    assert re.search(r"osaka-2 +no reply .*not running", output)
    assert re.search(r"tokyo-1 +7 +receiver +ACTIVE", output)
    code, output = run("--network", file, "--timeout", "5s", "--node", "tokyo-1", "--node", "XTKS")
    assert code == 0
    assert "osaka-2" not in output


def test_receivers_in_two_rings_are_exit_code_1(served: Served, file: Path) -> None:
    served.statuses["osaka-1"]["generation"] = "3@11"
    code, output = run("--network", file, "--timeout", "5s")
    assert code == 1
    assert "The receivers are not in one ring." in output


def test_what_is_wrong_is_said(served: Served, file: Path) -> None:
    served.statuses["osaka-1"] |= {"state": "SILENT", "namesakes": 4, "malformed": {"bad seal": 3}}
    served.statuses["osaka-1"]["clock"]["trusted"] = False
    code, output = run("--network", file, "--timeout", "5s")
    assert code == 1
    assert re.search(r"osaka-1 .*SILENT.* wrong ", output)
    assert "Another process also runs as osaka-1" in output
    assert "osaka-1 rejected malformed datagrams: bad seal 3." in output


@pytest.mark.parametrize(
    ("doubt", "says"),
    [
        ("bound", "its error may be 2.5 ms, above clock_error."),
        ("offset", "it is -7 ms from the median member."),
        ("apart", "no majority of the members can agree with it."),
        ("leap", "a leap second is due."),
        ("later", "later."),
    ],
)
def test_a_clock_that_is_not_trusted_is_said_with_the_reason(doubt: str, says: str, served: Served, file: Path) -> None:
    values = {"trusted": False, "doubt": doubt, "vouched": True, "error_ns": 2_500_000, "group_offset_ns": -7_000_000}
    served.statuses["osaka-1"]["clock"] |= values
    _, output = run("--network", file, "--timeout", "5s")
    assert re.search(r"osaka-1 .* wrong ", output)
    assert f"osaka-1 does not trust its clock: {says}" in output


def test_clocks_that_nobody_vouches_for_and_bounds_are_said(served: Served, file: Path) -> None:
    for name in ("tokyo-1", "osaka-1"):
        served.statuses[name]["clock"] |= {"vouched": False, "doubt": None, "error_ns": 1_000_000}
    served.statuses["osaka-2"]["clock"] |= {"vouched": True, "doubt": None, "error_ns": 312_000}
    code, output = run("--network", file, "--timeout", "5s")
    assert code == 0
    assert "No time source vouches for the clocks of tokyo-1, osaka-1; the file's clock_error is believed." in output
    assert re.search(r"osaka-2 .* ±0.312 ms", output)


def test_subscribers_that_miss_the_bound_are_said(served: Served, file: Path) -> None:
    worst = {"address": "10.0.0.7:4242", "bound_ns": 25_000_000, "needed_ns": 31_000_000, "late": 4, "records": 96}
    found = {"subscribers": 1_200, "spread_ns": 400_000, "spread_on_arrival_ns": 30_500_000, "worst": [worst]}
    served.statuses["osaka-1"]["edge"] = {"together": {**found, "missing": 3}}
    served.statuses["tokyo-1"]["edge"] = {"together": None}
    _, output = run("--network", file, "--timeout", "5s")
    told = "1,200 subscribers of osaka-1 deliver together: their spread is 400 µs, on arrival 30.5 ms."
    assert told in output
    bound = "Subscriber 10.0.0.7:4242 misses the bound of 25 ms: its p99 delay is 31 ms, 4.0% of its records were late."
    assert bound in output
    assert "2 other subscribers of osaka-1 miss it, too." in output


def test_a_clock_that_is_compared_at_the_start_is_not_called_wrong(served: Served, file: Path) -> None:
    served.statuses["osaka-1"]["clock"] |= {"trusted": False, "doubt": None, "was_set": False}
    _, output = run("--network", file, "--timeout", "5s")
    assert re.search(r"osaka-1 .* checking ", output)
    served.statuses["osaka-1"]["clock"]["was_set"] = True
    _, output = run("--network", file, "--timeout", "5s")
    assert re.search(r"osaka-1 .* wrong ", output)


def test_json_is_everything_in_one_object(served: Served, file: Path) -> None:
    code, output = run("--network", file, "--timeout", "5s", "--json")
    said = json.loads(output)
    assert code == 0
    assert said["well"] is said["one_ring"] is True
    assert said["silent"] == {}
    assert said["nodes"] == served.statuses


def test_watching_goes_on_until_it_is_stopped(served: Served, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        served.statuses["tokyo-1"]["slot"] = 5000
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("levelcast.cli.live.status.time.sleep", nap)
    code, output = run("--network", file, "--timeout", "5s", "--watch")
    assert (code, naps) == (0, [1.0] * 3)
    assert "5,000" in output


def test_another_program_at_the_port_is_no_node(served: Served, file: Path) -> None:
    served.statuses["tokyo-1"] = {"name": "somebody else"}
    served.statuses["osaka-1"] = []  # type: ignore[assignment]
    answers = {answer.name: answer for answer in ask_all(load_network(file), ("tokyo-1", "osaka-1"), 5.0)}
    assert answers["tokyo-1"].problem == "another node answers: somebody else"
    assert answers["osaka-1"].problem == "not a status page"


def test_a_node_that_hangs_does_not_hold_up_the_others(served: Served, file: Path) -> None:
    served.hung.add("osaka-1")  # the kernel takes the connection, and then nothing comes
    answers = {answer.name: answer for answer in ask_all(load_network(file), (), 1.0)}
    assert answers["osaka-1"].problem == "no answer within 1 s"
    assert sum(answer.ok for answer in answers.values()) == len(NODES) - 1


def test_what_cannot_be_asked_is_one_sentence(file: Path) -> None:
    code, output = run("--network", file, "--node", "nobody")
    assert (code, output.count("\n")) == (2, 1)
    assert 'node "nobody" not found in the network file; choose one of tokyo-1, ' in output
    with pytest.raises(NetError, match=r"has no \[status\]"):
        ask_all(parse_network(SMALL))
    assert run("--network", file, "--timeout", "soon")[0] == 2


def test_one_ring_is_one_generation_of_active_receivers() -> None:
    one, other = Answer("a", receiver("a")), Answer("b", receiver("b"))
    assert in_one_ring([one, other, Answer("XTKS", common("XTKS", "floor"))])
    assert not in_one_ring([one, Answer("b", receiver("b") | {"state": "OUTSIDE"})])
    assert not in_one_ring([one, Answer("b", receiver("b") | {"generation": "9@11"})])
