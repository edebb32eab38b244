"""Generate the trades of simulated floors, and check that the tapes contain all of them.

A floor's trades are those of `levelcast.market.synthetic`. It sends each burst immediately, in packets of 1 to
`MOST_RECORDS` records. Without credit (rule 10) it queues its trades and sends them, in fuller packets, as soon as it
has credit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from levelcast.market.synthetic import MOST_RECORDS as MOST_RECORDS
from levelcast.market.synthetic import Trades
from levelcast.network import Floor
from levelcast.protocol.history import Frame
from levelcast.records import TRADE, RecordArray, dbn_metadata, trades
from levelcast.ring.source import Source
from levelcast.sim.engine.disk import stamped_content
from levelcast.sim.engine.world import SimNode

RETRY_NS = 10_000_000
"""Interval at which a floor without credit checks for credit."""


class Trading(Trades):
    """Trades of one floor, kept for the comparison with the tapes."""

    def __init__(self, floor: Floor, seed: int) -> None:
        super().__init__(floor, seed)
        self._bursts: list[RecordArray] = []

    def burst(self, now_ns: int) -> RecordArray:
        batch = super().burst(now_ns)
        self._bursts.append(batch)
        return batch

    def records(self) -> bytes:
        """Return every trade so far, in order, as the floor sent it."""
        return b"".join(burst.tobytes() for burst in self._bursts)


class SimFloor:
    """Simulated floor: submits its trades as packets of its source."""

    def __init__(self, node: SimNode, trading: Trading) -> None:
        self.node = node
        self.trading = trading
        self.packets = 0
        self._waiting: RecordArray = trades(0)
        self._until_ns = 0
        self._retrying = False

    @property
    def waiting(self) -> int:
        """Number of trades that wait for credit."""
        return len(self._waiting)

    def open(self, until_ns: int) -> None:
        """Generate trades from now until `until_ns`, in true time."""
        self._until_ns = until_ns
        self.node.world.after(self.trading.gap_ns(), self._burst)

    def _burst(self) -> None:
        world = self.node.world
        if world.now >= self._until_ns:
            return
        self._waiting = np.concatenate((self._waiting, self.trading.burst(self.node.local_ns)))
        self._send()
        world.after(self.trading.gap_ns(), self._burst)

    def _send(self) -> None:
        node, source = self.node, self.node.machine
        while len(self._waiting) and isinstance(source, Source) and source.room:
            batch, self._waiting = self._waiting[:MOST_RECORDS], self._waiting[MOST_RECORDS:]
            self.packets += 1
            node.perform(source.submit(batch.tobytes(), len(batch), node.local_ns))
        if len(self._waiting) and not self._retrying:
            self._retrying = True
            node.world.after(RETRY_NS, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._send()


# -- the tapes -------------------------------------------------------------------------------------------


def tape_bytes(frames: Sequence[Frame]) -> bytes:
    """Return the tape file of these frames: DBN metadata and the stamped records."""
    return dbn_metadata() + b"".join(map(stamped_content, frames))


def tape_fault(tape: bytes, frames: Sequence[Frame], floors: Sequence[Trading], *, whole: bool) -> str | None:
    """Return a message about the first error in the trades on a tape, or None.

    Every record must carry its sequence number and its frame's timestamp. Apart from those two fields, each floor's
    records must be the floor's trades byte for byte, each once and in order: all of them if the tape is complete
    (`whole`), otherwise a prefix.
    """
    records = np.frombuffer(tape, TRADE, offset=len(dbn_metadata())).copy()
    if not np.array_equal(records["sequence"], np.arange(1, len(records) + 1, dtype=np.uint32)):
        return "sequence numbers have a gap"
    counts = [frame.records for frame in frames]
    stamps = np.repeat(np.array([frame.timestamp_ns for frame in frames], np.uint64), counts)
    if not np.array_equal(records["ts_recv"], stamps):
        return "the timestamps of a record and its frame differ"
    records["sequence"] = records["ts_recv"] = 0
    publishers = {trading.floor.publisher for trading in floors}
    if strangers := set(records["publisher_id"].tolist()) - publishers:
        return f"publisher {min(strangers)} is not a floor"
    for trading in floors:
        mine = records[records["publisher_id"] == trading.floor.publisher]
        if whole and len(mine) != trading.made:
            return f"floor {trading.floor.name} made {trading.made} trades, but the tape has {len(mine)}"
        if not trading.records().startswith(mine.tobytes()):
            return f"trades of {trading.floor.name} differ from those the floor sent, or their order differs"
    return None


@dataclass(frozen=True, slots=True)
class Print:
    """Summary of one receiver's tape."""

    name: str
    frames: int
    records: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RehearsalVerdict:
    """Result of comparing the tapes; `problems` has one message per difference."""

    prints: list[Print]
    problems: list[str]

    @property
    def identical(self) -> bool:
        return not self.problems


def judge(
    tapes: Sequence[tuple[str, Sequence[Frame]]], floors: Sequence[Trading], broken: str | None = None
) -> RehearsalVerdict:
    """Compare tapes by hash chain and byte for byte, and their trades with those of the floors.

    `broken` is the message of an invariant that already failed during the run.
    """
    made = sum(floor.made for floor in floors)
    problems = [broken] if broken is not None else []
    prints: list[Print] = []
    longest_name, longest = max(tapes, key=lambda tape: len(tape[1]))
    longest_bytes = tape_bytes(longest)
    for name, frames in tapes:
        tape = tape_bytes(frames)
        records = (len(tape) - len(dbn_metadata())) // TRADE.itemsize
        prints.append(Print(name, len(frames), records, len(tape), sha256(tape).hexdigest()))
        if records < made:
            problems.append(f"{name} released {records:,} of {made:,} trades")
        if (fault := tape_fault(tape, frames, floors, whole=records >= made)) is not None:
            problems.append(f"tape of {name}: {fault}")
        differs = (a.slot for a, b in zip(frames, longest, strict=False) if a.chain != b.chain)
        if (slot := next(differs, None)) is not None:
            problems.append(f"the tapes of {longest_name} and {name} differ from slot {slot} on")
        elif not longest_bytes.startswith(tape):
            problems.append(f"the tapes of {longest_name} and {name} have different bytes for the same frames")
    return RehearsalVerdict(prints, problems)
