"""Apply the copies of `levelcast.timing.copies` to the losses of a block: what they replace before any request (W11).

Assumptions:
- The parities of a train are sent directly after it and arrive with its last packet. A train is divided by turns:
  packet p is in the group p mod g of its g groups. In bursts, train and parities share one fate, so no parity helps.
- The copies of a token follow on the beats after that of the second copy.
- A second path leads over the member with the least delay. That member passes on what it has received directly, without
  a delay of its own. The path counts against losses only, not as a shorter way.
"""

from __future__ import annotations

import numpy as np

from levelcast.timing.copies import MOST_TOKENS, parity_groups
from levelcast.timing.hold_draws import Flags, Floats, Ints
from levelcast.timing.hold_losses import (
    DETOUR_DATA,
    DETOUR_TOKEN,
    PARITY,
    TOKEN_COPY,
    DeafBeats,
    Losses,
    MissingPackets,
    MissingTokens,
    SlotBlock,
)
from levelcast.timing.hold_rules import HoldInput


def losses_of(block: SlotBlock) -> Losses:
    """Return the losses of a block that are left with the copies of its group."""
    losses = block.losses()
    return CopiedLosses(block, losses) if any(map(any, block.group.copies)) else losses


class CopiedLosses:
    """The losses that `inner` has, less what copies replace."""

    def __init__(self, block: SlotBlock, inner: Losses) -> None:
        self._block, self._inner = block, inner
        self.packets = inner.packets
        copies = block.group.copies
        self._tokens = np.array([each.tokens for each in copies], dtype=np.int64)
        self._parity = np.array([parity_groups(self.packets, each.parity) for each in copies], dtype=np.int64)
        if block.group.loss_kind.spell_ms:
            self._parity[:] = 0
        self._detour = np.array([each.second_path for each in copies], dtype=np.bool_)

    def tokens(self) -> MissingTokens:
        """Return the tokens that do not arrive in time, with the first copy that does arrive."""
        missing = self._inner.tokens()
        group, block = self._block.group, self._block
        slot, member, direct_ms = missing
        owner, at_ms = slot % group.members, slot * group.slot_ms
        direct_ms = direct_ms.copy()
        for copy in range(1, int(self._tokens.max()) + 1 if group.rules.beats else 1):
            which = np.flatnonzero(self._tokens[member] >= copy)
            sender, me = owner[which], member[which]
            beat = np.floor((at_ms[which] - group.beat_phase_ms[sender]) / group.beat_ms) + 1.0 + copy
            sent_ms = beat * group.beat_ms + group.beat_phase_ms[sender]
            number = (slot[which] * group.receivers + me) * MOST_TOKENS + copy - 1
            arrival = self._travel(TOKEN_COPY, number, sender, me, sent_ms)
            direct_ms[which] = np.minimum(direct_ms[which], arrival)
        if self._detour.any():
            which = np.flatnonzero(self._detour[member])
            relay = relays(group.delay_ms, group)[owner[which], member[which]]
            number = slot * group.receivers + member
            there = slot[which] * group.receivers + relay
            draw = block.draws.uniform(DETOUR_TOKEN, there)
            sender = owner[which]
            reached = at_ms[which] + group.delay_ms[sender, relay]
            reached += group.jitter_ms[sender, relay] * group.jitter_at(draw)
            reached[np.isin(there, number) | (relay < 0)] = np.inf
            direct_ms[which] = np.minimum(
                direct_ms[which], self._relayed(DETOUR_TOKEN, there, relay, member[which], reached)
            )
        return MissingTokens(slot, member, direct_ms)

    def data(self) -> MissingPackets:
        """Return the packets that are neither received nor rebuilt from a parity."""
        missing = self._inner.data()
        left = self._rebuild(missing) if self._parity.any() else missing
        return self._by_detour(left, missing) if self._detour.any() else left

    def lost(self, sender: Ints, receiver: Ints, at_ms: Floats, chance: Floats) -> Flags:
        return self._inner.lost(sender, receiver, at_ms, chance)

    def deaf(self) -> DeafBeats:
        return self._inner.deaf()

    def _rebuild(self, missing: MissingPackets) -> MissingPackets:
        """Remove the packets that are the only missing ones of a group whose parity arrives."""
        group, n, each = self._block.group, self._block.group.receivers, self.packets
        groups = self._parity[missing.member]
        cell = missing.train * n + missing.member
        key = cell * each + missing.packet % np.maximum(groups, 1)
        _, place, times = np.unique(key, return_inverse=True, return_counts=True)
        loss = group.source_loss[self._block.source[missing.train], missing.member]

        def arrives(place_of_group: Ints) -> Flags:
            draw = self._block.draws.uniform(PARITY, cell * each + place_of_group)
            came: Flags = (draw >= loss) & (place_of_group < groups)
            return came

        rebuilt = (times[place] == 1) & arrives(missing.packet % np.maximum(groups, 1))
        shown = missing.shown.copy()
        for place_of_group in range(int(groups.max(initial=0))):
            shown |= arrives(np.full(len(cell), place_of_group))
        left = ~rebuilt
        train, member, packet, direct_ms, _ = missing
        return MissingPackets(train[left], member[left], packet[left], direct_ms[left], shown[left])

    def _by_detour(self, left: MissingPackets, missing: MissingPackets) -> MissingPackets:
        """Add the arrival over the second path: of packets that the member there has received itself."""
        block, group = self._block, self._block.group
        n, each = group.receivers, self.packets
        source = block.source[left.train]
        relay = relays(group.source_delay_ms, group)[source, left.member]
        there = (left.train * n + relay) * each + left.packet
        draw = block.draws.uniform(DETOUR_DATA, there)
        reached = block.sent_ms[left.train] + group.source_delay_ms[source, relay]
        reached += group.source_jitter_ms[source, relay] * draw
        known = (missing.train * n + missing.member) * each + missing.packet
        reached[np.isin(there, known) | (relay < 0) | ~self._detour[left.member]] = np.inf
        arrival = self._relayed(DETOUR_DATA, there, relay, left.member, reached)
        return left._replace(direct_ms=np.minimum(left.direct_ms, arrival))

    def _relayed(self, kind: int, number: Ints, relay: Ints, member: Ints, reached: Floats) -> Floats:
        """Return the arrival of what a relay passes on when it has received it."""
        arrival = np.full(len(reached), np.inf)
        came = np.flatnonzero(np.isfinite(reached))
        code = -1 - (number[came] * self._block.group.receivers + member[came])
        arrival[came] = self._travel(kind, code, relay[came], member[came], reached[came])
        return arrival

    def _travel(self, kind: int, number: Ints, sender: Ints, member: Ints, sent_ms: Floats) -> Floats:
        """Return the arrival of a copy between two members; infinite if it is lost."""
        group = self._block.group
        chance, wait = self._block.draws.pairs(kind, number)
        arrival = sent_ms + group.delay_ms[sender, member] + group.jitter_ms[sender, member] * group.jitter_at(wait)
        arrival[self._inner.lost(sender, member, sent_ms, chance)] = np.inf
        return np.asarray(arrival)


def relays(delay_ms: Floats, group: HoldInput) -> Ints:
    """Return the member over which the second path of each pair has the least delay; -1 if there is none."""
    m, n = group.members, group.receivers
    by = delay_ms[:, :m, None] + group.delay_ms[None, :m, :]
    near = np.arange(m)
    by[:, near, near] = np.inf
    if len(delay_ms) == n:  # tokens: the owner is no detour
        by[near, near, :] = np.inf
    found: Ints = np.argmin(by, axis=1)
    return np.where(np.isfinite(by.min(axis=1)), found, -1)
