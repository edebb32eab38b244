"""Scenario `clocks`: who falls silent with a wrong clock, and that nobody else does (C1 to C4)."""

from __future__ import annotations

import pytest

from levelcast.sim.run import run_seed
from levelcast.sim.scenarios.clocks import KINDS, SET_WHILE_RUNNING, ClockFault, ClocksHistory, S

BREAKS = {
    "bound-does-not-grow": ("time source lost", "silence"),
    "bound-ignored": ("time source lost", "silence"),
    "offset-ignored": ("drifts 400 ppm", "silence"),
    "offset-at-once": ("detour for 8 s", "false alarm"),
    "minority-judges": ("cut off with two wrong ones", "false alarm"),
    "mean-offset": ("started 200 ms off", "false alarm"),
    "apart-ignored": ("suspended for 1 s", "silence"),
    "start-unchecked": ("started 20 ms off", "never early"),
    "leap-ignored": ("leap second", "silence"),
    "smear-ignored": ("leap second, smeared", "false alarm"),
}
"""The kind of history that breaks without each clause, and what it breaks."""
NUMBERS = {kind.name: number for number, kind in enumerate(KINDS)}


@pytest.mark.parametrize("seed", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_a_wrong_clock_silences_its_node_alone(seed: int) -> None:
    outcome = run_seed("clocks", seed)
    assert outcome.broken is None
    assert outcome.releases > 50


@pytest.mark.parametrize("name", BREAKS)
def test_a_clause_that_is_taken_out_is_missed(name: str) -> None:
    kind, breaks = BREAKS[name]
    broken = run_seed("clocks", NUMBERS[kind], name).broken
    assert broken is not None
    assert broken.split(":")[0] == breaks


@pytest.mark.parametrize("kind", SET_WHILE_RUNNING, ids=[kind.name for kind in SET_WHILE_RUNNING])
def test_a_clock_that_is_set_while_it_runs_silences_its_node_at_once(kind: ClockFault) -> None:
    history = ClocksHistory(1, kind)
    assert history.run().broken is None
    assert history.silent_after_s(1) == 0.0


def test_the_first_release_comes_about_a_second_after_the_start_plus_the_ring() -> None:
    """The check before the first token costs half a second and a round trip; the ring forms after it."""
    history = ClocksHistory(0)
    history.run()
    first = min(at_ns for at_ns in history.silence.first_sent_ns.values())
    assert 0.5 < (first - history.begin_ns) / S < 2.0
