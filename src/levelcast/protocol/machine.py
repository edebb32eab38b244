"""The surface that every protocol class offers to its driver, whether that is a simulator or a socket loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from levelcast.protocol.effects import Effect
from levelcast.wire.messages import Message


class Machine(Protocol):
    """Takes a batch of messages and the time, returns effects in order, and says when it wants to be woken."""

    wake_ns: int | None

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]: ...
