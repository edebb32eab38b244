"""Status of a floor: JSON at /status and metrics for Prometheus at /metrics, from the floor's own loop."""

from __future__ import annotations

import json
import os
import resource
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from levelcast.market.fix.session import SessionState
from levelcast.node.http_server import Page, Responder
from levelcast.node.metrics import CONTENT_TYPE
from levelcast.runtime.sockets import LOOPBACK

if TYPE_CHECKING:
    from levelcast.node.floor.process import FloorProcess

_HELP = {
    "uptime_seconds": "Time since the floor was started.",
    "cpu_seconds_total": "CPU time of the process.",
    "resident_bytes": "Resident memory of the process.",
    "floor_sessions": "Sessions that are logged on.",
    "floor_open_connections": "Connections of sessions and of others.",
    "floor_live_orders": "Orders in the books and waiting stops.",
    "floor_journal_bytes": "Size of the gateway's journal.",
    "floor_frames_total": "Frames of the tape.",
    "floor_commands_total": "Commands of sessions since the start.",
    "floor_events_total": "Events of the engine.",
    "floor_connections_total": "Connections accepted since the start.",
    "floor_refused_logons_total": "Logons with a wrong password, or too many at once.",
    "floor_feed_packets_total": "Packets of the public feeds.",
    "floor_ticker_waiting": "Trades that the ticker's ring has not accepted yet.",
}


class FloorStatus:
    def __init__(self, process: FloorProcess, port: int) -> None:
        self._process = process
        self._watched: set[int] = set()
        self._responder: Responder | None = None
        if port:
            pages = {"/status": self._status, "/metrics": self._metrics}
            self._responder = Responder((LOOPBACK, port), pages)

    @property
    def wake_ns(self) -> int | None:
        return None if self._responder is None else self._responder.wake_ns

    def owns(self, fileno: int) -> bool:
        return fileno in self._watched

    def step(self, ready: set[int], now: int) -> None:
        if self._responder is not None:
            self._responder.step(ready, now)

    def watch(self, epoll: select.epoll) -> None:
        """Wait for the sockets of the responder, whose clients come and go."""
        if self._responder is None:
            return
        wanted = set(self._responder.filenos)
        if wanted == self._watched:
            return
        for fileno in self._watched - wanted:
            with suppress(OSError):
                epoll.unregister(fileno)
        for fileno in wanted - self._watched:
            epoll.register(fileno, select.EPOLLIN)
        self._watched = wanted

    def document(self, now: int) -> dict[str, Any]:
        """Return the status."""
        process = self._process
        gateway = process.gateway
        listing = gateway.listing
        return {
            "uptime_s": (now - process.started_ns) / 1e9,
            "address": list(process.listener.address),
            "sessions": {
                session.login.comp_id: {
                    "state": session.fix.state.value,
                    "next_in": session.fix.image.next_in,
                    "next_out": session.fix.image.next_out,
                }
                for session in gateway.sessions.values()
            },
            "instruments": {
                listed.symbol.decode(): {"id": listed.id, "phase": listing.phases[listed.id].phase}
                for listed in listing.by_id.values()
            },
            "live_orders": process.floor.engine.kernel.live,
            "sequence": process.floor.engine.sequence,
            "chain": process.floor.engine.chain.hex(),
            "counts": dict(process.counts),
        }

    def values(self, now: int) -> dict[str, float]:
        """Return the metrics by name."""
        process, counts = self._process, self._process.counts
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sessions = process.gateway.sessions.values()
        return {
            "uptime_seconds": (now - process.started_ns) / 1e9,
            "cpu_seconds_total": usage.ru_utime + usage.ru_stime,
            "resident_bytes": _resident_bytes(),
            "floor_sessions": sum(session.fix.state is SessionState.ESTABLISHED for session in sessions),
            "floor_open_connections": process.open_connections,
            "floor_live_orders": process.floor.engine.kernel.live,
            "floor_journal_bytes": process.journal.file.size,
            "floor_frames_total": counts["frames"],
            "floor_commands_total": counts["commands"],
            "floor_events_total": counts["events"],
            "floor_connections_total": counts["connections"],
            "floor_refused_logons_total": counts["refused_logons"],
            "floor_feed_packets_total": process.feed.packets if process.feed is not None else 0,
            "floor_ticker_waiting": process.ticker.waiting if process.ticker is not None else 0,
        }

    def _status(self, now: int) -> Page:
        return Page("application/json", json.dumps(self.document(now)) + "\n")

    def _metrics(self, now: int) -> Page:
        lines = []
        for name, value in self.values(now).items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [
                f"# HELP levelcast_{name} {_HELP[name]}",
                f"# TYPE levelcast_{name} {kind}",
                f"levelcast_{name} {value:g}",
            ]
        return Page(CONTENT_TYPE, "\n".join(lines) + "\n")

    def close(self) -> None:
        if self._responder is not None:
            self._responder.close()


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
