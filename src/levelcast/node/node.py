"""One node of a network file as a running process: what it is, its disk, its machine, and what it says of itself.

    DATA/NAME/journal/    of every node
    DATA/NAME/tape/       of a receiver, primary or secondary
    DATA/NAME/releases/   of a receiver
    DATA/NAME/edge/       of a receiver that has edge groups

A process is a node's part in one stripe. In a network of several stripes that part has the directory DATA/STRIPE/NAME,
and is called STRIPE/NAME where it must not be taken for another (`Placement.part`).

A journal that is missing or damaged is an error: a node that has forgotten what it promised must not go on as itself
(rule 12). Who makes the first one, and a new one for a lost disk, is `levelcast.storage.disk`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

from levelcast.errors import NetError
from levelcast.network import Keeping, Network, SymbolDirectory
from levelcast.network.line_assignment import LineAssignment
from levelcast.network.placement import Placement, links_to, place_of, places, probed_by
from levelcast.network.stripe_config import ring_config
from levelcast.node.edge_service import EdgeService
from levelcast.node.probe_report import probe_page, probe_status
from levelcast.node.retention import Retention
from levelcast.node.status import StatusService
from levelcast.node.synthetic_floor import SyntheticFloor
from levelcast.node.tree import of_primary, of_secondary, of_server
from levelcast.overlay.probe import Prober
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.event_text import generation_name
from levelcast.protocol.events import ClockBack, ClockWrong, Event, Rejected, Witnessed
from levelcast.protocol.history import first_tip
from levelcast.protocol.machine import Machine
from levelcast.ring.group_server import ReformationAndGroupServer
from levelcast.ring.listener import Listener
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.runtime.driver import Driver, Service, quiet_before_release
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.realtime import (
    SPIN_NS,
    Realtime,
    calm_garbage_collection,
    keep_freed_memory,
    sharpen_timers,
    take_realtime_priority,
)
from levelcast.runtime.sockets import LOOPBACK, CoreSockets
from levelcast.storage.append_file import Durability, TapeError
from levelcast.storage.disk import require_journal
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import JournalStore, NodeStore
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.storage.tape.stamps import packet_fault

STATUS_EVERY_NS = 250_000_000
MOST_SERVED_BYTES = 1 << 20
"""Of each source, in one answer to a member that catches up: it takes in all of it at once."""
FREQUENT = (Witnessed, Rejected)
"""Events that come with every slot, or with every packet while a node catches up: they are only counted."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node is to run."""

    rate: float = 0.0
    """Records a second that a floor publishes; 0 for none."""
    run_ns: int | None = None
    """A floor publishes that long, and ends when all of it is witnessed; other nodes end then."""
    impair: bool = False
    seed: int = 1
    interface: str = LOOPBACK
    """The address of the interface on which the core group is."""
    realtime: Realtime = "auto"
    """Real-time priority: "auto" takes it where a receiver may have it, "on" is refused where it may not."""
    status_port: int | None = None
    """Where the node tells its status; 0: nowhere, None: where the network file says."""


def build(
    config: StripeConfig, place: Placement, directory: Path, now: int, keeping: Keeping | None = None
) -> tuple[Machine, NodeStore]:
    """The protocol class of a node, on what its disk holds."""
    keeping = keeping or Keeping()
    durable: Durability = keeping.durable
    if place.releases:
        records = keeping.segment_records
        store = ReceiverStore.open(directory, first_tip(config), durable=durable, records_per_segment=records)
        receiver = Member if place.role == "receiver" else Secondary
        return receiver(config, place.id, store.image, store.tape.tip, now), store
    journal, image = JournalFile.open(directory / "journal", durable=durable)
    if place.role == "reformation":
        server = ReformationAndGroupServer if config.homes else ReformationServer
        return server(config, place.id, image, now), JournalStore(journal)
    return Source(config, place.id, image.life, image, now), JournalStore(journal)


def ring_of(machine: Listener) -> dict[str, Any] | None:
    """The ring's schedule (rule 1), by which anybody can tell whose slot it is; None before the first ring."""
    schedule = machine.schedule
    if schedule is None:
        return None
    return {
        "start_slot": schedule.start_slot,
        "start_ns": schedule.time_of(schedule.start_slot),
        "slot_ns": machine.timing.slot_ns,
        "members": list(schedule.members),
    }


