"""Convert the trades of a tape to standard DBN: 48-byte messages, schema `trades`, symbol mappings in the header.

The tape's own records are DBN records with a tail. Programs that read by the record's length skip the tail, others read
with a fixed 48 bytes and would return garbage. `docs/tape.md` has the field mapping and lists what is left out.

- Only trades with action T: DBN's schema has no others, and a cancel or correction names its trade in the tail.
- Symbols and venues are those of the definitions on the tape; a tape without its beginning may lack some of them.
- Two passes over the tape: the definitions first, because the mappings are in the header, then the trades.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from levelcast.records import (
    ACTION_BUST,
    ACTION_TRADE,
    BY_RTYPE,
    PRIVATE_PUBLISHERS,
    RTYPE_INSTRUMENT,
    RTYPE_TRADE,
    WORD_BYTES,
    RecordArray,
    RecordType,
    export_publisher,
    trades_metadata,
)
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.blocks import RecordBlock, TapeBlocks
from levelcast.storage.tape.index import Ints
from levelcast.storage.tape.reader import TapeReader

STANDARD_TRADE = BY_RTYPE[RTYPE_TRADE].base_dtype
_NUMBERS = 1 << 16


class TradeExport:
    """The trades of a tape as standard DBN: `header`, then the bytes of the arrays that it yields."""

    def __init__(
        self,
        reader: TapeReader,
        from_sequence: int = 1,
        instruments: Collection[int] | None = None,
        *,
        symbols: Mapping[int, str] | None = None,
        venues: Mapping[int, str] | None = None,
    ) -> None:
        """Read the definitions. `symbols` and `venues` are names, by id, for what the tape does not define."""
        self._from = from_sequence
        self._instruments = np.array(sorted(instruments), np.uint32) if instruments else None
        self._blocks = TapeBlocks(reader, from_sequence)
        self.symbols: dict[int, str] = {}
        self.venues: dict[int, str] = {}
        for block in TapeBlocks(reader):
            self._define(block)
        self.symbols = {**(symbols or {}), **self.symbols}
        self.venues = {**(venues or {}), **self.venues}
        self.first_ns, self.last_ns = _times(reader, from_sequence)
        self.left_out: Counter[str] = Counter()
        """Chosen records that this format cannot hold, by kind, as far as the trades were read."""
        self.unnamed: set[int] = set()
        """Instruments without a symbol, as far as the trades were read."""
        self._publishers = np.arange(_NUMBERS, dtype=np.uint16) | np.uint16(PRIVATE_PUBLISHERS)
        for floor, venue in self.venues.items():
            self._publishers[floor] = export_publisher(venue, floor)
        self._seen = np.zeros(_NUMBERS, np.bool_)

    def header(self) -> bytes:
        """Return the metadata of the file, with the symbols of the chosen instruments."""
        chosen = self.symbols
        if self._instruments is not None:
            wanted = set(self._instruments.tolist())
            chosen = {number: name for number, name in chosen.items() if number in wanted}
        return trades_metadata(self.first_ns, self.last_ns, chosen)

    def __iter__(self) -> Iterator[RecordArray]:
        """Yield arrays of `STANDARD_TRADE` in the order of the tape."""
        for block in self._blocks:
            numbers: list[Ints] = []
            parts: list[RecordArray] = []
            for kind, at, records in block.by_type():
                at, records = self._choose(kind, at + block.first_sequence, records)
                if len(records):
                    numbers.append(at)
                    parts.append(self._standard(records))
            if len(parts) == 1:
                yield parts[0]
            elif parts:  # trades of several sizes
                yield np.concatenate(parts)[np.argsort(np.concatenate(numbers))]
        self._check_publishers()

    def _define(self, block: RecordBlock) -> None:
        for kind, _, records in block.by_type():
            if kind.rtype == RTYPE_INSTRUMENT:
                for names, number, name in (
                    (self.symbols, "instrument_id", "raw_symbol"),
                    (self.venues, "publisher_id", "exchange"),
                ):
                    for each, text in zip(records[number].tolist(), records[name].tolist(), strict=True):
                        if text:
                            names.setdefault(each, text.decode("utf-8", "replace"))

    def _choose(self, kind: RecordType, sequences: Ints, records: RecordArray) -> tuple[Ints, RecordArray]:
        """Return the trades of the chosen sequences and instruments; count other records."""
        if sequences[0] < self._from:
            chosen = sequences >= self._from
            sequences, records = sequences[chosen], records[chosen]
        if self._instruments is not None:
            chosen = np.isin(records["instrument_id"], self._instruments)
            sequences, records = sequences[chosen], records[chosen]
        if kind.rtype != RTYPE_TRADE:
            self.left_out[kind.name] += len(records)
            return sequences[:0], records[:0]
        traded = records["action"] == ACTION_TRADE
        if not traded.all():
            busts = int((records["action"] == ACTION_BUST).sum())
            self.left_out["cancel"] += busts
            self.left_out["correction"] += len(records) - int(traded.sum()) - busts
            sequences, records = sequences[traded], records[traded]
        return sequences, records

    def _standard(self, records: RecordArray) -> RecordArray:
        size = STANDARD_TRADE.itemsize
        content = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
        standard: RecordArray = np.ascontiguousarray(content[:, :size]).view(STANDARD_TRADE).reshape(len(records))
        floors = records["publisher_id"]
        self._seen[floors] = True
        self.unnamed.update(set(np.unique(records["instrument_id"]).tolist()) - self.symbols.keys())
        standard["length"] = size // WORD_BYTES
        standard["publisher_id"] = self._publishers[floors]
        return standard

    def _check_publishers(self) -> None:
        """Raise TapeError if two floors have the same private id."""
        private = self._seen & (self._publishers >= PRIVATE_PUBLISHERS)
        for floor in np.flatnonzero(private[:PRIVATE_PUBLISHERS] & private[PRIVATE_PUBLISHERS:]).tolist():
            other = floor + PRIVATE_PUBLISHERS
            raise TapeError(
                f"the floors with publishers {floor} and {other} would both be exported as publisher {other}; "
                "use --native, which keeps their own ids"
            )


def _times(reader: TapeReader, from_sequence: int) -> tuple[int, int]:
    """Return the times of the first and the last frame from a sequence on; zeros without one."""
    first = next((frame.line.timestamp_ns for frame in reader.frames(from_sequence=from_sequence)), 0)
    lines = [segment.lines[-1] for segment in reader.segments[-2:] if segment.lines]
    return first, max(first, lines[-1].timestamp_ns if lines else 0)
