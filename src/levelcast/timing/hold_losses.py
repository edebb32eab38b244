"""Draw the lost copies of one block of slots: independent losses, or bad spells on paths and on nodes' own lines.

Both classes list the lost copies instead of testing every copy. They also list the beats that start a run of more lost
beats than H_j allows for (W7): in that case a receiver does not have the claim in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from levelcast.timing.hold_draws import Draws, Flags, Floats, Ints, Spells, sparse_positions
from levelcast.timing.hold_rules import HoldInput

(
    TOKEN_DELAY,
    TRAIN_SOURCE,
    TRAIN_TIME,
    LOST_TOKEN,
    LOST_TOKEN_THINNED,
    LATE_TOKEN,
    LOST_PACKET,
    LOST_PACKET_THINNED,
    TOKEN_REQUEST,
    TOKEN_ANSWER,
    PACKET_REQUEST,
    PACKET_ANSWER,
    GAP_REQUEST,
    GAP_ANSWER,
    DEAF_BEAT,
    DEAF_BEAT_LENGTH,
    BEAT,
    PATH_SPELLS,
    SOURCE_SPELLS,
    IN_SPELLS,
    OUT_SPELLS,
    SOURCE_OUT_SPELLS,
    SECOND_TOKEN,
    TOKEN_COPY,
    PARITY,
    DETOUR_TOKEN,
    DETOUR_DATA,
) = range(27)
"""Kinds of draws."""


class MissingTokens(NamedTuple):
    """Tokens that do not arrive in time, in the order of (slot, member)."""

    slot: Ints
    member: Ints
    direct_ms: Floats
    """Arrival of a late copy; infinite if it is lost."""


class MissingPackets(NamedTuple):
    """Lost packets, in the order of (train, member, packet)."""

    train: Ints
    member: Ints
    packet: Ints
    direct_ms: Floats
    """Arrival of another copy; infinite if there is none."""
    shown: Flags
    """A parity of the train arrives, which shows that the packet was sent."""


class DeafBeats(NamedTuple):
    """Beats that a member does not receive."""

    sender: Ints
    member: Ints
    beat: Ints
    lost: Ints
    """Beats from this one to the next that arrives."""


class Losses(Protocol):
    """The losses of one block."""

    @property
    def packets(self) -> int:
        """Return the packets of a train that are lost independently of each other."""

    def tokens(self) -> MissingTokens:
        """Return the tokens that do not arrive in time."""

    def data(self) -> MissingPackets:
        """Return the lost packets."""

    def lost(self, sender: Ints, receiver: Ints, at_ms: Floats, chance: Floats) -> Flags:
        """Return True where a copy sent now between two members is lost; `chance` is its own draw."""

    def deaf(self) -> DeafBeats:
        """Return the lost beats."""


@dataclass(frozen=True)
class SlotBlock:
    """Trains and tokens as they are sent: slot t at t·τ, train k from a random source within slot time k."""

    group: HoldInput
    draws: Draws
    slots: int
    source: Ints
    sent_ms: Floats

    @classmethod
    def make(cls, group: HoldInput, draws: Draws, slots: int) -> SlotBlock:
        """Draw the source and the time of each train."""
        trains = np.arange(slots)
        source = (draws.uniform(TRAIN_SOURCE, trains) * len(group.source_delay_ms)).astype(np.int64)
        sent_ms = (trains + draws.uniform(TRAIN_TIME, trains)) * group.slot_ms
        return cls(group, draws, slots, source, sent_ms)

    def losses(self) -> Losses:
        """Return the losses of the group's kind."""
        return BurstLosses(self) if self.group.loss_kind.spell_ms else IndependentLosses(self)

    @property
    def beats(self) -> int:
        return int(self.slots * self.group.slot_ms / self.group.beat_ms) + 1


