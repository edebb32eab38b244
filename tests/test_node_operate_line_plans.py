"""A plan is for the line: all stripes together, with room for retransmissions, and what the planner makes fits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from levelcast.network import Network, SymbolDirectory, parse_network
from levelcast.node.operate.channel_plans import PLANNED, line_fault, line_limits, require_lines
from levelcast.planner.files import StoredPlan
from levelcast.planner.model import Limits, Plan, PlanError, from_pairs
from levelcast.planner.user_load import complete_plan
from levelcast.wire.channel_plan import ChannelPlan, build_channel_plan
from tests.net_edge_parts import network_text

STRIPES = '\n[stripes.one]\n[stripes.two]\n[edge]\nwatermark = "1s"\n'


def network(stripes: str = STRIPES, rate: str = "56kbit") -> Network:
    text = network_text().replace('region = "west"\n\n', f'region = "west"\nline = "a"\nrate = "{rate}"\n\n')
    head, group, tail = text.partition("[[edge.group]]")
    text = head.replace("publisher = 1\n", 'publisher = 1\nstripe = "one"\n') + stripes + group + tail
    return parse_network(text.replace("publisher = 2\n", 'publisher = 2\nstripe = "two"\n'))


def plans(*rates: int) -> Mapping[str, ChannelPlan]:
    names = ("one", "two")
    return {name: build_channel_plan(1, [(1, 0)], [0], rates=[each]) for name, each in zip(names, rates, strict=False)}


def test_a_line_carries_the_plans_of_all_stripes_or_they_are_refused() -> None:
    assert line_fault(network(), plans(3_000, 2_000)) is None
    fault = line_fault(network(), plans(4_000, 4_000))
    assert fault is not None
    assert "in 2 stripes, and a plan may use 90% of the 56 kbit/s that west has" in fault


def test_a_plan_leaves_room_for_retransmissions() -> None:
    room = int(7_000 * PLANNED)
    assert line_fault(network(), plans(room - 2_000, 1_000)) is None
    assert line_fault(network(), plans(room - 1_000, 1_000)) is not None


def test_a_complete_plan_keeps_the_limit_of_the_line() -> None:
    limits = line_limits(network(), 4, 4)
    assert 30 < limits.group_rate < 70
    instance = from_pairs(np.full(8, limits.group_rate / 2.5), np.arange(8), np.arange(8), 8)
    plan = complete_plan(instance, 4, 4, limits=limits)
    per_group = np.bincount(plan.group[plan.session], instance.rates, plan.n_groups)
    assert per_group.max() <= limits.group_rate
    assert plan.n_groups == 4
    with pytest.raises(PlanError):
        complete_plan(instance, 2, 2, limits=limits)
    assert complete_plan(instance, 1, 1).n_groups == 1


def test_symbols_without_a_subscriber_are_divided_among_groups_that_have_capacity() -> None:
    """Nine symbols of 4 records/s, one subscriber of the first; a line carries 10 records/s."""
    instance = from_pairs(np.full(9, 4.0), np.zeros(1, int), np.zeros(1, int), 1)
    plan = complete_plan(instance, 5, 5, limits=Limits(group_rate=10.0))
    at = plan.flow_group()
    assert sorted(np.bincount(at).tolist()) == [1, 2, 2, 2, 2]
    assert (at == at[0]).sum() == 1, "the subscriber's group has no other symbol"
    with pytest.raises(PlanError, match=r"need 36 records/s, and 4 groups of 8 records/s.* allow more groups"):
        complete_plan(instance, 4, 4, limits=Limits(group_rate=8.0))
    nobody = from_pairs(np.full(4, 4.0), np.zeros(0, int), np.zeros(0, int), 0)
    assert np.bincount(complete_plan(nobody, 2, 2, limits=Limits(group_rate=10.0)).flow_group()).tolist() == [2, 2]


def test_a_stored_plan_is_checked_as_it_is_applied() -> None:
    line = network()
    symbols = sorted(SymbolDirectory(line).symbols)
    maps = Plan(np.zeros(len(symbols), np.int32), np.zeros(1, np.int32))
    stored = StoredPlan(maps, pa.array(symbols), np.zeros(1, np.int32), np.zeros(1, np.int32), {})
    require_lines(line, stored, dict.fromkeys(symbols, 1.0))
    with pytest.raises(PlanError, match="in 2 stripes, and a plan may use 90%"):
        require_lines(line, stored, dict.fromkeys(symbols, 15.0))


def test_a_line_that_watermarks_fill_is_refused() -> None:
    with pytest.raises(PlanError, match="has no room for records: watermarks need"):
        line_limits(network(), 100, 1)
    unlimited = parse_network(network_text())
    assert line_limits(unlimited, 100, 1) == Limits()
