"""Run subscribers in the background: one in each region, counting the records that its edge delivers."""

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
    """One subscriber and its counts so far."""

    region: str
    records: int = 0
    gaps: int = 0
    """Number of gaps; missing messages are requested."""
    requests: int = 0
    lost: int = 0
    error: str = ""
    """Error that stopped it."""


class DemoSubscribers:
    """Run guaranteed subscribers, from the first record on, in their own thread."""

    def __init__(self, network: Network, interface: str = LOOPBACK) -> None:
        regions = {network.region_of(receiver.name): None for receiver in network.receivers}
        self.all = [DemoSubscriber(region) for region in regions if network.groups_of_region(region)]
        self._network = network
        self._interface = interface
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="levelcast subscribers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop all subscribers; keep their counts."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has just exited
                self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join()

    def have(self, records: int) -> bool:
        """Return whether every subscriber has received this number of records, or has failed."""
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
        except Exception as error:  # a thread has no caller to raise to: report it in the outcome
            customer.error = str(error) or type(error).__name__
