"""Store all files of one receiver in one directory, and define the order in which they are written.

    DIR/journal/    `levelcast.storage.journal.file`
    DIR/tape/       `levelcast.storage.tape.writer`
    DIR/releases/   `levelcast.storage.release_log`

A driver performs the effects of a step in order, and calls `commit` before the first `Send` after a `Persist`:

| effect            | call |
|-------------------|------|
| Persist(entry)    | `persist(entry)` |
| Send              | `commit()` first |
| Release           | `content(...)`, then `release(...)`: the frame is on the tape when it returns |
| Forget(slot)      | `forget(slot, receiver.history.base.places)` |
| ServeTape         | `serve(...)` |

A `Checkpoint` states that the tape contains everything up to it. So the tape is written first, and with
`durable="power"` it is on the device first. Frames after the checkpoint can be rebuilt from the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from levelcast.protocol.catchup import from_tape
from levelcast.protocol.effects import Checkpoint, JournalEntry, Release, ServeTape
from levelcast.protocol.history import Frame, Tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.storage.advice import repair_tape
from levelcast.storage.append_file import Durability, TapeError
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import JournalStore
from levelcast.storage.release_log import Released, ReleaseLog, TokenDelay
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.stamps import frame_bytes
from levelcast.storage.tape.writer import RECORDS_PER_SEGMENT, TapeWriter
from levelcast.wire.header import split_domain
from levelcast.wire.messages import Message, Token

MAX_FRAMES_SERVED = 64
"""Maximum number of frames per answer; a member that lags further sends another request."""


class ReceiverStore(JournalStore):
    """The open files of one receiver."""

    def __init__(self, journal: JournalFile, image: JournalImage, tape: TapeWriter, releases: ReleaseLog) -> None:
        super().__init__(journal)
        self.image = image
        """Content of the journal when it was opened: the receiver starts from this and from `tape.tip`."""
        self.tape = tape
        self.releases = releases
        self._reader: TapeReader | None = None
        self._checkpoint_pending = False

    @classmethod
    def open(
        cls,
        directory: Path | str,
        first: Tip,
        *,
        durable: Durability = "process",
        records_per_segment: int = RECORDS_PER_SEGMENT,
        accept_restart: bool = False,
    ) -> ReceiverStore:
        """Open all files; raise TapeError if they are damaged or do not belong together."""
        directory = Path(directory)
        journal, image = JournalFile.open(directory / "journal", durable=durable, accept_restart=accept_restart)
        try:
            tape = TapeWriter.open(
                directory / "tape",
                first,
                stripe=split_domain(journal.identity.domain)[1],
                records_per_segment=records_per_segment,
                durable=durable,
                needs=image.checkpoint,
            )
        except BaseException:
            journal.close()
            raise
        try:
            return cls(journal, image, tape, ReleaseLog(directory / "releases", closed=journal.log_end))
        except BaseException:
            journal.close()
            tape.close()
            raise

    def persist(self, entry: JournalEntry) -> None:
        self._checkpoint_pending |= type(entry) is Checkpoint
        self.journal.append(entry)

    def commit(self) -> None:
        if self._checkpoint_pending and self.journal.durable == "power":
            self.tape.sync()
        self.journal.commit()
        self._checkpoint_pending = False

    def content(self, frame: Frame) -> bytearray:
        return frame_bytes(frame)

    def release(self, release: Release, content: bytearray, generation: int, released_ns: int) -> None:
        frame = release.frame
        self.tape.append(frame, content)
        self.releases.append(
            [
                Released(
                    frame.slot,
                    generation,
                    release.scheduled_ns,
                    released_ns,
                    frame.records,
                    release.late,
                    release.ready_ns,
                    release.moved,
                )
            ]
        )

    def log_token(self, token: Token, due_ns: int, sent_ns: int) -> None:
        self.releases.note_token(TokenDelay(token.slot, token.generation, due_ns, sent_ns))

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        """Remove what the checkpoint makes redundant; the checkpoint is committed first."""
        self.commit()
        self.journal.forget(slot, ordered)

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        """Return the answer from the tape; nothing if it is damaged there, so that another member answers."""
        try:
            if self._reader is None:
                self._reader = TapeReader(self.tape.directory)
            else:
                self._reader.refresh()
            return serve(self._reader, member, request, credit)
        except TapeError as error:
            self.on_damage(f"{error}; stop this node and {repair_tape(self.tape.directory)}")
            return []

    @property
    def notices(self) -> list[str]:
        return [*self.journal.notices, *self.tape.notices, *self.releases.notices]

    def close(self) -> None:
        """Close the files; the tape is on the device before the journal records an orderly close."""
        try:
            self.tape.sync()
            self.releases.sync()
            self.journal.log_end = self.releases.end
            super().close()
        finally:
            self.tape.close()
            self.releases.close()


def serve(reader: TapeReader, member: int, request: ServeTape, credit: int) -> list[Message]:
    """Return the answer from a tape; nothing if retention has removed the requested frames."""
    after_slot, upto_slot = request.after_slot, request.upto_slot
    if reader.before.slot > after_slot:
        return []
    found = list(islice(reader.frames(after_slot=after_slot), MAX_FRAMES_SERVED + 1))
    wanted = [each for each in found if each.line.slot <= upto_slot]
    if len(wanted) > MAX_FRAMES_SERVED:
        wanted.pop()
        upto_slot = wanted[-1].line.slot
    frames = [each.frame() for each in wanted]
    return from_tape(member, frames, after_slot, upto_slot, reader.chain_at(after_slot), credit)