@contextmanager
def usable(interface: str) -> Iterator[None]:
    """What the kernel has against an interface, as one sentence."""
    try:
        yield
    except OSError as error:
        raise NetError(
            f"the interface with the address {interface} cannot be used for multicast ({error.strerror}): look whether "
            "it is up (ip link), and whether it has a route (ip route add 224.0.0.0/4 dev INTERFACE)"
        ) from error


class Node:
    """A node, ready to run."""

    def __init__(
        self,
        network: Network,
        name: str,
        data: Path,
        now: int,
        options: NodeOptions | None = None,
        on_event: Callable[[Event], None] | None = None,
        stripe: str | None = None,
    ) -> None:
        options = options or NodeOptions()
        self.place = place = place_of(network, name, stripe)
        config = ring_config(network, place.stripe)
        group = network.core_group(place.stripe)
        directory = data / place.part
        require_journal(data, place.part)
        self._names = {each.id: each.name for each in places(network, place.stripe)}
        self._sites = {each.id: each.site for each in places(network, place.stripe)}
        self._on_event = on_event
        self._clock_trusted = True
        self._page: StatusService | None = None
        self._floor: SyntheticFloor | None = None
        self.edge: EdgeService | None = None
        self._until_ns = None if options.run_ns is None else now + options.run_ns
        self._stopping = False
        self._status_ns = now
        with ExitStack() as opened:
            with usable(options.interface):
                hears_data = place.releases
                self._sockets = CoreSockets(group.address, group.port, options.interface, hears_data=hears_data)
            opened.callback(self._sockets.close)
            machine, keeper = build(config, place, directory, now, network.tape)
            opened.callback(keeper.close)
            services: list[Service] = []
            for service in self._services(network, options, machine, keeper, directory, now):
                services.append(service)
                opened.callback(service.close)
            opened.pop_all()
        self._sockets.trains = self._sockets.trains and network.carriage.trains
        self.warning = self._sockets.warning
        if place.floor is not None and options.rate > 0:
            assert isinstance(machine, Source)
            self._floor = SyntheticFloor(
                place.floor, machine, options.rate, now, self._until_ns, options.seed, SymbolDirectory(network)
            )
        seed = crc32(f"{options.seed} {place.part}".encode())
        self.driver = Driver(
            place.id,
            config.stripe,
            machine,
            self._sockets,
            keeper,
            most_served=min(config.credit, max(1, MOST_SERVED_BYTES // network.carriage.packet_bytes)),
            punctual_ns=config.punctual_ns,
            packet_fault=packet_fault if place.releases else None,
            impairment=Impairment(links_to(network, place), seed) if options.impair else None,
            work=self._floor,
            services=services,
            prober=Prober(place.id, probed_by(network, place), network.probe_ns, now),
            quiet_ns=quiet_before_release(config.timing),
            spin_ns=SPIN_NS if self._become_punctual(options.realtime) else 0,
            on_event=self._note,
        )

    def _services(
        self, network: Network, options: NodeOptions, machine: Machine, keeper: NodeStore, directory: Path, now: int
    ) -> Iterator[Service]:
        """What a node does beside the ring: serve customers, tell its status, keep its tape within its limits."""
        name = self.place.name
        if isinstance(machine, Listener) and LineAssignment(network, name):
            self.edge = EdgeService(
                network,
                name,
                self.place.stripe,
                directory,
                options.interface,
                machine.complete_upto_ns,
                now,
                lambda: machine.wake_ns,
                lambda: machine.ring_members if machine.state != "OUTSIDE" else (),
            )
            yield self.edge
        address = network.status_address(name, self.place.stripe)
        if options.status_port is not None:
            host = network.status.address if network.status is not None else LOOPBACK
            address = (host, options.status_port) if options.status_port else None
        if address is not None:
            self._page = StatusService(address, machine, keeper, self.status, self.probes)
            yield self._page
        limited = network.tape.keep_bytes is not None or network.tape.keep_age_ns is not None
        if limited and isinstance(keeper, ReceiverStore):
            yield Retention(keeper, network.tape, machine, now, self._note)

    def _note(self, event: Event) -> None:
        if self._page is not None and not isinstance(event, FREQUENT):
            self._page.note(event)
        if self._on_event is not None:
            self._on_event(event)

    def _watch_clock(self) -> None:
        """Say so when the wall clock is set, and when it is back (rule 13)."""
        trusted = self.driver.clock_trusted
        if trusted is not self._clock_trusted:
            self._clock_trusted = trusted
            event = ClockBack(0) if trusted else ClockWrong(0)
            self.driver.counters.reports[event.KIND] += 1
            self._note(event)

    def _become_punctual(self, realtime: Realtime) -> bool:
        """Whether this node has real-time priority. A floor or a reformation server has no instants to meet."""
        calm_garbage_collection()
        keep_freed_memory()
        if not self.place.releases:
            return False
        sharpen_timers()
        if realtime == "off":
            return False
        granted = take_realtime_priority()
        if realtime == "on" and not granted:
            raise NetError(
                "this user may not have real-time priority: give the program CAP_SYS_NICE, or raise the limit "
                "`rtprio` of the user, or leave --realtime at auto"
            )
        return granted

    def stop(self, *_: int | FrameType | None) -> None:
        """End after this turn: the handler of SIGTERM and SIGINT."""
        self._stopping = True

    def end_sessions(self, *_: int | FrameType | None) -> None:
        """The day is over for customers: the handler of SIGUSR1. The ring and the tape go on."""
        if self.edge is not None:
            self.edge.end_sessions()

    def run(self, on_status: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Run until told to stop, or until the time is over; the last status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        signal.signal(signal.SIGUSR1, self.end_sessions)

        def on_turn(now: int) -> None:
            self._watch_clock()
            if now >= self._status_ns:
                self._status_ns = now + STATUS_EVERY_NS
                on_status(self.status())
            self._stopping |= self._is_over(now)

        try:
            self.driver.run(lambda: self._stopping, on_turn)
            last = self.status()
        except BaseException:
            with suppress(TapeError, OSError):  # what went wrong first is what is told
                self.driver.close()
            raise
        self.driver.close()
        return last

    def _is_over(self, now: int) -> bool:
        if self._until_ns is None or now < self._until_ns:
            return False
        waiting = self._floor.waiting if self._floor is not None else 0
        machine = self.driver.machine
        return not (waiting or (isinstance(machine, Source) and machine.unwitnessed))

    def status(self) -> dict[str, Any]:
        """What people and `levelcast up` want to know of this node."""
        driver, counters, counts = self.driver, self.driver.counters, self._sockets.counts
        status: dict[str, Any] = {
            "name": self.place.name,
            "id": self.place.id,
            "role": self.place.role,
            "stripe": self.place.stripe,
            "part": self.place.part,
            "site": self.place.site,
            "clock_trusted": driver.clock_trusted,
            "datagrams_in": counters.received,
            "datagrams_out": counts.sent,
            "unknown_peer": counts.unknown_peer,
            "send_refused": counts.refused,
            "malformed": dict(counters.malformed),
            "namesakes": counters.namesakes,
            "reports": dict(counters.reports),
            "lost_on_purpose": driver.impairment.lost if driver.impairment is not None else 0,
        }
        if driver.prober is not None and driver.prober.every_ns is not None:
            status["probes"] = probe_status(driver.prober, self._names)
        machine = driver.machine
        if isinstance(machine, Listener) and isinstance(driver.keeper, ReceiverStore):
            status |= {
                "state": machine.state,
                "generation": generation_name(machine.generation),
                "members": list(machine.ring_members),
                "ring": ring_of(machine),
                "have": machine.have,
                "released_slot": machine.released,
                "complete_upto_ns": machine.complete_upto_ns(),
                "tape_records": driver.keeper.tape.tip.next_sequence - 1,
                "records": counters.records,
                "frames": counters.frames,
                "late": counters.late,
                "max_behind_ns": counters.max_behind_ns,
                "requests": counters.requests,
                "rings_entered": counters.reports["entered"],
            }
            if isinstance(machine, Secondary):
                status |= of_secondary(machine, self._names)
            elif machine.config.homes:
                status |= of_primary(machine, self._names, time.time_ns())
            if self.edge is not None:
                status["edge"] = self.edge.status()
        elif isinstance(machine, ReformationServer):
            status |= {"phase": machine.phase, "rings_formed": machine.rings_formed}
            if isinstance(machine, ReformationAndGroupServer):
                status |= of_server(machine, self._names)
        elif isinstance(machine, Source):
            status |= {
                "packets_witnessed": machine.witnessed,
                "packets_unwitnessed": machine.unwitnessed,
                "published": self._floor.published if self._floor is not None else 0,
                "waiting": self._floor.waiting if self._floor is not None else 0,
            }
        return status

    def probes(self) -> dict[str, Any]:
        """The last samples of the network that this node has taken."""
        part = {"name": self.place.name, "part": self.place.part, "site": self.place.site}
        assert self.driver.prober is not None
        return part | probe_page(self.driver.prober, self._names, self._sites)
