"""Assemble application messages from packets, which arrive here in causal order, so in the order of their source."""

from __future__ import annotations

from levelcast.wire.wide_messages import WideData


class Assembly:
    """Parts of one application message per source."""

    def __init__(self) -> None:
        self._parts: dict[int, list[WideData]] = {}

    def add(self, data: WideData) -> bytes | None:
        """Add a packet; return the application message that it completes."""
        parts = self._parts.setdefault(data.source, [])
        if data.part == 0:
            parts.clear()
        elif len(parts) != data.part or parts[-1].life != data.life:
            return None  # an earlier part is lost: its source has failed
        parts.append(data)
        if data.part < data.parts - 1:
            return None
        del self._parts[data.source]
        return b"".join(part.payload for part in parts)
