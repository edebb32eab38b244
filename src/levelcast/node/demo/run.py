"""Run the demo: open the floors when the ring is formed, run subscribers, and collect statistics.

| phase      | until                                                                           |
|------------|---------------------------------------------------------------------------------|
| starting   | every receiver is in one ring, and the floors are running                       |
| trading    | the floors have closed, all packets are witnessed, and killed nodes are restarted |
| releasing  | every receiver has released everything, and every subscriber has received it    |
| ending     | all processes have exited                                                       |
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from levelcast.client.replay import Replay
from levelcast.network import Network
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION
from levelcast.node.cluster import START_LIMIT_S, Cluster, ClusterNode, ClusterRun, Kill
from levelcast.node.demo.subscribers import DemoSubscribers
from levelcast.protocol.events import Event
from levelcast.records import RecordArray
from levelcast.storage.release_log import RELEASE, SUFFIX, is_late, only_releases

RECENT_SLOTS = 50
"""Number of recent slots for the release skew shown during the run."""
RATE_OVER_S = 1.0
NICE = 10
"""Priority of the processes beside the receivers: the kernel prefers a receiver that is to release."""


@dataclass(frozen=True, slots=True)
class FloorsOpened(Event):
    """`floors` floors have started to trade."""

    KIND = "open"
    floors: int


@dataclass(frozen=True, slots=True)
class FloorsClosed(Event):
    """The floors have published `trades` and stop."""

    KIND = "close"
    trades: int


@dataclass(frozen=True, slots=True)
class BackOnTime(Event):
    """A node that was killed releases on time again."""

    KIND = "on-time"


class FloorLine(NamedTuple):
    """Status of one floor."""

    name: str
    site: str
    published: int
    waiting: int
    """Trades that wait for credit."""
    unwitnessed: int
    """Packets that were sent and are not yet witnessed."""
    running: bool


class Show(ClusterRun):
    """Run a cluster with subscribers to the end. Times of kills and `run_s` count from the opening of the floors."""

    def __init__(
        self,
        cluster: Cluster,
        run_s: float,
        bound_s: float,
        kills: Sequence[Kill] = (),
        trader: DemoTrader | None = None,
    ) -> None:
        super().__init__(cluster, run_s, bound_s, kills)
        self.customers = DemoSubscribers(cluster.network)
        self.releases = LiveReleases(cluster.data, [member.place.name for member in cluster.of_role(RECEIVER)])
        self.lives = Lives(cluster)
        self.realtime = False
        """True if all receivers have real-time priority."""
        self._trader = trader
        self._began_s = time.monotonic()
        self._back: dict[str, int] = {}

    @property
    def elapsed_s(self) -> float:
        """Time since the start of the run; the cluster's clock starts when the floors open."""
        return time.monotonic() - self._began_s

    def steps(self) -> Iterator[None]:
        """Run the demo and yield to the caller at short intervals."""
        try:
            for _ in self._acts():
                self._look()
                yield
        finally:
            self.phase = "ending"
            if self._trader is not None:
                self._trader.close()
            self.customers.stop()
            self.problems += [f"{name} did not exit and was killed" for name in self.cluster.stop()]
            self._look()

    def _acts(self) -> Iterator[None]:
        cluster = self.cluster
        self.customers.start()
        cluster.start_all(
            REFORMATION
        )  # first: a request for a ring that they miss is repeated after `ask`, 1.4 s later
        cluster.start_all(RECEIVER)
        ready = yield from self._while("starting", lambda: not self._is_formed(), START_LIMIT_S)
        if self.interrupted or not ready:
            return
        cluster.start_all(FLOOR)
        self._yield_to_receivers()
        if not (yield from self._while("starting", lambda: not self._are_open(), START_LIMIT_S)):
            return
        if self._trader is not None:
            self._trader.start()
        cluster.reset_clock()
        self.realtime = all(map(_has_realtime, cluster.of_role(RECEIVER)))
        cluster.events.append(("floors", FloorsOpened(0, len(self.floors()))))
        yield from self._while("trading", self._is_trading, self._bound_s + (self._run_s or 0.0))
        self._close_floors()
        horizon_ns = cluster.horizon_ns()
        yield from self._while("releasing", lambda: not self._is_complete(horizon_ns), self._bound_s)

    def _yield_to_receivers(self) -> None:
        """Lower the priority of floors, and of this process with its subscribers; it needs no permission."""
        for pid in (0, *(member.process.pid for member in self.cluster.of_role(FLOOR) if member.process is not None)):
            with suppress(OSError):  # the floor has exited
                os.setpriority(os.PRIO_PROCESS, pid, NICE)

    def _close_floors(self) -> None:
        self.kills = [kill for kill in self.kills if kill.done]  # restart killed nodes, kill no more
        if self._trader is not None:
            self._trader.stop()
        self.cluster.stop(FLOOR)
        self.lives.look()
        self.cluster.events.append(("floors", FloorsClosed(0, sum(floor.published for floor in self.floors()))))

    def _is_formed(self) -> bool:
        statuses = [member.status for member in self.cluster.of_role(RECEIVER)]
        rings = {status.get("generation") for status in statuses}
        return self.interrupted or (len(rings) == 1 and all(status.get("state") == "ACTIVE" for status in statuses))

    def _are_open(self) -> bool:
        return self.interrupted or all(member.status for member in self.cluster.of_role(FLOOR))

    def _is_trading(self) -> bool:
        if self._trader is None or self.interrupted:
            return super()._is_trading()
        self._trader.check()
        return self._trader.busy or any(not kill.back for kill in self.kills)

    def _is_complete(self, horizon_ns: int) -> bool:
        if not self.cluster.complete_upto(horizon_ns):
            return False
        tapes = [member.status.get("tape_records", 0) for member in self.cluster.of_role(RECEIVER)]
        return self.customers.have(max(tapes))

    def _look(self) -> None:
        self.lives.look()
        self.releases.look()
        for name, place in list(self._back.items()):
            if self.releases.logs[name].last_on_time > place:
                del self._back[name]
                self.cluster.events.append((name, BackOnTime(0)))

    def _kill_on_time(self) -> None:
        waiting = [kill for kill in self.kills if not kill.back]
        super()._kill_on_time()
        for kill in waiting:
            if kill.back and kill.name in self.releases.logs:
                self._back[kill.name] = self.releases.logs[kill.name].count

    # -- status -------------------------------------------------------------------------------------------

    def floors(self) -> list[FloorLine]:
        """Return the status of all floors, in processes or in this one."""
        if self._trader is not None:
            return self._trader.floors()
        return [
            FloorLine(
                member.place.name,
                member.place.site,
                self.lives.total(member.place.name, "published"),
                member.status.get("waiting", 0),
                member.status.get("packets_unwitnessed", 0),
                member.running,
            )
            for member in self.cluster.of_role(FLOOR)
        ]


