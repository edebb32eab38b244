"""Catching up by frames: for those who are too far behind for repairs (rule 9).

The answer is one `CatchUp`, which says exactly what each slot ordered, and the packets themselves as `Repair`s. It
covers only released slots, so nothing in it can be voided, and the hash chain lets the other side check the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from levelcast.protocol.history import SETTLED, Frame, History, Misplaced
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.retransmit import pack_repairs
from levelcast.wire.messages import CatchUp, CatchUpSlot, Message
from levelcast.wire.packets import seal


def from_tape(
    member: int, frames: Sequence[Frame], after_slot: int, upto_slot: int, chain_before: bytes, credit: int, stripe: int
) -> list[Message]:
    """The messages that bring a member from `after_slot` towards `upto_slot`.

    `frames` are the tape's frames with slots in that range. The answer stops before any source would have more
    packets in it than its credit, because the other side keeps no more; it asks again from there.
    """
    taken: list[Frame] = []
    per_source: Counter[int] = Counter()
    for frame in frames:
        assert after_slot < frame.slot <= upto_slot
        for run in frame.runs:
            per_source[run.source] += run.last - run.first + 1
        if taken and max(per_source.values()) > credit:
            upto_slot = taken[-1].slot
            break
        taken.append(frame)
    slots = tuple(CatchUpSlot(frame.slot, frame.timestamp_ns, frame.runs) for frame in taken)
    chain_after = taken[-1].chain if taken else chain_before
    messages: list[Message] = [CatchUp(member, after_slot, upto_slot, chain_before, chain_after, slots)]
    packets = [seal(packet, stripe) for frame in taken for packet in frame.packets]
    return [*messages, *pack_repairs(member, packets)]


def take_over(settled: CatchUp, history: History, held: Holdings) -> bool:
    """Put settled slots behind the history, whose packets are all held; False, and nothing changed, if they lie."""
    if settled.chain_before != history.tip.chain:
        return False
    before = history.have
    try:
        for line in settled.slots:
            history.extend(line.slot, SETTLED, line.timestamp_ns, line.runs, held.packets)
    except Misplaced:
        history.rollback(before)
        return False
    history.tip.slot = settled.upto_slot
    if history.tip.chain != settled.chain_after:
        history.rollback(before)
        return False
    return True
