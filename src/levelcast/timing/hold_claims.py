"""Model the claims of a block: when enough members have claimed a slot (rule 8, W6, W7).

With W7 all receivers use one time, H_j after the schedule of the claims. A receiver that loses more beats in a row than
H_j allows for has the claim later. Without W7 each receiver counts the beats, or the tokens, that have arrived.
"""

from __future__ import annotations

import numpy as np

from levelcast.timing.hold_draws import Floats, Ints
from levelcast.timing.hold_losses import BEAT, Losses, SlotBlock


def witnessed_ms(block: SlotBlock, losses: Losses, held: Floats, tokens: Floats) -> Floats:
    """Return the time at which enough members have claimed each slot, for each receiver."""
    rules = block.group.rules
    if not rules.beats:
        return _claims_in_tokens(block, held, tokens)
    group = block.group
    held = held[:, : group.members]
    beat = np.maximum(np.ceil((held - group.beat_phase_ms) / group.beat_ms), 0.0)
    said = beat * group.beat_ms + group.beat_phase_ms
    if not rules.common_time:
        return _heard_beats(block, losses, beat.astype(np.int64), said)
    least = group.needed - 1
    common = np.partition(said + group.claim_ms, least, axis=1)[:, least]
    witnessed = np.repeat(common[:, None], group.receivers, axis=1)
    _correct_deaf(block, losses, beat.astype(np.int64), said, witnessed)
    return witnessed


def _correct_deaf(block: SlotBlock, losses: Losses, beat: Ints, said: Floats, witnessed: Floats) -> None:
    """Delay the claims of beats that were lost more often in a row than W7 allows for."""
    group, m, n, least = block.group, block.group.members, block.group.receivers, block.group.needed - 1
    deaf = losses.deaf()
    first, after = (np.zeros(len(deaf.beat), dtype=np.int64) for _ in range(2))
    for sender in range(m):
        mine = deaf.sender == sender
        first[mine] = np.searchsorted(beat[:, sender], deaf.beat[mine], side="left")
        after[mine] = np.searchsorted(beat[:, sender], deaf.beat[mine], side="right")
    times = after - first
    which = np.repeat(np.arange(len(times)), times)
    slot = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
    senders, member = deaf.sender[which], deaf.member[which]
    cells, row = np.unique(slot * n + member, return_inverse=True)
    claims = (said + group.claim_ms)[cells // n]
    heard = said[slot, senders] + deaf.lost[which] * group.beat_ms + group.quantile_ms[senders, member]
    np.maximum.at(claims.ravel(), row * m + senders, heard)
    witnessed.ravel()[cells] = np.partition(claims, least, axis=1)[:, least]


def _heard_beats(block: SlotBlock, losses: Losses, beat: Ints, said: Floats) -> Floats:
    """Return the time at which each receiver itself has received enough claims."""
    group, m, n, least = block.group, block.group.members, block.group.receivers, block.group.needed - 1
    witnessed = np.empty((len(said), n))
    senders = np.arange(m)
    for member in range(n):
        heard = np.full(said.shape, np.inf)
        if member < m:
            heard[:, member] = said[:, member]
        slot, sender = np.nonzero(np.broadcast_to(senders != member, said.shape))
        number, at = beat[slot, sender], said[slot, sender]
        while len(slot):
            lost, wait = block.draws.pairs(BEAT, (number * m + sender) * n + member)
            gone = losses.lost(sender, np.full(len(slot), member), at, lost)
            wait = group.jitter_at(wait)
            arrival = at + group.delay_ms[sender, member] + group.jitter_ms[sender, member] * wait
            heard[slot[~gone], sender[~gone]] = arrival[~gone]
            slot, sender, number, at = slot[gone], sender[gone], number[gone] + 1, at[gone] + group.beat_ms
        witnessed[:, member] = np.partition(heard, least, axis=1)[:, least]
    return witnessed


def _claims_in_tokens(block: SlotBlock, held: Floats, tokens: Floats) -> Floats:
    """Return the time at which each receiver has read enough claims in tokens, which it reads in order (rule 8)."""
    group, m, least = block.group, block.group.members, block.group.needed - 1
    read = np.maximum.accumulate(tokens, axis=0)
    places = np.arange(m)
    turn = np.maximum(np.ceil((held[:, :m] / group.slot_ms - places) / m), 0.0).astype(np.int64) * m + places
    turn = np.minimum(turn, block.slots - 1)
    # Tokens are read in order: the claim that completes the count is the w-th in slot order.
    completing = np.partition(turn, least, axis=1)[:, least]
    return read[completing]
