"""Run every node of a network file as a separate process on this machine: start, watch, kill, stop.

A node reports events and status as JSON lines on its stdout, and writes its log (`levelcast.runtime.event_log`). Its
stderr is written to DATA/NAME.err (DATA/STRIPE/NAME.err with several stripes).
A node exits when the reading end of its stdout is closed, so a killed cluster leaves no orphans.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Any

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.placement import Placement, all_places
from levelcast.network.roles import FLOOR, RoleKind
from levelcast.network.stripe_config import ring_config
from levelcast.node.fork_server import ForkedProcess, ForkServer
from levelcast.node.options import NodeOptions
from levelcast.protocol.events import Event, NodeDied, event_from_json
from levelcast.runtime.cpu_contention import ContentionMeter
from levelcast.storage.disk import initialise_disk

START_LIMIT_S = 60.0
"""A busy machine needs a long time to start a dozen processes."""
STOP_LIMIT_S = 10.0
STEP_S = 0.1
FIRST_RESTART_S, LAST_RESTART_S = 0.5, 30.0
"""Wait before the restart of a node that died: doubled each time, until the node has run for the last wait."""
_EVENTS_KEPT = 1000

Launcher = Callable[[Placement], tuple[list[str], list[str]]]
"""Returns a prefix for a node's command (`ip netns exec NAME`), and additional options. Such a node is started by
exec; without a launcher nodes are forked (`levelcast.node.fork_server`)."""


@dataclass(frozen=True, slots=True)
class NodeKilled(Event):
    """The cluster has killed the node with SIGKILL."""

    KIND = "killed"


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """The cluster has started the node again on its directory."""

    KIND = "started"


@dataclass(slots=True)
class ClusterNode:
    """One node: its process and its last status."""

    place: Placement
    process: subprocess.Popen[str] | ForkedProcess | None = None
    reader: Thread | None = None
    status: dict[str, Any] = field(default_factory=dict)
    kills: int = 0
    expected_end: bool = False
    killed: bool = False
    """It was killed on purpose, and not started again yet."""
    has_run: bool = False
    deaths: int = 0
    """Number of exits with an error that nobody asked for."""
    started_s: float = 0.0
    restart_s: float | None = None
    """Time of its restart, after it died."""
    wait_s: float = FIRST_RESTART_S
    """Wait before the restart after its next death."""
    resumed: bool = False
    """It had a journal before the cluster started it."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Cluster:
    """The nodes of a network, each in every stripe that it is in. `options` apply to every node; the rate is the total
    of all floors.

    Without `floors`, other processes such as `levelcast publish` run the floors: two processes must not run one floor.
    A fork `server` that is already running is used, and closed with the last node. `holds` are the hold times in ns of
    stripes for which the file has none. Without multicast, `loopback_port` is the first of the nodes' ports on
    loopback; None: they use the addresses of the file.
    """

    def __init__(
        self,
        network: Network,
        file: Path,
        data: Path,
        options: NodeOptions,
        launcher: Launcher | None = None,
        *,
        floors: bool = True,
        server: ForkServer | None = None,
        holds: Mapping[str, int] | None = None,
        loopback_port: int | None = None,
    ) -> None:
        self.network = network
        self.data = data
        self.events: deque[tuple[str, Event]] = deque(maxlen=_EVENTS_KEPT)
        """Unread events, each with the name of the node that reported it."""
        self.members = {
            place.part: ClusterNode(place) for place in all_places(network) if floors or not place.role.publishes
        }
        self._file = file
        self._holds = holds or {}
        self._loopback_port = loopback_port
        self._options = options
        self._launcher = launcher
        self._server = server
        self._began = time.monotonic()
        self.cpu_meter = ContentionMeter()
        """Measures stolen CPU time and CPU pressure since the start of the clock."""

    def of_role(self, role: RoleKind) -> list[ClusterNode]:
        return [member for member in self.members.values() if member.place.role is role]

    @property
    def releasing(self) -> list[ClusterNode]:
        """The receivers of both layers."""
        return [member for member in self.members.values() if member.place.role.releases]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    # -- starting and stopping ----------------------------------------------------------------------------

    def start_all(self, *roles: RoleKind) -> None:
        """Start every node (of some roles) and the clock; create the journal of each new node first (rule 12)."""
        self.data.mkdir(parents=True, exist_ok=True)
        names = [name for name, member in self.members.items() if not roles or member.place.role in roles]
        for name in names:
            domain = ring_config(self.network, self.members[name].place.stripe).domain
            made = initialise_disk(self.data, name, domain, self.network.tape.durable)
            self.members[name].resumed = not made
        self.reset_clock()
        for name in names:
            self.start(name)

    def reset_clock(self) -> None:
        """Restart the clock for scheduled kills and for the trading time of floors."""
        self._began = time.monotonic()
        self.cpu_meter.restart()

    def start(self, name: str) -> None:
        """Start a node with the contents of its directory."""
        member = self.members[name]
        assert not member.running
        member.status = {}
        member.killed = False
        member.restart_s = None
        member.started_s = time.monotonic()
        with (self.data / f"{name}.err").open("a", encoding="utf-8") as log:
            member.process = self._spawn(member.place, log)
        member.reader = Thread(target=self._listen, args=(member, member.process), daemon=True)
        member.reader.start()

    def _spawn(self, place: Placement, log: IO[str]) -> subprocess.Popen[str] | ForkedProcess:
        """Start a process in its own session, so that ^C reaches only the cluster, which stops its nodes in order."""
        arguments = ["node", *self._arguments(place)]
        if self._launcher is None:
            self._server = self._server or ForkServer()
            return self._server.start(arguments, log)
        before, besides = self._launcher(place)
        return subprocess.Popen(
            [*before, sys.executable, "-m", "levelcast", *arguments, *besides],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _arguments(self, place: Placement) -> list[str]:
        options = self._options
        arguments = ["--network", str(self._file), "--name", place.name, "--data", str(self.data), "--json"]
        arguments += ["--seed", str(options.seed)]
        if place.part != place.name:
            arguments += ["--stripe", place.stripe]
        if place.stripe in self._holds:
            arguments += ["--hold", f"{self._holds[place.stripe] // 1_000_000}ms"]
        if self._loopback_port is not None:
            arguments += ["--loopback", str(self._loopback_port)]
        if options.impair:
            arguments.append("--impair")
        if place.role.publishes and options.rate > 0:
            arguments += ["--rate", str(options.rate / len(self.of_role(FLOOR)))]
            if options.run_ns is not None:
                gone_ms = int(self.elapsed_s * 1000) if self.members[place.part].has_run else 0
                left_ms = max(1, options.run_ns // 1_000_000 - gone_ms)
                arguments += ["--for", f"{left_ms}ms"]
        return arguments

    def _listen(self, member: ClusterNode, process: subprocess.Popen[str] | ForkedProcess) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # killed in the middle of a line
                if "event" in said:
                    event = event_from_json(said["event"], said["slot"], said)
                    if event is not None:
                        self.events.append((member.place.part, event))
                elif member.process is process:
                    member.status = said
                    member.has_run = True

    def kill(self, name: str) -> None:
        """Kill a node with SIGKILL."""
        member = self.members[name]
        if member.process is not None and member.running:
            member.kills += 1
            member.killed = True
            member.process.kill()
            self._join(member)

    def stop(self, role: RoleKind | None = None, limit_s: float = STOP_LIMIT_S) -> list[str]:
        """Stop all nodes (of a role) and wait; return the names of those that had to be killed.

        Floors get SIGTERM: they wait until what they published is witnessed. Others get SIGINT: no ring has to continue
        without them.
        """
        stopping = [member for member in self.members.values() if role in (None, member.place.role) and member.running]
        for member in stopping:
            assert member.process is not None
            member.expected_end = True
            member.process.send_signal(signal.SIGTERM if member.place.role.publishes else signal.SIGINT)
        deadline = time.monotonic() + limit_s
        killed = []
        for member in stopping:
            assert member.process is not None
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                killed.append(member.place.part)
        for member in self.members.values():
            if not member.running:
                self._join(member)
        if self._server is not None and not any(member.running for member in self.members.values()):
            self._server.close()
            self._server = None
        return killed

    @staticmethod
    def _join(member: ClusterNode) -> None:
        if member.process is not None:
            member.process.wait()
        if member.reader is not None:
            member.reader.join()

    # -- watching -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise NetError with the last line on stderr of a node that has exited unexpectedly."""
        for name, member in self.members.items():
            process = member.process
            if process is None or process.poll() is None or member.expected_end:
                continue
            if process.returncode not in (0, -signal.SIGKILL):
                raise NetError(f"{name} has exited: {self._last_words(name)}")

    def restart_dead(self) -> None:
        """Restart nodes that exited by themselves, after a growing wait; raise NetError for one that never ran.

        A node that exits with code 0 was stopped by somebody, and stays down.
        """
        now = time.monotonic()
        for name, member in self.members.items():
            process = member.process
            if process is None or process.poll() in (None, 0) or member.expected_end or member.killed:
                continue
            if member.restart_s is None:
                if not member.has_run:
                    raise NetError(f"{name} has exited: {self._last_words(name)}")
                member.deaths += 1
                wait_s = FIRST_RESTART_S if now - member.started_s >= LAST_RESTART_S else member.wait_s
                member.restart_s = now + wait_s
                member.wait_s = min(2 * wait_s, LAST_RESTART_S)
                self.events.append((name, NodeDied(0, self._why(name, process.returncode), wait_s)))
            elif now >= member.restart_s:
                self._join(member)
                self.start(name)
                self.events.append((name, NodeStarted(0)))

    def _why(self, name: str, code: int | None) -> str:
        """Return why a node has exited, by its exit code and its log."""
        assert code is not None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}: {self._last_words(name)}"

    def _last_words(self, name: str) -> str:
        lines = (self.data / f"{name}.err").read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), f"see {self.data / name}.log")
        return last.removeprefix("levelcast: ")

    def is_trading(self) -> bool:
        """Return whether a publishing floor is still running: it exits when all its packets are witnessed."""
        return self._options.rate > 0 and any(member.running for member in self.of_role(FLOOR))

    def complete_upto(self, at_ns: int) -> bool:
        """Return whether every receiver has released everything with a timestamp up to `at_ns` (rule 15)."""
        return all(member.running and member.status.get("complete_upto_ns", 0) >= at_ns for member in self.releasing)

    def horizon_ns(self) -> int:
        """Return an upper bound for the timestamps of everything sent so far, if no more is sent."""
        timings = [self.network.timing(stripe.name) for stripe in self.network.stripes]
        members = len(self.network.receivers)
        return time.time_ns() + max(timing.late_ns + (members + 1) * timing.slot_ns for timing in timings)


