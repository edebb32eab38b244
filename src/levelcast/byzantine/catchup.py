"""C-9 (not in MR): what f + 1 members state, signed and with the same digest, that they have delivered is delivered.

One of the f + 1 is honest. A member that was away needs this, because the chains of old messages are discarded (C-10).
One statement is not enough: a member that comes back would believe a liar (history B11).
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.graph import VersionNode
from levelcast.byzantine.ledger import NO_DIGEST, ChainLedger
from levelcast.byzantine.multicast import ChainMulticast
from levelcast.protocol.effects import Effect
from levelcast.wire.chain_messages import ChainStatement, Citation, DeliveredRow

MAX_STATED = 128
"""Maximum number of rows that a member states in one answer."""
MAX_STATED_VERSIONS = 4
"""Maximum number of versions of one message that are noted from one member."""


class StatedDeliveries:
    """Statements of other members about what this one lacks."""

    def __init__(self, chain: ChainMulticast) -> None:
        self._chain = chain
        self._config = chain.config
        self._stated: dict[tuple[int, int], dict[DeliveredRow, set[int]]] = {}

    def note(self, statement: ChainStatement, now: int) -> list[Effect]:
        """Note a statement whose signature holds, and deliver what f + 1 members have stated."""
        effects: list[Effect] = []
        for row in statement.rows:
            if row.sender in self._config.senders and self._matters(row):
                self._support(row, statement.sender)
        self.advance(now, effects)
        return effects

    def _matters(self, row: DeliveredRow) -> bool:
        """Return whether a row is about a message in the window, or about an old version that is cited here."""
        count = self._chain.ledger.count(row.sender)
        if row.seq <= count:
            return Citation(*row[:3]) in self._chain.graph.nodes
        return row.seq <= count + self._config.window

    def _support(self, row: DeliveredRow, member: int) -> None:
        rows = self._stated.setdefault((row.sender, row.seq), {})
        if sum(member in supporters for supporters in rows.values()) < MAX_STATED_VERSIONS:
            rows.setdefault(row, set()).add(member)

    def advance(self, now: int, effects: list[Effect]) -> None:
        """Deliver what f + 1 members have stated, in the order of each sender; request what is missing."""
        chain = self._chain
        if not self._stated:
            return
        for place in sorted(self._stated):
            enough = [row for row, supporters in self._stated[place].items() if is_enough(self._config, supporters)]
            if not enough:
                continue
            sender, seq = place
            if seq == chain.ledger.count(sender) + 1:
                self._deliver(enough[0], now, effects)
            if seq <= chain.ledger.count(sender):
                for row in enough:
                    if row.digest != NO_DIGEST and row.content_digest == chain.ledger.content_digest(sender, seq):
                        chain.graph.settle(Citation(*row[:3]), now)
                del self._stated[place]
        chain.advance(effects)

    def _deliver(self, row: DeliveredRow, now: int, effects: list[Effect]) -> None:
        chain = self._chain
        node = self._with_content(row)
        if node is not None and not chain.is_after(node):
            return
        if node is not None:
            chain.counts.caught_up += 1
            chain.stated.pop((row.sender, row.seq), None)
            chain.deliver(node, effects, row)
        elif row.digest != NO_DIGEST:
            chain.stated[row.sender, row.seq] = row.content_digest
            chain.graph.cited(Citation(*row[:3]), now)

    def _with_content(self, row: DeliveredRow) -> VersionNode | None:
        for node in self._chain.graph.versions((row.sender, row.seq)):
            if node.message is not None and node.message.header.content_digest == row.content_digest:
                return node
        return None


def is_enough(config: ChainConfig, supporters: set[int]) -> bool:
    """Return whether enough members state a delivery: f + 1, so that one of them is honest."""
    return len(supporters) > config.f


def rows_for(
    ledger: ChainLedger, config: ChainConfig, above: tuple[int, ...] | None, settled: Iterable[Citation]
) -> list[DeliveredRow]:
    """Return the rows of a statement: the first deliveries above a vector, and those of these versions."""
    wanted = {(ref.sender, ref.seq) for ref in settled}
    if above is not None:
        each = max(1, MAX_STATED // len(config.senders))
        for index, member in enumerate(config.senders):
            first = above[index] + 1
            wanted |= {(member, seq) for seq in range(first, min(ledger.count(member), first + each - 1) + 1)}
    rows = [row for place in sorted(wanted) for row in list(ledger.rows(*place))[:MAX_STATED_VERSIONS]]
    return rows[: 2 * MAX_STATED]
