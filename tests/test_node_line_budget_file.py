"""The stripes of a receiver share the file of a line's budget."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.network.placement import part_of
from levelcast.node.line_budget_file import SharedLineBudget, line_budgets
from tests.test_node_operate_line_plans import network

S = 1_000_000_000


@pytest.mark.parametrize(("line", "rate"), [("a", 7_000), (None, 3_500)])
def test_all_stripes_of_a_receiver_have_one_budget_and_receivers_divide_a_group_without_a_line(
    tmp_path: Path, line: str | None, rate: int
) -> None:
    found = network()
    group = replace(found.edge.groups[0], line=line)
    receiver, other = found.receivers[0].name, found.receivers[1].name
    opened = [
        line_budgets(found, name, stripe, tmp_path / part_of(found, name, stripe))(group, 0)
        for name, stripe in ((receiver, "one"), (receiver, "two"), (other, "one"))
    ]
    assert [budget.rate for budget in opened] == [rate] * 3
    first, second, elsewhere = opened
    first.report(1_000, S)
    assert second.waiting_elsewhere(S) == 1_000
    assert first.claim(1_000, S) == S
    assert second.claim(1_000, S) > S
    assert elsewhere.claim(1_000, S) == S, "another receiver sends over its own line"
    for budget in opened:
        budget.close()


def test_a_budget_that_another_process_holds_is_tried_again_soon(tmp_path: Path) -> None:
    budget = SharedLineBudget(tmp_path / "line", 7_000, 0, 1)
    other = os.open(tmp_path / "line", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert S < budget.claim(100, S) < S + S // 100
    os.close(other)
    assert budget.claim(100, S) == S
    budget.close()


def test_a_budget_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(NetError, match=r"file/line: cannot write the line's budget: .*; check its directory"):
        SharedLineBudget(tmp_path / "file" / "line", 7_000, 0, 1)
