"""Virtual disk: the journal's image and the tape of one node. It survives a crash unless it is wiped."""

from __future__ import annotations

from bisect import bisect_right

from levelcast.protocol.catchup import from_tape
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import ServeTape
from levelcast.protocol.history import GENESIS, Frame, first_tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.records import stamp
from levelcast.wire.messages import Message


def stamped_content(frame: Frame) -> bytes:
    """Return the records of a frame as they are on the tape, with sequence and timestamp."""
    return stamp(frame.content, frame.first_sequence, frame.timestamp_ns)


class SimTape:
    """The frames that a receiver has released, in order."""

    def __init__(self, config: StripeConfig) -> None:
        self.frames: list[Frame] = []
        self.tip = first_tip(config)

    def append(self, frame: Frame) -> None:
        self.tip.append(frame)
        self.frames.append(frame)

    def after(self, slot: int) -> int:
        """Return the index of the first frame after a slot."""
        return bisect_right(self.frames, slot, key=lambda frame: frame.slot)

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        """Return the messages for a member that lags (rule 9)."""
        first, last = self.after(request.after_slot), self.after(request.upto_slot)
        chain_before = self.frames[first - 1].chain if first else GENESIS
        frames = self.frames[first : min(last, first + 64)]
        upto_slot = request.upto_slot if last <= first + 64 else frames[-1].slot
        return from_tape(member, frames, request.after_slot, upto_slot, chain_before, credit)


class Disk:
    """Persistent state of one node."""

    def __init__(self, config: StripeConfig, life: int) -> None:
        self.journal = JournalImage(life)
        self.tape = SimTape(config)
