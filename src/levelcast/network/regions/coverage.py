"""Find locations that no region serves within limits of delay and loss, and the receivers they need (MS §3.5, §4.1).

A region serves a location within the limits if both of its lines meet them: either line may fail. More receivers come
as more regions, two sites each, chosen one by one: each time the pair of free sites that serves the largest number of
subscribers who have none. So the number of receivers is an upper bound of the number needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.network.regions.plan import Floats, Indexes

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Locations beyond the limits, as indexes of all locations."""

    unserved: Indexes
    """No region serves them within the limits."""
    added: tuple[tuple[int, int], ...]
    """Pairs of sites that would serve them, except `unreachable`."""
    unreachable: Indexes
    """No two free sites are within the limits of these."""


def coverage(within: Mask, weights: Floats, pairs: Indexes, sites: Indexes) -> Coverage:
    """Return the coverage by regions at `pairs` of sites; `sites` are the candidates for more.

    `within` has a row for each site and a column for each location: True if a line between them meets the limits.
    """
    lacking = (weights > 0) & ~(within[pairs[:, 0]] & within[pairs[:, 1]]).any(axis=0)
    unserved = np.flatnonzero(lacking)
    free = np.setdiff1d(sites, pairs)
    added: list[tuple[int, int]] = []
    while lacking.any() and len(free) > 1:
        reached = within[np.ix_(free, np.flatnonzero(lacking))].astype(np.float64)
        gains = np.triu((reached * weights[lacking]) @ reached.T, 1)
        one, other = (int(each) for each in np.unravel_index(gains.argmax(), gains.shape))
        if gains[one, other] <= 0:
            break
        a, b = int(free[one]), int(free[other])
        added.append((a, b))
        lacking &= ~(within[a] & within[b])
        free = np.setdiff1d(free, (a, b))
    return Coverage(unserved, tuple(added), np.flatnonzero(lacking))
