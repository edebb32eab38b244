"""Groups for tests of wide-area protocols: matrices, configurations, and TT's five sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices
from levelcast.overlay.wide.config import GroupConfig
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
"""Delay in ms and loss: from the paper, and where its text gives none, assumed. T is beyond H."""


def matrix_of(links: Mapping[tuple[int, int], tuple[float, float]]) -> PathMatrix:
    """The same in both directions; delays in ms."""
    delays, losses = {}, {}
    for (a, b), (delay, loss) in links.items():
        for pair in ((a, b), (b, a)):
            delays[pair], losses[pair] = int(delay * MS), loss
    return PathMatrix(delays, losses)


def equal_matrix(processes: int, delay: float = 10, loss: float = 0.0) -> PathMatrix:
    """All paths alike."""
    ids = range(1, processes + 1)
    return matrix_of({(a, b): (delay, loss) for a in ids for b in ids if a < b})


def tt_matrix(members: Sequence[int] = (H, U, O, K, T), *, lossless: bool = False) -> PathMatrix:
    found = {pair: link for pair, link in TT_LINKS.items() if set(pair) <= set(members)}
    return matrix_of({pair: (delay, 0.0 if lossless else loss) for pair, (delay, loss) in found.items()})


def group(name: str | Choices, matrix: PathMatrix, **more: object) -> GroupConfig:
    choices = WIDE_PROTOCOLS[name] if isinstance(name, str) else name
    return GroupConfig(choices, matrix, matrix.processes, **more)  # type: ignore[arg-type]
