"""Catching up by frames: for those who are too far behind for repairs (rule 9).

The answer is one `Settled`, which says exactly what each slot ordered, and the packets themselves as `Repair`s. It
covers only released slots, so nothing in it can be voided, and the hash chain lets the other side check the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from levelcast.ring.answer import pack_repairs
from levelcast.ring.holdings import Holdings
from levelcast.ring.order import SETTLED, Frame, History
from levelcast.ring.repair import numbers_to_runs
from levelcast.wire.messages import Data, Message, Run, Settled, SettledSlot


def from_tape(
    member: int, frames: Sequence[Frame], after_slot: int, upto_slot: int, chain_before: bytes, credit: int
) -> list[Message]:
    """The messages that bring a member from `after_slot` towards `upto_slot`.

    `frames` are the tape's frames with slots in that range. The answer stops before any source would have more
    packets in it than its credit, because the other side keeps no more; it asks again from there.
    """
    taken: list[Frame] = []
    per_source: Counter[int] = Counter()
    for frame in frames:
        assert after_slot < frame.slot <= upto_slot
        per_source.update(packet.source for packet in frame.packets)
        if taken and max(per_source.values()) > credit:
            upto_slot = taken[-1].slot
            break
        taken.append(frame)
    slots = tuple(SettledSlot(frame.slot, frame.timestamp_ns, tuple(ordered_runs(frame.packets))) for frame in taken)
    chain_after = taken[-1].chain if taken else chain_before
    messages: list[Message] = [Settled(member, after_slot, upto_slot, chain_before, chain_after, slots)]
    packets = [packet for frame in taken for packet in frame.packets]
    return [*messages, *pack_repairs(member, packets)]


def ordered_runs(packets: Iterable[Data]) -> Iterable[Run]:
    """Packets in tape order as runs, keeping that order."""
    key: tuple[int, int] | None = None
    numbers: list[int] = []
    for packet in packets:
        if key != (packet.source, packet.incarnation):
            if key is not None:
                yield from numbers_to_runs(*key, numbers)
            key, numbers = (packet.source, packet.incarnation), []
        numbers.append(packet.number)
    if key is not None:
        yield from numbers_to_runs(*key, numbers)


def take_over(settled: Settled, history: History, held: Holdings) -> bool:
    """Put settled slots behind the history, whose packets are all held; False, and nothing changed, if they lie."""
    if settled.chain_before != history.tip.chain:
        return False
    before = history.have
    for line in settled.slots:
        history.extend(line.slot, SETTLED, line.timestamp_ns, line.runs, held.packets)
    history.tip.slot = settled.upto_slot
    if history.tip.chain != settled.chain_after:
        history.rollback(before)
        return False
    return True
