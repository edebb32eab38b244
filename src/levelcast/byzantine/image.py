"""State of a member after a restart: what its journal and its log of deliveries contain.

The journal has own messages (C-2), the direct versions that own messages acknowledge (C-3.4), and epochs. A member that
acknowledges, restarts without them and then accepts another version breaks agreement (history J1). One that signs two
successors of an epoch lets the group split (history E1).
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.protocol.effects import ChainDirect, ChainEntry, ChainSettled, EpochBegun, EpochEnded, EpochSigned
from levelcast.wire.chain_messages import ChainMessage, DeliveredRow


class ChainImage:
    """The image of a journal for one epoch, in the order of its entries."""

    def __init__(self, entries: Iterable[ChainEntry] = (), delivered: Iterable[DeliveredRow] = ()) -> None:
        self.direct: list[ChainMessage] = []
        self.settled: list[DeliveredRow] = []
        """Settled versions besides those that were delivered."""
        self.delivered = list(delivered)
        """The log of deliveries, in its order."""
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: ChainEntry) -> None:
        """Apply one entry, in the order in which it was written."""
        if isinstance(entry, ChainDirect):
            self.direct.append(entry.message)
        elif isinstance(entry, ChainSettled):
            self.settled += entry.rows


class EpochsImage:
    """The image of a journal: epochs, and the image of each."""

    def __init__(self) -> None:
        self.signed: dict[int, EpochSigned] = {}
        """By the epoch that the record ends."""
        self.begun: list[EpochBegun] = []
        self.ended: dict[int, tuple[int, ...]] = {}
        self._chains: dict[int, ChainImage] = {}

    def chain(self, epoch: int) -> ChainImage:
        """Return the image of one epoch."""
        return self._chains.setdefault(epoch, ChainImage())

    def apply(self, entry: ChainEntry) -> None:
        """Apply one entry, in the order in which it was written."""
        if isinstance(entry, EpochSigned):
            self.signed[entry.record.epoch - 1] = entry
        elif isinstance(entry, EpochBegun):
            self.begun.append(entry)
        elif isinstance(entry, EpochEnded):
            self.ended[entry.epoch] = entry.delivered
            self._chains.pop(entry.epoch, None)
        else:
            self.chain(entry.message.epoch if isinstance(entry, ChainDirect) else entry.epoch).apply(entry)

    def deliver(self, epoch: int, row: DeliveredRow) -> None:
        """Apply a row of the log of deliveries."""
        self.chain(epoch).delivered.append(row)
