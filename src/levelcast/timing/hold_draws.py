"""Draw the random numbers of the hold-time model: a hash of a number that names the event, without any state.

The same seed gives the same draws on every machine and in any order, so a test that computes one event at a time sees
exactly the draws of the model, which computes whole arrays. The hash is the finaliser of SplitMix64.

Losses are sparse: `sparse_positions` draws only the lost copies, and `Spells` only the intervals in which a path fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_HALF = np.uint64(0xFFFFFFFF)


def mix(values: Hashes) -> Hashes:
    """Return the hash of each number (SplitMix64's finaliser)."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one block of slots; `kind` separates draws for different purposes."""

    seed: int
    block: int = 0

    def hashes(self, kind: int, numbers: Ints) -> Hashes:
        """Return 64 random bits for each number."""
        key = mix(np.array([self.seed * 0x1000003 + self.block & _WORD], dtype=np.uint64))
        key = mix(key + np.uint64(kind * GOLDEN & _WORD))
        return mix(numbers.astype(np.uint64) * np.uint64(GOLDEN) + key)

    def uniform(self, kind: int, numbers: Ints) -> Floats:
        """Return one number in (0, 1) for each number."""
        return ((self.hashes(kind, numbers) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def pairs(self, kind: int, numbers: Ints) -> tuple[Floats, Floats]:
        """Return two independent numbers in (0, 1) for each number."""
        bits = self.hashes(kind, numbers)
        high, low = (bits >> np.uint64(32)).astype(np.float64), (bits & _HALF).astype(np.float64)
        return (high + 0.5) * 2.0**-32, (low + 0.5) * 2.0**-32


def sparse_positions(draws: Draws, kind: int, chance: float, size: int) -> Ints:
    """Return the positions below `size` that an event of this chance hits, in order, in time of the hits alone."""
    if chance <= 0.0 or size <= 0:
        return np.empty(0, dtype=np.int64)
    if chance >= 1.0:
        return np.arange(size, dtype=np.int64)
    expected = chance * size
    count = int(expected + 6.0 * np.sqrt(expected) + 10)
    found: list[Ints] = []
    last, drawn = -1, 0
    while last < size:
        gaps = np.log(draws.uniform(kind, np.arange(drawn, drawn + count))) / np.log1p(-chance)
        positions = last + np.cumsum(np.minimum(gaps, 2.0 * size).astype(np.int64) + 1)
        found.append(positions)
        last, drawn = int(positions[-1]), drawn + count
    every = np.concatenate(found)
    return every[: np.searchsorted(every, size)]


class Spells:
    """Bad spells of a number of lines: alternating good and bad intervals of exponential lengths."""

    def __init__(self, draws: Draws, kind: int, loss: Floats, bad_ms: float, begin_ms: float, end_ms: float) -> None:
        lines = len(loss)
        self.begin_ms, self.span_ms = begin_ms, end_ms - begin_ms
        worst = float(loss.max(initial=0.0))
        cycles = self.span_ms * worst / bad_ms
        self._spells = int(cycles + 6.0 * np.sqrt(cycles) + 10)
        lengths = -np.log(draws.uniform(kind, np.arange(lines * self._spells * 2)))
        lengths = lengths.reshape(lines, self._spells, 2) * bad_ms
        with np.errstate(divide="ignore"):
            lengths[:, :, 0] *= ((1.0 - loss) / loss)[:, None]  # a line without loss is good for ever
        # A line starts in a bad spell with the probability of being in one.
        starts_bad = draws.uniform(kind, -1 - np.arange(lines)) < loss
        lengths[starts_bad, 0, 0] = 0.0
        self._bounds = np.minimum(np.cumsum(lengths.reshape(lines, -1), axis=1), self.span_ms)
        self._stride = 2.0 * self.span_ms + 1.0
        self._flat = (self._bounds + np.arange(lines)[:, None] * self._stride).ravel()

    def starts_ends(self) -> tuple[Ints, Floats, Floats]:
        """Return the line, the start and the end of every bad spell."""
        starts, ends = self._bounds[:, 0::2], self._bounds[:, 1::2]
        line, at = np.nonzero(ends > starts)
        return line, starts[line, at] + self.begin_ms, ends[line, at] + self.begin_ms

    def bad(self, line: Ints, at_ms: Floats) -> Flags:
        """Return True where a line is in a bad spell at a time."""
        inside = np.clip(at_ms - self.begin_ms, 0.0, self.span_ms - 1e-6)
        index = np.searchsorted(self._flat, inside + line * self._stride, side="right")
        return (index & 1).astype(np.bool_)
