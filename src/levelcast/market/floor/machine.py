"""A floor without I/O: sequencer, engine, gateway and public records, in the order in which a frame passes them.

The driver persists each released frame before it calls `apply`: so the tape has a frame before its reports leave, and
after a restart `apply` of every frame of the tape gives the same state (M1, G2).
"""

from __future__ import annotations

from typing import NamedTuple

from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.entry.gateway import Gateway
from levelcast.market.floor.public_records import PublicRecorder, PublicRecords
from levelcast.market.floor.sequencer import Sequencer
from levelcast.protocol.history import Frame
from levelcast.records import RecordArray
from levelcast.wire.messages import Packet

OPERATOR = 60_000
"""Source and publisher of the operator's commands: the treasury (S4)."""


class AppliedFrame(NamedTuple):
    """Effect of a frame: events of the engine, and their public part."""

    frame: Frame
    first_event: int
    """Number of its first event."""
    events: RecordArray
    public: PublicRecords


class FloorMachine:
    def __init__(self, engine: MatchingEngine, gateway: Gateway, sequencer: Sequencer, publisher: int) -> None:
        self.engine, self.gateway, self.sequencer = engine, gateway, sequencer
        self._recorder = PublicRecorder(publisher)
        self._operator_next = sequencer.next_number(OPERATOR)

    def command(self, payload: bytes, records: int) -> None:
        """Submit commands, definitions or statuses of the operator."""
        self.sequencer.submit(Packet(OPERATOR, 1, self._operator_next, records, payload))
        self._operator_next += 1

    def apply(self, frame: Frame, now: int) -> AppliedFrame:
        """Apply the next frame: match its commands, and make the reports of the gateway's sessions."""
        first = self.gateway.reports.number + 1
        last = frame.first_sequence + frame.records - 1
        events = self.engine.frame(BookFrame(last, frame.timestamp_ns, frame.content))
        # The gateway's own packets have no definitions; most frames have no others.
        own = self.gateway.config.number
        content = frame.content if any(run.source != own for run in frame.runs) else b""
        self.gateway.apply(content, frame.timestamp_ns, events.tobytes(), now)
        public = self._recorder.take(content, frame.timestamp_ns, events)
        return AppliedFrame(frame, first, events, public)
