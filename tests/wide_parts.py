"""Groups for tests of wide-area protocols: matrices, configurations, and TT's five sites."""

from __future__ import annotations

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices
from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.matrix import PathMatrix
from levelcast.sim.wide.sites import MS, H, K, O, T, U, matrix_of, tt_matrix

__all__ = ["MS", "H", "K", "O", "T", "U", "equal_matrix", "group", "matrix_of", "tt_matrix"]


def equal_matrix(processes: int, delay: float = 10, loss: float = 0.0) -> PathMatrix:
    """All paths alike."""
    ids = range(1, processes + 1)
    return matrix_of({(a, b): (delay, loss) for a in ids for b in ids if a < b})


def group(name: str | Choices, matrix: PathMatrix, **more: object) -> GroupConfig:
    choices = WIDE_PROTOCOLS[name] if isinstance(name, str) else name
    return GroupConfig(choices, matrix, matrix.processes, **more)  # type: ignore[arg-type]
