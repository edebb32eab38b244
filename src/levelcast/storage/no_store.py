"""Storage of a process that keeps nothing: a floor without a data directory, an operator's command."""

from __future__ import annotations

from collections.abc import Mapping

from levelcast.protocol.effects import JournalEntry
from levelcast.storage.node_store import JournalStore


class NoStore(JournalStore):
    """Discards every entry."""

    def __init__(self) -> None:
        """Open nothing."""

    def persist(self, entry: JournalEntry) -> None:
        pass

    def commit(self) -> None:
        pass

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        pass

    def close(self) -> None:
        pass
