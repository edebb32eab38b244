"""The error and the defaults of lakes, for commands that must not import the lake's dependencies."""

from __future__ import annotations

from levelcast.errors import UserError

TARGET_BYTES = 128 * 2**20
"""Target size of compacted files."""
KEEP_HOURS = 24
"""Retention of a file after its removal from the table: a reader of the previous version may still use it."""
MOST_RECORDS = 2_000_000
"""Maximum records in a batch of a stream. New records are usually far fewer; this limits a stream that lags."""
PIECE_RECORDS = 1_000_000
"""Number of records that one task loads: about one file of each table."""
EVERY_S = 3.0
"""Interval between batches of a stream, in seconds."""


class LakeError(UserError):
    """Error in reading or writing a lake, with a one-line message."""
