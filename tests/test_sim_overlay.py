"""Random histories without multicast keep every guarantee, and fail without a clause of the overlay (O1 to O4)."""

from __future__ import annotations

from collections import Counter

import pytest

from levelcast.overlay.fanout import FORWARD, OWN_SITE, Hop
from levelcast.sim.engine.overlay_world import OverlaySends, OverlaySimNode
from levelcast.sim.engine.world import SimNode
from levelcast.sim.run import SCENARIOS, first_failing_seed, run_seeds
from levelcast.wire.messages import Data, Message

BREAKS = {
    "copies-dropped-for-good": ("receivers-overlay", "liveness", range(21, 22)),
    "guests-unanswered": ("ring-overlay", "liveness", range(6)),
}
"""The scenario, what breaks first in the random search, and the seeds to search, clause by clause."""


@pytest.mark.parametrize("scenario", ["ring-overlay", "receivers-overlay"])
def test_random_histories_hold(scenario: str) -> None:
    outcomes = list(run_seeds(scenario, range(6)))
    assert [outcome.broken for outcome in outcomes] == [None] * len(outcomes)
    assert sum(outcome.releases for outcome in outcomes) > 1_000
    assert sum(outcome.crashes for outcome in outcomes) > 5


def test_histories_have_coordinators_forwarders_and_repeated_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    carry, take = OverlaySends.carry, OverlaySimNode._take

    def counted(self: OverlaySends, sender: SimNode, hops: list[Hop], message: Message) -> None:
        if isinstance(message, Data):
            seen["forwards"] += sum(hop.channel == FORWARD for hop in hops)
            seen["multicasts"] += sum(hop.to == OWN_SITE for hop in hops)
            seen["by others"] += sender.id != message.source
        carry(self, sender, hops, message)

    def taken(self: OverlaySimNode, *arrived: object) -> object:
        before = self.recent.dropped
        found = take(self, *arrived)  # type: ignore[arg-type]
        seen["dropped"] += self.recent.dropped - before
        return found

    monkeypatch.setattr(OverlaySends, "carry", counted)
    monkeypatch.setattr(OverlaySimNode, "_take", taken)
    for seed in (1, 2, 3):
        assert SCENARIOS["ring-overlay"](seed).run().broken is None
    assert min(seen[what] for what in ("forwards", "multicasts", "by others", "dropped")) > 100, seen


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_a_clause_that_is_taken_out(name: str) -> None:
    scenario, breaks, seeds = BREAKS[name]
    found = first_failing_seed(scenario, name, seeds)
    assert found is not None
    assert (found.broken or "").split(":")[0] == breaks
