"""The gateway's journal on disk: one file of batches (G2). A torn last batch was never acknowledged, and is cut off."""

from __future__ import annotations

import os
from pathlib import Path

from levelcast.market.entry.journal import SENT_HEAD, sent_at, sent_size
from levelcast.market.fix.journal import Sent
from levelcast.storage.append_file import AppendFile, Durability, cut_tail, cut_text

JOURNAL_FILE = "entry.journal"


class EntryJournal:
    def __init__(self, directory: Path, durable: Durability) -> None:
        path = directory / JOURNAL_FILE
        self.file = AppendFile.open(path) if path.exists() else AppendFile.create(path, b"", durable)
        self.durable = durable
        self.notices: list[str] = []

    def content(self) -> bytes:
        return self.file.read(self.file.size, 0)

    def cut(self, end: int) -> None:
        """Remove an incomplete batch after `end`."""
        if self.file.size > end and (kept := cut_tail(self.file, end, self.durable)) is not None:
            self.notices.append(cut_text(self.file.path, end, kept))

    def append(self, octets: bytes) -> None:
        self.file.append(octets)
        if self.durable == "power":
            self.file.sync()

    def read_sent(self, offset: int) -> Sent:
        """Return a message sent, for a resend."""
        size = sent_size(os.pread(self.file.fd, SENT_HEAD, offset))
        return sent_at(os.pread(self.file.fd, size, offset))

    def close(self) -> None:
        self.file.close()
