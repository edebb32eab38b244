"""Run one node of a network file as a process: open its files, sockets and services, run its loop, report its status.

    DATA/NAME/journal/    of every node
    DATA/NAME/tape/       of a receiver, primary or secondary
    DATA/NAME/releases/   of a receiver
    DATA/NAME/edge/       of a receiver that has edge groups

`levelcast.node.roles` defines the differences between roles.

A process is a node's part in one stripe. In a network of several stripes that part has the directory DATA/STRIPE/NAME
and the unique name STRIPE/NAME (`Placement.part`).

A missing or damaged journal is an error: a node that has lost its promises must not continue under its name
(rule 12). `levelcast.storage.disk` makes the first journal, and a new one for a lost disk.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

from levelcast.errors import NetError, UserError, describe
from levelcast.network import Network
from levelcast.network.placement import links_to, place_of, places, probed_by
from levelcast.network.stripe_config import ring_config
from levelcast.node.clock_report import clock_status
from levelcast.node.options import NodeOptions
from levelcast.node.path_log import DIRECTORY, PathLog, PathRecorder
from levelcast.node.path_report import path_page, path_status
from levelcast.node.probe_report import probe_page, probe_status
from levelcast.node.roles import ROLES
from levelcast.node.roles.base import NodeSetup
from levelcast.node.status import StatusService
from levelcast.overlay.clock_check import ClockCheck
from levelcast.overlay.paths import Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.events import (
    ClockBack,
    ClockWrong,
    Event,
    NodeStart,
    NodeStop,
    Rejected,
    RingEntered,
    SetupWarning,
    TapeDamaged,
    TornTailCut,
    Witnessed,
    event_name,
)
from levelcast.protocol.machine import LEAVE_LIMIT_NS
from levelcast.runtime.clock_sources import ClockSources
from levelcast.runtime.core_sockets import open_core, runs_on_one_machine
from levelcast.runtime.driver import Driver, Service, quiet_before_release
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.key_reload import KeyReload, key_status, load_keys, secure
from levelcast.runtime.namesake import claim_name, require_no_namesake
from levelcast.runtime.overlay_sockets import OverlaySockets
from levelcast.runtime.realtime import (
    SPIN_NS,
    Realtime,
    calm_garbage_collection,
    keep_freed_memory,
    sharpen_timers,
    take_realtime_priority,
)
from levelcast.runtime.sockets import LOOPBACK, CoreSockets
from levelcast.storage.append_file import TapeError
from levelcast.storage.disk import require_journal
from levelcast.storage.tape.stamps import packet_fault
from levelcast.version import __version__

STATUS_EVERY_NS = 250_000_000
MOST_SERVED_BYTES = 1 << 20
"""Per source, in one reply to a member that catches up: the member processes the complete reply in one step."""
FREQUENT = (Witnessed, Rejected)
"""Events reported with every slot, or with every packet while a node catches up: they are only counted."""


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
        load_network: Callable[[], Network] | None = None,
    ) -> None:
        """`load_network` reads the network file again, for its links."""
        self._load_network = load_network
        options = options or NodeOptions()
        self.place = place = place_of(network, name, stripe)
        config = ring_config(network, place.stripe)
        group = network.core_group(place.stripe)
        require_journal(data, place.part, config.domain)
        keys = load_keys(network, name.rpartition("/")[2], place.id, place.role.name, now)
        self._network_id = network.id
        self._names = {each.id: each.name for each in places(network, place.stripe)}
        self._sites = {each.id: each.site for each in places(network, place.stripe)}
        self._on_event = on_event
        self._clock_was_set = False
        self._page: StatusService | None = None
        self._stopping = False
        self._leaving = False
        self._leave_by_ns: int | None = None
        self._stop_reason = "its time is over"
        self._status_ns = now
        with ExitStack() as opened:
            self._claim = claim_name(place.part, place.id, config.domain, group.address, group.port)
            opened.callback(self._claim.close)
            interface, hears_data = options.interface, place.role.releases
            self._sockets = open_core(network, place.stripe, place.id, interface, hears_data=hears_data)
            opened.callback(self._sockets.close)
            alone = runs_on_one_machine(self._sockets, interface)
            security = None
            if keys is not None:
                security = secure(keys, config.domain, now, self._sockets.address)
                self._sockets.drain_packets = security.packets.drain_packets
            self._security = security
            if isinstance(self._sockets, CoreSockets) and not alone:
                require_no_namesake(place.part, place.id, config.domain, self._sockets, security)
            setup = NodeSetup(network, place, config, data / place.part, now, options, self._note, security)
            self.role = role = ROLES[place.role.name](setup)
            opened.callback(role.store.close)
            self._until_ns = setup.until_ns
            paths = Paths(place.id, probed_by(network, place), now)
            log = PathLog(data / place.part / DIRECTORY, place.id, self._names, self._sites, now)
            prober = Prober(place.id, probed_by(network, place), network.probe_ns, now)
            services: list[Service] = [PathRecorder(log, paths, now, self._note)]
            if keys is not None and security is not None:
                services.append(KeyReload(keys, security, now, self._note))
            clock_check = None
            if place.role.releases:
                monotonic_ns = time.monotonic_ns()
                clock_check = ClockCheck(place.id, config, prober, paths, now, monotonic_ns, one_machine=alone)
                sources = ClockSources(clock_check)
                opened.callback(sources.close)
                services.append(sources)
            for service in chain(role.services(), self._status_pages(network, options)):
                services.append(service)
                opened.callback(service.close)
            opened.pop_all()
        self._sockets.trains = self._sockets.trains and network.carriage.trains
        self.warning = self._sockets.warning
        seed = crc32(f"{options.seed} {place.part}".encode())
        self.driver = Driver(
            place.id,
            config.domain,
            role.machine,
            self._sockets,
            role.store,
            most_served=min(config.credit, max(1, MOST_SERVED_BYTES // network.carriage.packet_bytes)),
            punctual_ns=config.punctual_ns,
            packet_fault=packet_fault if place.role.releases else None,
            impairment=Impairment(links_to(network, place), seed) if options.impair else None,
            work=role.work(),
            services=services,
            prober=prober,
            paths=paths,
            feedback=role.feedback,
            clock_check=clock_check,
            overlay=self._sockets if isinstance(self._sockets, OverlaySockets) else None,
            security=security,
            quiet_ns=quiet_before_release(config.timing),
            spin_ns=SPIN_NS if self._become_punctual(options.realtime) else 0,
            on_event=self._note,
        )
        for notice in role.store.notices:
            self._count(TornTailCut(0, notice))
        role.store.on_damage = lambda text: self._count(TapeDamaged(0, text))

    def _status_pages(self, network: Network, options: NodeOptions) -> Iterator[StatusService]:
        address = network.status_listen_address(self.place.name, self.place.stripe)
        if options.status_port is not None:
            address = (address[0] if address else LOOPBACK, options.status_port) if options.status_port else None
        if address is not None:
            pages = {"/probes": self.probes, "/paths": self.paths}
            self._page = StatusService(address, self.role, self._complete, pages, self.place.part, self._names)
            yield self._page

    def _note(self, event: Event) -> None:
        if isinstance(event, RingEntered):
            self._status_ns = 0  # report the new state now
        if self._page is not None and not isinstance(event, FREQUENT):
            self._page.note(event)
        if self._on_event is not None:
            self._on_event(event)

    def _watch_clock(self) -> None:
        """Report when the wall clock is changed, and when it is trusted again (rule 13)."""
        was_set = self.driver.clock_was_set
        if was_set is not self._clock_was_set:
            self._clock_was_set = was_set
            self._count(ClockWrong(0) if was_set else ClockBack(0))

    def _count(self, event: Event) -> None:
        """Report an event of the node itself."""
        self.driver.counters.reports[event_name(event)] += 1
        self._note(event)

    def _become_punctual(self, realtime: Realtime) -> bool:
        """Return whether this node has real-time priority. Nodes that release nothing do not need it."""
        calm_garbage_collection()
        keep_freed_memory()
        if not self.place.role.releases:
            return False
        sharpen_timers()
        if realtime == "off":
            return False
        granted = take_realtime_priority()
        if realtime == "on" and not granted:
            raise NetError(
                "real-time priority: permission denied; grant the program CAP_SYS_NICE, raise the user's limit "
                "`rtprio`, or use --realtime auto"
            )
        return granted

    def leave(self, *_: int | FrameType | None) -> None:
        """Announce a planned stop, and stop when it is known, at the latest after `LEAVE_LIMIT_NS`: handles SIGTERM.

        A second SIGTERM stops the node after this turn.
        """
        self._stop_reason = "SIGTERM"
        if self._leave_by_ns is not None:
            self._stopping = True
        else:
            self._leave_by_ns = time.time_ns() + LEAVE_LIMIT_NS

    def stop(self, number: int | None = None, _: FrameType | None = None, reason: str = "requested") -> None:
        """Stop after this turn, without an announcement: the handler of SIGINT."""
        self._stop_reason = reason if number is None else signal.Signals(number).name
        self._stopping = True

    def end_sessions(self, *_: int | FrameType | None) -> None:
        """End the sessions of subscribers: the handler of SIGUSR1. The ring and the tape continue."""
        self.role.end_sessions()

    def reload_links(self, *_: int | FrameType | None) -> None:
        """Read delay, jitter and loss of the links again, if `--impair` injects them: the handler of SIGHUP."""
        if self.driver.impairment is None or self._load_network is None:
            return
        try:
            self.driver.impairment.links = links_to(self._load_network(), self.place)
        except (UserError, OSError) as error:
            self._count(SetupWarning(0, f"the links were not read again: {describe(error)}"))

    def run(self, on_status: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Run until `stop` is called or the time is over; return the last status."""
        signal.signal(signal.SIGTERM, self.leave)
        signal.signal(signal.SIGINT, self.stop)
        signal.signal(signal.SIGUSR1, self.end_sessions)
        if self.driver.impairment is not None:
            signal.signal(signal.SIGHUP, self.reload_links)

        def on_turn(now: int) -> None:
            self._watch_clock()
            if now >= self._status_ns:
                self._status_ns = now + STATUS_EVERY_NS
                on_status(self.status())
            self._stopping |= self._is_over(now) or self._is_gone(now)

        network, life = f"{self._network_id:016x}", self.role.store.journal.identity.life
        self._count(NodeStart(0, __version__, network, self.place.role.name, life))
        try:
            self.driver.run(lambda: self._stopping, on_turn)
            self._count(NodeStop(0, self._stop_reason))
            last = self.status()
        except BaseException as error:
            self._note(NodeStop(0, "error", describe(error)))
            with suppress(TapeError, OSError):  # the first error is the one reported
                self.close()
            raise
        self.close()
        return last

    def close(self) -> None:
        """Write pending data, and close services, storage and sockets; then the node may be started again."""
        try:
            self.driver.close()
        finally:
            self._claim.close()

    def _is_over(self, now: int) -> bool:
        return self._until_ns is not None and now >= self._until_ns and self.role.is_done()

    def _is_gone(self, now: int) -> bool:
        """Begin the planned stop that a signal has asked for; return whether it has ended."""
        if self._leave_by_ns is None:
            return False
        if not self._leaving:
            self._leaving = True
            self.role.leave(now)
        return self.role.has_left() or now >= self._leave_by_ns

    def status(self) -> dict[str, Any]:
        """Return the status line, which `levelcast up` reads and the status page extends."""
        driver, counters, counts = self.driver, self.driver.counters, self._sockets.counts
        status: dict[str, Any] = {
            "name": self.place.name,
            "id": self.place.id,
            "role": self.place.role.name,
            "stripe": self.place.stripe,
            "part": self.place.part,
            "site": self.place.site,
            "network": f"{self._network_id:016x}",
            "keys": key_status(self._security),
            "clock_trusted": driver.clock_trusted,
            "datagrams_in": counters.received,
            "datagrams_out": counts.sent,
            "unknown_peer": counts.unknown_peer,
            "send_refused": counts.refused,
            "unknown_address": counts.unknown_address,
            "detours": counts.detours,
            "malformed": dict(counters.malformed),
            "namesakes": counters.namesakes,
            "reports": dict(counters.reports),
            "lost_on_purpose": driver.impairment.lost if driver.impairment is not None else 0,
        }
        if driver.prober is not None and driver.prober.every_ns is not None:
            status["probes"] = probe_status(driver.prober, self._names)
        return status | self.role.status(counters, self._names, time.time_ns())

    def _complete(self) -> dict[str, Any]:
        """Return the status with the paths and the clock, which the status line leaves out."""
        assert self.driver.paths is not None
        status = self.status() | {"paths": path_status(self.driver.paths, self._names)}
        check = self.driver.clock_check
        if check is None:
            return status
        return status | {"clock": {"was_set": self.driver.clock_was_set} | clock_status(check, self._names)}

    def probes(self) -> dict[str, Any]:
        """Return the last delay and loss samples of this node."""
        assert self.driver.prober is not None
        return self._whose() | probe_page(self.driver.prober, self._names, self._sites)

    def paths(self) -> dict[str, Any]:
        """Return the matrix of delay and loss as this node knows it."""
        assert self.driver.paths is not None
        return self._whose() | path_page(self.driver.paths, self._names, self._sites)

    def _whose(self) -> dict[str, Any]:
        return {"name": self.place.name, "part": self.place.part, "site": self.place.site}
