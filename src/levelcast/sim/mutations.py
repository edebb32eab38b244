"""The ring with one clause taken out: what the simulator must be able to find.

Each mutation replaces the one place that implements a starred clause of DESIGN §3 by what a reader without the clause
would have written. A rule that can be taken out without any history breaking is either superfluous or not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from levelcast.edge.server import feed, plan_switch, retransmit_store
from levelcast.edge.server.packetizer import Outgoing, Packetizer, PacketizerState
from levelcast.edge.subscriber import merge, plan_follower
from levelcast.edge.subscriber.delivery import Effect, Grade
from levelcast.edge.subscriber.latest_only import Hole, LatestOnly
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.protocol import history
from levelcast.ring import (
    acknowledge,
    listener,
    member,
    quorum,
    reformation_server,
    secondary,
    secondary_claims,
    source,
    witness,
)
from levelcast.ring.schedule import Lineage
from levelcast.wire import mold
from levelcast.wire.channel_plan import PlanRecord
from levelcast.wire.messages import GroupToken, Join, MemberLife, Membership, Run, Token

Patch = tuple[Any, str, Callable[..., Any]]


class Mutation(NamedTuple):
    """A clause that is taken out."""

    name: str
    history: str
    """The history of the design notes that shows why the clause is there."""
    rule: str
    without: str
    """How the rule reads without it."""
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Take the clause out, and put it back. Raise AttributeError if a class or module does not itself define the
        patched name: a patch of an inherited or removed name would change nothing."""
        for place, name, _ in self.patches:
            if name not in vars(place):
                raise AttributeError(f"mutation {self.name}: {place.__name__} does not define {name!r}")
        kept = [(place, name, vars(place)[name]) for place, name, _ in self.patches]
        for place, name, replacement in self.patches:
            setattr(place, name, replacement)
        try:
            yield
        finally:
            for place, name, original in kept:
                setattr(place, name, original)


def _nothing(*_: object) -> None:
    """Leaves out what the clause asks for."""


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _entered_generation(self: member.Member) -> int:
    return self.generation


def _valid_if_not_newer(token: Token, lineage: Lineage) -> bool:
    last = lineage.eras[-1]
    return token.generation == last.generation if token.slot >= last.start_slot else token.generation <= last.generation


def _valid_if_before_start(self: listener.Listener, slot: int, lineage: Lineage) -> bool:
    return slot < lineage.eras[-1].start_slot


def _majority_by_name(membership: Membership, present: Collection[MemberLife]) -> bool:
    names = {life.member for life in present}
    return sum(life.member in names for life in membership.members) >= quorum.majority(membership)


def _eligible_by_name(self: reformation_server.ReformationServer, best: Join, joins: list[Join]) -> list[MemberLife]:
    names = {life.member for life in best.current.members}
    return sorted({join.member: MemberLife(join.member, join.life) for join in joins if join.member in names}.values())


def _has_by_name(self: witness.Witness, life: MemberLife, slot: int) -> bool:
    return self._counted.get(life.member, -1) >= slot


def _member_by_name(self: member.Member, ring: Any) -> bool:
    return self.member in {life.member for life in ring.members}


def _groups_have(self: member.Member) -> int:
    return min([self.have, *(token.have for token in self.claims._said.values())])


def _released_slot(self: member.Member) -> int:
    return self.released


_source_on_token = source.Source._on_token


def _drop_by_have(self: Any, token: Token, now: int) -> None:
    """Forget a packet once a majority of members report a `have` at or above the slot that named it."""
    acknowledged = self.__dict__.setdefault("acknowledged_at", {})
    haves = self.__dict__.setdefault("haves", {})
    _source_on_token(self, token, now)
    for run in token.runs:
        if (run.source, run.incarnation) == (self.source, self.incarnation):
            for number in range(run.first, run.last + 1):
                acknowledged.setdefault(number, token.slot)
    haves[token.owner] = token.have
    needed = quorum.majority(self.config.membership)
    number = self.witnessed
    while number + 1 in acknowledged:
        if sum(have >= acknowledged[number + 1] for have in haves.values()) < needed:
            break
        number += 1
    if number > self.witnessed:
        self._forget(number)


_listener_on_token = listener.Listener._on_token


def _resolve_incarnation_here(self: Any, token: Token, now: int) -> None:
    """A run without an incarnation means whatever incarnation the receiver holds."""

    def resolved(run: Run) -> Run:
        held = [incarnation for source, incarnation in self._held.packets if source == run.source]
        return run._replace(incarnation=max(held)) if held and token.owner != self.member else run

    _listener_on_token(self, token._replace(runs=tuple(resolved(run) for run in token.runs)), now)


