"""The queue of packets of the application, and how many of them a message contains."""

from __future__ import annotations

from collections import deque
from itertools import islice

from levelcast.wire.chain_codec import MAX_CHAIN_PACKETS

BATCH_BYTES = 32_000
"""Size in bytes up to which packets of the queue are put into one message."""
MAX_QUEUED = 10_000
"""Number of packets up to which the queue has room."""


def dequeue(queue: deque[bytes], batch_bytes: int = BATCH_BYTES) -> tuple[bytes, ...]:
    """Remove and return the packets of the next message: one, and more as long as they fit."""
    size = count = 0
    for packet in islice(queue, MAX_CHAIN_PACKETS):
        size += len(packet) + 4
        if count and size > batch_bytes:
            break
        count += 1
    return tuple(queue.popleft() for _ in range(count))
