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
_IS_PRIVATE = np.isin(np.arange(256), [int(kind) for kind in PRIVATE])
_CHANGES = np.isin(np.arange(256), [int(EventKind.PHASE), int(EventKind.SET)])
"""Kinds that change what is public."""
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
        kinds = events["kind"]
        if not self._sealed and not _CHANGES[kinds].any():
            shown: RecordArray = events[~_IS_PRIVATE[kinds]]
            shown["account"] = shown["client_order_id"] = 0
            return shown
        out: list[RecordArray] = []
        for at in range(len(events)):
            event = events[at : at + 1]
            kind, instrument = int(event["kind"][0]), int(event["instrument_id"][0])
            if kind == EventKind.SET:
                self._note(event)
            if kind in PRIVATE:
                continue
            if kind in (EventKind.PHASE, EventKind.SET) or instrument not in self._sealed:
                if kind == EventKind.PHASE and int(event["flags"][0]) in _ENDS:
                    out += self._held.pop(instrument, [])
                    self._open_round(instrument, over=True)
                elif kind == EventKind.PHASE:
                    self._open_round(instrument, over=False)
                out.append(event)
            elif instrument in self._over:
                out.append(event)
            else:
                self._held.setdefault(instrument, []).append(event)
        made = np.concatenate([events[:0], *out])
        made["account"] = made["client_order_id"] = 0
        return made

    def _open_round(self, instrument: int, *, over: bool) -> None:
        (self._over.add if over else self._over.discard)(instrument)

    def _note(self, event: RecordArray) -> None:
        if int(event["order_id"][0]) != InstrumentSetting.MATCH_RULE:
            return
        sealed = int(event["price"][0]) == MatchRule.SEALED
        (self._sealed.add if sealed else self._sealed.discard)(int(event["instrument_id"][0]))
