"""What a driver writes to: everything of a receiver (`receiver_store`), the journal alone of others, or nothing."""

from __future__ import annotations

from collections.abc import Mapping

from levelcast.protocol.effects import JournalEntry, Release, ServeTape
from levelcast.protocol.history import Frame
from levelcast.storage.journal.file import JournalFile
from levelcast.wire.messages import Message


class NodeStore:
    """The calls of a driver (`receiver_store` has their order), for a process that keeps nothing.

    That is a floor without a data directory, or an operator's command.
    """

    def persist(self, entry: JournalEntry) -> None:
        """Collect an entry for the next `commit`."""

    def commit(self) -> None:
        """Write what was collected."""

    def content(self, frame: Frame) -> bytearray:
        """The stamped records of a frame, for whoever is to have them before the tape."""
        raise AssertionError("only a receiver releases")

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        """Put a frame on the tape, whose `content` this is, and its release into the log."""
        raise AssertionError("only a receiver releases")

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        """Let go what the checkpoint makes superfluous."""

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        """What to send to a member that is behind (rule 9)."""
        raise AssertionError("only a receiver has a tape")

    def close(self) -> None:
        """Close the files."""


class JournalStore(NodeStore):
    """The disk of a reformation server or of a floor: it has a journal, and nothing is released there."""

    def __init__(self, journal: JournalFile) -> None:
        self.journal = journal

    def persist(self, entry: JournalEntry) -> None:
        self.journal.append(entry)

    def commit(self) -> None:
        self.journal.commit()

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        self.journal.forget(slot, ordered)

    def close(self) -> None:
        self.journal.close()
