"""What is told at the end of a demo."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.node.demo.outcome import DemoOutcome, ReceiverLine, _evenness, explain_delay, explain_late
from levelcast.node.verdict import floor_problem
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.storage.release_log import LATE, RELEASE


@pytest.mark.parametrize(
    ("numbers", "published", "unsafe", "restarted", "says"),
    [
        ([1, 2, 3], 3, 0, False, ""),
        ([], 0, 0, False, ""),
        ([1, 2], 3, 20, False, ""),
        ([1, 2, 21, 22], 2, 0, True, ""),
        ([1, 2], 3, 0, False, "has published 3 trades; 1 of them are not on the tape"),
        ([1, 2, 2], 3, 0, False, "has a trade on the tape twice"),
        ([1, 2, 1], 3, 0, False, "has a trade on the tape twice"),
        ([1, 3, 2], 3, 0, False, "has trades on the tape out of order"),
        ([1, 2, 4], 3, 0, False, "has trades on the tape that differ from those it published"),
        ([1, 2, 3], 2, 0, False, "has trades on the tape that differ from those it published"),
    ],
)
def test_trades_of_a_floor_are_on_the_tape_once_and_in_order(
    numbers: list[int], published: int, unsafe: int, restarted: bool, says: str
) -> None:
    found = floor_problem(np.array(numbers, np.int64), published, unsafe, restarted=restarted)
    assert found == says


def log(*releases: tuple[int, int, int]) -> np.ndarray:
    """Slot, time and flags of each."""
    entries = np.zeros(len(releases), RELEASE)
    for i, (slot, at_ns, flags) in enumerate(releases):
        entries[i]["slot"], entries[i]["released_ns"], entries[i]["flags"] = slot, at_ns, flags
    return entries


def test_what_a_killed_receiver_missed_says_nothing_of_evenness() -> None:
    logs = {
        "a": log((1, 100, 0), (2, 200, 0), (3, 300, LATE)),
        "b": log((1, 105, 0), (2, 207, 0), (3, 309, LATE)),
        "c": log((1, 103, 0), (2, 9_000, LATE), (3, 9_000, LATE)),
    }
    behind, spreads = _evenness(logs, {"c"})
    assert sorted(spreads.tolist()) == [5, 7, 9]
    assert {name: values.tolist() for name, values in behind.items()} == {"a": [0, 0, 0], "b": [5, 7, 9], "c": [3]}


def line(name: str, on_time: int, late: int) -> ReceiverLine:
    return ReceiverLine(name, on_time + late, on_time, late, (0, 0), (0, 0), (0, 0), 0, 0, 0, "1@201", 0, "")


def test_late_releases_are_explained() -> None:
    assert explain_late(DemoOutcome([line("a", 10, 0), line("b", 10, 0)]), []) == [
        "On time by protocol: 100 % at all receivers."
    ]
    assert explain_late(DemoOutcome([line("a", 5, 5), line("b", 10, 0)]), ["a"]) == [
        "On time by protocol: 100 % at the receivers that were not killed.",
        "Late: a was down, and released the missed frames after its restart.",
    ]
    assert explain_late(DemoOutcome([line("a", 99_999, 1)]), []) == [
        "On time by protocol: 99.9 % at all receivers.",
        "Late: a packet or a token that a frame needs arrived after the scheduled release time.",
    ]


def test_the_scheduling_delay_is_told_with_load_and_stolen_time() -> None:
    delays = (120_000, 900_000, 7_000_000)
    contention = CpuContention(12.0, 0.004, 0.5)
    assert explain_delay(DemoOutcome(delay_ns=delays, load=4.7, cores=2, contention=contention)) == (
        "Scheduling delay of the processes: 0.12 / 0.90 / 7.00 ms (p50 / p99 / max); load 4.7 on 2 cores, stolen CPU "
        "time 0.4 %."
    )
    assert explain_delay(DemoOutcome(load=1.0, realtime=False)).endswith(
        "load 1.0 on 1 core, stolen CPU time unknown; without real-time priority."
    )
