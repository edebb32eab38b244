"""What is told at the end of a demo."""

from __future__ import annotations

import numpy as np
import pytest

from levelcast.node.demo.outcome import DemoOutcome, ReceiverLine, _evenness, explain_late
from levelcast.node.verdict import floor_problem
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
    return ReceiverLine(name, on_time + late, on_time, late, (0, 0), (0, 0), 0, 0, 0, "1@201", 0, "")


def test_late_releases_are_explained() -> None:
    assert explain_late(DemoOutcome([line("a", 10, 0), line("b", 10, 0)]), ["a"]) == []
    lines = [line("a", 5, 5), line("b", 9, 1)]
    assert explain_late(DemoOutcome(lines, load=7.0, cores=1), ["a"]) == [
        "a was down, and released the missed frames after its restart.",
        "10.0% at the other receivers, by more than 1 ms: 2 receivers release at the same time on 1 core (load 7.0).",
    ]
    assert explain_late(DemoOutcome([line("a", 99_999, 1)], load=0.5, realtime=False), []) == [
        "less than 0.1% of all records, by more than 1 ms: the machine is busy, without real-time priority (load 0.5)."
    ]