def _own_have(self: secondary_claims.SecondaryClaims, have: int, *_: object) -> int:
    return have


_on_group_token = listener.Listener._on_group_token


def _count_secondary(self: Any, token: GroupToken, now: int) -> None:
    """What a secondary has counts like what a member has."""
    _on_group_token(self, token, now)
    if self._witness is not None and token.generation == self.generation:
        counted = self._witness._counted
        counted[token.sender] = max(counted.get(token.sender, -1), token.have)


def _witnessed_by_receivers(self: witness.Witness, slot: int, records: Any) -> bool:
    return sum(have >= slot for have in self._counted.values()) >= quorum.majority(records[-1].membership)


_suspect = secondary.Secondary._suspect


def _suspect_peers(self: secondary.Secondary, node: int, now: int) -> None:
    """A primary is for ever: only those of the group are suspected."""
    if node != self.primary:
        _suspect(self, node, now)


_claim = secondary_claims.SecondaryClaims._claim


def _claim_in_any_ring(
    self: secondary_claims.SecondaryClaims, token: GroupToken, schedule: Any, now: int
) -> int | None:
    return _claim(self, token._replace(generation=schedule.generation), schedule, now)


def _turns_above_groups(self: secondary_claims.SecondaryClaims, token: GroupToken) -> None:
    """The higher turn is the later one, in whatever group."""
    known = self._said.get(token.sender)
    if known is None or known.turn < token.turn:
        self._said[token.sender] = token


def _own_group_only(self: secondary.Secondary, now: int) -> int:
    return self.history.have


# -- rule 15 ----------------------------------------------------------------------------------------------


_watermarks = Packetizer._watermarks


def _one_watermark_more(self: Packetizer, complete_ns: int, now: int) -> list[Outgoing]:
    """Promises up to the next point of the grid."""
    return _watermarks(self, complete_ns + self.config.watermark_ns, now)


def _no_watermark(self: Packetizer, complete_ns: int, now: int) -> list[Outgoing]:
    """Watermarks come with frames only."""
    return []


_in_order = merge.Merger._in_order


def _order_by_sequence(self: merge.Merger, chunks: list[Any], stripes: list[int]) -> list[merge.Merged]:
    return _in_order(self, [chunk._replace(times=chunk.times * 0) for chunk in chunks], stripes)


_cut = merge._Lane.cut


def _cut_everything(self: merge._Lane, upto_ns: int) -> Iterator[Any]:
    return _cut(self, merge._FOREVER)


# -- what each grade promises, and the edge ---------------------------------------------------------------


_ask = SessionReader._ask


def _ask_or_give_up(self: Any, inbox: Any, now: int, effects: list[Effect]) -> None:
    """Even for a guaranteed customer a hole is given up, if it was asked for often enough."""
    hole = next(inbox.missing(), None)
    if hole is not None and inbox.attempts >= self.config.attempts:
        self._lose(inbox, hole[1])
        self._settle(inbox, True, now)
    else:
        _ask(self, inbox, now, effects)


_packet = SessionReader._packet


def _deliver_late_ones(self: Any, inbox: Any, packet: mold.EdgePacket, number: int, now: int, *, checked: bool) -> None:
    """What was given up and comes after all is delivered."""
    end = packet.sequence + packet.records
    lost = any(first < end and packet.sequence < stop for first, stop in inbox.lost)
    _packet(self, inbox, packet, number, now, checked=checked)
    if self.config.grade is Grade.BEST_EFFORT and lost and end <= inbox.next:
        inbox.ready.append(packet)


def _deliver_both_copies(
    self: Any, inbox: Any, packet: mold.EdgePacket, number: int, now: int, *, checked: bool
) -> None:
    """What comes from the other line is delivered too."""
    known = inbox.next is not None and packet.sequence + packet.records <= inbox.next
    _packet(self, inbox, packet, number, now, checked=checked)
    if known:
        inbox.ready.append(packet)


def _everything_is_fresh(self: LatestOnly, piece: mold.EdgePacket) -> list[mold.EdgePacket]:
    return [piece]


def _every_hole_is_covered(self: LatestOnly, hole: Hole) -> bool:
    return True


def _count_anew(numbers: dict[bytes, int], *rest: int) -> PacketizerState:
    return PacketizerState({}, *rest)


