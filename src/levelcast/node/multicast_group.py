"""Run all members of a multicast group as processes on this machine, and compare what they have delivered.

Each member is `levelcast multicast FILE --name NAME --json`: it prints one JSON object per event and one at the end,
which has the number and a running hash of the packets delivered from every sender.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

from levelcast.errors import NetError

END_S = 30.0
"""Time in seconds for processes to end after their run."""


class GroupEvent(NamedTuple):
    """A line that a member has printed."""

    at_s: float
    name: str
    what: dict[str, Any]


@dataclass(slots=True)
class GroupVerdict:
    """Comparison of the members that are honest."""

    delivered: dict[str, int] = field(default_factory=dict)
    """Packets delivered by every member, by sender."""
    differences: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        return not self.differences


class MulticastProcesses:
    """The processes of a group."""

    def __init__(self, file: Path, data: Path, names: Sequence[str], common: Sequence[str]) -> None:
        self.names = tuple(names)
        self.final: dict[str, dict[str, Any]] = {}
        """Last line of each member."""
        self.errors: dict[str, str] = {}
        self._began_s = time.monotonic()
        self._lines: Queue[tuple[str, subprocess.Popen[str], str | None]] = Queue()
        self._file, self._data, self._common = file, data, tuple(common)
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, extra: Sequence[str] = ()) -> None:
        """Start one member."""
        command = [sys.executable, "-m", "levelcast", "multicast", str(self._file), "--name", name, "--json"]
        command += ["--data", str(self._data), *self._common, *extra]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._processes[name] = process
        Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            self._lines.put((name, process, line))
        self.errors[name] = process.stderr.read().strip()
        self._lines.put((name, process, None))

    def pid(self, name: str) -> int:
        """Return the process id of a member."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill one member, as `kill -9` does."""
        self._processes[name].kill()
        self._processes[name].wait()

    def events(self, until_s: float) -> Iterator[GroupEvent]:
        """Yield what the members print, until all have ended or for some time."""
        running = set(self._processes)
        while running and (left := until_s - (time.monotonic() - self._began_s)) > 0:
            try:
                name, process, line = self._lines.get(timeout=min(left, 0.5))
            except Empty:
                continue
            if line is None:
                if self._processes[name] is process:  # not one that was killed before
                    running.discard(name)
                continue
            what = json.loads(line)
            if what.get("event") == "end":
                self.final[name] = what
            yield GroupEvent(time.monotonic() - self._began_s, name, what)

    def close(self) -> None:
        """End the processes; raise NetError with the message of one that failed."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for name, process in self._processes.items():
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            if code > 0 and name not in self.final:
                raise NetError(f"{name}: {self.errors.get(name) or f'ended with exit code {code}'}")


def compare(final: Mapping[str, Mapping[str, Any]], honest: Sequence[str]) -> GroupVerdict:
    """Compare what the honest members have delivered at the end."""
    verdict = GroupVerdict()
    missing = [name for name in honest if name not in final]
    verdict.differences += [f"{name} has not ended in order" for name in missing]
    rest = [name for name in honest if name in final]
    for sender in sorted({sender for name in rest for sender in final[name]["packets"]}):
        found = {name: tuple(final[name]["packets"].get(sender, (0, ""))) for name in rest}
        if len(set(found.values())) > 1:
            counts = ", ".join(f"{name} {count:,}" for name, (count, _) in found.items())
            verdict.differences.append(f"packets of {sender} differ: {counts}")
        else:
            verdict.delivered[sender] = found[rest[0]][0]
    return verdict
