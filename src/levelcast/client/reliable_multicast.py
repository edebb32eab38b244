"""Send bytes to a group in which fewer than a third may lie, and receive what all honest members deliver (MR).

`ReliableMulticast` runs one member of the group of a network file in a thread of its own. Each payload is one packet of
a signed message, or several: payloads of more than `PART_BYTES` are divided, up to `MAX_PAYLOAD`, and delivered as one.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple

from levelcast.errors import LevelcastError, UserError
from levelcast.network import load_network
from levelcast.runtime.multicast_loop import GroupDelivery
from levelcast.runtime.multicast_node import GroupNode, MulticastOptions, group_record, read_keys
from levelcast.storage.chain_store import Confirmed

PART_BYTES = 30_000
"""Size in bytes up to which a payload is one packet; with the acknowledgements it fits one datagram."""
MAX_PAYLOAD = 16 << 20
"""Maximum size in bytes of a payload."""
_HEAD = struct.Struct("<II")
"""Of every packet: the number of packets that follow it for the same payload, and the size of the complete payload."""


class MulticastMessage(NamedTuple):
    """A payload that all honest members deliver."""

    sender: str
    payload: bytes


def divide(payload: bytes) -> list[bytes]:
    """Return the packets of a payload; raise ValueError for one that is too large."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(payload):,} bytes; the maximum is {MAX_PAYLOAD:,}")
    starts = range(0, len(payload) or 1, PART_BYTES)
    return [
        _HEAD.pack(len(starts) - number - 1, len(payload)) + payload[start : start + PART_BYTES]
        for number, start in enumerate(starts)
    ]


class PayloadAssembler:
    """Join the packets of payloads, per sender. A liar's packets that do not fit together are dropped."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[int, list[bytes]]] = {}
        """Per sender, size and parts of the payload that is incomplete."""
        self.dropped = 0
        """Packets that fit no payload."""

    def add(self, sender: int, packet: bytes) -> bytes | None:
        """Return the payload that a packet completes, None if there is none."""
        known, parts = self._parts.pop(sender, (None, []))
        if len(packet) < _HEAD.size:
            self.dropped += 1
            return None
        left, size = _HEAD.unpack_from(packet)
        body = packet[_HEAD.size :]
        total, at = max(1, -(-size // PART_BYTES)), len(parts) * PART_BYTES
        fits = known in (None, size) and left == total - len(parts) - 1 and len(body) == min(PART_BYTES, size - at)
        if size > MAX_PAYLOAD or not fits:
            self.dropped += 1
            return None
        parts.append(body)
        if not left:
            return b"".join(parts)
        self._parts[sender] = size, parts
        return None

    @property
    def pending(self) -> bool:
        """Return whether a payload is incomplete."""
        return bool(self._parts)


class ReliableMulticast:
    """A member of the group of a network file, for an event loop.

    A message counts as confirmed when the application requests the next one: after a restart, with the same data
    directory, the first message is the one after the last confirmed.
    """

    def __init__(
        self,
        network_file: str | Path = "network.toml",
        name: str = "",
        data: str | Path = "data",
        options: MulticastOptions | None = None,
    ) -> None:
        self._file, self._name, self._data, self._options = Path(network_file), name, Path(data), options
        self._node: GroupNode | None = None
        self._thread: Thread | None = None
        self._events: asyncio.AbstractEventLoop | None = None
        self._assembler = PayloadAssembler()
        self._messages: deque[tuple[Confirmed, MulticastMessage]] = deque()
        self._arrived = asyncio.Event()
        self._roomy = asyncio.Event()
        self._failure: BaseException | None = None
        self._given: Confirmed | None = None
        self._clean = Confirmed()
        """Position of the last payload that was made available."""
        self._skipped = 0
        """Number of payloads after the last restart's position that were confirmed before it."""
        self._waits_for_room = False

    async def __aenter__(self) -> ReliableMulticast:
        self._events = asyncio.get_running_loop()
        network = load_network(self._file)
        identity, statement = read_keys(self._file, network, self._name)
        record = group_record(network, statement)
        self._node = GroupNode(
            network, self._name, record, identity, self._data, self._on_delivery, self._options, self._on_turn
        )
        self._clean = Confirmed(self._node.loop.store.confirmed.number)
        self._skipped = self._node.loop.store.confirmed.payloads
        self._thread = Thread(target=self._run, name=f"multicast {self._name}", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        node, thread = self._opened(), self._thread
        node.loop.stop()
        while thread is not None and thread.is_alive():
            await asyncio.sleep(0.01)

    def _opened(self) -> GroupNode:
        if self._node is None:
            raise RuntimeError("the group is not open; use `async with levelcast.ReliableMulticast(...)`")
        return self._node

    # -- the application -----------------------------------------------------------------------------------

    async def send(self, payload: bytes) -> None:
        """Queue a payload, and wait while the queue is full. Raise ValueError for one that is too large."""
        node, packets = self._opened(), divide(bytes(payload))
        while node.loop.room < len(packets):
            self._check()
            self._roomy.clear()
            self._waits_for_room = True
            await self._roomy.wait()
        self._check()
        node.loop.submit(packets)

    def __aiter__(self) -> AsyncIterator[MulticastMessage]:
        return self

    async def __anext__(self) -> MulticastMessage:
        node = self._opened()
        if self._given is not None:
            node.loop.confirm(self._given)
        while not self._messages:
            self._check()
            self._arrived.clear()
            await self._arrived.wait()
        self._given, message = self._messages.popleft()
        return message

    def status(self) -> dict[str, Any]:
        """Return the state of this member: group, deliveries, queue, convictions with their proof."""
        return self._opened().status()

    def _check(self) -> None:
        if self._failure is not None:
            error = self._failure
            raise error if isinstance(error, LevelcastError) else UserError(f"the group has stopped: {error}")

    # -- in the thread of the member -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._opened().run()
        except BaseException as error:  # reported at the next call of the application
            self._failure = error
        self._notify(self._arrived)
        self._notify(self._roomy)

    def _on_delivery(self, delivery: GroupDelivery) -> None:
        node = self._opened()
        payloads = [self._assembler.add(delivery.sender, packet) for packet in delivery.packets]
        complete = [payload for payload in payloads if payload is not None]
        name = node.names.get(delivery.sender, str(delivery.sender))
        for number, payload in enumerate(complete, 1):
            self._clean = self._clean._replace(payloads=self._clean.payloads + 1)
            if number == len(complete) and not self._assembler.pending:
                self._clean = Confirmed(delivery.number)
            if self._skipped:
                self._skipped -= 1
            else:
                self._messages.append((self._clean, MulticastMessage(name, payload)))
        self._notify(self._arrived)

    def _on_turn(self) -> None:
        if self._waits_for_room and self._opened().loop.room:
            self._waits_for_room = False
            self._notify(self._roomy)

    def _notify(self, event: asyncio.Event) -> None:
        if self._events is not None and not self._events.is_closed():
            self._events.call_soon_threadsafe(event.set)