_some_blocks = retransmit_store._some_blocks


def _first_blocks(blocks: memoryview, first: int, last: int) -> memoryview:
    return _some_blocks(blocks, 0, last - first)


_Era = plan_follower._Era


def _begin_anywhere(
    number: int, digest: bytes = b"", complete_ns: int = 0, begins: int | None = None
) -> plan_follower._Era:
    """The sessions of a plan are read from the first packet that comes."""
    return _Era(number, digest, complete_ns, None)


_take = plan_switch.Plans.take


def _swap_at_once(self: plan_switch.Plans, record: PlanRecord) -> plan_switch.Happened | None:
    """A plan takes effect when it is complete."""
    happened = _take(self, record)
    if isinstance(happened, plan_switch.Ready):
        self.current, self.ready = happened.plan, None
        return plan_switch.Swapped(happened.plan)
    return happened


MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        Mutation(
            "join-before-caught-up", "F1", "12", "a JOIN names the generation that was entered",
            ((member.Member, "_caught_up_generation", _entered_generation),),
        ),
        Mutation(
            "claims-before-caught-up", "F1b", "8", "a member's have counts at once",
            ((witness, "claim_counts", _always),),
        ),
        Mutation(
            "no-lineage", "F2", "12", "a token is valid below the start slot whatever its generation",
            (
                (listener, "token_is_valid", _valid_if_not_newer),
                (listener.Listener, "_slot_is_valid", _valid_if_before_start),
            ),
        ),
        Mutation(
            "promise-not-journaled", "F3", "12", "a JOIN is answered before the promise is on disk",
            ((member.Member, "_journal_promise", _nothing),),
        ),
        Mutation(
            "ring-not-journaled", "F3b", "12", "a RING is acted on before it is on disk",
            ((listener.Listener, "_journal_ring", _nothing),),
        ),
        Mutation(
            "own-token-not-journaled", "F4", "2", "a token is sent before it is on disk",
            ((member.Member, "_journal_own_token", _nothing),),
        ),
        Mutation(
            "generation-reused", "F5", "12", "a server's generation number is kept in memory only",
            ((reformation_server.ReformationServer, "_journal_counter", _nothing),),
        ),
        Mutation(
            "new-life-counts", "F6", "12", "a member that lost its disk counts under its name",
            (
                (quorum, "has_majority", _majority_by_name),
                (reformation_server.ReformationServer, "_eligible", _eligible_by_name),
                (witness.Witness, "_has", _has_by_name),
            ),
        ),
        Mutation(
            "ring-without-lives", "F6b", "12", "a RING names members without their lives",
            ((member.Member, "_is_member_of", _member_by_name),),
        ),
        Mutation(
            "join-carries-group-have", "F7", "11", "a JOIN carries the lowest have of the group",
            ((member.Member, "_own_have", _groups_have),),
        ),
        Mutation(
            "later-tokens-known", "F8", "2", "every token held tells what is acknowledged",
            ((acknowledge, "counts_as_known", _always),),
        ),
        Mutation(
            "drop-without-mark", "F9", "10", "a source drops what enough members' have covers",
            ((source.Source, "_on_token", _drop_by_have),),
        ),
        Mutation(
            "run-without-incarnation", "F10", "2", "a run names a source without its incarnation",
            ((listener.Listener, "_on_token", _resolve_incarnation_here),),
        ),
        Mutation(
            "old-incarnation-ordered", "F11", "3", "runs of lower incarnations are ordered too",
            ((history, "skips_lower_incarnation", _never),),
        ),
        Mutation(
            "new-majority-forms", "F12", "12", "a majority of the new set forms a ring while the change is in doubt",
            ((quorum, "in_doubt", _never), (reformation_server, "in_doubt", _never)),
        ),
        Mutation(
            "new-majority-witnesses", "F12b", "12", "a majority of the new set witnesses the change itself",
            ((quorum, "old_set_agrees", _always),),
        ),
        Mutation(
            "ring-hides-standing", "F13", "12", "a RING does not say that its set is known to be witnessed",
            ((reformation_server.ReformationServer, "_set_stands", _never),),
        ),
        Mutation(
            "lineage-cut-at-release", "F15", "12",
            "a lineage goes back only to what its members have released, and nothing stands for the rest",
            ((member.Member, "_settled_slot", _released_slot), (listener.Listener, "_settle_below", _nothing)),
        ),
        Mutation(
            "ring-without-checkpoint", "F16", "12", "a RING is journaled whatever its lineage has left out",
            ((listener.Listener, "_settle_below", _nothing),),
        ),
        Mutation(
            "frames-across-generations", "F14", "9", "frames are served to members of older generations too",
            ((listener.Listener, "_may_have_frames", _always),),
        ),
        Mutation(
            "claims-own-have", "S1", "11", "a primary claims its own have, whatever its secondaries have",
            ((secondary_claims.SecondaryClaims, "lowest", _own_have),),
        ),
        Mutation(
            "secondary-asks-the-site", "S2", "11", "a secondary asks whom a primary would ask",
            ((secondary.Secondary, "_holder_of", member.Member._holder_of),),
        ),
        Mutation(
            "secondary-is-a-witness", "S3", "11", "a secondary's have counts towards the witness",
            (
                (listener.Listener, "_on_group_token", _count_secondary),
                (witness.Witness, "_is_witnessed", _witnessed_by_receivers),
            ),
        ),
        Mutation(
            "orphan-keeps-primary", "S4", "11", "a secondary keeps its primary when that has died",
            ((secondary.Secondary, "_suspect", _suspect_peers),),
        ),
        Mutation(
            "secondary-holds-for-ever", "S5", "11", "a silent secondary stays in the minimum",
            ((secondary_claims, "holds", _always),),
        ),
        Mutation(
            "have-of-any-ring", "S6", "11", "a secondary's have counts whatever ring it follows",
            ((secondary_claims.SecondaryClaims, "_claim", _claim_in_any_ring),),
        ),
        Mutation(
            "group-says-own-have", "S7", "11", "a secondary that has a group says what it has itself",
            ((secondary.Secondary, "_lowest_have", _own_group_only),),
        ),
        Mutation(
            "turns-above-groups", "S8", "11", "turns are compared whatever group they are of",
            ((secondary_claims.SecondaryClaims, "hear", _turns_above_groups),),
        ),
        Mutation(
            "watermark-too-early", "W1", "15", "a watermark promises an interval more than is complete",
            ((Packetizer, "advance", _one_watermark_more),),
        ),
        Mutation(
            "watermark-left-out", "W2", "15", "a session that is silent gets no watermark",
            ((Packetizer, "advance", _no_watermark),),
        ),
        Mutation(
            "merge-by-sequence", "W3", "15", "stripes are merged by sequence, not by timestamp",
            ((merge.Merger, "_in_order", _order_by_sequence),),
        ),
        Mutation(
            "merge-waits-for-nobody", "W4", "15", "a record is handed on before every session is complete up to it",
            ((merge._Lane, "cut", _cut_everything),),
        ),
        Mutation(
            "guaranteed-gives-up", "G1", "grades", "a guaranteed customer gives up a hole after k requests",
            ((SessionReader, "_ask", _ask_or_give_up),),
        ),
        Mutation(
            "best-effort-goes-back", "G2", "grades", "what best effort gave up is delivered when it comes after all",
            ((SessionReader, "_packet", _deliver_late_ones),),
        ),
        Mutation(
            "loss-untold", "G3", "grades", "best effort goes on behind a hole without a word",
            ((SessionReader, "_tell_lost", _nothing),),
        ),
        Mutation(
            "delivered-twice", "G4", "grades", "each line's copy of a packet is delivered",
            ((SessionReader, "_packet", _deliver_both_copies),),
        ),
        Mutation(
            "older-price-delivered", "G5", "grades", "latest only delivers whatever was in a hole",
            ((LatestOnly, "_fresh", _everything_is_fresh),),
        ),
        Mutation(
            "latest-price-not-asked", "G6", "grades", "latest only asks for no hole",
            ((LatestOnly, "is_covered", _every_hole_is_covered),),
        ),
        Mutation(
            "edge-counts-anew", "E1", "15", "a restarted edge numbers its sessions from 1",
            ((feed, "PacketizerState", _count_anew),),
        ),
        Mutation(
            "answers-other-records", "E2", "15", "an answer that begins within a packet has the packet's first records",
            ((retransmit_store, "_some_blocks", _first_blocks),),
        ),
        Mutation(
            "plan-without-swap", "P1", "15", "a plan takes effect when its last part has come",
            ((plan_switch.Plans, "take", _swap_at_once),),
        ),
        Mutation(
            "plan-from-anywhere", "P2", "15", "a new plan's sessions are read from the first packet that comes",
            ((plan_follower, "_Era", _begin_anywhere),),
        ),
    )
}  # fmt: skip
