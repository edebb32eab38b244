"""The day's run on a few made-up trades: it says yes when all is well, and finds what is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.day import Outcome, perform, verify
from levelcast.formats.lean import VENUES


def write(folder: Path, symbol: str, rows: int, wrong: int | None = None) -> None:
    letters = list(VENUES)
    lines = []
    for i in range(rows):
        price = 1_000_000 + i + (7 if i == wrong else 0)
        lines.append(f"{34_200_000 + i // 3},{price},{1 + i},{letters[i * 5 % len(letters)]},{i:x},0\n")
    (folder / f"{symbol}_trade.csv.gz").write_bytes(gzip.compress("".join(lines).encode()))


@pytest.mark.slow
def test_the_run_passes_and_notices_a_difference(tmp_path: Path) -> None:
    folder, work = tmp_path / "ticks", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    write(folder, "spy", 3000)
    write(folder, "ibm", 2000)
    network, outcome = perform(folder, work, loss=0.01, seed=None, limit_s=90)
    verify(network, folder, work / "data", outcome)
    assert outcome.problems == []
    assert (outcome.trades, [verdict for _, verdict in outcome.checks]) == (5000, ["yes"] * 3)
    write(folder, "ibm", 2000, wrong=1234)
    second = Outcome()
    verify(network, folder, work / "data", second)
    assert len(second.problems) == 5  # one on the tape of each receiver
    assert all("differs in price" in problem for problem in second.problems)
    write(folder, "ibm", 1999)
    third = Outcome()
    verify(network, folder, work / "data", third)
    assert all("trades on the tape and" in problem for problem in third.problems)
    assert len(third.problems) == 5
