"""Run the sources of several floors in one thread over one pair of sockets.

Each floor has its own `Driver`, journal and links, as a process would have. Datagrams of the group are received
once; only tokens are decoded for each floor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Lock, Thread

from levelcast.client.packet_queue import PacketQueue
from levelcast.native.layout import KIND_AT
from levelcast.network import Network
from levelcast.runtime.driver import LONGEST_SLEEP_NS, Driver
from levelcast.runtime.sockets import LOOPBACK, Arrival, CoreSockets, usable
from levelcast.wire.header import sender_of
from levelcast.wire.messages import Data
from levelcast.wire.token_codec import KIND_TOKEN


class SharedSockets:
    """The loop's sockets as one floor's driver sees them. Its `wait` never sleeps: the loop sleeps for all floors."""

    def __init__(self, core: CoreSockets) -> None:
        self.inbox: list[Arrival] = []
        self.learn, self.send, self.send_buffer = core.learn, core.send, core.send_buffer

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return bool(self.inbox), []

    def drain(self, domain: int | None = None) -> list[Arrival]:
        arrivals, self.inbox = self.inbox, []
        return arrivals

    def close(self) -> None:
        """Do nothing: the loop closes the sockets."""


@dataclass(eq=False, slots=True)
class FloorSeat:
    """One floor of a loop."""

    driver: Driver
    sockets: SharedSockets
    queue: PacketQueue

    def due_ns(self) -> int | None:
        impairment = self.driver.impairment
        dues = (self.driver.machine.wake_ns, self.queue.wake_ns, impairment.next_ns if impairment is not None else None)
        return min((due for due in dues if due is not None), default=None)


class SourceLoop:
    """One thread that drives the floors of one stripe over one pair of sockets."""

    def __init__(self, network: Network, stripe: int | str = 0, interface: str = LOOPBACK) -> None:
        group = network.core_group(stripe)
        self.stripe = network.stripe(stripe).name
        self.changed = Condition()
        """Notified after every turn; guards the queues of the floors."""
        self.error: BaseException | None = None
        """The error that stopped the thread."""
        self.heard_ns = 0
        """Time of the last datagram from the ring; 0: none."""
        self.watchers: list[Callable[[], None]] = []
        """Called after every turn, in the loop's thread."""
        with usable(interface):
            self._core = CoreSockets(group.address, group.port, interface, hears_data=False)
        self._core.trains = self._core.trains and network.carriage.trains
        self.warning = self._core.warning
        self._seats: list[FloorSeat] = []
        self._nodes: frozenset[int] = frozenset()
        self._turning = Lock()
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"levelcast floors of {self.stripe}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the loop for new work."""
        with suppress(BlockingIOError):  # the pipe is full, so the loop will wake
            os.write(self._rope, b"x")

    def seat(self) -> SharedSockets:
        """Return sockets for one more floor."""
        return SharedSockets(self._core)

    def add(self, seat: FloorSeat) -> None:
        with self._turning:
            self._seats.append(seat)
            self._nodes = frozenset(each.driver.node for each in self._seats)
        self.wake()

    def remove(self, seat: FloorSeat) -> None:
        """Stop one floor between two turns, and write its pending data."""
        with self._turning:
            if seat in self._seats:
                self._seats.remove(seat)
                self._nodes = frozenset(each.driver.node for each in self._seats)
                seat.driver.close()

    def close(self) -> None:
        self._stopping = True
        if self._thread.is_alive():
            self.wake()
            self._thread.join()
        for seat in list(self._seats):
            self.remove(seat)
        if self._bell >= 0:
            self._core.close()
            os.close(self._bell)
            os.close(self._rope)
            self._bell = self._rope = -1

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            self.error = error
        self._notify()

    def _turn(self) -> None:
        now = time.time_ns()
        dues = [due for seat in self._seats if (due := seat.due_ns()) is not None]
        until = min(now + LONGEST_SLEEP_NS, *dues) if dues else now + LONGEST_SLEEP_NS
        came, rung = self._core.wait(max(0, until - now) / 1e9, (self._bell,))
        if rung:
            os.read(self._bell, 4096)
        arrivals = [arrival for arrival in self._core.drain() if self._matters(arrival[0])] if came else []
        with self._turning:
            now = time.time_ns()
            for seat in self._seats:
                seat.sockets.inbox += arrivals
                due = seat.due_ns()
                if arrivals or (due is not None and due <= now):
                    seat.driver.turn()
        if arrivals:
            self.heard_ns = now
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
        for watcher in list(self.watchers):
            watcher()

    def _matters(self, datagram: bytes | Data) -> bool:
        """Return whether a datagram is a token, the input of sources, or from a namesake, which the driver counts."""
        assert isinstance(datagram, bytes)  # these sockets do not receive packets
        return (len(datagram) > KIND_AT and datagram[KIND_AT] == KIND_TOKEN) or sender_of(datagram) in self._nodes