class IndependentLosses:
    """Every copy is lost by its own draw."""

    def __init__(self, block: SlotBlock) -> None:
        self._block = block
        self.packets = block.group.packets

    def tokens(self) -> MissingTokens:
        group, draws = self._block.group, self._block.draws
        m, n, beyond = group.members, group.receivers, 1.0 - group.quantile
        most = min(1.0, float(group.loss.max()) + beyond)
        cells = sparse_positions(draws, LOST_TOKEN, most, self._block.slots * n)
        slot, member = cells // n, cells % n
        owner = slot % m
        loss = group.loss[owner, member]
        drawn = draws.uniform(LOST_TOKEN_THINNED, cells) * most
        hit = (owner != member) & (drawn < loss + (1.0 - loss) * beyond)
        slot, member, owner, cells = slot[hit], member[hit], owner[hit], cells[hit]
        late = drawn[hit] >= loss[hit]
        tail = group.jitter_at(group.quantile + beyond * draws.uniform(LATE_TOKEN, cells)) if beyond else 0.0
        arrival = slot * group.slot_ms + group.delay_ms[owner, member] + group.jitter_ms[owner, member] * tail
        return _with_second(MissingTokens(slot, member, np.where(late, arrival, np.inf)), self._block, self)

    def data(self) -> MissingPackets:
        group, draws, each = self._block.group, self._block.draws, self.packets
        n, most = group.receivers, float(group.source_loss.max())
        cells = sparse_positions(draws, LOST_PACKET, most, self._block.slots * n * each)
        train, member = cells // (n * each), cells // each % n
        loss = group.source_loss[self._block.source[train], member]
        hit = draws.uniform(LOST_PACKET_THINNED, cells) * most < loss
        return _only_lost(train[hit], member[hit], cells[hit] % each)

    def lost(self, sender: Ints, receiver: Ints, at_ms: Floats, chance: Floats) -> Flags:
        found: Flags = chance < self._block.group.loss[sender, receiver]
        return found

    def deaf(self) -> DeafBeats:
        group, draws, beats = self._block.group, self._block.draws, self._block.beats
        m, n, most = group.members, group.receivers, float(group.loss.max())
        cells = sparse_positions(draws, DEAF_BEAT, most, m * n * beats)
        sender, member, beat = cells // (n * beats), cells // beats % n, cells % beats
        thin, length = draws.pairs(DEAF_BEAT_LENGTH, cells)
        loss = group.loss[sender, member]
        hit = (sender != member) & (thin * most < loss)
        more = np.log(length[hit]) / np.log(np.maximum(loss[hit], 1e-300))
        return DeafBeats(sender[hit], member[hit], beat[hit], 1 + more.astype(np.int64))


