"""Restore 64-bit global sequences from the 32 bits that a record carries."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

WRAP = 1 << 32
_HALF = WRAP // 2

Sequence = TypeVar("Sequence", int, npt.NDArray[np.int64])


def whole_sequence(low: Sequence, near: int) -> Sequence:
    """Return the sequence with these low 32 bits that is nearest to `near`; of an array, each.

    >>> whole_sequence(3, near=2**32 - 1) == 2**32 + 3
    True
    >>> whole_sequence(2**32 - 1, near=2**32 + 3) == 2**32 - 1
    True
    """
    return near + ((low - near + _HALF) % WRAP - _HALF)
