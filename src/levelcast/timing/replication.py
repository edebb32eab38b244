"""Expected time, probability and cost of copies of a message (TT §4.2, §4.3), in corrected form.

δ is the delay of one copy in one direction, ε the probability that it is lost, h the number of copies, e = ε^h. Copies
are lost independently. The paper's formulas differ from these in eight points:

- δ is one way. §2 calls it the round trip; everywhere else in the paper 2δ is the time of a retransmission.
- `expected_time`: the paper has δ(1+e)/(1−e). A request is lost as often as data: δ·(1 + 2e/((1−ε)(1−e))).
- `probability_with`: the paper has the probability that the path over k fails in place of that it succeeds.
- `expected_time_both`: both paths are used at the same time, so the time is E[min(direct, over k)], below both.
- `forwards`: the paper requires T_ij ≥ T_ikj, P_ij ≤ P_ikj and C_ij ≥ C_ikj. But the forwarded copy replaces a repair.
- `forwarding_cost`: k is a destination and receives its copy anyway, so its way there costs nothing more.
- `copies_needed`: the paper's condition is inverted. More than one copy is needed if ε_ij > ε.
- `repair_time`: the paper has δ(1+ε)/(1−ε). Request and answer can be lost, and are repeated: 2δ/(1−ε)².

Times are in the unit of δ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat
from typing import NamedTuple

TAIL = 1e-13
"""Probability at which a distribution of attempts is cut off."""
_ROUNDING = 1e-12


class CopyPath(NamedTuple):
    """A direction between two processes, and the copies that are sent on it."""

    delay: float
    """δ: one way."""
    loss: float
    """ε: of one copy."""
    copies: int = 1
    """h."""

    @property
    def all_lost(self) -> float:
        """Return e = ε^h."""
        return self.loss**self.copies


def expected_time(path: CopyPath, *, requests_lost: bool = True) -> float:
    """Return T: the expected time until a copy arrives. A loss is noticed when the copy should have arrived."""
    retry = (1 - path.all_lost) * (1 - path.loss if requests_lost else 1.0)
    return path.delay * (1 + 2 * path.all_lost / retry)


def expected_time_via(first: CopyPath, second: CopyPath, *, requests_lost: bool = True) -> float:
    """Return T_ikj: the expected time over k alone."""
    return expected_time(first, requests_lost=requests_lost) + expected_time(second, requests_lost=requests_lost)


def expected_time_both(
    direct: CopyPath, via: Iterable[tuple[CopyPath, CopyPath]], *, requests_lost: bool = True
) -> float:
    """Return the expected time until the first copy arrives, directly or over one of the forwarders."""
    paths = [list(_times(direct, requests_lost))]
    for first, second in via:
        legs = [(a + b, p * q) for a, p in _times(first, requests_lost) for b, q in _times(second, requests_lost)]
        paths.append(legs)
    return _expected_minimum(paths)


def probability(path: CopyPath) -> float:
    """Return P: the probability that at least one copy arrives."""
    return 1 - path.all_lost


def probability_with(direct: CopyPath, first: CopyPath, second: CopyPath) -> float:
    """Return P_ikj: the probability that at least one copy arrives, directly or over k."""
    return probability(direct) + direct.all_lost * probability(first) * probability(second)


def cost(path: CopyPath) -> float:
    """Return C: the delay of all copies together."""
    return path.copies * path.delay


def forwarding_cost(first: CopyPath, second: CopyPath) -> float:
    """Return the additional cost of copies that k forwards, which it does if it has received one."""
    return probability(first) * cost(second)


def copies_needed(loss: float, allowed: float) -> int:
    """Return h: the least number of independent copies of which all are lost with probability `allowed` at most."""
    if not 0 <= loss < 1 or not 0 < allowed < 1:
        raise ValueError(f"loss {loss} is not in 0 to 1, or allowed loss {allowed} not between 0 and 1")
    copies = 1
    while loss**copies > allowed * (1 + _ROUNDING):
        copies += 1
    return copies


def repair_time(delay: float, loss: float) -> float:
    """Return the expected time of a repair by a holder of the message: request and answer, until it arrives."""
    return 2 * delay / (1 - loss) ** 2


def forwards(direct: CopyPath, first_delay: float, second_delay: float) -> bool:
    """Return whether a copy over k arrives earlier than a direct one that is repaired once."""
    return first_delay + second_delay < direct.delay + repair_time(direct.delay, direct.loss)


def lost_with_outages(loss: float, copies: int, outage: float) -> float:
    """Return the fraction of messages that are lost with h copies, if no copy arrives during an outage (TT Table 1)."""
    return outage + (1 - outage) * loss**copies


def _times(path: CopyPath, requests_lost: bool) -> Iterator[tuple[float, float]]:
    """Yield the times at which the first copy may arrive, with their probabilities: δ, 3δ, 5δ, …"""
    lost, late = path.all_lost, 1 - (1 - path.all_lost) * (1 - path.loss if requests_lost else 1.0)
    yield path.delay, 1 - lost
    left = lost
    for attempt in accumulate(repeat(1)):
        if left <= TAIL:
            return
        yield path.delay * (1 + 2 * attempt), left * (1 - late)
        left *= late


def _expected_minimum(distributions: list[list[tuple[float, float]]]) -> float:
    """Return the mean of the smallest of independent times: the integral of the product of their survivals."""
    instants = sorted({time for distribution in distributions for time, _ in distribution})
    points = [sorted(distribution) for distribution in distributions]
    places, survivals = [0] * len(points), [1.0] * len(points)
    mean, before = 0.0, 0.0
    for instant in instants:
        product = 1.0
        for survival in survivals:
            product *= max(survival, 0.0)
        mean += (instant - before) * product
        before = instant
        for index, distribution in enumerate(points):
            while places[index] < len(distribution) and distribution[places[index]][0] <= instant:
                survivals[index] -= distribution[places[index]][1]
                places[index] += 1
    return mean
