"""Write the events of a node to its log: a line of text each, and a line of JSON for programs.

    DATA/NAME.log       2026-11-18T07:15:00.123456Z INFO tokyo-1 entered slot 512: generation 3@reform-london, members …
    DATA/NAME.jsonl     {"time": "2026-11-18T07:15:00.123456Z", "level": "INFO", "node": "tokyo-1", "slot": 512, …

Both are limited in size (`[log]` of the network file). An event that repeats is written once and then counted. Nothing
here stops a node: lines that cannot be written, as on a full disk, are counted and reported in the next line that can.

A node calls this in its loop: events that are not written cost about a microsecond, the others two writes to the page
cache, without fsync.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from levelcast.network.model import LogFiles
from levelcast.protocol.event_levels import Level, level_of
from levelcast.protocol.event_text import Names, headline, names_in, sentence
from levelcast.protocol.events import (
    Event,
    EventRepeated,
    LinesLost,
    NodeStart,
    NodeStop,
    RingEntered,
    RingFormed,
    Witnessed,
    event_fields,
    event_name,
)
from levelcast.runtime.rotating_file import RotatingFile

REPEATS_S = 60.0
"""An event is written at most once in this time; its repetitions are counted."""

_CHANGES = frozenset({NodeStart, NodeStop, RingEntered, RingFormed})


def utc_time(at_ns: int) -> str:
    """Return a time in UTC with microseconds, by ISO 8601."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


def text_line(event: Event, node: str, names: Names, at_ns: int) -> str:
    """Return an event as a line of text; line breaks in it are escaped."""
    said = headline(event, names).replace("\r", "\\r").replace("\n", "\\n")
    return f"{utc_time(at_ns)} {level_of(event)} {node} {said}"


def json_object(event: Event, node: str, names: Names, at_ns: int) -> dict[str, Any]:
    """Return an event as the object of a JSON line: ids in its fields, and in `names` the names for them."""
    return {
        "time": utc_time(at_ns),
        "level": level_of(event),
        "node": node,
        "event": event_name(event),
        "slot": event.slot,
        "detail": sentence(event, names),
        "names": names_in(event, names),
        **event_fields(event),
    }


@dataclass(slots=True)
class _Repeats:
    """Repetitions of an event since `since_s`."""

    event: Event
    since_s: float
    count: int = 0


class RepeatFilter:
    """Pass on the first of equal events; count the others and pass on their count every `REPEATS_S`.

    Events are equal if they differ only in fields that vary from one to the next (`Event.VARYING`). After a change of
    the ring an event is new: it may be the cause of the next change.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[Hashable, _Repeats] = {}
        self._keys: dict[type[Event], Callable[[Event], Hashable]] = {}
        self._due_s = float("inf")

    def add(self, event: Event, now_s: float) -> Iterator[Event]:
        """Yield the events to write now."""
        kind = type(event)
        if kind in _CHANGES:
            yield from self.rest(now_s)
            yield event
            return
        key = (kind, (self._keys.get(kind) or self._key_of(kind))(event))
        known = self._known.get(key)
        if known is not None and now_s < known.since_s + REPEATS_S:
            known.event = event
            known.count += 1
            return
        yield from self.due(now_s)
        if key in self._known:  # it repeated until now, and does so again
            self._known[key].event, self._known[key].count = event, 1
            return
        self._known[key] = _Repeats(event, now_s)
        self._due_s = min(self._due_s, now_s + REPEATS_S)
        yield event

    def due(self, now_s: float) -> Iterator[Event]:
        """Yield the counts whose time is over."""
        if now_s < self._due_s:
            return
        for key, known in list(self._known.items()):
            if now_s < known.since_s + REPEATS_S:
                continue
            if known.count:
                yield self._counted(known, now_s)
                known.since_s, known.count = now_s, 0
            else:
                del self._known[key]
        self._due_s = min((each.since_s for each in self._known.values()), default=float("inf")) + REPEATS_S

    def rest(self, now_s: float) -> Iterator[Event]:
        """Yield all counts, and begin anew."""
        known, self._known, self._due_s = self._known, {}, float("inf")
        for each in known.values():
            if each.count:
                yield self._counted(each, now_s)

    def _counted(self, known: _Repeats, now_s: float) -> EventRepeated:
        event, seconds = known.event, max(1, round(now_s - known.since_s))
        text = headline(event, self._names)
        return EventRepeated(event.slot, event_name(event), level_of(event), text, known.count, seconds)

    def _key_of(self, kind: type[Event]) -> Callable[[Event], Hashable]:
        same = [each.name for each in fields(kind) if each.name not in kind.VARYING]
        self._keys[kind] = found = attrgetter(*same) if same else lambda _: None
        return found


class NodeLog:
    """The log of a node: `add` its events, call `tick` a few times per second, and `close` it."""

    def __init__(
        self,
        path: Path,
        node: str,
        names: Names,
        files: LogFiles,
        on_problem: Callable[[str], None] = lambda _: None,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        """Write to PATH.log and PATH.jsonl, whose directory exists.

        `on_problem` gets the first error in writing; `echo` gets every line of text.
        """
        self._node = node
        self._names = names
        self._on_problem: Callable[[str], None] | None = on_problem
        self.echo = echo
        self._repeats = RepeatFilter(names)
        self._text = RotatingFile(path.with_name(f"{path.name}.log"), files.bytes, files.keep)
        json_path = path.with_name(f"{path.name}.jsonl")
        self._json = RotatingFile(json_path, files.bytes, files.keep) if files.json else None
        self._lost = 0

    def add(self, event: Event) -> None:
        """Write an event, or count it if it repeats an earlier one."""
        if type(event) is not Witnessed and level_of(event) is not Level.DEBUG:
            for each in self._repeats.add(event, time.monotonic()):
                self._write(each)

    def tick(self) -> None:
        """Write the counts that are due."""
        for each in self._repeats.due(time.monotonic()):
            self._write(each)

    def close(self) -> None:
        """Write the remaining counts and close the files."""
        for each in self._repeats.rest(time.monotonic()):
            self._write(each)
        self._text.close()
        if self._json is not None:
            self._json.close()

    def _write(self, event: Event) -> None:
        now = time.time_ns()
        line = text_line(event, self._node, self._names, now)
        if self.echo is not None:
            self.echo(line)
        try:
            if self._lost:
                lost = LinesLost(0, "the log", self._lost)
                self._write_lines(lost, text_line(lost, self._node, self._names, now), now)
                self._lost = 0
            self._write_lines(event, line, now)
        except OSError as error:
            self._lost += 1
            if self._on_problem is not None:
                self._on_problem(f"{self._text.path}: the log cannot be written ({error.strerror}); the node continues")
                self._on_problem = None

    def _write_lines(self, event: Event, line: str, now: int) -> None:
        self._text.write(line)
        if self._json is not None:
            self._json.write(json.dumps(json_object(event, self._node, self._names, now)))
