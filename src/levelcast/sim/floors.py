"""What the floors of a simulated deployment send, and whether the tapes have it all.

A floor's trades are those of `levelcast.market.synthetic`. It sends a burst at once, in packets of 1 to `MOST_RECORDS`
records. Without credit (rule 10) it keeps its trades in a queue and sends them, in fuller packets, as soon as the ring
lets it.
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
"""How often a floor without credit looks for some."""


class Trading(Trades):
    """The trades of one floor, remembered, so that the tapes can be compared with them."""

    def __init__(self, floor: Floor, seed: int) -> None:
        super().__init__(floor, seed)
        self._bursts: list[RecordArray] = []

    def burst(self, now_ns: int) -> RecordArray:
        batch = super().burst(now_ns)
        self._bursts.append(batch)
        return batch

    def records(self) -> bytes:
        """Every trade so far, in order, as the floor sent it."""
        return b"".join(burst.tobytes() for burst in self._bursts)


class SimFloor:
    """A floor at work: its trades become packets of its source."""

    def __init__(self, node: SimNode, trading: Trading) -> None:
        self.node = node
        self.trading = trading
        self.packets = 0
        self._waiting: RecordArray = trades(0)
        self._until_ns = 0
        self._retrying = False

    @property
    def waiting(self) -> int:
        """How many trades are held back for want of credit."""
        return len(self._waiting)

    def open(self, until_ns: int) -> None:
        """Trade from now until `until_ns`, by true time."""
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
    """The tape file of these frames: DBN metadata and the stamped records."""
    return dbn_metadata() + b"".join(map(stamped_content, frames))


def tape_fault(tape: bytes, frames: Sequence[Frame], floors: Sequence[Trading], *, whole: bool) -> str | None:
    """What is wrong with the trades on a tape, in one sentence; None if nothing is.

    Every record must carry its sequence number and its frame's timestamp, and apart from those two fields
    each floor's records must be byte for byte what the floor made, each trade once and in order: all of them
    if the tape is `whole`, the first ones if it is not.
    """
    records = np.frombuffer(tape, TRADE, offset=len(dbn_metadata())).copy()
    if not np.array_equal(records["sequence"], np.arange(1, len(records) + 1, dtype=np.uint32)):
        return "the sequence numbers have a gap"
    counts = [frame.records for frame in frames]
    stamps = np.repeat(np.array([frame.timestamp_ns for frame in frames], np.uint64), counts)
    if not np.array_equal(records["ts_recv"], stamps):
        return "a record has another timestamp than its frame"
    records["sequence"] = records["ts_recv"] = 0
    publishers = {trading.floor.publisher for trading in floors}
    if strangers := set(records["publisher_id"].tolist()) - publishers:
        return f"publisher {min(strangers)} is no floor"
    for trading in floors:
        mine = records[records["publisher_id"] == trading.floor.publisher]
        if whole and len(mine) != trading.made:
            return f"{trading.floor.name} made {trading.made} trades, and {len(mine)} are there"
        if not trading.records().startswith(mine.tobytes()):
            return f"the trades of {trading.floor.name} are not what the floor sent, in that order"
    return None


@dataclass(frozen=True, slots=True)
class Print:
    """One receiver's tape."""

    name: str
    frames: int
    records: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RehearsalVerdict:
    """Whether the tapes are identical; if not, every reason in a sentence."""

    prints: list[Print]
    problems: list[str]

    @property
    def identical(self) -> bool:
        return not self.problems


def judge(
    tapes: Sequence[tuple[str, Sequence[Frame]]], floors: Sequence[Trading], broken: str | None = None
) -> RehearsalVerdict:
    """Compare tapes by hash chain and byte for byte, and their trades with what the floors made.

    `broken` is a promise that is already known not to have held.
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
            problems.append(f"on the tape of {name}, {fault}")
        differs = (a.slot for a, b in zip(frames, longest, strict=False) if a.chain != b.chain)
        if (slot := next(differs, None)) is not None:
            problems.append(f"the tapes of {longest_name} and {name} differ from slot {slot} on")
        elif not longest_bytes.startswith(tape):
            problems.append(f"the tapes of {longest_name} and {name} have other bytes for the same frames")
    return RehearsalVerdict(prints, problems)
