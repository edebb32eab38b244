"""Model the ring in whole arrays of slots: when each receiver holds a slot, and when it is witnessed.

One `simulate` call models a block of slots and returns a `BlockTimes`: the tokens and trains as they arrive, the
missing ones as they are repaired by the rules W1 to W3, and the claims of W6 and W7. Only what is missing is repaired,
so the cost depends on the losses. `levelcast.timing.hold_counts` adds the blocks up.

Assumptions:
- A train of packets leaves at one time and its copies share one delay. The first slot whose owner holds the complete
  train names it. A gap (W3) is found by a later packet of the same train.
- A member that lacks an item answers nothing, also if it receives the item soon after.
- Clocks are exact. `levelcast.timing.hold` adds their error to the result.
- The first and last slots of a block are not counted, because their neighbours are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from levelcast.timing.hold_claims import witnessed_ms
from levelcast.timing.hold_copies import losses_of
from levelcast.timing.hold_draws import Draws, Flags, Floats, Ints
from levelcast.timing.hold_losses import (
    GAP_ANSWER,
    GAP_REQUEST,
    PACKET_ANSWER,
    PACKET_REQUEST,
    TOKEN_ANSWER,
    TOKEN_DELAY,
    TOKEN_REQUEST,
    Losses,
    SlotBlock,
)
from levelcast.timing.hold_rules import MAX_ATTEMPTS, AskTable, HoldInput

PASSES = 6
"""Rounds of repair. Each one uses what the members asked have repaired in the round before."""
EDGE_MS = 3_000.0
"""Time at both ends of a block that is not counted."""


@dataclass(slots=True)
class Items:
    """Missing items of one kind, and their repair."""

    member: Ints
    owner: Ints
    start_ms: Floats
    """Time of the first request."""
    request: Ints
    """Names a request: the items that one request asks for have the same number."""
    answer: Ints
    """Names the item at its member, for the draws of its answers."""
    held_ms: Floats
    """Time at which the member has it."""

    def take(self, which: Ints) -> Items:
        return Items(
            self.member[which],
            self.owner[which],
            self.start_ms[which],
            self.request[which],
            self.answer[which],
            self.held_ms[which],
        )


@dataclass(slots=True)
class Asked:
    """The result of asking for items."""

    held_ms: Floats
    depends: Flags
    """A member that was asked was missing the item itself."""
    requests: Ints
    """Requests sent, counted at the first item that they ask for."""

    def put(self, which: Ints, other: Asked) -> None:
        """Replace the result of some items."""
        self.held_ms[which], self.requests[which] = other.held_ms, other.requests
        self.depends[which] |= other.depends


@dataclass(slots=True)
class BlockTimes:
    """Absolute times of one block, [slot, receiver], in ms."""

    group: HoldInput
    held_ms: Floats
    """Time at which a receiver holds a slot and all slots before it."""
    witnessed_ms: Floats
    requests: int
    unneeded: int
    causes: tuple[Ints, Ints, Ints, Floats]
    """Receiver, owner, kind (0 token, 1 packets) and time after the slot of every repair."""

    def after_slot(self, times_ms: Floats) -> Floats:
        """Return times relative to their slots, without the edges of the block."""
        slot_ms = self.group.slot_ms
        edge = int(EDGE_MS / slot_ms) + 2 * self.group.members
        rows = np.arange(len(times_ms))[edge:-edge, None]
        return times_ms[edge:-edge] - rows * slot_ms


def ask(
    group: HoldInput,
    draws: Draws,
    losses: Losses,
    table: AskTable,
    items: Items,
    kinds: tuple[int, int],
    holder_ms: Callable[[Ints, Ints], tuple[Floats, Flags]],
    until_ms: Floats | None = None,
) -> Asked:
    """Ask for each item from its start on until it is held (W2), or until another rule takes over at `until_ms`.

    `holder_ms(which, asked)` returns the time at which a member holds an item, and whether it was missing it.
    """
    n = group.receivers
    held, at = items.held_ms.copy(), items.start_ms.copy()
    depends = np.zeros(len(held), dtype=np.bool_)
    end = held if until_ms is None else np.minimum(held, until_ms)
    open_ = np.flatnonzero(at < end)
    requests = np.zeros(len(held), dtype=np.int64)
    for attempt in range(MAX_ATTEMPTS):
        if not len(open_):
            break
        member, owner, now = items.member[open_], items.owner[open_], at[open_]
        every = table.asked(attempt, member, owner)
        best = held[open_]
        for place in range(every.shape[1]):
            there = np.flatnonzero(every[:, place] >= 0)
            if not len(there):
                continue
            which, me, other = open_[there], member[there], every[there, place]
            code = attempt * n + other
            lost, wait = draws.pairs(kinds[0], items.request[which] * (MAX_ATTEMPTS * n) + code)
            reached = now[there] + group.delay_ms[me, other] + group.jitter_ms[me, other] * group.jitter_at(wait)
            asked_lost = losses.lost(me, other, now[there], lost)
            holds, missing = holder_ms(which, other)
            depends[which] |= missing
            sent = reached + group.process_ms
            lost, wait = draws.pairs(kinds[1], items.answer[which] * (MAX_ATTEMPTS * n) + code)
            back = sent + group.delay_ms[other, me] + group.jitter_ms[other, me] * group.jitter_at(wait)
            failed = asked_lost | (holds > reached) | losses.lost(other, me, sent, lost)
            back[failed] = np.inf
            best[there] = np.minimum(best[there], back)
        firsts = np.unique(items.request[open_], return_index=True)[1]
        requests[open_[firsts]] += np.count_nonzero(every[firsts] >= 0, axis=1)
        held[open_] = best
        at[open_] = now + table.interval_ms(attempt, member, owner)
        end = best if until_ms is None else np.minimum(best, until_ms[open_])
        open_ = open_[at[open_] < end]
    return Asked(held, depends, requests)


def simulate(group: HoldInput, draws: Draws, slots: int) -> BlockTimes:
    """Model one block."""
    block = SlotBlock.make(group, draws, slots)
    losses = losses_of(block)
    tokens = _Tokens(block, losses)
    trains = _Trains(block, losses, tokens)
    held = np.maximum(tokens.held_ms, trains.held_ms)
    np.maximum.accumulate(held, axis=0, out=held)
    witnessed = witnessed_ms(block, losses, held, tokens.held_ms)
    causes = [np.concatenate(pair) for pair in zip(tokens.causes(), trains.causes(), strict=True)]
    return BlockTimes(
        group,
        held,
        witnessed,
        tokens.requests + trains.requests,
        tokens.unneeded + trains.unneeded,
        (causes[0], causes[1], causes[2], causes[3]),
    )


class _Tokens:
    """Arrival and repair of tokens (W1, W2)."""

    def __init__(self, block: SlotBlock, losses: Losses) -> None:
        group, m, n = block.group, block.group.members, block.group.receivers
        self.arrived_ms, self.train_wait = _arrivals(block)
        missing = losses.tokens()
        self.slot, slot_ms = missing.slot, missing.slot * group.slot_ms
        owner = missing.slot % m
        self._start = slot_ms + group.lateness_ms[owner, missing.member]
        number = missing.slot * n + missing.member
        self.items = Items(missing.member, owner, self._start, number, number, missing.direct_ms)
        index = np.full(block.slots * n, -1, dtype=np.int32)
        index[number] = np.arange(len(number))
        arrived = self.arrived_ms.ravel()

        def repair(items: Items, which: Ints, held: Floats) -> Asked:
            slots = self.slot[which]

            def holder(some: Ints, asked: Ints) -> tuple[Floats, Flags]:
                return _holder(index, arrived, held, slots[some] * n + asked, slots[some] * n + asked)

            return ask(group, block.draws, losses, group.ask_table, items, (TOKEN_REQUEST, TOKEN_ANSWER), holder)

        asked = _settle(_first_round(self.items, repair), self.items, self.slot, repair)
        self.requests = int(asked.requests.sum())
        self.unneeded = int(asked.requests[np.isfinite(missing.direct_ms)].sum())
        self.items.held_ms = held = asked.held_ms
        self.held_ms = self.arrived_ms.copy()
        self.held_ms.ravel()[number] = held
        self._slot_ms = slot_ms

    def causes(self) -> tuple[Ints, Ints, Ints, Floats]:
        items = self.items
        return items.member, items.owner, np.zeros(len(items.member), dtype=np.int64), items.held_ms - self._slot_ms


class _Trains:
    """Arrival, naming and repair of trains (W1 to W3)."""

    def __init__(self, block: SlotBlock, losses: Losses, tokens: _Tokens) -> None:
        self._block, self._losses = block, losses
        group, n, each = block.group, block.group.receivers, losses.packets
        self._arrived = block.sent_ms[:, None] + group.source_delay_ms[block.source]
        self._arrived += group.source_jitter_ms[block.source] * tokens.train_wait
        missing = losses.data()
        self._train, self._packet = missing.train, missing.packet
        cell = missing.train * n + missing.member
        self._index = np.full(block.slots * n * each, -1, dtype=np.int32)
        self._index[cell * each + missing.packet] = np.arange(len(cell))
        source = block.source[missing.train]
        noticed = self._arrived.ravel()[cell] + group.gap_guard_ms[source, missing.member]
        last = _is_trailing(cell, missing.packet, each) & ~missing.shown
        never = np.full(len(cell), np.inf)
        start = np.where(last, np.inf, noticed) if group.rules.gaps else never
        nobody = np.zeros_like(missing.member)  # helpers do not depend on the owner
        gaps = Items(missing.member, nobody, start, cell, cell * each + missing.packet, missing.direct_ms)
        self._same = missing.train * each + missing.packet
        found = _settle(_first_round(gaps, self._repair_gaps), gaps, self._same, self._repair_gaps)
        named = self._named_by(cell, found.held_ms)
        self._finish(gaps, found, named, tokens, cell)

    def _holder(self, which: Ints, held: Floats) -> Callable[[Ints, Ints], tuple[Floats, Flags]]:
        n, each = self._block.group.receivers, self._losses.packets
        trains, packets, arrived = self._train[which], self._packet[which], self._arrived.ravel()

        def holder(some: Ints, asked: Ints) -> tuple[Floats, Flags]:
            cell = trains[some] * n + asked
            return _holder(self._index, arrived, held, cell * each + packets[some], cell)

        return holder

    def _repair_gaps(self, items: Items, which: Ints, held: Floats, until: Floats | None = None) -> Asked:
        group, holder = self._block.group, self._holder(which, held)
        kinds = (GAP_REQUEST, GAP_ANSWER)
        return ask(group, self._block.draws, self._losses, group.gap_table, items, kinds, holder, until)

    def _named_by(self, cell: Ints, found_ms: Floats) -> Ints:
        """Return the slot that names each train: the first whose owner holds all of it; -1 at the end of the block."""
        block, m, slot_ms = self._block, self._block.group.members, self._block.group.slot_ms
        complete = self._arrived.copy()
        np.maximum.at(complete.ravel(), cell, found_ms)
        named = np.full(block.slots, -1, dtype=np.int64)
        waiting = np.arange(block.slots)
        slot = np.ceil(block.sent_ms / slot_ms).astype(np.int64)
        while len(waiting):
            inside = slot < block.slots
            waiting, slot = waiting[inside], slot[inside]
            holds = complete[waiting, slot % m] <= slot * slot_ms
            named[waiting[holds]] = slot[holds]
            waiting, slot = waiting[~holds], slot[~holds] + 1
        return named

    def _finish(self, gaps: Items, found: Asked, named: Ints, tokens: _Tokens, cell: Ints) -> None:
        """Repair what tokens name and W3 has not found by then, from the time at which W1 calls it missing."""
        block, group, n = self._block, self._block.group, self._block.group.receivers
        slot = named[self._train]
        owner = np.maximum(slot, 0) % group.members
        missing_ms = np.maximum(
            tokens.held_ms.ravel()[np.maximum(slot, 0) * n + gaps.member],
            slot * group.slot_ms + group.lateness_ms[owner, gaps.member],
        )
        missing_ms[slot < 0] = np.inf
        items = Items(gaps.member, owner, missing_ms, slot * n + gaps.member, gaps.answer, gaps.held_ms)

        def repair(some: Items, which: Ints, held: Floats) -> Asked:
            until = missing_ms[which]
            early = self._repair_gaps(gaps.take(which), which, held, until)
            some.held_ms = early.held_ms
            kinds = (PACKET_REQUEST, PACKET_ANSWER)
            late = ask(group, block.draws, self._losses, group.ask_table, some, kinds, self._holder(which, held))
            return Asked(late.held_ms, early.depends | late.depends, early.requests + late.requests)

        left = np.flatnonzero(found.held_ms > missing_ms)
        known = np.where(found.held_ms > missing_ms, gaps.held_ms, found.held_ms)
        found.put(left, repair(items.take(left), left, known))
        asked = _settle(found, items, self._same, repair)
        self.requests = int(asked.requests.sum())
        items.held_ms = held = asked.held_ms
        self._items, self._slot = items, slot
        complete = self._arrived
        np.maximum.at(complete.ravel(), cell, held)
        order = np.argsort(named, kind="stable")
        order = order[np.searchsorted(named[order], 0) :]
        firsts = np.flatnonzero(np.diff(named[order], prepend=-1))
        self.held_ms = np.full((block.slots, n), -np.inf)
        if len(order):
            self.held_ms[named[order[firsts]]] = np.maximum.reduceat(complete[order], firsts, axis=0)
        self.unneeded = self._unneeded(named, tokens, cell)

    def _unneeded(self, named: Ints, tokens: _Tokens, cell: Ints) -> int:
        """Count the requests for packets that are still on their way when their token has arrived."""
        group, m, n = self._block.group, self._block.group.members, self._block.group.receivers
        train = np.flatnonzero(named >= 0)
        slot = named[train]
        due = np.maximum(tokens.held_ms[slot], (slot * group.slot_ms)[:, None] + group.lateness_ms[slot % m])
        early = due < self._arrived[train]
        early &= np.arange(n) != (slot % m)[:, None]
        arrives = np.ones(len(named) * n, dtype=np.bool_)
        arrives[cell] = False
        early &= arrives.reshape(-1, n)[train]
        which, member = np.nonzero(early)
        return int(np.count_nonzero(group.ask_table.asked(0, member, slot[which] % m) >= 0))

    def causes(self) -> tuple[Ints, Ints, Ints, Floats]:
        after = self._items.held_ms - self._slot * self._block.group.slot_ms
        after[self._slot < 0] = 0.0
        return self._items.member, self._items.owner, np.ones(len(after), dtype=np.int64), after


def _arrivals(block: SlotBlock) -> tuple[Floats, Floats]:
    """Return the arrival of every token that is neither lost nor late, and the jitter of every train, [slot, member].

    Both are in the same draw: the most frequent ones of the model.
    """
    group, m, n = block.group, block.group.members, block.group.receivers
    tokens, trains = block.draws.pairs(TOKEN_DELAY, np.arange(block.slots * n))
    owners = np.arange(block.slots) % m
    arrived = group.jitter_ms[owners] * group.jitter_at(tokens.reshape(-1, n) * group.quantile)
    arrived += group.delay_ms[owners]
    arrived[np.arange(block.slots), owners] = 0.0
    arrived += (np.arange(block.slots) * group.slot_ms)[:, None]
    return arrived, np.minimum(group.jitter_at(trains), 1.0).reshape(-1, n)


def _holder(
    index: npt.NDArray[np.int32], arrived: Floats, held: Floats, item: Ints, cell: Ints
) -> tuple[Floats, Flags]:
    """Return the time at which the members asked hold an item: it arrived, or they have repaired it."""
    place = index[item]
    missing = place >= 0
    times = arrived[cell]
    times[missing] = held[place[missing]]
    return times, missing


def _is_trailing(cell: Ints, packet: Ints, each: int) -> Flags:
    """Return True for packets after which no packet of the train arrived: no gap shows that they are missing."""
    ends = np.searchsorted(cell, cell, side="right")
    trailing: Flags = ends - np.arange(len(cell)) == each - packet
    return trailing


Repair = Callable[[Items, Ints, Floats], Asked]
"""Repairs some items, given their places among all and the times at which members hold what they were missing."""


def _first_round(items: Items, repair: Repair) -> Asked:
    """Repair all items as if members that miss an item never got it."""
    return repair(items, np.arange(len(items.member)), np.full(len(items.member), np.inf))


def _settle(asked: Asked, items: Items, same: Ints, repair: Repair) -> Asked:
    """Repair again the items that depend on repairs of others, until nothing changes.

    Entries with the same number in `same` are one item at different members. Each round corrects the first one by one
    step, so the times only get shorter. The limit of the rounds leaves times too long, never too short.
    """
    depends = np.flatnonzero(asked.depends)
    which = depends
    for _ in range(PASSES - 1):
        if not len(which):
            break
        again = repair(items.take(which), which, asked.held_ms)
        changed = which[again.held_ms < asked.held_ms[which]]
        asked.held_ms[which] = again.held_ms
        touched = np.zeros(int(same.max()) + 1, dtype=np.bool_)
        touched[same[changed]] = True
        which = depends[touched[same[depends]]]
    return asked
