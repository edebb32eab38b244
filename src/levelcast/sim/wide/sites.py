"""TT's five sites: Hatoyama, UCLA, Ohio State, Keele and Tohoku, with delay and loss between them (TT §1, §3).

The paper has the delay and loss from Hatoyama to Tohoku, UCLA and Keele. The others are assumed, so that the nearest
process of each is the one in its text. T lies beyond H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from levelcast.overlay.wide.matrix import PathMatrix

MS = 1_000_000
H, U, O, K, T = 1, 2, 3, 4, 5  # noqa: E741
TT_LINKS: dict[tuple[int, int], tuple[int, float]] = {
    (H, T): (60, 0.009),
    (H, U): (140, 0.103),
    (H, K): (240, 0.116),
    (U, O): (40, 0.02),
    (U, K): (110, 0.06),
    (O, K): (90, 0.05),
    (H, O): (160, 0.1),
    (T, U): (180, 0.11),
    (T, O): (200, 0.11),
    (T, K): (280, 0.12),
}
"""Delay in ms and loss."""
TT_NEAR_NS = 45 * MS
"""Largest delay in a subgroup: U and O are one, as in Figure 7 (3)."""


def matrix_of(links: Mapping[tuple[int, int], tuple[float, float]]) -> PathMatrix:
    """Return a matrix that is the same in both directions; delays in ms."""
    delays, losses = {}, {}
    for (a, b), (delay, loss) in links.items():
        for pair in ((a, b), (b, a)):
            delays[pair], losses[pair] = int(delay * MS), loss
    return PathMatrix(delays, losses)


def tt_matrix(members: Sequence[int] = (H, U, O, K, T), *, loss: float | None = None) -> PathMatrix:
    """Return the matrix of some sites, with their losses or one `loss` on all paths."""
    found = {pair: link for pair, link in TT_LINKS.items() if set(pair) <= set(members)}
    return matrix_of({pair: (delay, own if loss is None else loss) for pair, (delay, own) in found.items()})