class BurstLosses:
    """Every copy is lost that is sent in a bad spell of its path or of the sender's line, or meets the receiver's.

    The packets of a train leave together and share one fate, so a train counts as one packet.
    """

    def __init__(self, block: SlotBlock) -> None:
        self._block = block
        self.packets = 1
        group, kind = block.group, block.group.loss_kind
        span = (-float(group.delay_ms.max() + group.source_delay_ms.max()) - 1.0, (block.slots + 400) * group.slot_ms)

        def spells(number: int, loss: Floats) -> Spells:
            return Spells(block.draws, number, loss.ravel(), kind.spell_ms, *span)

        on_path, on_line = 1.0 - kind.line_share, kind.line_share / 2.0
        self._paths = spells(PATH_SPELLS, group.loss * on_path)
        self._source_paths = spells(SOURCE_SPELLS, group.source_loss * on_path)
        self._incoming = spells(IN_SPELLS, _mean_loss(group.loss, 0) * on_line)
        self._outgoing = spells(OUT_SPELLS, _mean_loss(group.loss, 1) * on_line)
        self._source_outgoing = spells(SOURCE_OUT_SPELLS, _mean_loss(group.source_loss, 1) * on_line)

    def tokens(self) -> MissingTokens:
        group, m, n = self._block.group, self._block.group.members, self._block.group.receivers
        times = np.arange(self._block.slots, dtype=np.float64) * group.slot_ms
        order = np.argsort(np.arange(self._block.slots) % m, kind="stable")
        spells = self._spells(self._paths, self._outgoing, group.delay_ms)
        slot, member = _hit(order, order % m, times[order], *spells)
        keep = group.loss[slot % m, member] > 0.0
        cells = np.unique(slot[keep] * n + member[keep])
        return _with_second(MissingTokens(cells // n, cells % n, np.full(len(cells), np.inf)), self._block, self)

    def data(self) -> MissingPackets:
        group, block, n = self._block.group, self._block, self._block.group.receivers
        order = np.argsort(block.source, kind="stable")
        spells = self._spells(self._source_paths, self._source_outgoing, group.source_delay_ms)
        train, member = _hit(order, block.source[order], block.sent_ms[order], *spells)
        lossy = group.source_loss[block.source[train], member] > 0.0
        cells = np.unique(train[lossy] * n + member[lossy])
        return _only_lost(cells // n, cells % n, np.zeros(len(cells), dtype=np.int64))

    def lost(self, sender: Ints, receiver: Ints, at_ms: Floats, chance: Floats) -> Flags:
        group = self._block.group
        bad = self._paths.bad(sender * group.receivers + receiver, at_ms)
        if group.loss_kind.line_share:
            bad |= self._outgoing.bad(sender, at_ms)
            bad |= self._incoming.bad(receiver, at_ms + group.delay_ms[sender, receiver])
            bad &= group.loss[sender, receiver] > 0.0  # a path within a site uses no line
        return bad

    def deaf(self) -> DeafBeats:
        group = self._block.group
        sender, member, start, end = self._spells(self._paths, self._outgoing, group.delay_ms)
        claims = sender < group.members
        sender, member, start, end = sender[claims], member[claims], start[claims], end[claims]
        phase, beat_ms = group.beat_phase_ms[sender], group.beat_ms
        first = np.maximum(np.ceil((start - phase) / beat_ms), 0.0).astype(np.int64)
        after = np.ceil((end - phase) / beat_ms).astype(np.int64)
        deaf = np.maximum(after - first, 0)
        deaf[group.loss[sender, member] <= 0.0] = 0
        which = np.repeat(np.arange(len(sender)), deaf)
        place = np.arange(len(which)) - np.repeat(np.cumsum(deaf) - deaf, deaf)
        beat = first[which] + place
        return DeafBeats(sender[which], member[which], beat, after[which] - beat)

    def _spells(self, paths: Spells, outgoing: Spells, delay_ms: Floats) -> tuple[Ints, Ints, Floats, Floats]:
        """Return sender, member, start and end of all spells that hit a pair, by the time of sending."""
        n, senders = self._block.group.receivers, len(delay_ms)
        line, start, end = paths.starts_ends()
        parts = [(line // n, line % n, start, end)]
        if self._block.group.loss_kind.line_share:
            line, start, end = outgoing.starts_ends()
            every = np.tile(np.arange(n), len(line))
            parts.append((np.repeat(line, n), every, np.repeat(start, n), np.repeat(end, n)))
            line, start, end = self._incoming.starts_ends()
            sender, member = np.tile(np.arange(senders), len(line)), np.repeat(line, senders)
            before = delay_ms[sender, member]
            parts.append((sender, member, np.repeat(start, senders) - before, np.repeat(end, senders) - before))
        sender, member, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sender, member, start, end


def _only_lost(train: Ints, member: Ints, packet: Ints) -> MissingPackets:
    return MissingPackets(train, member, packet, np.full(len(train), np.inf), np.zeros(len(train), dtype=np.bool_))


def _with_second(missing: MissingTokens, block: SlotBlock, losses: Losses) -> MissingTokens:
    """Add the copies that owners send with their next beat (W11)."""
    group, m = block.group, block.group.members
    if not (group.rules.token_twice and group.rules.beats):
        return missing
    slot, member, direct_ms = missing
    owner, at_ms = slot % m, slot * group.slot_ms
    number = np.floor((at_ms - group.beat_phase_ms[owner]) / group.beat_ms) + 1.0
    sent_ms = number * group.beat_ms + group.beat_phase_ms[owner]
    chance, wait = block.draws.pairs(SECOND_TOKEN, slot * group.receivers + member)
    arrival = sent_ms + group.delay_ms[owner, member] + group.jitter_ms[owner, member] * group.jitter_at(wait)
    arrival[losses.lost(owner, member, sent_ms, chance)] = np.inf
    return MissingTokens(slot, member, np.minimum(direct_ms, arrival))


def _mean_loss(loss: Floats, axis: int) -> Floats:
    """Return the mean loss of a node's paths, without those that lose nothing."""
    return np.asarray(loss.sum(axis=axis) / np.maximum(np.count_nonzero(loss, axis=axis), 1))


def _hit(
    event: Ints, event_sender: Ints, event_ms: Floats, sender: Ints, member: Ints, start_ms: Floats, end_ms: Floats
) -> tuple[Ints, Ints]:
    """Return the events, ordered by sender and time, that fall into spells, each with the spell's member."""
    stride = 4.0 * (abs(float(event_ms.max(initial=0.0))) + abs(float(end_ms.max(initial=0.0))) + 1e6)
    flat = np.append(event_ms + event_sender * stride, np.inf)
    at = np.searchsorted(flat, start_ms + sender * stride)
    limit = end_ms + sender * stride
    events, members = [], []
    while len(at):
        inside = flat[at] < limit
        at, limit, member = at[inside], limit[inside], member[inside]
        events.append(event[at])
        members.append(member)
        at = at + 1
    return np.concatenate(events or [event[:0]]), np.concatenate(members or [member[:0]])
