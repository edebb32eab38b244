"""Check the guarantees of reliable multicast (MR §3) and Lemma 1 in every history.

| invariant    | checked |
|--------------|---------|
| Integrity    | at every delivery: once, and only what its sender has multicast, if it is honest |
| Agreement    | at every delivery: the payload that others have delivered; at the end: everybody has delivered it |
| Validity     | at the end: what an honest member has multicast is delivered by all honest members |
| Source Order | at every delivery: the numbers of a sender rise by one, also across restarts |
| Lemma 1      | after every step: what its signed messages lead to is direct or delivered there, or settled by C-9 |
| One payload  | at every message: they lead to one payload of a message until it is delivered there (for Lemma 3) |
| Honest       | at every message: an honest member signs no two conflicting headers, so nothing can convict it |
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.byzantine.digests import cite, conflict
from levelcast.protocol.effects import ChainDeliver, ChainDirect, Effect, Record, Send
from levelcast.sim.chain.nodes import ChainNode
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.chain_messages import ChainEvidence, ChainHeader, ChainMessage, Citation
from levelcast.wire.messages import Message, Repair

Place = tuple[int, int]


class ChainChecker:
    """Watcher that checks every effect of every member."""

    def __init__(
        self, world: World, honest: Iterable[int], *, domain: int, epoch: int = 1, outside: Iterable[int] = ()
    ) -> None:
        """`outside` are the honest senders outside the group."""
        self._world, self._domain, self._epoch = world, domain, epoch
        self.honest = frozenset(honest)
        self.honest_senders = self.honest | frozenset(outside)
        self.multicast: dict[Place, ChainHeader] = {}
        """Headers of honest members by place, the first version of each."""
        self.delivered: dict[Place, bytes] = {}
        """D(m) of what any honest member has delivered."""
        self.last: dict[tuple[int, int], int] = {}
        """Per (member, sender), the number of the last delivery."""
        self.submitted_at: dict[tuple[int, int, int], int] = {}
        """Empty: a group has no ring, whose packets a sweep measures."""
        self._contents: dict[Place, bytes] = {}
        self._delivered_at: dict[tuple[int, int, int], bytes] = {}
        self.deliveries = 0
        self._headers: dict[Citation, ChainHeader] = {}
        self._refs: dict[bytes, Citation] = {}
        self._reached: dict[int, dict[Citation, None]] = {member: {} for member in self.honest}
        """Per honest member, everything from which a chain of its own exists, if that has a known header."""
        self._payloads: dict[tuple[int, Place], bytes] = {}
        self._unchecked: dict[int, set[Citation]] = {member: set() for member in self.honest}
        """Reached, and not known to be delivered there."""
        self._caught_up: set[int] = set()
        self._was_direct: set[tuple[int, Citation]] = set()
        self._pending: dict[int, set[Citation]] = {member: set() for member in self.honest}
        """Reached, and of an unknown header: nobody has sent it yet."""

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._note_sent(effect.message)
            if node.id in self.honest_senders:
                self._check_own(node, effect.message)
        elif isinstance(effect, Record) and isinstance(effect.entry, ChainDirect):
            self._note_sent(effect.entry.message)  # a restarted member may cite what it has journaled and not sent
            own = effect.entry.message.header.sender == node.id and effect.entry.message.epoch == self._epoch
            if node.id in self.honest_senders and own:
                header = effect.entry.message.header
                self.multicast.setdefault((header.sender, header.seq), header)
                self._contents.setdefault((header.sender, header.seq), effect.entry.message.content)
        elif isinstance(effect, ChainDeliver) and node.id in self.honest and effect.message.epoch == self._epoch:
            self._check_delivery(node.id, effect)

    # -- MR §3 ---------------------------------------------------------------------------------------------

    def _check_delivery(self, member: int, effect: ChainDeliver) -> None:
        sender, seq, _, content = effect.row
        what = f"member {member} delivers message {seq} of {sender}"
        last = self.last.get((member, sender), 0)
        if seq <= last:
            raise InvariantBroken("integrity", f"{what} twice")
        if seq != last + 1:
            raise InvariantBroken("source order", f"{what} after {last}")
        self.last[member, sender] = seq
        if effect.caught_up:
            self._caught_up.add(member)
        self._delivered_at[member, sender, seq] = content
        self.deliveries += 1
        if sender in self.honest_senders:
            sent = self.multicast.get((sender, seq))
            if sent is None or sent.content_digest != content or self._contents[sender, seq] != effect.message.content:
                raise InvariantBroken("integrity", f"{what}, which that member has not multicast")
        if self.delivered.setdefault((sender, seq), content) != content:
            raise InvariantBroken("agreement", f"{what} with another payload than others")

    def target(self) -> dict[int, int]:
        """Return, per sender, the number up to which every honest member must deliver (Validity, Agreement)."""
        found: dict[int, int] = {}
        for sender, seq in (*self.multicast, *self.delivered):
            found[sender] = max(found.get(sender, 0), seq)
        return found

    def lacking(self, target: dict[int, int]) -> list[str]:
        """Return what honest members have not delivered of a target."""
        return [
            f"member {member} lacks messages of {sender} from {self.last.get((member, sender), 0) + 1} to {seq}"
            for member in sorted(self.honest)
            for sender, seq in sorted(target.items())
            if self.last.get((member, sender), 0) < seq
        ]

    # -- Lemma 1 -------------------------------------------------------------------------------------------

    def _ref(self, message: ChainMessage) -> Citation:
        ref = self._refs.get(message.sealed)
        if ref is None:
            ref = self._refs[message.sealed] = cite(message.header, self._domain, message.epoch)
        return ref

    def _note_sent(self, message: Message) -> None:
        for item in message.items if isinstance(message, Repair) else (message,):
            if isinstance(item, ChainMessage) and item.epoch == self._epoch:
                self._headers.setdefault(self._ref(item), item.header)

    def _check_own(self, node: SimNode, message: Message) -> None:
        if isinstance(message, ChainEvidence) and message.first.sender in self.honest_senders:
            raise InvariantBroken("honest", f"member {node.id} has evidence against {message.first.sender}")
        if not isinstance(message, ChainMessage) or message.header.sender != node.id or message.epoch != self._epoch:
            return
        header = message.header
        first = self.multicast.get((node.id, header.seq))
        if first is not None and conflict(first, header):
            raise InvariantBroken("honest", f"member {node.id} signs two versions of message {header.seq}")
        if header.acks:
            self._reach(node.id, header.acks)

    def _reach(self, member: int, refs: Iterable[Citation]) -> None:
        reached, todo = self._reached[member], list(refs)
        while todo:
            ref = todo.pop()
            if ref in reached:
                continue
            header = self._headers.get(ref)
            if header is None:
                self._pending[member].add(ref)
                continue
            reached[ref] = None
            self._pending[member].discard(ref)
            self._unchecked[member].add(ref)
            known = self._payloads.setdefault((member, (ref.sender, ref.seq)), header.content_digest)
            delivered = self._delivered_at.get((member, ref.sender, ref.seq)) or self._stated(member, ref)
            if header.content_digest not in (known, delivered):
                raise InvariantBroken("one payload", f"member {member} acknowledges two of message {ref[:2]}")
            todo += header.acks

    def _stated(self, member: int, ref: Citation) -> bytes | None:
        """Return the payload that others have delivered, if the member has caught up by C-9.

        What f + 1 members state as settled is settled, perhaps before its past is delivered here.
        """
        return self.delivered.get((ref.sender, ref.seq)) if member in self._caught_up else None

    def after_step(self, node: ChainNode) -> None:
        """Check Lemma 1 at one member."""
        machine = node.member_of(self._epoch)
        if machine is None or node.id not in self.honest:
            return
        if self._pending[node.id]:
            self._reach(node.id, list(self._pending[node.id]))
        done = set()
        for ref in self._unchecked[node.id]:
            graph, ledger = machine.chain.graph, machine.chain.ledger
            if ledger.content_digest(ref.sender, ref.seq) == self._headers[ref].content_digest:
                done.add(ref)
                continue
            known = graph.nodes.get(ref)
            if known is not None and known.direct:
                self._was_direct.add((node.id, ref))
            elif self._stated(node.id, ref) == self._headers[ref].content_digest:
                continue
            elif ref.seq <= ledger.count(ref.sender) and (node.id, ref) in self._was_direct:
                done.add(ref)  # another version has been delivered since
            else:
                raise InvariantBroken("lemma 1", f"member {node.id} acknowledges {ref[:2]}, a shadow there")
        self._unchecked[node.id] -= done

    def check_nothing_unseen(self) -> None:
        """Check that no chain of an honest member leads to a message that nobody has ever sent."""
        for member, refs in self._pending.items():
            left = [ref for ref in refs if ref not in self._headers]
            if left:
                raise InvariantBroken("lemma 1", f"member {member} acknowledges {left[0][:2]}, which nobody has sent")
