"""A secondary receiver: listens to the core group, requests from its primary, passes a group token (MS §4.1; rule 11).

It orders, counts witnesses and releases with the same code as a primary: the same bytes at the same scheduled release
time. It differs in the messages that it sends. It sends no core token, no JOIN and no fault report, so no node counts
it, and its failure does not affect the primary ring.

| state     | condition                                    | action |
|-----------|----------------------------------------------|------|
| `ALONE`   | no group                                     | requests one from the servers, every `ask` |
| `LOST`    | a group, but not the current ring            | its group token shows that; the primary sends the RING |
| `FOLLOWS` | a group, and the ring                        | requests missing items from its primary, sends `have` |
| `ORPHAN`  | its primary has left the ring or is inactive | requests another one, continues to listen |
| `SILENT`  | the clock is not trusted                     | none |

It releases in every state except `SILENT`, as soon as it has been in a ring. A secondary with another primary than the
assigned one requests that again, at long intervals, while that one is in the ring.

| message      | from, to                       | content |
|--------------|--------------------------------|------|
| GroupToken   | secondary to group and primary | the ring that it follows, and its `have` there |
| GroupRequest | secondary to servers           | a group request or a reply to an invitation; the suspected node |
| GroupInvite  | server to secondary            | a check that it is running |
| Group        | server to members and primary  | the secondaries of this primary, in the order of their turns |

- **Turns** are by the clock: each of the n secondaries of a group has one in a round, 1/n of the round after the one
  before. A round is β if the ring has beats, or 1 ms per secondary in a large group, so that the primary can claim a
  slot as soon as its group has it (MS §4.1); otherwise τ_r. The others of the group receive one token in τ_r. If one is
  not received for k_r·τ_r, they report it to the servers, but not to the primary ring. So one small group detects a
  failure (`benchmarks.layers` counts the passes).
- **Rings.** It enters every RING that is newer than its own, whatever its members, without a promise. A promise keeps a
  member from claiming in an old ring what a new one does not contain; a secondary claims nothing. It counts members'
  tokens, and a slot that a majority of them has claimed survives every reformation, whichever node counts.
- **Its primary is inactive** if k_r requests were not answered although a received token claims the slot, or if tokens
  of a newer ring were received for as long without its RING. A slot that no token claims may be held by no node.
- **Layers.** A secondary may be the assigned primary of a group itself (`homes` of the configuration). For that group
  it acts as a primary: it serves requests, passes on rings and groups, and covers the group (`secondary_claims`), so
  that it sends the lowest `have` of its group. It also sends its group token to them, because it has no core token by
  which they would notice its failure. The configuration defines the layers, and no node is assigned a primary of its
  own layer or below, so that no group can depend on itself.
- **A planned stop.** It names itself as the suspect, every τ_r, until a group of its primary without it is received. It
  does not reply to invitations meanwhile.
- **Journal**: tokens, packets, the RING and checkpoints, as for a primary. The group is not journaled: a server sends
  it again on request. `have` is claimed only after the journal entries on which it rests.

Deviations from MS §4.1: the paper's secondary keeps the token until it has everything up to the token's number; here it
passes the token on time and states its position, as a primary in pipelined mode (rule 4). Its tokens have the time of
the turn as number, and carry the primary slot in `have`. The primary has no turn: its core tokens are
received anyway.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import SERVERS, Send
from levelcast.protocol.events import GroupEntered, LeaveAnnounced, Suspected
from levelcast.protocol.history import Tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.loss import Want
from levelcast.protocol.seals import NodeSeals
from levelcast.ring.listener import MAX_EARLY_TOKENS, Listener
from levelcast.ring.member_state import State
from levelcast.ring.schedule import Schedule
from levelcast.ring.status import SecondaryStatus
from levelcast.ring.turns import Turns
from levelcast.timing.secondary import group_round_ns, silent_after_ns
from levelcast.wire.messages import Group, GroupInvite, GroupRequest, GroupToken, Ring, Token

Standing = Literal["ALONE", "LOST", "FOLLOWS", "ORPHAN", "SILENT"]

AWAY_ASKS = 5
"""Number of `ask` with another primary before it requests its assigned one. No server refuses then (`REFUSED_ASKS`)."""
MOST_AWAY_ASKS = 80
"""The interval doubles after each request without effect, up to this number."""


class Secondary(Listener):
    """One secondary receiver, sans I/O."""

    HANDLERS: ClassVar[dict[type, str]] = {**Listener.HANDLERS, GroupInvite: "_on_group_invite"}
    LISTENS: ClassVar[frozenset[type]] = frozenset(HANDLERS)

    def __init__(
        self,
        config: StripeConfig,
        member: int,
        journal: JournalImage,
        tape: Tip,
        now: int,
        seals: NodeSeals | None = None,
    ) -> None:
        super().__init__(config, member, journal, tape, now, seals)
        self.group: Group | None = None
        self.suspect = 0
        """The node that does not answer: its primary or one of its group; 0: none."""
        self._number = 0
        self._turns: Turns | None = None
        self._turn_ns = self._told_ns = 0
        self._heard_ns: dict[int, int] = {}
        self._newer = 0
        self._newer_ns = 0
        self._ask_at_ns = now
        self._home_ns = now
        self._away_asks = AWAY_ASKS
        self._leaving = False
        self._layer = max(1, config.layer_of(member))
        self._restore(journal)

    def leave(self) -> None:
        """Announce a planned stop to the servers from the next step on."""
        self._leaving = True
        self._ask_at_ns = 0

    @property
    def has_left(self) -> bool:
        """Return whether it is in no group and has no line, or cannot help: its clock is not trusted."""
        return self._leaving and ((self.group is None and not self._has_lines) or not self._trusted)

    # -- status -------------------------------------------------------------------------------------------

    @property
    def primary(self) -> int | None:
        """The node that serves it."""
        return self.group.primary if self.group is not None else None

    def status(self, now: int) -> SecondaryStatus:
        """Return its state at `now`, the node that serves it, and the group with which it alternates."""
        return SecondaryStatus(
            listener=self.listener_status(now),
            standing=self.standing,
            home=self.config.homes.get(self.member, 0),
            primary=self.primary or 0,
            suspect=self.suspect,
            group=self.group,
        )

    @property
    def standing(self) -> Standing:
        if not self._trusted:
            return "SILENT"
        if self.group is None:
            return "ALONE"
        if self.suspect == self.group.primary:
            return "ORPHAN"
        return "LOST" if self.generation == 0 or self._newer > self.generation else "FOLLOWS"

    @property
    def state(self) -> State:
        """Its state, as defined for a primary: it never promises, and never sends."""
        return "SILENT" if not self._trusted else "NEW" if self.generation == 0 else "ACTIVE"

    @property
    def _learns(self) -> bool:
        return self._trusted and self.generation > 0

    # -- rings: entered when received, without a promise --------------------------------------------------

    def _on_ring(self, ring: Ring, now: int) -> None:
        if ring.generation <= self.generation or self._diverged:
            return
        self._early = [token for token in self._early if token.generation == ring.generation]
        self._enter(ring, now)
        self._take_turns(now)
        self._home_ns = now + AWAY_ASKS * self.timing.ask_ns
        if self.group is not None and self._has_left(ring, self.group.primary):
            self._suspect(self.group.primary, now)

    def _has_left(self, ring: Ring, primary: int) -> bool:
        """Return whether its primary is not a member of the ring, so that it cannot serve it (MS §4.3)."""
        return primary not in self.config.homes and all(life.member != primary for life in ring.members)

    def _on_foreign_token(self, token: Token, now: int) -> None:
        """Keep a token of a newer ring until its RING is received; drop void ones."""
        if token.generation <= self.generation:
            return
        if self._newer <= self.generation:
            self._newer_ns = now
        self._newer = max(self._newer, token.generation)
        if len(self._early) < MAX_EARLY_TOKENS:
            self._early.append(token)

    # -- repair: from its own primary (MS §4.1) -----------------------------------------------------------

    def _holders_of(self, want: Want) -> list[int]:
        return [self.group.primary] if self.group is not None else []

    def _helpers(self, attempt: int) -> list[int]:
        return [self.group.primary] if self.group is not None else []

    def _asks_as(self) -> int | None:
        """Return its primary: it waits as long as that may wait itself."""
        return self.primary

    def _on_unanswered(self, faults: list[tuple[int, int]], schedule: Schedule, now: int) -> None:
        """Suspect its primary after k_r requests without a reply, if a token claims the slot."""
        claimed = max((token.have for token in self._held.tokens.values()), default=0)
        claimed = max(claimed, schedule.start_slot - 1)
        if self.group is not None and any(slot <= claimed for slot, _ in faults):
            self._suspect(self.group.primary, now)

    # -- the group ----------------------------------------------------------------------------------------

    def _on_group_token(self, token: GroupToken, now: int) -> None:
        self._heard_ns[token.sender] = now
        if self.suspect == token.sender:
            self.suspect = 0
        if not self._is_beside(token) and self.config.layer_of(token.sender) > self._layer:
            super()._on_group_token(token, now)

    def _is_beside(self, token: GroupToken) -> bool:
        """Return whether the token belongs to the group of which this node is a member."""
        group = self.group
        return group is not None and token.group == group.number and token.sender in group.members

    def _on_group_invite(self, invite: GroupInvite, now: int) -> None:
        if self._trusted and not self._leaving:  # otherwise it would miss its turns and be suspected immediately
            self._effects.append(Send(invite.server, self._plea(invite.number)))

    def _on_group(self, group: Group, now: int) -> None:
        """Enter the group with the highest number; its claims are not counted, so it needs no promise."""
        if group.primary == self.member:
            super()._on_group(group, now)
            return
        if group.number <= self._number:
            return
        if self.member not in group.members:
            if group.primary == self.primary:
                self._number = group.number
                self._leave(now)
            return
        in_vain = self.group is not None and group.primary == self.group.primary
        self._away_asks = min(2 * self._away_asks, MOST_AWAY_ASKS) if in_vain else AWAY_ASKS
        self._number = group.number
        self.group = group
        self.suspect = 0
        self._take_turns(now)
        self._heard_ns = dict.fromkeys((group.primary, *group.members), now)
        self._newer_ns = now
        self._home_ns = now + self._away_asks * self.timing.ask_ns
        self._report(GroupEntered(self.history.have, group.number, group.primary, group.members))
        if self._ring is not None and self._has_left(self._ring, group.primary):
            self._suspect(group.primary, now)

    def _take_turns(self, now: int) -> None:
        """Take part in the turns of the group, as often as the ring that it follows requires."""
        if self.group is not None:
            members = self.group.members
            start_ns = self._schedule.time_of(self._schedule.start_slot) if self._schedule is not None else 0
            self._turns = Turns(group_round_ns(self.timing, self._beat_ns(start_ns), len(members)), members, start_ns)
            self._turn_ns = self._turns.next_of(self.member, now)

    def _leave(self, now: int) -> None:
        self.group = self._turns = None
        self.suspect = 0
        self._ask_at_ns = now

    def _suspect(self, node: int, now: int) -> None:
        """Store a node that does not answer. One is enough to request another group; its primary has precedence."""
        if self.suspect == node or (self.suspect and node != self.primary):
            return
        self.suspect = node
        self._ask_at_ns = min(self._ask_at_ns, now + self.timing.request_ns)
        self._report(Suspected(self.history.have, node))

    def _plea(self, invitation: int) -> GroupRequest:
        return GroupRequest(self.member, invitation, self._number, self.primary or 0, self.suspect)

    def _servers_turn(self, now: int) -> None:
        """Send its group token if due, find inactive nodes, and request a group if needed (the last part of a step)."""
        if not self._trusted:
            self._heard_ns = dict.fromkeys(self._heard_ns, now)
            self._newer_ns = now
            self._ask_at_ns = max(self._ask_at_ns, now + self.timing.request_ns)
            self._home_ns = max(self._home_ns, self._ask_at_ns)
            return
        if self.group is not None and self._turns is not None:
            if now >= self._turn_ns:
                self._pass_token(self.group, self._turns, now)
            self._look_who_is_silent(self.group, now)
        if self._leaving:
            self._announce_leave(now)
        elif now >= self._ask_at_ns and (self.group is None or self.suspect):
            self._ask_at_ns = now + self.timing.ask_ns
            self._effects.append(Send(SERVERS, self._plea(0)))
        elif now >= self._home_ns and self._is_away:
            self._home_ns = now + self._away_asks * self.timing.ask_ns
            self._effects.append(Send(SERVERS, self._plea(0)))

    def _announce_leave(self, now: int) -> None:
        """Ask for a group without this node, until there is one."""
        if now < self._ask_at_ns:
            return
        self._ask_at_ns = now + self.timing.request_ns
        if self.group is not None:
            self._effects.append(Send(SERVERS, self._plea(0)._replace(suspect=self.member)))
            self._report(LeaveAnnounced(self.history.have))

    @property
    def _is_away(self) -> bool:
        """Return whether another primary serves it although the assigned one is in the ring."""
        home = self.config.homes.get(self.member)
        if self.group is None or self._ring is None or home in (None, self.group.primary):
            return False
        return any(life.member == home for life in self._ring.members)

    def _pass_token(self, group: Group, turns: Turns, now: int) -> None:
        """Send `have` to its primary, and once in τ_r to all that would notice its failure."""
        token = GroupToken(self.member, self.generation, group.number, self._turn_ns, self._lowest_have(now))
        self._turn_ns = turns.next_of(self.member, now)
        nodes = [group.primary]
        if token.turn_ns // self.timing.request_ns != self._told_ns // self.timing.request_ns:
            self._told_ns = token.turn_ns
            nodes += [*group.members, *(self.claims.group.members if self.claims.group is not None else ())]
        self._effects.extend(Send(node, token) for node in nodes if node != self.member)

    def _lowest_have(self, now: int) -> int:
        """Return the lowest `have` of itself and of the group that it serves (rule 11)."""
        have = self.history.have
        return have if self._schedule is None else self.claims.lowest(have, self._schedule, now)

    def _look_who_is_silent(self, group: Group, now: int) -> None:
        silent_ns = silent_after_ns(self.timing)
        if self._newer > self.generation and self._newer_ns < now - self._layer * silent_ns:
            self._suspect(group.primary, now)  # its primary must have received the RING first, layer by layer
        speaking = (group.primary, *group.members) if group.primary in self.config.homes else group.members
        for peer in speaking:
            if peer != self.member and self._heard_ns.get(peer, now) < now - silent_ns:
                self._suspect(peer, now)

    def _own_wake_ns(self, now: int) -> int:
        """Return the time of its next message that is not a reply."""
        if not self._trusted:
            return self._ask_at_ns
        asks = self.group is None or self.suspect or self._leaving
        turn_ns = self._turn_ns if self.group is not None else self._ask_at_ns
        if self._is_away:
            turn_ns = min(turn_ns, self._home_ns)
        return min(turn_ns, self._ask_at_ns) if asks else turn_ns
