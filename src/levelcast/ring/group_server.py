"""A reformation server that also forms the groups of secondaries (MS §4.3; DESIGN rules 11, 12).

`ReformationAndGroupServer` combines the server of the primary ring with a `GroupServer`. They share only the current
ring, which determines the nodes that can be primaries.

| phase     | action                                            | next phase |
|-----------|---------------------------------------------------|----------------|
| IDLE      | sends the Group to secondaries that missed it     | a request that needs a new group: WAITING |
| WAITING   | backs off by rank                                 | timeout: GATHERING; another server's Group: IDLE |
| GATHERING | invites the secondaries concerned, every τ_r      | all have replied, or k_r invitations were sent: IDLE |

The secondaries concerned are those that sent a request, those of their groups, and those with the same assigned
primary. Each one that replies is put into a group; a failed one does not reply. Each is given its assigned primary if
that is in the ring and has not just failed it, else the primary with the fewest secondaries. So the secondaries of a
failed primary get another one, and a failed member is left out of its group, while the primary ring continues.

Two running secondaries that cannot reach each other would cause their group to be formed repeatedly. So a secondary
that suspects the same node again, in a newer group, is given another primary if one is available.

A secondary that stops as planned names itself as the suspect. Its group is formed anew, and nobody waits for it. A
repeated announcement is answered with the group without it.

A group needs no promise and no majority, unlike a ring: nothing that a secondary sends is counted towards a release.
Two servers may form groups at the same time: the higher number counts, and a secondary that was left out sends another
request. For the same reason nothing is journaled here: a restarted server learns the numbers in use from the requests.

A primary reports a secondary of its group that has stopped (`group_watch`): the group is formed anew. If it reported
the same one in an older group too, the two do not receive each other, and the secondary is given another primary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import SERVERS, Effect, Send
from levelcast.protocol.events import GroupFormed
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.retransmit import passed_on
from levelcast.protocol.seals import CrcSeals, NodeSeals
from levelcast.ring.line_server import LineServer
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.status import GroupServerStatus, ServerStatus
from levelcast.wire.messages import (
    Group,
    GroupInvite,
    GroupRequest,
    LineHolders,
    LineRequest,
    MemberLife,
    Message,
    Repair,
    Ring,
)

Phase = Literal["IDLE", "WAITING", "GATHERING"]

REFUSED_ASKS = 4
"""Number of `ask` intervals during which a primary that failed a secondary is its last choice."""
DEAF_ASKS = 100
"""Number of `ask` intervals during which two secondaries are kept apart if one does not receive from the other."""


class Refusal(NamedTuple):
    """A node that did not answer a secondary."""

    until_ns: int
    group: int
    """The last group in which the secondary reported it."""
    again: bool
    """The secondary had already reported it in an older group."""


class GroupServer:
    """Forms and stores the groups of secondaries, sans I/O."""

    def __init__(self, config: StripeConfig, server: int, life: int, seals: NodeSeals | None = None) -> None:
        self.config = config
        self._seals = seals or CrcSeals(config.domain)
        self.timing = config.timing
        self.server = server
        self.life = life
        self.rank = config.servers.index(server)
        self.groups: dict[int, Group] = {}
        """The last group of each primary."""
        self.groups_formed = 0
        self.phase: Phase = "IDLE"
        self.wake_ns: int | None = None
        self._highest = 0
        self._number = 0
        self._pending: set[int] = set()
        self._invited: set[int] = set()
        self._joined: dict[int, GroupRequest] = {}
        self._leaving: set[int] = set()
        self._orphaned: dict[int, int] = {}
        """Failed primaries, and the number of the group that each had."""
        self._refused: dict[tuple[int, int], Refusal] = {}
        self._deadline_ns = 0
        self._repeat_ns = 0
        self._saying: dict[int, tuple[Group, int, int]] = {}
        self._effects: list[Effect] = []

    def step(self, batch: Iterable[Message], ring: Ring | None, now: int) -> list[Effect]:
        """Handle `batch`; `ring` is the current primary ring, None if it is not known."""
        self._effects = []
        for message in batch:
            if isinstance(message, GroupRequest):
                self._on_plea(message, now)
            elif isinstance(message, Group):
                self._on_group(message)
            elif isinstance(message, LineRequest):
                self._on_line_request(message)
        if self.config.lines and ring is not None:
            self._request_orphans(ring, now)
        if self.phase == "WAITING" and now >= self._deadline_ns:
            self._gather(now)
        if self.phase == "GATHERING":
            self._keep_gathering(ring, now)
        self._say(now)
        self.wake_ns = self._next_wake()
        return self._effects

    def group_of(self, secondary: int) -> Group | None:
        """Return the newest group that contains this secondary."""
        having = [group for group in self.groups.values() if secondary in group.members]
        return max(having, key=lambda group: group.number, default=None)

    @property
    def secondaries(self) -> frozenset[int]:
        """The secondaries that are in a group: the others have failed, or have not started."""
        return frozenset(member for group in self.groups.values() for member in group.members)

    def status(self) -> GroupServerStatus:
        """Return its phase and the last group of each primary that has secondaries."""
        groups = {primary: group.members for primary, group in sorted(self.groups.items()) if group.members}
        return GroupServerStatus(self.phase, self.groups_formed, groups)

    # -- requests -----------------------------------------------------------------------------------------

    def _on_plea(self, plea: GroupRequest, now: int) -> None:
        self._highest = max(self._highest, plea.group)
        if plea.primary == plea.secondary:
            self._on_report(plea, now)
            return
        if plea.suspect == plea.secondary:
            self._on_leave(plea, now)
            return
        self._leaving.discard(plea.secondary)
        if plea.suspect:
            self._refuse(plea, now)
        if self.phase == "GATHERING" and plea.secondary in self._invited and plea.invitation in (0, self._number):
            self._joined[plea.secondary] = plea
            return
        if plea.invitation:
            return
        group = self.group_of(plea.secondary)
        if group is not None and plea.group < group.number:
            self._effects.append(Send(plea.secondary, passed_on(group, self.server)))  # it missed the announcement
            return
        self._request(plea.secondary, now)

    def _on_report(self, plea: GroupRequest, now: int) -> None:
        """Form the group of a secondary anew that its primary does not receive, or send the primary that group."""
        group = self.groups.get(plea.primary)
        if group is not None and group.number > plea.group:
            self._effects.append(Send(plea.primary, passed_on(group, self.server)))
            return
        if plea.suspect not in self.config.homes:
            return
        pair = (plea.primary, plea.suspect)
        known = self._refused.get(pair)
        self._refused[pair] = Refusal(now + REFUSED_ASKS * self.timing.ask_ns, plea.group, False)
        if known is not None and known.until_ns > now and known.group < plea.group:
            self._refuse(plea._replace(secondary=plea.suspect, suspect=plea.primary), now)
        if plea.suspect not in self._invited or self.phase != "GATHERING":
            self._request(plea.suspect, now)

    def _on_line_request(self, request: LineRequest) -> None:
        """Send a receiver the group that it serves: since its restart it does not know whom to watch."""
        group = self.groups.get(request.sender)
        if group is not None:
            self._effects.append(Send(request.sender, passed_on(group, self.server)))

    def _request_orphans(self, ring: Ring, now: int) -> None:
        """Form the groups of failed primaries anew: a secondary that has failed too would be reported by nobody."""
        serving = {life.member for life in ring.members} | self.secondaries
        for primary, group in self.groups.items():
            if primary not in serving and self._orphaned.get(primary) != group.number:
                self._orphaned[primary] = group.number
                for member in group.members:
                    self._request(member, now)

    def _request(self, secondary: int, now: int) -> None:
        self._pending.add(secondary)
        if self.phase == "IDLE":
            self.phase = "WAITING"
            self._deadline_ns = now + self.rank * (self.timing.backoff_ns + self._gathering_ns)

    def _on_leave(self, plea: GroupRequest, now: int) -> None:
        """Form the group of a secondary that stops as planned without it, or send it that group."""
        group = self.groups.get(plea.primary)
        if group is not None and group.number > plea.group:
            self._effects.append(Send(plea.secondary, passed_on(group, self.server)))
            return
        self._leaving.add(plea.secondary)
        if plea.secondary not in self._invited or self.phase != "GATHERING":
            self._request(plea.secondary, now)

    def _refuse(self, plea: GroupRequest, now: int) -> None:
        """Store for a while that a node does not answer this secondary, and whether a newer group did not help."""
        pair = (plea.secondary, plea.suspect)
        known = self._refused.get(pair)
        again = known is not None and known.until_ns > now and (known.again or known.group < plea.group)
        asks = DEAF_ASKS if again and plea.suspect in self.config.homes else REFUSED_ASKS
        self._refused[pair] = Refusal(now + asks * self.timing.ask_ns, plea.group, again)

    @property
    def _gathering_ns(self) -> int:
        """Time to wait for secondaries that do not reply."""
        return self.timing.attempts * self.timing.request_ns

    def _on_group(self, group: Group) -> None:
        """Store a group that another server has formed: its members need no other group."""
        self._highest = max(self._highest, group.number)
        known = self.groups.get(group.primary)
        if known is None or known.number < group.number:
            self.groups[group.primary] = group
            self._pending.difference_update(group.members)
            left = self._leaving.intersection(known.members if known is not None else ()).difference(group.members)
            self._pending -= left
            self._leaving -= left
            if self.phase == "WAITING" and not self._pending:
                self.phase = "IDLE"

    # -- gathering ----------------------------------------------------------------------------------------

    def _gather(self, now: int) -> None:
        self.phase = "GATHERING"
        self._number = ((self._highest >> 32) + 1) << 32 | self.server << 16 | self.life & 0xFFFF
        self._highest = self._number
        self._invited = set().union(*(self._concerned(secondary) for secondary in self._pending))
        self._pending.clear()
        self._joined = {}
        self._repeat_ns = now
        self._deadline_ns = now + self._gathering_ns

    def _concerned(self, secondary: int) -> set[int]:
        homes = self.config.homes
        group = self.group_of(secondary)
        mates = {other for other, home in homes.items() if home == homes.get(secondary)}
        return {secondary} | mates | set(group.members if group is not None else ())

    def _keep_gathering(self, ring: Ring | None, now: int) -> None:
        awaited = self._invited - self._joined.keys() - self._leaving
        if not awaited or now >= self._deadline_ns:
            self._form(ring, now)
        elif now >= self._repeat_ns:
            self._repeat_ns = now + self.timing.request_ns
            for secondary in sorted(awaited):
                self._effects.append(Send(secondary, GroupInvite(self._number, self.server)))

    # -- the groups ---------------------------------------------------------------------------------------

    def _form(self, ring: Ring | None, now: int) -> None:
        self.phase = "IDLE"
        self._refused = {pair: refusal for pair, refusal in self._refused.items() if refusal.until_ns > now}
        for secondary in self._leaving & self._invited:
            self._joined.pop(secondary, None)
        self._leaving -= self._invited
        members: dict[int, list[int]] = {
            primary: [member for member in group.members if member not in self._invited]
            for primary, group in self.groups.items()
        }
        for secondary, plea in sorted(self._joined.items(), key=lambda each: (self.config.layer_of(each[0]), each[0])):
            primary = self._primary_for(plea, members, ring)
            members.setdefault(primary, []).append(secondary)
        for primary, its in sorted(members.items()):
            known = self.groups.get(primary)
            if known is None or set(known.members) != set(its) or self._joined.keys() & set(its):
                group = Group(self._number, self.server, primary, tuple(sorted(its)))
                self._announce(self._seals.author(group, now), now)
        if self._pending:
            self.phase = "WAITING"
            self._deadline_ns = now + self.timing.request_ns

    def _primary_for(self, plea: GroupRequest, members: dict[int, list[int]], ring: Ring | None) -> int:
        """Return its assigned primary, if in the ring and not refused; else its last one, or the one with the fewest.

        A secondary of the layer above may serve as a primary, if it is in a group and no secondary that is assigned now
        suspects it. Unlike a primary, it can fail without a notice to other nodes.
        """
        secondary = plea.secondary
        config = self.config
        home, layer = config.homes.get(secondary, 0), config.layer_of(secondary)
        suspects = {joined.suspect for joined in self._joined.values()}
        placed = {member for its in members.values() for member in its}
        above = {each for each in placed - suspects if config.layer_of(each) < layer}
        known = {life.member for life in (ring.membership if ring is not None else self.config.membership).members}
        in_ring = {life.member for life in ring.members} if ring is not None else known

        def worse(primary: int) -> tuple[bool, int, bool, bool, bool, int, int, int]:
            refusal = self._refused.get((secondary, primary))
            its = members.get(primary, ())
            return (
                primary not in in_ring and primary not in above,
                refusal.until_ns if refusal is not None else 0,
                any(self._is_deaf(secondary, other) or self._is_deaf(other, secondary) for other in its),
                primary != home,
                primary != plea.primary,
                layer - config.layer_of(primary),
                len(its),
                primary,
            )

        return min(known | in_ring | above, key=worse)

    def _is_deaf(self, secondary: int, other: int) -> bool:
        """Return whether the first secondary still does not receive from the second one, even in a newer group."""
        refusal = self._refused.get((secondary, other))
        return refusal is not None and refusal.again

    def _announce(self, group: Group, now: int) -> None:
        self.groups[group.primary] = group
        self.groups_formed += 1
        self._saying[group.primary] = (group, self.timing.attempts, now)
        self._effects.append(GroupFormed(0, self._number, group.primary, group.members))

    def _say(self, now: int) -> None:
        for primary, (group, left, at_ns) in list(self._saying.items()):
            if now < at_ns:
                continue
            self._effects.extend(Send(node, group) for node in (primary, *group.members))
            self._effects.append(Send(SERVERS, group))
            if left > 1:
                self._saying[primary] = (group, left - 1, now + self.timing.request_ns)
            else:
                del self._saying[primary]

    def _next_wake(self) -> int | None:
        times = [at_ns for _, _, at_ns in self._saying.values()]
        if self.phase == "WAITING":
            times.append(self._deadline_ns)
        elif self.phase == "GATHERING":
            times.append(min(self._repeat_ns, self._deadline_ns))
        return min(times, default=None)


class ReformationAndGroupServer(ReformationServer):
    """A reformation server of a stripe that has secondaries."""

    LISTENS: ClassVar[frozenset[type]] = ReformationServer.LISTENS | {
        GroupRequest,
        Group,
        Repair,
        LineHolders,
        LineRequest,
    }

    def __init__(
        self, config: StripeConfig, server: int, journal: JournalImage, now: int, seals: NodeSeals | None = None
    ) -> None:
        super().__init__(config, server, journal, now, seals)
        self.keeper = GroupServer(config, server, journal.life, self._seals)
        self.lines = LineServer(config, server, journal.life, now, self._seals) if config.lines else None
        if self.lines is not None:
            self.wake_ns = now

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        received = tuple(batch)
        messages = [*received, *_passed_on_by_receivers(received)] if self.lines is not None else received
        formed = self.rings_formed, self.keeper.groups_formed
        effects = super().step(messages, now, clock_trusted=clock_trusted)
        effects = effects + self.keeper.step(messages, self.ring, now)
        wakes = [self.wake_ns, self.keeper.wake_ns]
        if self.lines is not None:
            mine = formed != (self.rings_formed, self.keeper.groups_formed)
            effects = effects + self.lines.step(received, self.ring, self.keeper.secondaries, now, formed=mine)
            wakes.append(self.lines.wake_ns)
        self.wake_ns = min((wake for wake in wakes if wake is not None), default=None)
        return effects

    def _operable(self, members: list[MemberLife]) -> set[int]:
        return super()._operable(members) | self.keeper.secondaries

    def status(self, now: int) -> ServerStatus:
        return replace(super().status(now), groups=self.keeper.status())


def _passed_on_by_receivers(batch: Iterable[Message]) -> list[Message]:
    """Return the rings and groups with which receivers reply to a server that may not know them."""
    repairs = (message for message in batch if isinstance(message, Repair))
    return [item for repair in repairs for item in repair.items if isinstance(item, Ring | Group)]
