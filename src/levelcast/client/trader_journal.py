"""The journal of a trader's FIX session: one file of the gateway's batches, with the session as number 0."""

from __future__ import annotations

from pathlib import Path

from levelcast.market.entry import journal
from levelcast.market.fix.journal import Entry, Expecting, Received, Sent, SessionImage
from levelcast.storage.append_file import AppendFile, cut_tail

_NUMBER = 0


class TraderJournal:
    def __init__(self, path: Path) -> None:
        self._file = AppendFile.open(path) if path.exists() else AppendFile.create(path, b"")

    def image(self) -> SessionImage:
        """Return the state of the session, and remove an incomplete batch at the end."""
        image, end = SessionImage(), 0
        for batch, upto in journal.read_batches(self._file.read(self._file.size, 0)):
            for _, entry, _ in batch.entries:
                if not isinstance(entry, journal.RequestEntry | journal.RefusedEntry | journal.CommandsEntry):
                    image.apply(entry)
            end = upto
        cut_tail(self._file, end)
        return image

    def append(self, entry: Entry) -> None:
        if isinstance(entry, Sent):
            packed = journal.pack_sent(_NUMBER, entry)
        else:
            # A message received is applied when it is delivered, so its number is enough.
            expecting = Expecting(entry.seq + 1) if isinstance(entry, Received) else entry
            packed = journal.pack_number(_NUMBER, expecting)
        self._file.append(journal.seal_batch(0, packed))

    def close(self) -> None:
        self._file.close()
