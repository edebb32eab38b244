"""Claims and release times in the bulk simulation (rules 7, 8 and 11).

Member j claims slot t in its first beat after it and its secondaries have everything up to t: at said_j(t). The slot is
due for all at the w-th smallest of said_j(t) + H_j, and a receiver knows that once it has heard w such beats.

- A secondary's `have` is in its group token, every β (`group_round_ns`), as the lowest of its own group if it has one.
  One that lacks a slot delays the claim no longer than Δ_A allows (`StripeConfig.patience_ns`). Each secondary is
  treated alone: one that counts again while the primary waits for another does not delay it. So claims are up to β
  early if Δ_A is so short that many are left out.
- A lost beat delays a claim by β, because the next one repeats it. A receiver that loses one is late alone if the slot
  is due meanwhile.
- Beats are drawn for at most `MOST_EARS` receivers. The other secondaries hear the same as one in their city.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from levelcast.sim.bulk.paths import GUARD_MS, NS_PER_MS, Floats, Indexes, SitePaths, Times
from levelcast.timing.secondary import group_round_ns, patience_ns

MOST_EARS = 500
LOST_TURNS = 60
"""Group tokens that are simulated after the last slot: more are not lost in a row."""


class Heard(NamedTuple):
    """For each receiver, when it knows that a slot is witnessed and when it may release it; for all, when it is due."""

    known_ms: Times
    due_ms: Times
    instant_ms: float


class BulkClaims:
    """The claims of all members."""

    def __init__(self, paths: SitePaths) -> None:
        core = self._core = paths.core
        timing = core.timing
        self._paths, self._rng = paths, paths.rng
        self._m, self._n = core.primaries, core.receivers
        self._beat_ms = timing.beat_ns / NS_PER_MS
        self._place_ms: Times = np.arange(self._m) / self._m * self._beat_ms
        members = core.city[: self._m]
        farthest_ms = paths.quantile[members][:, np.unique(core.city)].max(axis=1)
        self.cutoff_ms: Times = (farthest_ms + 2 * core.clock_error_ms + GUARD_MS).astype(np.float64)
        """H_j of each member."""
        self.patience_ms: Times = self._patience_ms()
        """Time after a slot for which a secondary may delay the claim of each receiver above the lowest layer."""
        order = np.argsort(core.home[self._m :], kind="stable") + self._m
        starts = np.searchsorted(core.home[order], np.arange(len(self.patience_ms) + 1)).tolist()
        self._groups: list[Indexes] = [order[start:end] for start, end in pairwise(starts)]
        self._ear, ears = self._ears()
        own = ears[:, None] == np.arange(self._m)
        self._delay, self._jitter, loss = (
            np.where(own, np.float32(0), matrix[members[None, :], core.city[ears][:, None]])
            for matrix in (paths.delay, paths.jitter, paths.loss)
        )
        same_city = core.city[ears][:, None] == members
        loss = 1 - (1 - loss) * np.where(same_city, 1, np.float32(1 - core.branch_loss))
        self._loss: Floats = np.maximum(loss, np.float32(1e-9)).astype(np.float32)

    def _patience_ms(self) -> Times:
        core, timing, layers = self._core, self._core.timing, self._core.layer_starts
        left_ms = timing.hold_ns / NS_PER_MS - self._beat_ms - self.cutoff_ms
        found = [np.clip(left_ms, 0.0, patience_ns(timing, max(1, len(layers) - 2)) / NS_PER_MS)]
        for layer, (start, end) in enumerate(pairwise(layers[1:-1]), 1):
            home = core.home[start:end]
            hop_ms = self._paths.quantile[core.city[start:end], core.city[home]] + 2 * core.clock_error_ms + GUARD_MS
            left_ms = left_ms[home - layers[layer - 1]] - self._beat_ms - hop_ms
            found.append(np.clip(left_ms, 0.0, patience_ns(timing, len(layers) - 2 - layer) / NS_PER_MS))
        return np.concatenate(found)

    def _ears(self) -> tuple[Indexes, Indexes]:
        """Return the ear of each receiver, and the receiver that each ear is at: primaries have their own."""
        if self._n <= MOST_EARS:
            return np.arange(self._n), np.arange(self._n)
        cities = len(self._core.delays.names)
        copies = max(1, (MOST_EARS - self._m) // len(np.unique(self._core.city)))
        numbers = np.arange(self._n)
        key = np.where(numbers < self._m, numbers - self._m, self._core.city + cities * (numbers % copies))
        _, ears, ear = np.unique(key, return_index=True, return_inverse=True)
        return ear, ears

    # -- said_j(t) ----------------------------------------------------------------------------------------

    def said(self, have_ms: Floats, times: Times) -> Times:
        """Return the scheduled time of the first beat of each member (column) that claims each slot (row).

        `have_ms` is the true time, after those `times` of the slots, at which each receiver has everything up to it.
        """
        covered = np.stack([self._covered(have_ms, times, member) for member in range(self._m)], axis=1)
        local = covered + self._core.clock_ms[: self._m]
        said: Times = np.ceil((local - self._place_ms) / self._beat_ms) * self._beat_ms + self._place_ms
        return said

    def next_beat_ms(self, members: Indexes, at_ms: Times) -> Times:
        """Return the scheduled time of each member's first beat after a time."""
        place_ms = self._place_ms[members]
        beat: Times = (np.floor((at_ms - place_ms) / self._beat_ms) + 1) * self._beat_ms + place_ms
        return beat

    def _covered(self, have_ms: Floats, times: Times, node: int) -> Times:
        """Return when a receiver may report each slot: it and all below it have it, or do not count."""
        own: Times = have_ms[:, node] + times
        if node >= len(self._groups) or not len(group := self._groups[node]):
            return own
        below = np.stack([self._covered(have_ms, times, each) for each in group.tolist()], axis=1)
        reported = self._reported(below, group, node)
        lagging = times + self.patience_ms[node] - self._core.clock_ms[node]
        delayed: Times = np.max([_covered_ms(own, column, lagging) for column in reported.T], axis=0)
        return delayed

    def _reported(self, have_ms: Times, group: Indexes, site: int) -> Times:
        """Return when the primary has received the first group token of each secondary with each slot."""
        city, timing = self._core.city, self._core.timing
        each_ms = group_round_ns(timing, timing.beat_ns, len(group)) / NS_PER_MS
        phase_ms = np.arange(len(group)) / len(group) * each_ms - self._core.clock_ms[group]
        turn = np.maximum(np.ceil((have_ms - phase_ms) / each_ms), 0).astype(np.intp)
        begin = int(turn.min())
        turns = np.arange(begin, int(turn.max()) + LOST_TURNS)
        sent_ms = turns[:, None] * each_ms + phase_ms
        sender, to = np.broadcast_to(city[group], sent_ms.shape), np.full(sent_ms.size, city[site])
        arrives = self._paths.unicast(sender.ravel(), to, sent_ms.ravel()).reshape(sent_ms.shape)
        first = np.minimum.accumulate(arrives[::-1], axis=0)[::-1]
        return np.take_along_axis(first, turn - begin, axis=0)

    # -- witness and release ------------------------------------------------------------------------------

    def heard(self, said: Times) -> Iterator[Heard]:
        """Yield, slot by slot, when each receiver knows enough claims."""
        need = self._core.witnesses - 1
        if need < 1:  # the slot owner is the witness
            nobody = np.full(self._n, -np.inf)
            yield from (Heard(nobody, nobody, -np.inf) for _ in said)
            return
        heard_ms = np.empty(self._delay.shape)
        before = np.full(self._m, np.nan)
        for row in said:
            new = np.flatnonzero(row != before)
            heard_ms[:, new] = row[new] + self._beats(new)
            before = row
            cut_ms = row + self.cutoff_ms
            instant_ms = float(np.partition(cut_ms, need)[need])
            known_ms = np.partition(heard_ms, need, axis=1)[:, need]
            due_ms = np.full(len(heard_ms), instant_ms)
            missed = np.flatnonzero((heard_ms > cut_ms).any(axis=1))
            due_ms[missed] = np.partition(np.maximum(heard_ms[missed], cut_ms), need, axis=1)[:, need]
            yield Heard(known_ms[self._ear], due_ms[self._ear], instant_ms)

    def _beats(self, members: Indexes) -> Times:
        """Return the time from said_j until each ear has heard a beat of these members: the first that is not lost."""
        loss = self._loss[:, members]
        chance = np.float32(1) - self._rng.random(loss.shape, np.float32)
        beats = np.zeros(loss.shape, np.float32)
        lost = np.nonzero(chance <= loss)
        beats[lost] = np.floor(np.log(chance[lost]) / np.log(loss[lost]))
        chance[lost] /= loss[lost] ** beats[lost]
        kept = (chance - loss) / (1 - loss)
        arrives: Times = self._delay[:, members] + self._jitter[:, members] * kept + beats * self._beat_ms
        return arrives - self._core.clock_ms[members]


def _covered_ms(own_ms: Times, reported_ms: Times, lagging_ms: Times) -> Times:
    """Return when a primary may claim each slot: it has it itself, and one secondary has reported it or does not count.

    A secondary does not count from the time at which the first slot that it has not reported is lagging, until it
    reports that slot. Meanwhile the primary claims later slots too.
    """
    slots = np.arange(len(own_ms))
    excluded_ms = np.maximum(np.concatenate([[-np.inf], reported_ms[:-1]]), lagging_ms)
    excluding = np.where(excluded_ms < reported_ms, slots, len(slots))
    excluding = np.append(np.minimum.accumulate(excluding[::-1])[::-1], len(slots))
    found = excluding[np.searchsorted(reported_ms, own_ms, side="right")]
    at_ms = np.append(excluded_ms, np.inf)[found]
    covered: Times = np.maximum(own_ms, np.where(found <= slots, at_ms, reported_ms))
    return covered
