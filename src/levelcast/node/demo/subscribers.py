"""Customers of a network in the background: one in each region, counting what its edge delivers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from levelcast.client.subscriber import Subscriber
from levelcast.network import Network
from levelcast.network.sessions import stripe_session
from levelcast.runtime.sockets import LOOPBACK


@dataclass(slots=True)
class DemoSubscriber:
    """One customer, and what it has received so far."""

    region: str
    records: int = 0
    gaps: int = 0
    """Times that something was missing; it is asked for."""
    requests: int = 0
    lost: int = 0
    error: str = ""
    """What has ended it."""


class DemoSubscribers:
    """Guaranteed subscribers, from the first record on, in a thread of their own."""

    def __init__(self, network: Network, interface: str = LOOPBACK) -> None:
        regions = {network.region_of(receiver.name): None for receiver in network.receivers}
        self.all = [DemoSubscriber(region) for region in regions if network.groups_of_region(region)]
        self._network = network
        self._interface = interface
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="levelcast customers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all of them; what they counted stays."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join()

    def have(self, records: int) -> bool:
        """Whether everybody has received so many records, or never will."""
        return all(customer.records >= records or customer.error for customer in self.all)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._follow_all())
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _follow_all(self) -> None:
        await asyncio.gather(*(self._follow(customer) for customer in self.all))

    async def _follow(self, customer: DemoSubscriber) -> None:
        session = stripe_session(self._network.stripes[0]).decode().rstrip()
        tape = Subscriber(self._network, customer.region, start={session: 1}, interface=self._interface)
        try:
            async with tape:
                async for batch in tape:
                    customer.records += len(batch.records)
                    counts = tape.counts
                    customer.gaps, customer.requests, customer.lost = counts.gaps, counts.requests, counts.lost
        except Exception as error:  # a thread has nobody to raise it to: it is part of what came of the run
            customer.error = str(error) or type(error).__name__
