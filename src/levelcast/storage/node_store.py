"""Define a driver's storage: all files of a receiver (`receiver_store`), only a journal, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from levelcast.protocol.effects import JournalEntry, Release, ServeTape
from levelcast.protocol.history import Frame
from levelcast.storage.journal.file import JournalFile
from levelcast.wire.messages import Message, Token


class NodeStore:
    """The storage interface of a driver (`receiver_store` has the order of calls), for a process that stores nothing.

    Examples are a floor without a data directory, and an operator's command.
    """

    def __init__(self) -> None:
        self.on_damage: Callable[[str], None] = lambda _: None
        """Called with the description of damage that is found while the process runs."""

    @property
    def notices(self) -> list[str]:
        """Descriptions of the torn tails that were cut off when the files were opened."""
        return []

    def persist(self, entry: JournalEntry) -> None:
        """Add an entry to the next `commit`."""

    def commit(self) -> None:
        """Write the added entries."""

    def content(self, frame: Frame) -> bytearray:
        """Return the stamped records of a frame, for use before the frame is on the tape."""
        raise AssertionError("only a receiver releases")

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        """Append a frame with the records `content` to the tape, and its release to the log."""
        raise AssertionError("only a receiver releases")

    def log_token(self, token: Token, due_ns: int, sent_ns: int) -> None:
        """Log that an own token was sent after it was due."""

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        """Remove entries that the checkpoint makes redundant."""

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        """Return the messages to send to a member that lags (rule 9)."""
        raise AssertionError("only a receiver has a tape")

    def close(self) -> None:
        """Close the files."""


class JournalStore(NodeStore):
    """The disk of a reformation server or of a floor: it has a journal, and releases nothing."""

    def __init__(self, journal: JournalFile) -> None:
        super().__init__()
        self.journal = journal

    @property
    def notices(self) -> list[str]:
        return self.journal.notices

    def persist(self, entry: JournalEntry) -> None:
        self.journal.append(entry)

    def commit(self) -> None:
        self.journal.commit()

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        self.journal.forget(slot, ordered)

    def close(self) -> None:
        self.journal.close()
