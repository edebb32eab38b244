"""Join the parts in which a channel plan is sent: at an edge from the tape, at a subscriber from the plan session."""

from __future__ import annotations

from levelcast.wire.channel_plan import ChannelPlan, PlanRecord, decode_plan, digest_of
from levelcast.wire.header import Malformed, Reason


class Collector:
    """Joins the parts of a plan, which arrive in order."""

    def __init__(self) -> None:
        self.number = 0
        self.digest = b""
        self.parts = 0
        self.found: list[bytes] = []

    def add(self, record: PlanRecord) -> bool:
        """Add a part; return False for one out of order. The first part of a plan is never out of order."""
        if record.part == 0:
            self.number, self.digest, self.parts, self.found = record.number, record.digest, record.parts, []
        key = (record.number, record.digest, record.parts, record.part)
        if key != (self.number, self.digest, self.parts, len(self.found)):
            return False
        self.found.append(record.content)
        return True

    @property
    def complete(self) -> bool:
        return 0 < self.parts == len(self.found)

    def plan(self) -> ChannelPlan:
        """Return the complete plan; raise `Malformed` if its content is damaged."""
        content = b"".join(self.found)
        if digest_of(content) != self.digest:
            raise Malformed(Reason.BROKEN_SEAL)
        return decode_plan(self.number, content)
