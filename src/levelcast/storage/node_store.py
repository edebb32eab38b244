"""What a driver writes to: everything of a receiver (`receiver_store.Store`), the journal alone of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from levelcast.protocol.effects import JournalEntry, Release, ServeTape
from levelcast.protocol.history import Frame
from levelcast.storage.journal.file import JournalFile
from levelcast.wire.messages import Message


class NodeStore(Protocol):
    """The disk of one node, as `levelcast.storage.receiver_store` describes its calls."""

    def persist(self, entry: JournalEntry) -> None: ...

    def commit(self) -> None: ...

    def content(self, frame: Frame) -> bytearray: ...

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None: ...

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None: ...

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]: ...

    def close(self) -> None: ...


class JournalStore:
    """The disk of a reformation server or of a floor: it has a journal, and nothing is released there."""

    def __init__(self, journal: JournalFile) -> None:
        self.journal = journal

    def persist(self, entry: JournalEntry) -> None:
        self.journal.append(entry)

    def commit(self) -> None:
        self.journal.commit()

    def content(self, frame: Frame) -> bytearray:
        raise AssertionError("only a receiver releases")

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        raise AssertionError("only a receiver releases")

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        self.journal.forget(slot, ordered)

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        raise AssertionError("only a receiver has a tape")

    def close(self) -> None:
        self.journal.close()
