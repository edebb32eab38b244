"""A plan is for the line: all stripes together, with room for retransmissions, and what the planner makes fits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from levelcast.network import Network, parse_network
from levelcast.node.operate.channel_plans import RETRANSMISSIONS, line_fault, line_limits
from levelcast.planner.model import Limits, PlanError, from_pairs
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
    assert "in 2 stripes, and the line west carries 56 kbit/s" in fault


def test_a_plan_leaves_room_for_retransmissions() -> None:
    room = int(7_000 * (1 - RETRANSMISSIONS))
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


def test_a_line_that_watermarks_fill_is_refused() -> None:
    with pytest.raises(PlanError, match="has no room for records: watermarks need"):
        line_limits(network(), 100, 1)
    unlimited = parse_network(network_text())
    assert line_limits(unlimited, 100, 1) == Limits()
