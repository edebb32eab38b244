"""Additional copies that a source and a member send (TT §4.3; rule W11).

| sender | copies                                                                          | to                     |
|--------|---------------------------------------------------------------------------------|------------------------|
| source | parities of a train, directly after it                                          | receivers with `parity` |
| member | its token again, on the beats after the one that follows the token for everybody | receivers with `tokens` |

The configuration states the copies per receiver. Each sender stays within the factor by its own bytes: a source by its
packets, a member by its tokens and beats. If a train is too short for its parities, it gets fewer, or none.

Deviation from TT §4.3: a copy is not a message of its own kind that is confirmed, and the number of copies does not
follow from the loss of a path alone, but from what they take off the hold time of all (`levelcast.timing.copy_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.copy_budget import CopyBudget
from levelcast.protocol.effects import GROUP, Send
from levelcast.timing.copies import parity_groups
from levelcast.wire.messages import Beat, Data, Message, Token
from levelcast.wire.packets import singles
from levelcast.wire.parity import PARITY_OVERHEAD, parities_of, sent_bytes
from levelcast.wire.token_codec import beat_size


def to_each(nodes: tuple[int, ...], everybody: int, messages: Iterable[Message]) -> list[Send]:
    """Return the messages for these nodes; for the group if they are all its receivers."""
    places = (GROUP,) if len(nodes) == everybody else nodes
    return [Send(place, message) for message in messages for place in places]


class TrainCopies:
    """The parities of one source."""

    def __init__(self, config: StripeConfig) -> None:
        self._everybody = config.receivers
        self.budget = CopyBudget(config.redundancy)
        by_parity: dict[int, list[int]] = {}
        for node, copies in sorted(config.copies.items()):
            if copies.parity:
                by_parity.setdefault(copies.parity, []).append(node)
        # Receivers that get more are the ones that need most: they are served first.
        self._targets = [(each, tuple(nodes)) for each, nodes in sorted(by_parity.items())]

    def after(self, train: Data) -> list[Send]:
        """Return the parities to send after a train."""
        if not self._targets:
            return []
        self.budget.need(len(train.sealed) * self._everybody)
        packets = singles(train)
        longest = max(len(packet.sealed) for packet in packets) + PARITY_OVERHEAD
        sends: list[Send] = []
        for each, nodes in self._targets:
            affordable = max(0, self.budget.left) // (longest * len(nodes))
            parities = parities_of(train, min(parity_groups(len(packets), each), affordable))
            if self.budget.spend(sum(map(sent_bytes, parities)) * len(nodes)):
                sends += to_each(nodes, self._everybody, parities)
        return sends


class TokenCopies:
    """The copies of a member's last token."""

    def __init__(self, config: StripeConfig, member: int) -> None:
        self._others = config.receivers - 1
        self._copies = {node: each.tokens for node, each in sorted(config.copies.items()) if node != member}
        self._most = max(self._copies.values(), default=0)
        self.budget = CopyBudget(config.redundancy)
        self._token: Token | None = None
        self._repeated = 0

    def sent(self, token: Token) -> None:
        """Note an own token: its copies replace those of the token before."""
        self._token, self._repeated = token, 0
        self.budget.need(2 * len(token.sealed) * self._others)

    def clear(self) -> None:
        """Forget the token: it is of a former ring."""
        self._token = None

    def after_beat(self, beat: Beat, tick_ns: int) -> list[Send]:
        """Return the copies that follow a beat: the first one for everybody, the next ones as configured."""
        self.budget.need(beat_size(beat) * self._others)
        token = self._token
        if token is None or token.timestamp_ns >= tick_ns:
            return []
        self._repeated += 1
        further = self._repeated - 1
        if further >= self._most:
            self._token = None
        if not further:
            return [Send(GROUP, token)]
        nodes = tuple(node for node, tokens in self._copies.items() if tokens >= further)
        return to_each(nodes, self._others, (token,)) if self.budget.spend(len(token.sealed) * len(nodes)) else []
