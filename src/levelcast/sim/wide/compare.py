"""Compare the protocols of TT for one matrix of delay and loss, in virtual time, and recommend one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS
from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.measure import GroupFigures
from levelcast.sim.wide.loop import BEGIN_NS, GroupLoop

NEARLY = 1.25
"""Factor of the shortest time to the last destination within which fewer datagrams decide."""
LIMIT_NS = 600_000_000_000
"""Time after the last message within which all must be known to be received."""


class Workload(NamedTuple):
    """Messages of a comparison: to all, from each process in turn."""

    messages: int = 100
    every_ns: int = 100_000_000
    jitter_ns: int = 0
    seed: int = 1


class Recommendation(NamedTuple):
    """A protocol, and why."""

    protocol: str
    reason: str


def measure_protocol(
    config: GroupConfig, work: Workload, on_message: Callable[[int], None] = lambda done: None
) -> GroupFigures:
    """Send the messages of a workload in virtual time and return what they needed."""
    loop = GroupLoop(config, work.seed, jitter_ns=work.jitter_ns)
    for number in range(work.messages):
        loop.run(BEGIN_NS + number * work.every_ns)
        source = config.members[number % len(config.members)]
        while not loop.processes[source].room:
            loop.run(loop.now + work.every_ns)
        loop.submit(source, b"message")
        on_message(number + 1)
    loop.run(loop.now + LIMIT_NS)
    return loop.figures()


def compare_protocols(
    config: GroupConfig, work: Workload, names: Sequence[str] = tuple(WIDE_PROTOCOLS)
) -> Iterator[tuple[str, GroupFigures]]:
    """Yield the figures of each protocol, with the matrix and the times of a configuration."""
    for name in names:
        yield name, measure_protocol(replace(config, choices=WIDE_PROTOCOLS[name]), work)


def recommend(found: Mapping[str, GroupFigures]) -> Recommendation:
    """Return the protocol with the fewest datagrams among those that are nearly the soonest at the last destination.

    The time is the 99 % quantile: the mean hides the repairs.
    """
    soonest = min(found, key=lambda name: (found[name].last_p99_ms, found[name].datagrams))
    limit_ms = found[soonest].last_p99_ms * NEARLY
    near = [name for name in found if found[name].last_p99_ms <= limit_ms]
    best = min(near, key=lambda name: (found[name].datagrams, found[name].last_p99_ms))
    figures = found[best]
    at = f"the last destination has 99 % of the messages after {figures.last_p99_ms:,.0f} ms"
    if best == soonest:
        others = f"fewer than the others within {NEARLY - 1:.0%} of that" if len(near) > 1 else "and no other is near"
        return Recommendation(best, f"{at}, the shortest time; {figures.datagrams:.1f} datagrams each, {others}")
    return Recommendation(
        best,
        f"{at}, within {NEARLY - 1:.0%} of the shortest time ({soonest}, {found[soonest].last_p99_ms:,.0f} ms), "
        f"with {figures.datagrams:.1f} instead of {found[soonest].datagrams:.1f} datagrams each",
    )
