"""The role of a floor: a source, and synthetic trades at a set rate (`levelcast.ring.source`, rule 10)."""

from __future__ import annotations

from levelcast.network import SymbolDirectory
from levelcast.network.roles import FLOOR
from levelcast.node.metrics import Metric
from levelcast.node.roles.base import Names, NodeSetup, Role, Status
from levelcast.node.synthetic_floor import SyntheticFloor
from levelcast.ring.source import Source
from levelcast.runtime.driver import Counters, Work
from levelcast.storage.node_store import JournalStore


class FloorRole(Role):
    """A floor. Its life is also its incarnation: a floor that has lost its journal is another source to receivers."""

    KIND = FLOOR
    METRICS = (
        Metric("published", "records_published_total", "Records published by the floor."),
        Metric("waiting", "records_waiting", "Records that wait for credit (rule 10)."),
        Metric("packets_witnessed", "packets_witnessed", "Packets up to this number are witnessed."),
        Metric("packets_unwitnessed", "packets_unwitnessed", "Packets that are not witnessed yet."),
        Metric("credit", "credit_packets", "Maximum number of unwitnessed packets."),
    )
    machine: Source
    store: JournalStore

    def __init__(self, setup: NodeSetup) -> None:
        self.store, image = setup.journal()
        sealer = setup.security.sealer if setup.security is not None else None
        self.machine = Source(setup.config, setup.place.id, image.life, image, setup.now, sealer)
        self._setup = setup
        self._trading: SyntheticFloor | None = None

    def work(self) -> Work | None:
        """Return synthetic trading if the options set a rate."""
        setup, options, floor = self._setup, self._setup.options, self._setup.place.floor
        if floor is not None and options.rate > 0:
            directory = SymbolDirectory(setup.network)
            self._trading = SyntheticFloor(
                floor, self.machine, options.rate, setup.now, setup.until_ns, options.seed, directory
            )
        return self._trading

    def is_done(self) -> bool:
        """Return whether everything that was published is witnessed."""
        return not (self.machine.unwitnessed or (self._trading is not None and self._trading.waiting))

    def leave(self, now: int) -> None:
        """Publish no more trades."""
        if self._trading is not None:
            self._trading.until_ns = now

    def has_left(self) -> bool:
        return self.is_done()

    def status(self, counters: Counters, names: Names, now: int) -> Status:
        said = self.machine.status(now)
        return {
            "packets_witnessed": said.witnessed,
            "packets_unwitnessed": said.unwitnessed,
            "published": self._trading.published if self._trading is not None else 0,
            "waiting": self._trading.waiting if self._trading is not None else 0,
        }

    def details(self, known: Status, now: int) -> Status:
        said = self.machine.status(now)
        return {"credit": said.credit, "incarnation": said.incarnation, "superseded": said.superseded}
