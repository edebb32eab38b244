"""The loop closed in a small way, with real processes and Spark: what customers count is what the cost model says.

Nothing here depends on how fast the machine is: counts are compared with the tape and with the model of what is on it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.loop import QUICK, made_up, perform, result_of
from benchmarks.report import Options
from tests.spark_parts import need_spark


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_plan_from_the_tape_takes_over_under_load_and_customers_filter_what_it_says(tmp_path: Path) -> None:
    need_spark()
    market = made_up(QUICK.customers, quick=True)
    outcome = perform(tmp_path, market, QUICK)
    assert outcome.problems == []
    assert len(outcome.customers) == QUICK.customers
    for each in outcome.customers:
        assert (each.lost, each.doubled, each.error) == (0, 0, "")
        assert all(each.asked)
        # A few messages come about the moment of the swap, and watermarks are counted by the second.
        for phase in (0, 1):
            assert each.received[phase] == pytest.approx(each.hindsight[phase], rel=0.05, abs=60)
    received, predicted = (
        sum(getattr(each, name)[1] for each in outcome.customers) for name in ("received", "predicted")
    )
    assert received == pytest.approx(predicted, rel=0.25)  # the rates are those of 3,000 trades
    assert received < 0.7 * QUICK.customers * outcome.sent[1]
    told = str(result_of(outcome, market, Options(quick=True, out=tmp_path), "loop"))
    assert "all tapes identical" in told