@dataclass(slots=True)
class Kill:
    """Kill a node with SIGKILL at a time of the run, and restart it with its directory."""

    name: str
    at_s: float
    restart_s: float
    done: bool = False
    back: bool = False


class ClusterRun:
    """Run a cluster to the end: kill on schedule, drain floors, wait for complete receivers, stop nodes in order.

    Times of kills and `run_s` count from the time at which all nodes are running: a slow start-up shortens nothing.
    """

    def __init__(self, cluster: Cluster, run_s: float | None, bound_s: float, kills: Sequence[Kill] = ()) -> None:
        self.cluster = cluster
        self.kills = kills
        self.problems: list[str] = []
        """Steps of the run that exceeded their limit; they say nothing about the tapes."""
        self.phase = "starting"
        self.interrupted = False
        """Set to stop trading early; published trades are still drained."""
        self._run_s = run_s
        self._bound_s = bound_s

    def steps(self) -> Iterator[None]:
        """Run the cluster and yield to the caller every `STEP_S`."""
        cluster = self.cluster
        try:
            cluster.start_all()
            if not (yield from self._while("starting", lambda: not self._are_running(), START_LIMIT_S)):
                return
            cluster.reset_clock()
            yield from self._while("running", self._is_trading, self._bound_s + (self._run_s or 0.0))
            cluster.stop(FLOOR)
            horizon_ns = cluster.horizon_ns()
            yield from self._while("draining", lambda: not cluster.complete_upto(horizon_ns), self._bound_s)
        finally:
            self.phase = "ending"
            self.problems += [f"{name} did not exit and was killed" for name in cluster.stop()]

    def _while(self, phase: str, condition: Callable[[], bool], limit_s: float) -> Generator[None, None, bool]:
        """Wait while a condition holds; return False, and note a problem, if that takes longer than the limit."""
        self.phase = phase
        began = time.monotonic()
        endless = phase in ("starting", "running") and self._run_s is None
        while condition():
            if not endless and time.monotonic() - began > limit_s:
                what = "not ready within" if phase == "starting" else f"still {phase} after"
                self.problems.append(f"{what} {limit_s:.0f} s: {self._who_is_behind()}")
                return False
            if phase != "starting":
                self._kill_on_time()
            self.cluster.restart_dead()
            time.sleep(STEP_S)
            yield
        return True

    def _are_running(self) -> bool:
        return self.interrupted or all(member.has_run for member in self.cluster.members.values())

    def _is_trading(self) -> bool:
        if self.interrupted:
            return False
        if any(not kill.back for kill in self.kills):
            return True
        return self._run_s is None or self.cluster.elapsed_s < self._run_s or self.cluster.is_trading()

    def _kill_on_time(self) -> None:
        cluster, now_s = self.cluster, self.cluster.elapsed_s
        for kill in self.kills:
            if not kill.done and now_s >= kill.at_s:
                cluster.kill(kill.name)
                cluster.events.append((kill.name, NodeKilled(0)))
                kill.done = True
            if kill.done and not kill.back and now_s >= kill.restart_s:
                cluster.start(kill.name)
                cluster.events.append((kill.name, NodeStarted(0)))
                kill.back = True

    def _who_is_behind(self) -> str:
        said = []
        for name, member in self.cluster.members.items():
            status = member.status
            if not status:
                said.append(f"{name} has not reported its status")
            elif member.place.role.publishes and member.running:
                waits = f"{status.get('packets_unwitnessed', '?')} packets unwitnessed"
                said.append(f"{name} has {waits}")
            elif member.place.role.releases:
                said.append(f"{name} is {status.get('state', 'unknown')} at slot {status.get('released_slot', '?')}")
        return "; ".join(said)
