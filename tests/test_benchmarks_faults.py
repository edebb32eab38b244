"""The fault campaigns: whose slot it is, what is read from tapes and logs, what the timing implies; and one short run.

No test looks at how fast anything was: the machines are shared.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import faults, namespaces
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.recovery import (
    Content,
    Era,
    Fault,
    FloorClaim,
    eras_of,
    floor_problems,
    implied,
    late_share,
    measure,
    token_site,
)
from levelcast.network import Network, load_network
from levelcast.network.warnings import warnings
from levelcast.records import RecordArray
from levelcast.ring.schedule import Schedule
from levelcast.storage.release_log import LATE, RELEASE
from levelcast.wire.messages import Era as RingEra
from levelcast.wire.messages import MemberLife, Membership, Ring

MS = 1_000_000
S = 1_000_000_000
SLOT = 5 * MS


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return load_network(faults.write_network(tmp_path))


# -- whose slot it is --------------------------------------------------------------------------------------


def test_the_token_site_is_the_one_of_the_schedule() -> None:
    lives = tuple(MemberLife(member, 1) for member in (103, 101, 102))
    ring = Ring(7, 201, 103, Membership(0, lives), True, lives, (RingEra(7, 40, 1000 * S),), ())
    schedule = Schedule(ring, SLOT)
    said = {"start_slot": 40, "start_ns": 1000 * S, "slot_ns": SLOT, "members": [103, 101, 102]}
    for passed in (0, 1, SLOT - 1, SLOT, 2 * SLOT, 3 * SLOT, 1000 * SLOT + 7):
        now = 1000 * S + passed
        assert token_site(said, now) == schedule.owner_of(schedule.slot_at(now))
    assert token_site(said, 1000 * S - 1) is None


# -- tapes and logs ----------------------------------------------------------------------------------------


def test_an_era_begins_where_the_schedule_does_not_go_on() -> None:
    slots = np.array([2, 3, 5, 6, 9, 10])
    timestamps = np.array([10, 15, 25, 1003, 1018, 2000]) * MS
    assert eras_of(slots, timestamps, SLOT) == [Era(2, 10 * MS), Era(6, 1003 * MS), Era(10, 2000 * MS)]
    assert eras_of(slots[:0], timestamps[:0], SLOT) == []


def log_of(*releases: tuple[int, int] | tuple[int, int, int]) -> RecordArray:
    """(slot, released in ms, late or not)."""
    rows = [(each[0], 1, 0, each[1] * MS, 0, 1, each[2] if len(each) > 2 else 0) for each in releases]
    return np.array(rows, RELEASE)


def test_a_fault_is_over_with_the_first_release_of_the_next_ring_elsewhere() -> None:
    logs = {
        "a": log_of((1, 100), (2, 105), (3, 112), (4, 230), (5, 235), (9, 3000)),
        "b": log_of((1, 100), (2, 105), (3, 110), (4, 228), (5, 235), (9, 3000)),
        "c": log_of((1, 100), (2, 900, LATE), (3, 901, LATE), (4, 902, LATE), (9, 1500), (10, 1505)),
    }
    eras = [Era(1, 36 * MS), Era(4, 166 * MS), Era(9, 1440 * MS)]
    struck = [
        Fault("token-site", "kill", "c", "receiver", 102 * MS, 800 * MS),
        Fault("any-node", "kill", "floor", "floor", 2000 * MS, 2500 * MS),
    ]
    measure(struck, eras, logs)
    first, second = struck
    assert first.over_ns == 126 * MS  # b's release of slot 4, not c's
    assert first.silence_ns == (228 - 112) * MS
    assert first.rings == 2
    assert first.back_ns == 700 * MS
    assert (second.over_ns, second.rings, second.back_ns) == (None, 0, None)
    share, not_struck = late_share(struck, logs)
    assert share == pytest.approx(3 / 18)
    assert not_struck == 0.0


def content(packets: list[tuple[int, int]], ids: list[int]) -> Content:
    nothing = np.zeros(0, np.int64)
    return Content(nothing, nothing, {1: np.array(packets, np.int64).reshape(-1, 2)}, {1: np.array(ids, np.int64)})


CLAIM = FloorClaim("XF01", 1, 1, witnessed=3, unwitnessed=1)


@pytest.mark.parametrize(
    ("packets", "ids", "starts", "says"),
    [
        ([(1, 1), (1, 2), (1, 3)], [1, 2, 3, 4], 1, ""),
        ([(1, 1), (1, 2), (1, 3), (1, 4)], [1, 2, 41, 42], 2, ""),
        ([(1, 1), (1, 2)], [1, 2], 1, "3 packets are witnessed and 2 are on the tape"),
        ([(1, 1), (1, 3), (1, 4)], [1, 2], 1, "where its packet 2 should be, the tape has packet 3"),
        ([(1, 1), (1, 2), (1, 2), (1, 3)], [1, 2], 1, "where its packet 3 should be, the tape has packet 2"),
        ([(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)], [1], 1, "4 packets were sent and 5 are on the tape"),
        ([(1, 1), (2, 2), (2, 3)], [1], 1, "in several incarnations"),
        ([(1, 1), (1, 2), (1, 3)], [1, 2, 2, 3], 1, "trade 2 is duplicated or out of order"),
        ([(1, 1), (1, 2), (1, 3)], [1, 2, 4], 1, "trade ids jump 1 times in 1 starts"),
    ],
)
def test_what_a_floor_sent_is_on_the_tape_once_and_in_order(
    packets: list[tuple[int, int]], ids: list[int], starts: int, says: str
) -> None:
    claim = FloorClaim(CLAIM.name, CLAIM.source, CLAIM.publisher, CLAIM.witnessed, CLAIM.unwitnessed, starts)
    problems = floor_problems(content(packets, ids), claim)
    assert bool(problems) == bool(says)
    assert says in "; ".join(problems)


# -- what the timing implies -------------------------------------------------------------------------------


def test_the_network_is_accepted_and_its_timing_implies_less_than_the_target(network: Network) -> None:
    timing = network.timing()
    assert (timing.late_ns, timing.slot_ns) == (2 * MS, 5 * MS)
    assert network.witnesses() == 3
    assert (len(network.receivers), len(network.reformation), len(network.floors)) == (5, 2, 5)
    assert warnings(network) == []
    at_site, anywhere = (implied(timing, 5, at_token_site=each) for each in (True, False))
    assert [term.ns for term in at_site[1:]] == [term.ns for term in anywhere[1:]]
    assert at_site[0].ns == 22.5 * MS
    assert anywhere[0].ns == 12.5 * MS
    after = timing.late_ns + timing.attempts * timing.request_ns + timing.join_ns + timing.lead_ns + timing.hold_ns
    assert sum(term.ns for term in at_site) == at_site[0].ns + after < faults.TARGET_MS * MS
    assert "δ_N 2 ms" in faults.show_timing(network)


# -- namespaces --------------------------------------------------------------------------------------------


def test_namespaces_touch_nothing_but_themselves() -> None:
    commands = namespaces.setup_commands("lvl7", 2)
    assert commands[0] == ["ip", "netns", "add", "lvl7-0"]
    assert "ip -n lvl7-0 link add br0 type bridge mcast_snooping 0 stp_state 0" in map(" ".join, commands)
    assert "ip link add p2 netns lvl7-0 type veth peer name eth0 netns lvl7-2" in map(" ".join, commands)
    assert "ip -n lvl7-2 address add 10.77.0.2/24 dev eth0" in map(" ".join, commands)
    assert all(any(word.startswith("lvl7-") for word in command) for command in commands)
    made = {command[3] for command in commands if command[:3] == ["ip", "netns", "add"]}
    assert {command[3] for command in namespaces.teardown_commands("lvl7", 2)} == made
    assert namespaces.switch_line(2, up=False) == "link set p2 down\n"
    assert namespaces.switch_command("lvl7")[:3] == ["ip", "-n", "lvl7-0"]


def test_namespaces_that_cannot_be_made_are_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, int("veth" in command), "", "Operation not permitted\n")

    monkeypatch.setattr(subprocess, "run", run)
    wires = namespaces.Namespaces(["a", "b"])
    with pytest.raises(namespaces.NoNamespaces, match=r"veth.*Operation not permitted"), wires:
        pass
    assert ran[-3:] == namespaces.teardown_commands(wires.tag, 2)
    assert wires.launch("b") == (["ip", "netns", "exec", f"{wires.tag}-2"], ["--interface", "10.77.0.2"])


# -- the command -------------------------------------------------------------------------------------------


def an_outcome(kind: str, *problems: str) -> faults.Outcome:
    struck = [
        Fault(
            kind, "kill", f"receiver-{i}", "receiver", i * S, i * S + S, 500 * MS, (100 + i) * MS, 30 * MS, 2, 700 * MS
        )
        for i in range(1, 6)
    ]
    return faults.Outcome(kind, struck, list(problems), records=1000, traded_s=10.0)


def test_the_report_sets_the_median_beside_what_is_implied(network: Network, tmp_path: Path) -> None:
    outcomes = [an_outcome("token-site"), an_outcome("stop", "the tapes differ")]
    for outcome in outcomes:
        outcome.terms = implied(network.timing(), 5, at_token_site=outcome.kind == "token-site")
    result = faults.report(outcomes, 5, 10_000.0, 3)
    assert [figure.value for figure in result.figures] == [103.0, 103.0, 103.0, 1]
    assert result.figures[1].against_value == faults.TARGET_MS
    assert "stop: VIOLATED: the tapes differ" in result.notes
    assert "python -m benchmarks.faults token-site stop --times 5 --rate 10000 --seed 3" in result.notes[0]
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert "22.5 ms" in str(result)
    ElementTree.parse(faults.plot(outcomes, tmp_path / "faults.svg"))


@pytest.mark.parametrize(("problems", "code"), [((), 0), (("lost",), 1)])
def test_a_violation_is_exit_code_1(
    problems: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "run_kind", lambda kind, *_: an_outcome(kind, *problems))
    assert faults.main(["stop", "--times", "5", "--json", "--out", str(tmp_path)]) == code
    assert {path.name for path in tmp_path.iterdir()} == {"faults.json", "faults-each.json", "faults.svg"}


def test_as_one_of_the_benchmarks_it_leaves_its_plot_where_the_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "run_kind", lambda kind, *_: an_outcome(kind))
    assert benchmarks_main(["faults", "--quick", "--out", str(tmp_path)]) == 0
    assert " | ratio " in capsys.readouterr().out
    written = json.loads((tmp_path / "faults.json").read_text(encoding="utf-8"))
    assert written["plots"] == [str(tmp_path / "faults.svg")]


def test_an_unknown_kind_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        faults.main(["stops"])
    assert "unknown kind stops; use token-site, any-node, stop, cut" in capsys.readouterr().err


# -- real processes ----------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["token-site", "stop"])
def test_after_one_fault_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    outcome = faults.run_kind(kind, 1, 1000.0, 1, tmp_path)
    assert outcome.problems == []
    assert [fault.role for fault in outcome.faults] == ["receiver"]
    assert outcome.records > 0
    assert list(tmp_path.iterdir()) == []  # sound data are not kept
