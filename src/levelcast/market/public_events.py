"""Public part of the engine's events: everything but accounts and client order ids (MS §7.3).

Orders of a sealed round become public when the round is over (M11). Refusals, payments and limits stay private.
"""

from __future__ import annotations

import numpy as np

from levelcast.native.book_codes import BookPhase, EventKind, InstrumentSetting, MatchRule
from levelcast.records import RecordArray

PRIVATE = frozenset(
    {EventKind.REJECTED, EventKind.DEPOSITED, EventKind.WITHDRAWN, EventKind.LIMIT_SET, EventKind.MASS_CANCELLED}
)
_IS_PRIVATE = np.isin(np.arange(256), sorted(PRIVATE))
_ENDS = frozenset({BookPhase.CROSS, BookPhase.CLOSE, BookPhase.UNAVAILABLE})


class PublicFeed:
    """Selects public events, and holds those of sealed rounds. It is fed all events from the first frame on."""

    def __init__(self) -> None:
        self._sealed: set[int] = set()
        self._held: dict[int, list[RecordArray]] = {}
        self._over: set[int] = set()
        """Instruments whose last round is over."""

    def take(self, events: RecordArray) -> RecordArray:
        """Return the public events of a frame, without owners; held ones follow the end of their round."""
        public = events[~_IS_PRIVATE[events["kind"]]]
        out, start = [events[:0]], 0
        for at in np.flatnonzero(_changes(public)).tolist():
            out += [self._open(public[start:at]), *self._change(public[at]), public[at : at + 1]]
            start = at + 1
        made = np.concatenate([*out, self._open(public[start:])])
        made["account"] = made["client_order_id"] = 0
        return made

    def _open(self, events: RecordArray) -> RecordArray:
        """Return the events that are public at once, and hold the others."""
        closed = sorted(self._sealed - self._over)
        if not closed or not len(events):
            return events
        held = np.isin(events["instrument_id"], closed) & (events["kind"] != EventKind.SET)
        for instrument in np.unique(events["instrument_id"][held]).tolist():
            mine = events[held & (events["instrument_id"] == instrument)]
            self._held.setdefault(instrument, []).append(mine)
        public: RecordArray = events[~held]
        return public

    def _change(self, event: np.void) -> list[RecordArray]:
        """Note a phase or a matching rule; return what becomes public before it."""
        instrument = int(event["instrument_id"])
        if event["kind"] == EventKind.SET:
            (self._sealed.add if event["price"] == MatchRule.SEALED else self._sealed.discard)(instrument)
            return []
        if int(event["flags"]) not in _ENDS:
            self._over.discard(instrument)
            return []
        self._over.add(instrument)
        return self._held.pop(instrument, [])


def _changes(events: RecordArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which events change what is public: phases and matching rules."""
    rules = (events["kind"] == EventKind.SET) & (events["order_id"] == InstrumentSetting.MATCH_RULE)
    return np.asarray((events["kind"] == EventKind.PHASE) | rules)
