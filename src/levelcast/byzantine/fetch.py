"""Requests for messages that are cited or delivered elsewhere, and the answers (C-3.2, C-4.2).

- A version that is cited and not held is requested from the members that acknowledge it, one after the other, until it
  arrives (history B9). The answer brings everything unsettled below it. MR has no requests: there a message that its
  sender sent to one member only stays unknown to the others (B4).
- C-4.2 by pulling: messages carry the vector {c_i}. A member whose own vector is lower for some time requests the
  difference from a member that claims it. In MR everybody sends every message again to everybody that is slow, and one
  liar that acknowledges nothing makes all others do so for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import lt

from levelcast.byzantine.catchup import rows_for
from levelcast.byzantine.config import REQUEST_DOUBLINGS
from levelcast.byzantine.graph import VersionNode
from levelcast.byzantine.multicast import ChainMulticast
from levelcast.protocol.effects import Effect, Send, ServeDelivered
from levelcast.wire.chain_messages import ChainMessage, ChainRequest, Citation
from levelcast.wire.messages import Repair

MAX_WANTED = 64
"""Maximum number of messages in one request."""
ANSWER_BYTES = 60_000
"""Maximum size in bytes of the items of one Repair."""
MAX_REPAIRS = 4
"""Maximum number of Repairs in an answer: the rest follows at the next request."""


class _Due:
    """Schedule of the requests for one version."""

    __slots__ = ("attempts", "next_ns")

    def __init__(self, next_ns: int) -> None:
        self.attempts = 0
        self.next_ns = next_ns


class Fetcher:
    """Requests of one member, and its answers to those of others."""

    def __init__(self, chain: ChainMulticast) -> None:
        self._chain = chain
        self._config = chain.config
        self._due: dict[Citation, _Due] = {}
        self._behind_ns: dict[int, int] = {}
        """Time since which another member has claimed deliveries that this one lacks, without a delivery here."""
        self._counts_then: dict[int, int] = {}
        self._pulls = 0
        self._beyond: set[int] = set()
        """Members of which a message beyond the window has arrived since the last pull."""
        self._brought: dict[int, int] = {}
        """Members that were asked for chains, and how many uncited messages they have brought since a delivery."""
        self._delivered_then = 0
        self._next_pull_ns = 0
        self._next_evidence_ns = 0

    @property
    def busy(self) -> bool:
        """Return whether a request may be due without a message before it."""
        return bool(self._beyond or self._chain.graph.unknown or self._behind_ns or self._chain.convictions.named)

    # -- requests ------------------------------------------------------------------------------------------

    def requests(self, now: int) -> list[Effect]:
        """Return the requests that are due."""
        if not (self._due or self.busy) and not self._is_behind():
            return []
        wanted = self._wanted(now)
        pull = self._pull(now)
        evidence = self._evidence(now)
        asked = sorted({*wanted, *pull, *evidence})
        return [
            Send(to, self._request(wanted.get(to, ()), evidence.get(to, ()), pull=to in pull))
            for to in asked
            if to != self._chain.me
        ]

    def _request(self, wanted: Iterable[Citation], evidence: Iterable[int], *, pull: bool) -> ChainRequest:
        vector = self._chain.ledger.vector
        return ChainRequest(
            self._chain.me, self._config.epoch, vector, tuple(sorted(wanted)), tuple(sorted(evidence)), pull
        )

    def _wanted(self, now: int) -> dict[int, list[Citation]]:
        """Return the versions to request, by the member that is asked."""
        graph, found = self._chain.graph, dict[int, list[Citation]]()
        for ref in [ref for ref in self._due if ref not in graph.unknown]:
            del self._due[ref]
        for ref, node in graph.unknown.items():
            due = self._due.get(ref)
            if due is None:
                due = self._due[ref] = _Due(node.cited_ns + self._config.grace_ns)
            if (
                not may_ask(due.attempts)
                or due.next_ns > now
                or ref.seq > self._chain.ledger.count(ref.sender) + self._config.window
            ):
                continue
            to = self._holder(node, due.attempts)
            asked = found.setdefault(to, [])
            if len(asked) < MAX_WANTED:
                asked.append(ref)
                due.next_ns = now + self._config.request_ns * (1 << min(due.attempts, REQUEST_DOUBLINGS))
                due.attempts += 1
        return found

    def _holder(self, node: VersionNode, attempts: int) -> int:
        """Return the member to ask: those that acknowledge a version in turn."""
        others = [member for member in holders(self._chain, node) if member != self._chain.me]
        return others[attempts % len(others)] if others else node.ref.sender

    def _pull(self, now: int) -> set[int]:
        """C-4.2: return the member to ask for what it has delivered and this one has not."""
        self._note_behind(now)
        patience_ns = 2 * self._config.request_ns
        late = [member for member, since in self._behind_ns.items() if now - since >= patience_ns]
        if not (late or self._beyond) or now < self._next_pull_ns:
            return set()
        others = [member for member in self._config.members if member != self._chain.me]
        ahead = [member for member in others if member in self._beyond or self._is_ahead(member, late)]
        self._beyond.clear()
        if not ahead:
            return set()
        self._next_pull_ns = now + self._config.request_ns
        self._pulls += 1
        asked = ahead[self._pulls % len(ahead)]
        self._brought[asked] = self._brought.get(asked, 0)
        return {asked}

    def accepts_from(self, member: int) -> bool:
        """Return whether a message that nobody cites is accepted because it may be part of chains that were pulled.

        A bounded number from each member between two deliveries, so that a liar fills nothing.
        """
        delivered = self._chain.counts.delivered
        if delivered != self._delivered_then:
            self._delivered_then = delivered
            self._brought = dict.fromkeys(self._brought, 0)
        if member not in self._brought or self._brought[member] >= self._config.window * self._config.n:
            return False
        self._brought[member] += 1
        return True

    def note_beyond(self, member: int) -> None:
        """Note a message beyond the window: after a long absence no vector of another member arrives here otherwise."""
        self._beyond.add(member)

    def _is_behind(self) -> bool:
        """Return whether another member claims a delivery that this one lacks."""
        return any(map(lt, self._chain.ledger.vector, self._chain.highest))

    def _note_behind(self, now: int) -> None:
        chain = self._chain
        for member, count, highest in zip(self._config.senders, chain.ledger.vector, chain.highest, strict=True):
            if highest <= count:
                self._behind_ns.pop(member, None)
            elif member not in self._behind_ns or self._counts_then[member] != count:
                self._behind_ns[member] = now
            self._counts_then[member] = count

    def _is_ahead(self, member: int, late: Iterable[int]) -> bool:
        claim = self._chain.claims.get(member)
        if claim is None:
            return False
        return any(claim[self._config.senders.index(each)] > self._chain.ledger.count(each) for each in late)

    def _evidence(self, now: int) -> dict[int, list[int]]:
        """Return the convicted members of which this one has no evidence, by the member that named them (C-8)."""
        named = self._chain.convictions.named
        if not named or now < self._next_evidence_ns:
            return {}
        self._next_evidence_ns = now + self._config.request_ns
        found: dict[int, list[int]] = {}
        for member, by in named.items():
            found.setdefault(by, []).append(member)
        named.clear()  # named again in later messages, perhaps by a member that answers
        return found

    # -- answers -------------------------------------------------------------------------------------------

    def answer(self, request: ChainRequest) -> list[Effect]:
        """Return the messages, evidence and statements that a request is about."""
        chain, effects = self._chain, list[Effect]()
        nodes: dict[Citation, VersionNode] = {}
        discarded: set[Citation] = set()
        for ref in request.wanted:
            node = chain.graph.nodes.get(ref)
            if node is not None and node.message is not None:
                nodes |= {each.ref: each for each in answered_with(chain, node)}
            elif chain.ledger.is_settled(ref):
                discarded.add(ref)
        if request.pull:
            nodes |= self._with_chains(request)
        held = [node for node in nodes.values() if node.message is not None]
        messages = [node.message for node in sorted(held, key=lambda node: node.order) if node.message is not None]
        effects += [Send(request.sender, repair) for repair in self._repairs(messages)]
        rows = rows_for(chain.ledger, self._config, request.delivered if request.pull else None, discarded)
        if rows:
            effects.append(Send(request.sender, chain.author.statement(rows)))
            discarded |= {Citation(*row[:3]) for row in rows} - {node.ref for node in held}
        if discarded:
            effects.append(ServeDelivered(request.sender, self._config.epoch, tuple(sorted(discarded))))
        for member in request.evidence:
            if member in chain.convictions:
                effects.append(Send(request.sender, chain.convictions.evidence(member)))
        return effects

    def _with_chains(self, request: ChainRequest) -> dict[Citation, VersionNode]:
        """Return what the other member lacks, and the chains that lead to it (C-4.2)."""
        found: dict[Citation, VersionNode] = {}
        for ref, node in sorted(self._chain.graph.nodes.items(), key=lambda each: each[1].order):
            if self._is_above(request, ref) or any(child.ref in found for child in node.children):
                found[ref] = node
        return found

    def _is_above(self, request: ChainRequest, ref: Citation) -> bool:
        """Return whether a version is undelivered at the member that requests, and fits its window."""
        senders = self._config.senders
        count = request.delivered[senders.index(ref.sender)] if ref.sender in senders else 0
        return count < ref.seq <= count + self._config.window

    def _repairs(self, messages: list[ChainMessage]) -> list[Repair]:
        repairs: list[Repair] = []
        items: list[ChainMessage] = []
        size = 0
        for message in messages:
            if items and size + len(message.sealed) > ANSWER_BYTES:
                repairs.append(Repair(self._chain.me, tuple(items)))
                items, size = [], 0
            items.append(message)
            size += len(message.sealed)
        if items:
            repairs.append(Repair(self._chain.me, tuple(items)))
        return repairs[:MAX_REPAIRS]


def may_ask(attempts: int) -> bool:
    """Return whether a version is requested once more: until it comes (history B9)."""
    return attempts >= 0


def holders(chain: ChainMulticast, node: VersionNode) -> list[int]:
    """Return the members that hold a version: an honest member acknowledges only what it has received."""
    return chain.graph.signers(node)


def answered_with(chain: ChainMulticast, node: VersionNode) -> Iterable[VersionNode]:
    """Return what answers a request for a version: itself, and everything unsettled below it."""
    return chain.graph.below(node)
