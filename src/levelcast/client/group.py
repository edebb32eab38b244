"""Send to a group of processes without multicast, and receive from it: `levelcast.Group` (TT).

    async with levelcast.Group("network.toml", "tokyo-1", protocol="MR") as group:
        await group.send(b"to all")
        await group.send(b"to some", to=["london-1", "sydney-1"])
        async for message in group:
            print(message.source, message.payload)

- Each receiver of the network file is a process of the group. Entering the `with` block waits until all of them run,
  or joins them if they run already.
- Messages are delivered in causal order, on receipt. `flush` waits until everything that was sent is known to be
  received by all: these are two events (docs/group.md).
- Leaving the `with` block flushes and leaves the group; leaving it by an exception does neither, and the others remove
  this process when they have not heard it for some seconds.
- Everything runs in the caller's event loop, without threads. Messages that are not read wait in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from os import PathLike
from typing import NamedTuple
from zlib import crc32

from levelcast.errors import NetError
from levelcast.network import Network, load_network
from levelcast.network.placement import links_to, place_of
from levelcast.overlay.wide.matrix import NEAR_NS
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.effects import Effect, Send, WideDeliver, WideInstall
from levelcast.runtime.group_setup import (
    ALLOWED_LOSS,
    group_addresses,
    group_config,
    group_members,
    group_network,
    protocol_choices,
)
from levelcast.runtime.group_socket import GroupSocket
from levelcast.runtime.impairment import Impairment
from levelcast.wire.header import domain_of

START_S = 60.0
"""Default time in which all processes of a group must be started."""
EXCHANGES_TO_LEAVE = 8


class GroupMessage(NamedTuple):
    """A message as it is delivered."""

    source: str
    """Name of the receiver that sent it."""
    payload: bytes


class WideGroup:
    """One process of a group; see the module docstring."""

    def __init__(
        self,
        network: Network | str | PathLike[str],
        name: str,
        *,
        protocol: str = "M",
        copies: str | None = None,
        near_s: float = NEAR_NS / 1e9,
        defer_s: float = 0.0,
        spacing_s: float = 0.0,
        allowed_loss: float = ALLOWED_LOSS,
        impair: bool = False,
        seed: int = 1,
        port: int | None = None,
        start_s: float = START_S,
    ) -> None:
        """Prepare the process of a receiver. All processes need the same network file and the same options.

        `copies` is "none", "sender" or "forwarded", by default that of the protocol. Processes up to `near_s` apart are
        a subgroup. Confirmations wait up to `defer_s` for a message to ride on. `allowed_loss` is the probability that
        all copies to a receiver are lost, and `spacing_s` the time between copies.
        `impair` injects the delay and loss of the file's links. With `port` the receivers use the ports from that one
        on, in the file's order. `start_s` is the time in which the others must run.
        """
        if not isinstance(network, Network):
            network = load_network(network)
        self.network = network = group_network(network, port)
        members = {each.name: each for each in group_members(network)}
        if name not in members:
            near = get_close_matches(name, members, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(members)}"
            raise NetError(f'receiver "{name}" not found in the network file; {hint}')
        self.name = name
        self.config = group_config(
            network,
            protocol_choices(protocol, copies),
            near_ns=round(near_s * 1e9),
            defer_ns=round(defer_s * 1e9),
            spacing_ns=round(spacing_s * 1e9),
            allowed_loss=allowed_loss,
        )
        self._receiver = members[name]
        self.socket: GroupSocket | None = None
        self._ids = {each.name: each.id for each in members.values()}
        self._names = {each.id: each.name for each in members.values()}
        self._impair, self._seed, self._start_s = impair, seed, start_s
        self._messages: deque[GroupMessage] = deque()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._closed = True
        self.watchers: list[Callable[[Effect, int], None]] = []
        """Called with each effect of the protocol and the time, by measurements."""

    # -- status -------------------------------------------------------------------------------------------

    @property
    def node(self) -> int:
        """Identifier of this receiver."""
        return self._receiver.id

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the processes in the present view."""
        return tuple(self._names[each] for each in self.process.members)

    @property
    def waiting(self) -> int:
        """Number of delivered messages that are not read yet."""
        return len(self._messages)

    # -- messages -----------------------------------------------------------------------------------------

    async def send(self, payload: bytes, to: Iterable[str] | None = None) -> None:
        """Send a message to some members, or to all others. Wait until there is room for it."""
        needed = self.config.packets(payload)
        chosen = None if to is None else [self._id_of(each) for each in to]
        await self._until(lambda: self.process.room >= needed)
        if chosen is not None:
            gone = [each for each in chosen if each not in self.process.members]
            if gone:
                raise ValueError(f"{self._names[gone[0]]} is not in the group any more; `members` has those that are")
        self._perform(self.process.submit(payload, time.time_ns(), chosen), time.time_ns())

    async def flush(self) -> None:
        """Wait until everything that was sent is known to be received by all its destinations."""
        await self._until(lambda: self.process.is_flushed)

    async def receive(self) -> GroupMessage:
        """Return the next message in causal order."""
        await self._until(lambda: bool(self._messages))
        return self._messages.popleft()

    def __aiter__(self) -> WideGroup:
        return self

    async def __anext__(self) -> GroupMessage:
        return await self.receive()

    def _id_of(self, name: str) -> int:
        if name not in self._ids or name == self.name:
            others = ", ".join(each for each in self._ids if each != self.name)
            raise ValueError(f'"{name}" is no other receiver of the group; choose from {others}')
        return self._ids[name]

    # -- membership ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the socket, and wait until this process is a member."""
        own, peers = group_addresses(self.network, self._receiver)
        stripe = self.network.stripes[0]
        impairment = None
        if self._impair:
            links = links_to(self.network, place_of(self.network, self.name))
            impairment = Impairment(links, crc32(f"{self._seed} {self.name}".encode()))
        now = time.time_ns()
        self.socket = opened = GroupSocket(own, peers, domain_of(self.network.id, stripe.index), impairment)
        self._closed = False
        self.process = GroupProcess(self.config, self.node, now, incarnation=now, joins=True, founds=True)
        asyncio.get_running_loop().add_reader(opened.fileno, self._turn)
        self._turn()
        try:
            async with asyncio.timeout(self._start_s):
                await self._until(lambda: self.process.life > 0)
        except TimeoutError:
            self.close()
            raise NetError(self._why_not_started()) from None
        except BaseException:
            self.close()
            raise

    def _why_not_started(self) -> str:
        heard = self.socket.heard if self.socket is not None else set()
        silent = [name for name, each in self._ids.items() if each != self.node and each not in heard]
        if silent:
            who = ", ".join(silent)
            return (
                f"{self.name}: no message from {who} within {self._start_s:g} s; "
                "start all receivers of the group, and check host, port and firewall"
            )
        return f"{self.name}: the group did not admit it within {self._start_s:g} s; a majority of its members must run"

    async def leave(self) -> None:
        """Leave the group: the others go on without this process. Wait until they know."""
        process, config = self.process, self.config
        process.leave()
        exchange_s = config.exchange_ns / 1e9
        until_s = time.monotonic() + 2 * config.suspect_ns / 1e9 + EXCHANGES_TO_LEAVE * exchange_s
        alone_s: float | None = None
        while not process.removed and time.monotonic() < until_s:
            if process.all_leave and alone_s is None:
                alone_s = time.monotonic()
            if alone_s is not None and time.monotonic() > alone_s + EXCHANGES_TO_LEAVE / 2 * exchange_s:
                return  # all others leave, too: they have had some exchanges to learn that this one does
            await asyncio.sleep(exchange_s / 4)

    def close(self) -> None:
        """Stop at once: for the others this process has failed, unless it has left."""
        if self._closed or self.socket is None:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self.socket.fileno)
        self.socket.close()
        self._changed.set()

    async def __aenter__(self) -> WideGroup:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
                await self.leave()
        finally:
            self.close()

    # -- one turn -----------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Receive, run one step, and perform its effects."""
        now = time.time_ns()
        try:
            arrived = self.socket.receive(now) if self.socket is not None else []
            self._perform(self.process.step(arrived, now), now)
        except Exception as error:  # for whoever waits: a callback of the event loop has no caller
            self._error = error
            self.close()

    def _perform(self, effects: list[Effect], now: int) -> None:
        if self.socket is not None:
            self.socket.send(each for each in effects if isinstance(each, Send))
        for effect in effects:
            if isinstance(effect, WideDeliver):
                self._messages.append(GroupMessage(self._names[effect.id.source], effect.payload))
            elif isinstance(effect, WideInstall) and self.process.removed and not self.process.leaving:
                silent_s = self.config.suspect_ns / 1e9
                self._error = NetError(
                    f"{self.name}: removed from the group, because the others did not hear it for {silent_s:.1f} s; "
                    "start it again"
                )
            for watcher in self.watchers:
                watcher(effect, now)
        self._changed.set()
        self._schedule(now)

    def _schedule(self, now: int) -> None:
        """Set the timer of the next turn."""
        if self._timer is not None:
            self._timer.cancel()
        delayed_ns = self.socket.next_ns if self.socket is not None else None
        times = [each for each in (self.process.wake_ns, delayed_ns) if each is not None]
        if times and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, min(times) - now) / 1e9, self._turn)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; raise the error that ended the process."""
        while not condition():
            if self._error is not None:
                raise self._error
            if self._closed:
                raise NetError(f"{self.name}: the group is closed; open a new one")
            self._changed.clear()
            await self._changed.wait()
