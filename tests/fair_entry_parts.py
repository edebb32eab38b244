"""Build released frames with orders and beats of gateways, for the tests of fair entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import blake3

from levelcast.market.fair.fair_order import BEAT, EntryBatch, EntryFrame, FairEntry
from levelcast.records import RecordArray, orders
from levelcast.wire.entry_change import EntryRules, encode_entry_rules
from levelcast.wire.messages import CONTROL_SOURCE

MS = 1_000_000
S = 1_000 * MS
T0 = 1_700_000_000 * S
RULES = EntryRules(1, T0 + 2 * S, 5 * MS, 500 * MS, 1 * MS, 10 * MS, 1 * S, 2 * S, (11, 12, 13))
START = RULES.from_ns


class Shown(NamedTuple):
    """An order of an account at a gateway, or a beat (account None)."""

    gateway: int
    at_ns: int
    account: int | None = None
    number: int = 0


def order_records(shown: Iterable[Shown]) -> RecordArray:
    wanted = list(shown)
    records = orders(len(wanted))
    for record, each in zip(records, wanted, strict=True):
        record["publisher_id"], record["ts_event"] = each.gateway, each.at_ns
        record["client_order_id"] = each.number
        if each.account is None:
            record["action"], record["command"] = b"N", BEAT
        else:
            record["account"] = each.account
    return records


class Tape:
    """Make frames one after the other, and give them to a `FairEntry`."""

    def __init__(self, rules: EntryRules | None = RULES) -> None:
        self.entry = FairEntry()
        self.frames: list[EntryFrame] = []
        self.batches: list[EntryBatch] = []
        self._chain = bytes(32)
        self._sequence = 0
        if rules is not None:
            self.add(rules.from_ns - rules.hold_ns - MS, rules=[rules])

    def add(
        self, timestamp_ns: int, shown: Sequence[Shown] = (), rules: Iterable[EntryRules] = (), others: bytes = b""
    ) -> EntryBatch:
        """Add a frame with one packet for each record."""
        changes = [encode_entry_rules(each) for each in rules]
        payload = b"".join(changes) + others + order_records(shown).tobytes()
        sources = [(CONTROL_SOURCE, 1) for _ in changes] + ([(9, 1)] if others else [])
        sources += [(each.gateway, 1) for each in shown]
        self._sequence += len(sources)
        self._chain = blake3.blake3(self._chain + payload + timestamp_ns.to_bytes(8, "little")).digest()
        frame = EntryFrame(self._sequence, timestamp_ns, self._chain, payload, tuple(sources))
        self.frames.append(frame)
        self.batches.append(self.entry.frame(frame))
        return self.batches[-1]

    def beats(self, at_ns: int, gateways: Iterable[int] = RULES.gateways, delay_ns: int = 20 * MS) -> EntryBatch:
        return self.add(at_ns + delay_ns, [Shown(gateway, at_ns) for gateway in gateways])

    def accounts(self) -> list[int]:
        """Return the accounts of the whole sequence."""
        return [account for batch in self.batches for account in batch.orders["account"].tolist()]


def replay(frames: Iterable[EntryFrame]) -> bytes:
    """Return the payloads of a fresh `FairEntry` for these frames."""
    entry = FairEntry()
    return b"".join(entry.frame(frame).payload for frame in frames)
