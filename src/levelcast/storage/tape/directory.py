"""The segments of a tape directory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from levelcast.storage.tape.segment import ACTIVE, DATA, INDEX, segment_path


class SegmentFile(NamedTuple):
    """One segment of one tape."""

    directory: str
    first: int
    active: bool

    @property
    def data_path(self) -> Path:
        """A segment that grew when it was listed may have its final name by now."""
        growing = segment_path(Path(self.directory), self.first, ACTIVE)
        return growing if self.active and growing.exists() else segment_path(Path(self.directory), self.first, DATA)

    @property
    def index_path(self) -> Path:
        return segment_path(Path(self.directory), self.first, INDEX)
