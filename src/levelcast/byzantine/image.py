"""State of a member after a restart: what its journal and its log of deliveries contain.

The journal has own messages (C-2) and the direct versions that own messages acknowledge (C-3.4). A member that
acknowledges, restarts without them and then accepts another version breaks agreement (history J1).
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.protocol.effects import ChainDirect, ChainEntry
from levelcast.wire.chain_messages import ChainMessage, DeliveredRow


class ChainImage:
    """The image of a journal, in the order of its entries."""

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
        else:
            self.settled += entry.rows
