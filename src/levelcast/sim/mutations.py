"""Mutations: remove one clause from the rules, so that the simulator must find a failing history.

Each mutation replaces the code that implements a starred clause of DESIGN §3 by an implementation of the rule without
that clause. If no history fails without a clause, the clause is either superfluous or not tested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from levelcast.edge.server import feed, plan_switch, retransmit_store
from levelcast.edge.server.packetizer import Packetizer, PacketizerState
from levelcast.edge.subscriber import merge, plan_follower, together
from levelcast.edge.subscriber.delivery import Effect, Grade
from levelcast.edge.subscriber.latest_only import LatestOnly
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.native.layout import DATA_BODY
from levelcast.overlay import clock_check, duplicates, fanout
from levelcast.overlay.wide import clauses as wide
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol import clock, copy_budget, history, pace, parities, seals
from levelcast.protocol.config import StripeConfig
from levelcast.ring import (
    acknowledge,
    beat_witness,
    line_server,
    listener,
    member,
    quorum,
    reformation_server,
    secondary_claims,
    witness,
)
from levelcast.ring.group_server import GroupServer
from levelcast.ring.line_duty import LineDuty
from levelcast.ring.line_server import LineServer
from levelcast.ring.schedule import Lineage
from levelcast.ring.secondary import Secondary
from levelcast.ring.source import Source
from levelcast.wire import codec, mold
from levelcast.wire.channel_plan import PlanRecord
from levelcast.wire.header import HEADER_SIZE, sender_of
from levelcast.wire.messages import Data, GroupToken, Join, MemberLife, Membership, PaceChange, Run, Token

Patch = tuple[Any, str, Any]


class Mutation(NamedTuple):
    """Removal of one clause."""

    name: str
    history: str
    """Number of the history in the design notes that shows why the clause is necessary."""
    rule: str
    without: str
    """The rule without the clause."""
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Remove the clause, and restore it on exit. Raise AttributeError if a class or module does not itself define
        the patched name: a patch of an inherited or removed name would change nothing."""
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


# The originals, for replacements that call them.
_source_on_token = Source._on_token
_listener_on_token = listener.Listener._on_token
_on_group_token = listener.Listener._on_group_token
_suspect = Secondary._suspect
_claim = secondary_claims.SecondaryClaims._claim
_cutoffs_at = listener.Listener._cutoffs_at
_say = beat_witness.OwnBeats.say
_watermarks = Packetizer._watermarks
_in_order = merge.Merger._in_order
_cut = merge._Lane.cut
_ask = SessionReader._ask
_packet = SessionReader._packet
_some_blocks = retransmit_store._some_blocks
_Era = plan_follower._Era
_take = plan_switch.Plans.take
_assigned = line_server.assigned
_patience_ns = StripeConfig.patience_ns


def _nothing(*_: object) -> None:
    """Omit the action that the clause requires."""


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _valid_if_not_newer(token: Token, lineage: Lineage) -> bool:
    last = lineage.eras[-1]
    return token.generation == last.generation if token.slot >= last.start_slot else token.generation <= last.generation


def _majority_by_name(membership: Membership, present: Collection[MemberLife]) -> bool:
    names = {life.member for life in present}
    return sum(life.member in names for life in membership.members) >= quorum.majority(membership)


def _eligible_by_name(self: reformation_server.ReformationServer, best: Join, joins: list[Join]) -> list[MemberLife]:
    names = {life.member for life in best.current.members}
    return sorted({join.member: MemberLife(join.member, join.life) for join in joins if join.member in names}.values())


def _may_form_of_those_who_stay(self: reformation_server.ReformationServer, best: Join, joins: list[Join]) -> bool:
    staying = tuple(life for life in best.current.members if life not in self._leaving)
    return bool(staying) and quorum.may_form(best._replace(current=best.current._replace(members=staying)), joins)


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


def _resolve_incarnation_here(self: Any, token: Token, now: int) -> None:
    """Read a run without an incarnation as one of the incarnation that the receiver holds."""

    def resolved(run: Run) -> Run:
        held = [incarnation for source, incarnation in self._held.packets if source == run.source]
        return run._replace(incarnation=max(held)) if held and token.owner != self.member else run

    _listener_on_token(self, token._replace(runs=tuple(resolved(run) for run in token.runs)), now)


