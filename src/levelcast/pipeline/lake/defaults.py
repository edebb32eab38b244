"""What the commands must know of lakes without loading what a lake needs: its error, and its defaults."""

from __future__ import annotations

from levelcast.errors import UserError

TARGET_BYTES = 128 * 2**20
"""What compaction makes of smaller files."""
KEEP_HOURS = 24
"""How long a file stays after it has left the table: a reader of the version before may still be at it."""
MOST_RECORDS = 2_000_000
"""Records in a batch of a stream: what has come meanwhile is far less, so this is for a stream that is behind."""
PIECE_RECORDS = 1_000_000
"""Records that one task takes into the lake: about a file of each table."""
EVERY_S = 3.0
"""How often a batch of a stream begins."""


class LakeError(UserError):
    """Why a lake cannot be read or written, in one sentence for a person."""
