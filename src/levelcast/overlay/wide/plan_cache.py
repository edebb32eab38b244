"""Find the plan of a message in the present view; most messages have the destinations of one before."""

from __future__ import annotations

from collections.abc import Mapping

from levelcast.overlay.wide import clauses
from levelcast.overlay.wide.plan import MessagePlan, PlanRules
from levelcast.wire.wide_messages import WideData

MAX_PLANS = 1_024


class PlanCache:
    """Plans of one view."""

    def __init__(self, rules: PlanRules, subgroups: tuple[tuple[int, ...], ...]) -> None:
        self._rules, self._subgroups = rules, subgroups
        self._plans: dict[tuple[int, bool, frozenset[int]], MessagePlan] = {}

    def clear(self) -> None:
        """Forget the plans of the view before."""
        self._plans.clear()

    def find(self, data: WideData, lives: Mapping[int, int]) -> MessagePlan:
        """Return the plan of a message among members with these lives."""
        members = clauses.destinations_of(data, lives)
        source_lives = lives.get(data.source) == data.life
        key = (data.source, source_lives, members)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            view = members | ({data.source} if source_lives else frozenset())
            plan = self._plans[key] = MessagePlan(self._rules, self._subgroups, data.source, members, view)
        return plan