def _count_secondary(self: Any, token: GroupToken, now: int) -> None:
    """Count the `have` of a secondary like that of a member."""
    _on_group_token(self, token, now)
    if token.generation != self.generation:
        return
    if isinstance(self._witness, beat_witness.BeatWitness):
        log = self._witness._logs.setdefault(token.sender, beat_witness.ClaimLog())
        log.have = max(log.have, token.have)
    elif self._witness is not None:
        counted = self._witness._counted
        counted[token.sender] = max(counted.get(token.sender, -1), token.have)


def _other_cutoffs(self: Any, timestamp_ns: int, of_ring: Mapping[int, int]) -> Mapping[int, int]:
    """Release later than the others at one member."""
    longer_ns = 10_000_000 if self.member == min(of_ring) else 0
    return {member: ns + longer_ns for member, ns in _cutoffs_at(self, timestamp_ns, of_ring).items()}


def _changes_unless_first(self: listener.Listener) -> Sequence[PaceChange]:
    """Ignore timing records at one member."""
    return () if self.member == min(self.ring_members, default=0) else self.history.tip.paces


def _suspect_peers(self: Secondary, node: int, now: int) -> None:
    """Suspect only members of the group, never the primary."""
    if node != self.primary:
        _suspect(self, node, now)


def _last_arrival_counts(self: secondary_claims.SecondaryClaims, token: GroupToken) -> None:
    """Store the report that arrives last, even if it was sent earlier."""
    self._said[token.sender] = token


def _assigned_to_all_primaries(config: StripeConfig, operable: Collection[int]) -> tuple[tuple[int, str], ...]:
    return _assigned(config, {*operable, *(life.member for life in config.membership.members)})


# -- clocks -----------------------------------------------------------------------------------------------


def _mean_offset(offsets: Iterable[int], *, optimistic: bool) -> int:
    known = list(offsets)
    return sum(known) // len(known)


def _refuses_smeared(self: clock.LeapSecond, now: int) -> bool:
    """Stop before a leap second whatever the network file says."""
    return self.at_ns is not None and now >= self.at_ns - clock.LEAP_MARGIN_NS


# -- grades of subscribers, and the edge ------------------------------------------------------------------


def _ask_or_give_up(self: Any, inbox: Any, now: int, effects: list[Effect]) -> None:
    """Give up a gap after enough requests, even for a guaranteed subscriber."""
    hole = next(inbox.missing(), None)
    if hole is not None and inbox.attempts >= self.config.attempts:
        self._lose(inbox, hole[1])
        self._settle(inbox, True, now)
    else:
        _ask(self, inbox, now, effects)


def _deliver_late_ones(self: Any, inbox: Any, packet: mold.EdgePacket, number: int, now: int, *, checked: bool) -> None:
    """Deliver a packet that arrives after its gap was given up."""
    end = packet.sequence + packet.records
    lost = any(first < end and packet.sequence < stop for first, stop in inbox.lost)
    _packet(self, inbox, packet, number, now, checked=checked)
    if self.config.grade is Grade.BEST_EFFORT and lost and end <= inbox.next:
        inbox.ready.append(packet)


def _deliver_twice(self: Any, inbox: Any, packet: mold.EdgePacket, number: int, now: int, *, checked: bool) -> None:
    """Deliver the copy of the other line too."""
    known = inbox.next is not None and packet.sequence + packet.records <= inbox.next
    _packet(self, inbox, packet, number, now, checked=checked)
    if known:
        inbox.ready.append(packet)


def _swap_at_once(self: plan_switch.Plans, record: PlanRecord) -> plan_switch.Happened | None:
    """Activate a plan as soon as it is complete."""
    happened = _take(self, record)
    if isinstance(happened, plan_switch.Ready):
        self.current, self.ready = happened.plan, None
        return plan_switch.Swapped(happened.plan)
    return happened


def _clause(name: str, history: str, rule: str, without: str, *patches: Patch) -> Mutation:
    return Mutation(name, history, rule, without, patches)


_open_rebuilt = parities.Parities._open


def _open_unsealed(self: seals.CrcSeals, datagram: bytes) -> Data:
    """Return the packet that a datagram names, without a look at its seal."""
    incarnation, number, _ = DATA_BODY.unpack_from(datagram, HEADER_SIZE)
    return Data(sender_of(datagram) or 0, incarnation, number, number, datagram)


MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        _clause("join-before-caught-up", "F1", "12", "a JOIN contains the generation that was entered",
                (member.Member, "_caught_up_generation", lambda self: self.generation)),
        _clause("claims-before-caught-up", "F1b", "8", "a member's have counts immediately",
                (witness, "claim_counts", _always), (beat_witness, "claim_counts", _always)),
        _clause("beat-of-any-ring", "B1", "8", "a beat of another generation counts",
                (listener, "beat_is_valid", lambda beat, schedule: beat.sender in schedule.lives)),
        _clause("beat-after-promise", "B2", "8", "a member continues to claim after its promise",
                (member.Member, "_may_claim", lambda self: self._learns)),
        _clause("beat-claims-too-much", "B3", "8", "a beat claims slots that are not held yet",
                (beat_witness.OwnBeats, "say", lambda self, tick, have: _say(self, tick, have + 3))),
        _clause("late-release-unheard", "B4", "7", "a late slot is released when its claims are sent, not heard",
                (beat_witness.BeatWitness, "_hear_ns", lambda self, slot: dict.fromkeys(self._logs, 0))),
        _clause("cutoff-differs", "B5", "7", "one receiver uses other cut-offs than the ring",
                (listener.Listener, "_cutoffs_at", _other_cutoffs)),
        _clause("timing-record-at-once", "T3", "W9", "a timing record applies before it is released",
                (pace, "is_known_before", _always)),
        _clause("hold-falls-at-once", "T4", "W9", "a shorter hold time applies at once",
                (pace, "fallen_ns", lambda _: 10**18)),
        _clause("timing-record-of-any-version", "T5", "W9", "a timing record counts whatever it follows",
                (pace, "follows", lambda _, change, at_ns: change.from_ns > at_ns + change.before_ns)),
        _clause("timing-record-at-one-member", "T6", "W9", "a member ignores timing records",
                (listener.Listener, "_changes", property(_changes_unless_first))),
        _clause("no-lineage", "F2", "12", "a token below the start slot is valid in any generation",
                (listener, "token_is_valid", _valid_if_not_newer),
                (listener.Listener, "_slot_is_valid", lambda self, slot, lineage: slot < lineage.eras[-1].start_slot)),
        _clause("promise-not-journaled", "F3", "12", "a JOIN is answered before the promise is on disk",
                (member.Member, "_journal_promise", _nothing)),
        _clause("ring-not-journaled", "F3b", "12", "a RING is acted on before it is on disk",
                (listener.Listener, "_journal_ring", _nothing)),
        _clause("own-token-not-journaled", "F4", "2", "a token is sent before it is on disk",
                (member.Member, "_journal_own_token", _nothing)),
        _clause("generation-reused", "F5", "12", "a server's generation number is kept in memory only",
                (reformation_server.ReformationServer, "_journal_counter", _nothing)),
        _clause("new-life-counts", "F6", "12", "a member that lost its disk counts under its name",
                (quorum, "has_majority", _majority_by_name),
                (reformation_server.ReformationServer, "_eligible", _eligible_by_name),
                (witness.Count, "_counts", lambda self, life, claimed: life.member in claimed)),
        _clause("ring-without-lives", "F6b", "12", "a RING lists members without their lives",
                (member.Member, "_is_member_of", lambda self, ring:
                 self.member in {life.member for life in ring.members})),
        _clause("join-carries-group-have", "F7", "11", "a JOIN carries the lowest have of the group",
                (member.Member, "_own_have", lambda self:
                 min([self.have, *(token.have for token in self.claims._said.values())]))),
        _clause("later-tokens-known", "F8", "2", "every held token counts for what is acknowledged",
                (acknowledge, "counts_as_known", _always)),
        _clause("drop-without-mark", "F9", "10", "a source drops what enough members' have covers",
                (Source, "_on_token", _drop_by_have)),
        _clause("run-without-incarnation", "F10", "2", "a run contains a source without its incarnation",
                (listener.Listener, "_on_token", _resolve_incarnation_here)),
        _clause("old-incarnation-ordered", "F11", "3", "runs of lower incarnations are ordered too",
                (history, "skips_lower_incarnation", _never)),
        _clause("new-majority-forms", "F12", "12",
                "a majority of the new set forms a ring while the change is in doubt",
                (quorum, "in_doubt", _never), (reformation_server, "in_doubt", _never)),
        _clause("new-majority-witnesses", "F12b", "12", "a majority of the new set witnesses the change itself",
                (quorum, "old_set_agrees", _always)),
        _clause("ring-hides-standing", "F13", "12", "a RING does not state that its set is known to be witnessed",
                (reformation_server.ReformationServer, "_set_stands", _never)),
        _clause("lineage-cut-at-release", "F15", "12",
                "a lineage starts at what its members have released, and nothing represents the slots before",
                (member.Member, "_settled_slot", lambda self: self.released),
                (listener.Listener, "_settle_below", _nothing)),
        _clause("ring-without-checkpoint", "F16", "12", "a RING is journaled regardless of what its lineage omits",
                (listener.Listener, "_settle_below", _nothing)),
        _clause("frames-across-generations", "F14", "9", "frames are served to members of older generations too",
                (listener.Listener, "_may_have_frames", _always)),
        _clause("leaver-not-counted", "L1", "12",
                "members that leave do not count in the set of which a majority must join",
                (reformation_server, "has_majority", _always),
                (reformation_server.ReformationServer, "_may_form", _may_form_of_those_who_stay)),
        _clause("other-network-accepted", "N1", "identity", "a datagram of another network is accepted",
                (codec, "wrong_domain", _nothing)),
        _clause("claims-own-have", "S1", "11", "a primary claims its own have, not the lowest of its group",
                (secondary_claims.SecondaryClaims, "lowest", lambda self, have, *_: have)),
        _clause("secondary-asks-the-site", "S2", "11", "a secondary sends requests to members, as a primary does",
                (Secondary, "_holders_of", member.Member._holders_of)),
        _clause("secondary-is-a-witness", "S3", "11", "a secondary's have counts towards the witness",
                (listener.Listener, "_on_group_token", _count_secondary),
                (beat_witness.BeatWitness, "_due", lambda *_: witness.AT_ONCE),
                (witness.Count, "is_complete", lambda self, slot, records, witnessed, claimed:
                 len(claimed) >= quorum.majority(records[-1].membership))),
        _clause("orphan-keeps-primary", "S4", "11", "a secondary keeps its primary after the primary has failed",
                (Secondary, "_suspect", _suspect_peers)),
        _clause("secondary-holds-for-ever", "S5", "11", "a secondary that sends nothing stays in the minimum",
                (secondary_claims, "holds", _always)),
        _clause("have-of-any-ring", "S6", "11", "a secondary's have counts in any ring",
                (secondary_claims.SecondaryClaims, "_claim", lambda self, token, schedule, now:
                 _claim(self, token._replace(generation=schedule.generation), schedule, now))),
        _clause("group-says-own-have", "S7", "11", "a secondary with a group reports its own have",
                (Secondary, "_lowest_have", lambda self, now: self.history.have)),
        _clause("overtaken-report-counts", "S8", "11", "a secondary's report that was overtaken counts",
                (secondary_claims.SecondaryClaims, "hear", _last_arrival_counts)),
        _clause("secondary-makes-late", "S9", "11", "a secondary may delay a claim until the slot is late",
                (StripeConfig, "patience_ns", lambda self, node, pace: _patience_ns(self, node, None))),
        _clause("group-of-one-unwatched", "H1", "lines", "a primary does not report a secondary that has stopped",
                (GroupServer, "_on_report", _nothing)),
        _clause("lines-with-rings-only", "H2", "lines", "lines are assigned with a ring only, not with a group",
                (LineServer, "_announce", _nothing)),
        _clause("failed-primary-keeps-line", "H3", "lines", "a primary that is not in the ring keeps its line",
                (line_server, "assigned", _assigned_to_all_primaries),
                (reformation_server, "assigned", _assigned_to_all_primaries)),
        _clause("failed-secondary-keeps-line", "H4", "lines", "a secondary that is in no group keeps its line",
                (GroupServer, "secondaries", property(lambda self: frozenset(self.config.homes)))),
        _clause("former-holder-continues", "H5", "lines", "a receiver that has lost a line continues to send to it",
                (LineDuty, "_stop_ns", lambda self, now: now + 10**15)),
        _clause("former-holder-stops-at-once", "H6", "lines",
                "a receiver stops with a line before the new one may have the assignment",
                (LineDuty, "_stop_ns", lambda self, now: now)),
        _clause("leaver-keeps-no-line", "H7", "lines",
                "a planned stop does not wait until another receiver has the line",
                (member.Member, "has_left", property(lambda self: self._leaving and self._reports.outside)),
                (Secondary, "has_left", property(lambda self: self._leaving and self.group is None))),
        _clause("older-assignment-counts", "H8", "lines", "the assignment that arrives last counts",
                (LineDuty, "_is_newer", _always)),
        _clause("orphans-unwatched", "H9", "lines", "the group of a failed primary is formed only on request",
                (GroupServer, "_request_orphans", _nothing)),
        _clause("own-lines-corrected-late", "H10", "lines",
                "a server that has missed a group corrects its assignment after the back-off only",
                (LineServer, "_check_after_change_ns", lambda self, now:
                 now + (1 + self._rank) * self.timing.backoff_ns)),
        _clause("bound-does-not-grow", "C1", "C1", "the bound of a time source stays as it was read",
                (clock, "_grown", lambda bound_ns, age_ns: bound_ns)),
        _clause("bound-ignored", "C2a", "C2", "a receiver continues whatever its error bound is",
                (clock_check, "bound_is_exceeded", _never)),
        _clause("offset-ignored", "C2b", "C2", "a receiver continues however far it is from the median member",
                (clock_check, "offset_lasts_ns", lambda: 10**18)),
        _clause("offset-at-once", "C2c", "C2", "an offset is an alarm at once",
                (clock_check, "offset_lasts_ns", lambda: 0)),
        _clause("minority-judges", "C2d", "C2", "an offset from less than a majority is an alarm",
                (clock_check, "majority_heard", _always)),
        _clause("mean-offset", "C2e", "C2", "the mean offset counts, not the median",
                (clock_check, "median_offset", _mean_offset)),
        _clause("apart-ignored", "C2f", "C2", "a clock that no majority can agree with waits for the median",
                (clock_check, "cannot_agree", _never)),
        _clause("start-unchecked", "C2g", "C2", "a receiver sends before it has asked the others",
                (clock_check, "skips_start_check", _always)),
        _clause("leap-ignored", "C4a", "C4", "a receiver runs through a leap second",
                (clock.LeapSecond, "refuses", _never)),
        _clause("smear-ignored", "C4b", "C4", "a receiver stops before a leap second that is smeared",
                (clock.LeapSecond, "refuses", _refuses_smeared)),
        _clause("copies-dropped-for-good", "O4", "O4", "a packet that arrived once is never accepted again",
                (duplicates.RecentMessages, "_turn", _nothing)),
        _clause("guests-unanswered", "O1", "O1", "an operator outside of the file's nodes gets no tokens",
                (fanout.Fanout, "_to_guests", lambda *_: [])),
        _clause("rebuilt-unsealed", "R1", "W11", "a packet that a parity gives is held without its author's seal",
                (seals.CrcSeals, "open_packet", _open_unsealed)),
        _clause("rebuilt-other-packet", "R2", "W11", "a parity gives any packet, of any incarnation",
                (parities, "is_missing_packet", _always)),
        _clause("rebuilt-records-unchecked", "R3", "W11", "the records of a rebuilt packet are not checked",
                (parities.Parities, "_open", lambda self, parity, number, others, refuses:
                 _open_rebuilt(self, parity, number, others, _never))),
        _clause("copies-beyond-factor", "R4", "W11", "copies are sent whatever the load is",
                (copy_budget.CopyBudget, "left", property(lambda self: 10**18))),
        _clause("watermark-too-early", "W1", "15", "a watermark is one interval ahead of what is complete",
                (Packetizer, "advance", lambda self, complete_ns, now:
                 _watermarks(self, complete_ns + self.config.watermark_ns, now))),
        _clause("watermark-left-out", "W2", "15", "an idle session gets no watermark",
                (Packetizer, "advance", lambda *_: [])),
        _clause("merge-by-sequence", "W3", "15", "stripes are merged by sequence, not by timestamp",
                (merge.Merger, "_in_order", lambda self, chunks, stripes:
                 _in_order(self, [chunk._replace(times=chunk.times * 0) for chunk in chunks], stripes))),
        _clause("merge-waits-for-nobody", "W4", "15", "a record is delivered before every session is complete up to it",
                (merge._Lane, "cut", lambda self, upto_ns: _cut(self, merge._FOREVER))),
        _clause("guaranteed-gives-up", "G1", "grades", "a guaranteed subscriber gives up a gap after k requests",
                (SessionReader, "_ask", _ask_or_give_up)),
        _clause("best-effort-goes-back", "G2", "grades",
                "best effort delivers a packet that arrives after its gap was given up",
                (SessionReader, "_packet", _deliver_late_ones)),
        _clause("loss-untold", "G3", "grades", "best effort continues after a gap without reporting it",
                (SessionReader, "_tell_lost", _nothing)),
        _clause("delivered-twice", "G4", "grades", "each line's copy of a packet is delivered",
                (SessionReader, "_packet", _deliver_twice)),
        _clause("older-price-delivered", "G5", "grades", "latest only delivers every record of a filled gap",
                (LatestOnly, "_fresh", lambda self, piece: [piece])),
        _clause("latest-price-not-asked", "G6", "grades", "latest only requests no gap",
                (LatestOnly, "is_covered", _always)),
        _clause("bound-left-out", "T1", "15", "a subscriber delivers at the release time, without the bound",
                (together, "due_ns", lambda release_ns, bound_ns, now: release_ns)),
        _clause("hold-time-untold", "T2", "15", "timing records do not reach subscribers",
                (feed.Feed, "_change_pace", lambda *_: [])),
        _clause("edge-counts-anew", "E1", "15", "a restarted edge numbers its sessions from 1",
                (feed, "PacketizerState", lambda numbers, *rest: PacketizerState({}, *rest))),
        _clause("answers-other-records", "E2", "15",
                "a reply that begins within a packet has the packet's first records",
                (retransmit_store, "_some_blocks", lambda blocks, first, last: _some_blocks(blocks, 0, last - first))),
        _clause("dropped-by-majority", "TT1", "TT §5", "a message is dropped when most destinations have it",
                (wide, "is_received_by_all", lambda entry: 2 * len(entry.known) > len(entry.plan.destinations))),
        _clause("subgroup-stated-early", "TT2", "TT §5", "a coordinator states its own receipt for its subgroup",
                (wide, "group_is_complete", _always)),
        _clause("predecessors-ignored", "TT3", "TT §4.1", "a message is delivered on receipt",
                (GroupProcess, "_is_satisfied", _always)),
        _clause("constraints-not-carried", "TT4", "TT §4.1", "a message names only predecessors of its own process",
                (wide, "carried", lambda _: frozenset())),
        _clause("no-repair", "TT5", "TT §4.2", "a message is sent once", (GroupProcess, "send_again", _nothing)),
        _clause("no-question", "TT6", "TT §4.1", "a lost confirmation is not asked for",
                (GroupProcess, "ask_again", _nothing)),
        _clause("duties-of-first-view", "TT7", "TT §5", "a failed coordinator keeps its duties",
                (GroupProcess, "renew_plan", lambda self, entry: entry.plan)),
        _clause("removed-still-awaited", "TT8", "TT §2", "a receipt by a removed process is awaited",
                (wide, "destinations_of", lambda data, lives: frozenset(data.members))),
        _clause("received-after-promise", "TT9", "TT §2", "a member receives messages after it has reported",
                (wide, "freezes", _never)),
        _clause("lost-one-awaited", "TT10", "TT §2", "a predecessor is awaited that no member holds",
                (wide, "skips_lost", _never)),
        _clause("before-lost-one", "TT11", "TT §4.1", "a message after a lost one does not wait for what was before",
                (wide, "waits_for_lost", _never)),
        _clause("received-twice", "TT12", "TT §2", "a duplicate is received again", (wide, "accepts", _always)),
        _clause("life-ignored", "TT13", "TT §2", "a process that returns is a destination of earlier messages",
                (wide, "is_for_life", _always)),
        _clause("accepted-view-forgotten", "TT14", "TT §2", "a promise does not report the view accepted before",
                (wide, "adopts", _never)),
        _clause("report-of-majority", "TT15", "TT §2", "a view is proposed with the reports of a majority",
                (wide, "waits_for_all", _never)),
        _clause("leaves-too-early", "TT16", "TT §2", "a process leaves while it keeps messages",
                (wide, "may_leave", lambda leaving, entries: leaving)),
        _clause("closed-without-past", "TT17", "TT §4.1", "a message is closed when it alone is received everywhere",
                (wide, "closes", _always)),
        _clause("wanted-not-requested", "TT18", "TT §5", "a new coordinator does not request what it has dropped",
                (GroupProcess, "_want", _nothing)),
        _clause("plan-without-swap", "P1", "15", "a plan is activated when its last part arrives",
                (plan_switch.Plans, "take", _swap_at_once)),
        _clause("plan-from-anywhere", "P2", "15", "a new plan's sessions are read from the first packet that arrives",
                (plan_follower, "_Era", lambda number, digest=b"", complete_ns=0, begins=None:
                 _Era(number, digest, complete_ns, None))),
    )
}  # fmt: skip
