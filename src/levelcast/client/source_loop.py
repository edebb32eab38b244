"""Run the sources of several floors in one thread over one pair of sockets.

Each floor has its own `Driver`, journal and links, as a process would have. Datagrams of the group are received
once; only tokens are decoded for each floor. Without multicast every floor has sockets of its own, at its address.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Lock, Thread

from levelcast.client.packet_queue import PacketQueue
from levelcast.native.layout import KIND_AT
from levelcast.network import Network
from levelcast.runtime.core_sockets import open_core
from levelcast.runtime.driver import LONGEST_SLEEP_NS, Driver
from levelcast.runtime.overlay_sockets import OverlaySockets
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


class OwnSockets:
    """A floor's own sockets in a loop, without multicast. Its `wait` never sleeps: the loop sleeps for all floors."""

    def __init__(self, sockets: OverlaySockets) -> None:
        self.sockets = sockets
        self.inbox: list[Arrival] = []
        self.learn, self.send, self.send_buffer = sockets.learn, sockets.send, sockets.send_buffer
        self.drain, self.close, self.filenos = sockets.drain, sockets.close, sockets.filenos

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return self.sockets.wait(0, others, packets=packets)


@dataclass(eq=False, slots=True)
class FloorSeat:
    """One floor of a loop."""

    driver: Driver
    sockets: SharedSockets | OwnSockets
    queue: PacketQueue

    def due_ns(self) -> int | None:
        impairment = self.driver.impairment
        dues = (self.driver.machine.wake_ns, self.queue.wake_ns, impairment.next_ns if impairment is not None else None)
        return min((due for due in dues if due is not None), default=None)


class SourceLoop:
    """One thread that drives the floors of one stripe over one pair of sockets."""

    def __init__(self, network: Network, stripe: int | str = 0, interface: str = LOOPBACK) -> None:
        self._network = network
        self._interface = interface
        self.stripe = network.stripe(stripe).name
        self.changed = Condition()
        """Notified after every turn; guards the queues of the floors."""
        self.error: BaseException | None = None
        """The error that stopped the thread."""
        self.heard_ns = 0
        """Time of the last datagram from the ring; 0: none."""
        self.watchers: list[Callable[[], None]] = []
        """Called after every turn, in the loop's thread."""
        self._core: CoreSockets | None = None
        self.warning: str | None = None
        if network.transport == "multicast":
            group = network.core_group(stripe)
            with usable(interface):
                ttl = group.ttl or 1
                self._core = CoreSockets(group.address, group.port, interface, hears_data=False, ttl=ttl)
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

    def seat(self, floor: int) -> SharedSockets | OwnSockets:
        """Return sockets for one more floor, by its id."""
        if self._core is not None:
            return SharedSockets(self._core)
        sockets = open_core(self._network, self.stripe, floor, self._interface)
        assert isinstance(sockets, OverlaySockets)
        sockets.trains = sockets.trains and self._network.carriage.trains
        self.warning = sockets.warning
        return OwnSockets(sockets)

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
            if self._core is not None:
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
        arrivals, ready = self._sleep(max(0, until - now) / 1e9)
        with self._turning:
            now = time.time_ns()
            for seat in self._seats:
                seat.sockets.inbox += arrivals
                due = seat.due_ns()
                if arrivals or seat.sockets in ready or (due is not None and due <= now):
                    seat.driver.turn()
        if arrivals or ready:
            self.heard_ns = now
        self._notify()

    def _sleep(self, timeout_s: float) -> tuple[list[Arrival], list[OwnSockets]]:
        """Sleep until an arrival; return the group's arrivals, and the sockets of floors that have some."""
        if self._core is not None:
            came, rung = self._core.wait(timeout_s, (self._bell,))
            ready: list[OwnSockets] = []
        else:
            owned = [seat.sockets for seat in self._seats if isinstance(seat.sockets, OwnSockets)]
            filenos = [fileno for each in owned for fileno in each.filenos]
            readable = select.select((*filenos, self._bell), (), (), timeout_s)[0]
            came, rung = False, [each for each in readable if each == self._bell]
            ready = [each for each in owned if any(fileno in readable for fileno in each.filenos)]
        if rung:
            os.read(self._bell, 4096)
        if self._core is None or not came:
            return [], ready
        return [arrival for arrival in self._core.drain() if self._matters(arrival[0])], ready

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
        for watcher in list(self.watchers):
            watcher()

    def _matters(self, datagram: bytes | Data) -> bool:
        """Return whether a datagram is a token, the input of sources, or from a namesake, which the driver counts."""
        assert isinstance(datagram, bytes)  # these sockets do not receive packets
        return (len(datagram) > KIND_AT and datagram[KIND_AT] == KIND_TOKEN) or sender_of(datagram) in self._nodes