def _has_realtime(member: ClusterNode) -> bool:
    if member.process is None:
        return False
    try:
        return os.sched_getscheduler(member.process.pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    except OSError:  # it has exited
        return False


class Lives:
    """Sum the counters of nodes over restarts: each process counts from its own start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in cluster.members}
        self._records: dict[str, deque[tuple[float, int]]] = {name: deque() for name in cluster.members}

    def look(self) -> None:
        """Save the last status of each process."""
        now_s = time.monotonic()
        for name, member in self._cluster.members.items():
            if member.process is None or not member.status:
                continue
            self._said[name][member.process.pid] = member.status
            seen = self._records[name]
            seen.append((now_s, member.status.get("tape_records", 0)))
            while now_s - seen[0][0] > RATE_OVER_S:
                seen.popleft()

    def total(self, name: str, key: str) -> int:
        return sum(status.get(key, 0) for status in self._said[name].values())

    def edge_packets(self, name: str) -> int:
        return sum(status.get("edge", {}).get("packets", 0) for status in self._said[name].values())

    def records_a_second(self, name: str) -> float:
        """Return the growth of the tape in the last second, in records/s."""
        seen = self._records[name]
        if len(seen) < 2 or not self._cluster.members[name].running:
            return 0.0
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / max(last_s - first_s, RATE_OVER_S / 2)


class LiveReleases:
    """Read the release logs of receivers as they grow, and compute the recent release skew."""

    def __init__(self, data: Path, names: Sequence[str]) -> None:
        self.logs = {name: ReleaseLogTail(data / name / "releases") for name in names}
        self._slots: dict[int, dict[str, int]] = {}

    def look(self) -> None:
        """Read what is new."""
        for name, log in self.logs.items():
            for slot, released_ns in log.read():
                self._slots.setdefault(slot, {})[name] = released_ns
        for slot in sorted(self._slots)[: -4 * RECENT_SLOTS]:
            del self._slots[slot]

    def behind_ns(self, name: str) -> int | None:
        """Return the median lag of this receiver after the first one over recent slots; None without slots."""
        behind = [each[name] - min(each.values()) for each in self._recent(name) if name in each]
        return int(np.median(behind)) if behind else None

    def spread_ns(self) -> int | None:
        """Return the median time from the first to the last receiver's release over recent slots."""
        spreads = [max(each.values()) - min(each.values()) for each in self._recent() if len(each) > 1]
        return int(np.median(spreads)) if spreads else None

    def _recent(self, name: str | None = None) -> list[dict[str, int]]:
        """Return the last slots that more than half of the receivers have released on time."""
        slots = [slot for slot in sorted(self._slots) if 2 * len(self._slots[slot]) > len(self.logs)]
        return [self._slots[slot] for slot in slots if name is None or name in self._slots[slot]][-RECENT_SLOTS:]


class ReleaseLogTail:
    """Read the release log of one receiver as it grows."""

    def __init__(self, directory: Path) -> None:
        self.count = 0
        """Releases so far."""
        self.late = 0
        """Records that were released late so far."""
        self.last_on_time = 0
        """Number of the last release on time."""
        self._directory = directory
        self._read_entries: dict[Path, int] = {}

    def read(self) -> list[tuple[int, int]]:
        """Return slot and time of new releases that were on time."""
        found = []
        for path in sorted(self._directory.glob("*" + SUFFIX)):
            done = self._read_entries.get(path, 1)  # the header is as long as an entry
            with path.open("rb") as file:
                file.seek(done * RELEASE.itemsize)
                content = file.read()
            read = np.frombuffer(content, RELEASE, len(content) // RELEASE.itemsize)
            self._read_entries[path] = done + len(read)
            entries = only_releases(read)
            late = is_late(entries)
            self.late += int(entries["records"][late].sum())
            prompt = np.flatnonzero(~late)
            if len(prompt):
                self.last_on_time = self.count + int(prompt[-1]) + 1
            self.count += len(entries)
            found += list(zip(entries["slot"][prompt].tolist(), entries["released_ns"][prompt].tolist(), strict=True))
        return found


class DemoTrader:
    """Publish given trades of several floors at `rate` trades/s, in the given order."""

    def __init__(self, network: Network, data: Path, batches: Sequence[RecordArray], rate: float, seed: int) -> None:
        self._open = partial(Replay, network, partial(iter, batches), data=data, rate=rate, impair=True, seed=seed)
        self._replay: Replay | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="levelcast trader", daemon=True)

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Open all floors and start to publish."""
        self._replay = self._open()
        self._thread.start()

    def check(self) -> None:
        """Raise the exception that stopped the thread."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop publishing."""
        if self._replay is not None:
            self._replay.stopping = True
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        self.stop()
        if self._replay is not None:
            self._replay.close()

    def floors(self) -> list[FloorLine]:
        if self._replay is None:
            return []
        running = not self._replay.stopping
        return [
            FloorLine(each.floor.name, each.floor.site, each.published, each.waiting, each.unwitnessed, running)
            for each in self._replay.floors.values()
        ]

    def _run(self) -> None:
        assert self._replay is not None
        try:
            for _ in self._replay.steps():
                pass
        except BaseException as error:
            self._error = error
