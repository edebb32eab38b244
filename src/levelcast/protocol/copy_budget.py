"""Bytes that a node may send in addition, by those that it had to send (rule W11).

Each sender keeps the factor `redundancy` on its own: so all senders together keep it, at any load. A message to several
receivers counts once for each of them.
"""

from __future__ import annotations


class CopyBudget:
    """The bytes of one sender."""

    def __init__(self, redundancy: float) -> None:
        self._part = redundancy - 1.0
        self.needed = 0
        """Bytes sent that are no copies."""
        self.copies = 0

    def need(self, size: int) -> None:
        """Note bytes that are sent anyway."""
        self.needed += size

    @property
    def left(self) -> int:
        """Bytes that copies may have now."""
        return int(self._part * self.needed) - self.copies

    def spend(self, size: int) -> bool:
        """Note the bytes of copies and return True if they are within the factor."""
        if size > self.left:
            return False
        self.copies += size
        return True
