"""One order across several stripes (rule 15).

Each stripe has its own ring and releases its own frames in slot order. Across stripes the order is (timestamp,
stripe, sequence). A frame may be handed on once every stripe is known to be complete up to its timestamp: by a later
frame, or by a watermark, which a stripe sends at a set interval even when it is silent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from levelcast.ring.order import Frame


class StripeMerger:
    """Merges the released frames of several stripes."""

    def __init__(self, stripes: Iterable[int]) -> None:
        self._complete_ns: dict[int, int] = dict.fromkeys(sorted(stripes), 0)
        self._waiting: dict[int, deque[Frame]] = {stripe: deque() for stripe in self._complete_ns}

    def frame(self, stripe: int, frame: Frame) -> None:
        """A stripe has released `frame`: it is complete up to its timestamp."""
        waiting = self._waiting[stripe]
        assert not waiting or waiting[-1].slot < frame.slot, "a stripe releases in slot order"
        waiting.append(frame)
        self.watermark(stripe, frame.timestamp_ns)

    def watermark(self, stripe: int, complete_ns: int) -> None:
        """Nothing with a timestamp up to `complete_ns` will come from this stripe any more."""
        self._complete_ns[stripe] = max(self._complete_ns[stripe], complete_ns)

    @property
    def complete_ns(self) -> int:
        """Every stripe is complete up to here."""
        return min(self._complete_ns.values(), default=0)

    def ready(self) -> Iterator[tuple[int, Frame]]:
        """The frames that can be handed on now, in order, with their stripes."""
        upto_ns = self.complete_ns
        while True:
            heads = [
                (waiting[0].timestamp_ns, stripe)
                for stripe, waiting in self._waiting.items()
                if waiting and waiting[0].timestamp_ns <= upto_ns
            ]
            if not heads:
                return
            _, stripe = min(heads)
            yield stripe, self._waiting[stripe].popleft()
