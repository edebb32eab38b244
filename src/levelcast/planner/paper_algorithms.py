"""The paper's algorithms: SF, GF, IT and RRA on the K-means of TH §4.2 (TH §4.3).

The paper leaves some details open. They are chosen to reproduce its figure 7 (see `docs/planner.md`):

- K-means starts from random labels.
- GF gives every group the same number of sessions.
- When maps are carried over (IT, RRA), a flow that has changed its group starts in a random session of the new one.
- IT has four iterations: GF, SF, GF, SF. RRA has P_1 = 10, P_0 = 0.5, μ = 0.8 (TH §5.5): 14 rounds after the first.
- Flows without a subscriber are not sent, so they are not in any session.
"""

from __future__ import annotations

import numpy as np

from levelcast.planner.annealing import Progress
from levelcast.planner.cluster import PlannerRun, cluster
from levelcast.planner.costs import costs
from levelcast.planner.items import as_items
from levelcast.planner.model import Instance, Ints, Plan, Weights, scattered, tidy

IT_ITERATIONS = 4
RRA_FIRST_PERCENT, RRA_LAST_PERCENT, RRA_FACTOR = 10.0, 0.5, 0.8


class PaperPlanner(PlannerRun):
    """One run of one of the algorithms."""

    def __init__(self, instance: Instance, sessions: int, groups: int, weights: Weights, seed: int) -> None:
        super().__init__(instance, sessions, groups, weights, seed)
        self.random = np.random.default_rng([seed, 0x7A])
        self.best: tuple[float, Plan] | None = None

    # -- the two stages, each from a start ---------------------------------------------------------------------------

    def streams_first(self, session: Ints, group: Ints) -> tuple[Ints, Ints]:
        """SF: assign flows to streams, then the streams, as points with their rate and their users, to groups."""
        session, group = session.copy(), group.copy()
        cluster(self.flows, session, self.n_sessions, self._next_seed())
        streams = as_items(self.flows, session, self.n_sessions)
        filled = np.flatnonzero(streams.wanted).astype(np.int32)
        cluster(streams, group, self.n_groups, self._next_seed(), items=filled)
        return session, group

    def groups_first(self, flow_group: Ints, session: Ints, group: Ints) -> tuple[Ints, Ints]:
        """GF: assign flows to groups, then within each group flows to its streams."""
        flow_group, session = flow_group.copy(), session.copy()
        cluster(self.flows, flow_group, self.n_groups, self._next_seed())
        strayed = group[session] != flow_group
        for g in range(self.n_groups):
            streams = np.flatnonzero(group == g).astype(np.int32)
            items = np.flatnonzero(flow_group == g).astype(np.int32)
            if not len(items):
                continue
            if not len(streams):
                streams, group = self._stream_for(g, session, group)
                strayed |= np.isin(session, streams)
            lost = items[strayed[items]]
            session[lost] = streams[self.random.integers(len(streams), size=len(lost))]
            local = scattered(len(session), items, np.searchsorted(streams, session[items]))
            cluster(self.flows, local, len(streams), self._next_seed(), items=items)
            session[items] = streams[local[items]]
        return session, group

    def _stream_for(self, g: int, session: Ints, group: Ints) -> tuple[Ints, Ints]:
        """Move a stream from the group with the maximum number to a group without one; its old flows choose another."""
        donor = np.flatnonzero(group == np.bincount(group, minlength=self.n_groups).argmax())
        taken = donor[np.bincount(session, minlength=self.n_sessions)[donor].argmin()]
        group = group.copy()
        group[taken] = g
        return np.array([taken], np.int32), group

    # -- the algorithms ---------------------------------------------------------------------------------------------

    def sf(self, report: Progress) -> Plan:
        return self._keep(*self.streams_first(self._random_session(), self._random_group()), report, 1.0)

    def gf(self, report: Progress) -> Plan:
        return self._keep(*self._first_groups(), report, 1.0)

    def it(self, report: Progress) -> Plan:
        """IT: run GF, then SF and GF in turn, each from the maps of the one before."""
        maps = self._first_groups()
        best = self._keep(*maps, report, 1 / IT_ITERATIONS)
        for iteration in range(1, IT_ITERATIONS):
            session, group = maps
            if iteration % 2:
                maps = self.streams_first(session, group)
            else:
                maps = self.groups_first(group[session], session, group)
            best = self._keep(*maps, report, (iteration + 1) / IT_ITERATIONS)
        return best

    def rra(self, report: Progress) -> Plan:
        """RRA: repeat GF, each time after moving P_f percent of the flows to random streams."""
        session, group = self._first_groups()
        best = self._keep(session, group, report, 1 / 15)
        percent, done = RRA_FIRST_PERCENT, 1
        while percent >= RRA_LAST_PERCENT:
            session = session.copy()
            thrown = self.random.permutation(len(session))[: round(len(session) * percent / 100)]
            session[thrown] = self.random.integers(self.n_sessions, size=len(thrown))
            session, group = self.groups_first(group[session], session, group)
            percent, done = percent * RRA_FACTOR, done + 1
            best = self._keep(session, group, report, min(1.0, done / 15))
        return best

    # -- parts ------------------------------------------------------------------------------------------------------

    def _first_groups(self) -> tuple[Ints, Ints]:
        group = (np.arange(self.n_sessions) % self.n_groups).astype(np.int32)
        flow_group = self.random.integers(self.n_groups, size=self.flows.n_flows).astype(np.int32)
        return self.groups_first(flow_group, self._random_session(), group)

    def _random_session(self) -> Ints:
        return self.random.integers(self.n_sessions, size=self.flows.n_flows).astype(np.int32)

    def _random_group(self) -> Ints:
        return self.random.integers(self.n_groups, size=self.n_sessions).astype(np.int32)

    def _keep(self, session: Ints, group: Ints, report: Progress, share: float) -> Plan:
        """Store the map if it is better than the best before (TH §4.3, IT step 4)."""
        plan = tidy(scattered(self.whole.n_flows, self.sent, session), group)
        cost = costs(self.whole, plan, self.weights).relative
        if self.best is None or cost < self.best[0]:
            self.best = (cost, plan)
        report(share, self.best[0])
        return self.best[1]
