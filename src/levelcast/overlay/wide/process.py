"""One process of a wide-area group: TT's protocols as one machine with four choices (TT §4, §5), sans I/O.

- *Delivery* is on receipt, in causal order. *Reliable receipt* is when a process knows that all destinations have
  received the message; it ends the keeping of the message. They are two events (`WideDeliver`, `WideSettle`).
- All that processes state about a message is who has received it: the process itself, its subgroup, or all. Such a
  statement stays true, so it may be lost, repeated and late. In later views, too: destinations only become fewer, and
  the subgroup of a coordinator with them.
- A process that misses a statement when it is overdue repairs, if that is its duty and it is its turn, or asks.
- `settled` and `closed` of a source tell everybody how far its messages are received: below that nothing is kept.
- Processes are members by a *view* (`levelcast.overlay.wide.views`). A message of an earlier view is for those of its
  destinations that are still members. A new life of a process is not a destination of messages of earlier views.
- A message of a failed source is completed if a process that holds it is left: always with M and HD, where each
  destination keeps it, never with B and D, where only the source does (TT §5).

A message may name a predecessor that its destination will never receive, because its source failed. What was before
that predecessor is unknown then. So it is delivered when the messages that living members sent in the views before are
all received (`levelcast.overlay.wide.receipts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count

from levelcast.overlay.wide import clauses
from levelcast.overlay.wide.assembly import Assembly
from levelcast.overlay.wide.causal import CausalHistory, CausalQueue, members_of
from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.entries import Entry, backoff, watch
from levelcast.overlay.wide.founding import Founding
from levelcast.overlay.wide.plan import MessagePlan
from levelcast.overlay.wide.plan_cache import PlanCache
from levelcast.overlay.wide.receipts import Life, ReceiptFloor, Receipts
from levelcast.overlay.wide.signs import Signs
from levelcast.overlay.wide.statements import MAX_TOGETHER, EarlyStatements, StatementOutbox
from levelcast.overlay.wide.views import ViewChange
from levelcast.protocol.effects import Effect, Send, WideDeliver, WideInstall, WideSettle
from levelcast.protocol.machine import Machine
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import (
    Scope,
    WideAccept,
    WideAccepted,
    WideConfirm,
    WideContent,
    WideData,
    WideId,
    WideMember,
    WidePredecessor,
    WidePrepare,
    WidePromise,
    WideRelay,
    WideRequest,
    WideStatement,
    WideView,
)

MAX_BARRIERS = 400
"""Predecessors above which a process sends nothing until some of them are received everywhere."""
MEMBER_KINDS = WideData | WideRelay | WideConfirm | WidePrepare | WidePromise | WideAccept | WideAccepted
"""Messages that only members send."""


class GroupProcess(Machine):
    """One member of a wide-area group, or a process that joins it."""

    LISTENS = frozenset(
        {WideData, WideRelay, WideConfirm, WideRequest} | {WidePrepare, WidePromise, WideAccept, WideAccepted, WideView}
    )

    def __init__(
        self,
        config: GroupConfig,
        process: int,
        now: int,
        *,
        incarnation: int = 0,
        joins: bool = False,
        founds: bool = False,
    ) -> None:
        """`incarnation` must be higher than in every earlier life of the process. Without `joins` it is in view 1.

        With `joins` and `founds` the processes form view 1, unless the group runs already; then this one joins it.
        """
        self.config, self.process, self.incarnation = config, process, incarnation
        self._receipts = Receipts(process)
        self.removed = False
        self.failed = False
        """It was removed while it was needed."""
        self.sent_copies = 0
        """Copies of messages that were sent: first ones, replicated, forwarded and repairs."""
        self._now = now
        self._effects: list[Effect] = []
        self.leaving = False
        self._queued: list[tuple[bytes, tuple[int, ...] | None]] = []
        """Application messages that wait for the next view."""
        self.entries: dict[WideId, Entry] = {}
        self._early = EarlyStatements()
        self._history = CausalHistory()
        self._queue = CausalQueue(self._is_satisfied)
        self._assembly = Assembly()
        self._outbox = StatementOutbox(config.defer_ns)
        self._plans = PlanCache(config.rules, config.subgroups)
        self._timers: list[tuple[int, int, WideId | None, Send | None]] = []
        self._timer_numbers = count()
        self._signs = Signs(config, process)
        self._views = ViewChange(config, process, self._held_of_removed, lambda: self._receipts.number, self._install)
        self._founding = Founding(config, process, incarnation, now) if founds else None
        self._requested_ns = now - config.exchange_ns
        self.wake_ns: int | None = now
        if not joins:
            content = WideContent(tuple(WideMember(each, 1, 0, 0) for each in sorted(config.members)), ())
            self._install(1, content)

    # -- the program --------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:  # type: ignore[override]
        """Return the number of the view; 0 before the first one."""
        return self._views.view

    @property
    def life(self) -> int:
        """Return the view in which this process became a member; 0 before."""
        return self._receipts.life

    @property
    def members(self) -> tuple[int, ...]:
        return self._views.processes

    @property
    def lives(self) -> Mapping[int, int]:
        """Return the life of each member."""
        return self._receipts.lives

    @property
    def is_idle(self) -> bool:
        """Return whether everything that was sent or received here is known to be received by all."""
        return not self.entries and not self._queued

    @property
    def is_flushed(self) -> bool:
        """Return whether everything that was sent here is known to be received by all."""
        return not self._queued and self._receipts.own.settled == self._receipts.number

    @property
    def all_leave(self) -> bool:
        """Return whether this process and all other members have requested to leave: nobody forms another view."""
        return self._may_leave() and set(self.members) - {self.process} <= self._views.leaving

    @property
    def room(self) -> int:
        """Return the number of packets that may be sent now."""
        if not self.life or self.removed or self.leaving or len(self._history) > MAX_BARRIERS:
            return 0
        return max(0, self.config.window - (self._receipts.number - self._receipts.own.settled) - len(self._queued))

    @property
    def buffered(self) -> int:
        """Return the number of messages that are kept here to be sent again."""
        return sum(entry.kept for entry in self.entries.values())

    def has_received(self, each: WideId) -> bool:
        """Return whether a message was received here, or sent from here."""
        return self._receipts.has_received(each)

    def submit(self, payload: bytes, now: int, to: Collection[int] | None = None) -> list[Effect]:
        """Send an application message to members, all others without `to`: in packets, each a message of its own."""
        self._now = now
        members = tuple(sorted(set(to) - {self.process})) if to is not None else None
        if self.config.packets(payload) > self.room:
            raise ValueError("too many messages are not received yet; check room first")
        if members is not None and not set(members) <= set(self.members):
            raise ValueError(f"process {min(set(members) - set(self.members))} is not a member of the group")
        if self._views.frozen:
            self._queued.append((payload, members))
            return []
        self._send_message(payload, members)
        return self._finish()

    def leave(self) -> None:
        self.leaving = True

    @property
    def has_left(self) -> bool:
        return self.removed

    # -- one step -----------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        self._now = now
        if self.removed:
            self.wake_ns = None
            return []
        for message in batch:
            self._take(message)
            if self.has_left:
                return self._finish()
        self._run_timers()
        if self.config.alive_ns:
            self._keep_membership()
        return self._finish()

    def _finish(self) -> list[Effect]:
        """Deliver what is ready, send the statements that are due, and set the next time."""
        if not self.removed:
            self._deliver()
            for to, statements in self._outbox.take_due(self._now):
                self._confirm(to, statements)
            self.wake_ns = self._next_ns()
        else:
            self.wake_ns = None
        effects, self._effects = self._effects, []
        return effects

    def _next_ns(self) -> int | None:
        times = [self._outbox.wake_ns, self._timers[0][0] if self._timers else None, self._views.wake_ns]
        if self.config.alive_ns:
            times.append(self._now + self.config.alive_ns // 2)
        return min((each for each in times if each is not None), default=None)

    def _take(self, message: Message) -> None:
        if isinstance(message, WideView):
            self._on_view(message)
            return
        if isinstance(message, WideRequest):
            if message.sender in self.config.matrix.processes:
                self._on_request(message)
            return
        if not self.life or not isinstance(message, MEMBER_KINDS):
            return
        sender, view = (message.source if isinstance(message, WideData) else message.sender), message.view
        if view != self.generation and sender in self.config.matrix.processes:
            self._compare_views(sender, view)
        if sender not in self.lives:
            return
        self._signs.hear(sender, self._now)
        if isinstance(message, WideData):
            self._on_data(message, sender, asks=False)
        elif isinstance(message, WideRelay):
            self._on_data(message.item, sender, asks=message.asks)
        elif isinstance(message, WideConfirm):
            self._on_floor((sender, self.lives.get(sender, 0)), view, ReceiptFloor(message.settled, message.closed))
            for statement in message.statements:
                self._on_statement(sender, statement)
        elif isinstance(message, WidePrepare):
            self._effects += self._views.prepare(message, self._now)
        elif isinstance(message, WidePromise):
            self._effects += self._views.promise(message, self._now)
        elif isinstance(message, WideAccept):
            self._effects += self._views.accept(message, self._now)
        elif isinstance(message, WideAccepted):
            self._effects += self._views.accepted(message, self._now)

    # -- sending ------------------------------------------------------------------------------------------

    def _send_message(self, payload: bytes, members: tuple[int, ...] | None) -> None:
        """Divide an application message into packets, and send them."""
        size, parts = self.config.packet_bytes, self.config.packets(payload)
        present = set(self.members) - {self.process}
        to = tuple(sorted(present if members is None else present & set(members)))
        if not to:
            return
        for part in range(parts):
            self._send_packet(payload[part * size : (part + 1) * size], part, parts, to)

    def _send_packet(self, payload: bytes, part: int, parts: int, to: tuple[int, ...]) -> None:
        self._receipts.number += 1
        floor = self._receipts.own
        data = WideData(
            self.generation,
            self.process,
            self.life,
            self._receipts.number,
            part,
            parts,
            floor.settled,
            floor.closed,
            to,
            self._history.predecessors(to, self.process),
            self._outbox.take_riding(to),
            payload,
        )
        plan = self._plans.find(data, self.lives)
        self._history.add(data)
        self._receipts.note_sent(data)
        entry = Entry(data, plan, self._now, kept=True)
        self.entries[data.id] = entry
        for child in plan.children(self.process):
            self._copy(entry, child, data)
        self._watch(entry)
        self._progress(entry)

    def _copy(self, entry: Entry, to: int, message: WideData | WideRelay) -> None:
        """Send the copies of a message that one destination needs (TT §4.3)."""
        for copy in range(entry.plan.copies(self.process, to)):
            self.sent_copies += 1
            if copy and self.config.spacing_ns:
                at_ns = self._now + copy * self.config.spacing_ns
                heappush(self._timers, (at_ns, next(self._timer_numbers), None, Send(to, message)))
            else:
                self._send(to, message)

    def _send(self, to: int, message: Message) -> None:
        self._signs.sent(to, self._now)
        self._effects.append(Send(to, message))

    # -- receiving ----------------------------------------------------------------------------------------

    def _on_data(self, data: WideData, sender: int, *, asks: bool) -> None:
        """Receive a message, whoever sent it here."""
        life = (data.source, data.life)
        self._on_floor(life, data.view, ReceiptFloor(data.settled, data.closed))
        for statement in data.statements:
            self._on_statement(data.source, statement)
        if data.source == self.process or data.view > self.generation:
            return
        if self.process not in data.members or not clauses.is_for_life(self.life, data.view):
            return
        if not clauses.accepts(not self.has_received(data.id)):
            self._on_duplicate(data)
            if asks:
                self._state(sender, data.id)
            return
        if (clauses.freezes() and self._views.frozen) or not self._receipts.is_expected(data.id):
            return
        self._receipts.received[life].add(data.number)
        self._queue.add(data)
        plan = self._plans.find(data, self.lives)
        kept = plan.keeps(self.process)
        head = data if kept else data._replace(payload=b"", sealed=b"")
        entry = Entry(head, plan, self._now - plan.arrival_ns(self.process), kept)
        entry.known.add(self.process)
        self.entries[data.id] = entry
        for process, scope in self._early.take(data.id):
            self._learn(entry, process, scope)
        for child in plan.children(self.process):
            if child not in entry.known:
                self._copy(entry, child, WideRelay(self.process, self.generation, False, data))
        for receiver in plan.forwards(self.process):
            if receiver not in entry.known:
                self._copy(entry, receiver, WideRelay(self.process, self.generation, False, data))
        for peer in plan.confirms_to(self.process):
            self._outbox.add(peer, WideStatement(data.id, Scope.OWN), self._now)
        if asks:
            self._outbox.hurry(sender, self._now)
        self._watch(entry)
        self._progress(entry)

    def _on_duplicate(self, data: WideData) -> None:
        """Keep a message that this process has dropped, and must send on since the view changed."""
        entry = self.entries.get(data.id)
        if entry is not None and not entry.kept and entry.plan.keeps(self.process):
            entry.data, entry.kept = data, True

    # -- statements ---------------------------------------------------------------------------------------

    def _on_statement(self, sender: int, statement: WideStatement) -> None:
        each = statement.id
        entry = self.entries.get(each)
        if statement.scope:
            if entry is not None:
                self._learn(entry, sender, statement.scope)
                self._progress(entry)
            elif not self.has_received(each) and self._receipts.is_expected(each):
                self._early.add(each, sender, statement.scope)
        if statement.asks:
            self._state(sender, each)
        if statement.wants and entry is not None and entry.kept and sender in entry.plan.participants:
            self._copy(entry, sender, WideRelay(self.process, self.generation, True, entry.data))

    def _learn(self, entry: Entry, sender: int, scope: int) -> None:
        """Note the receipts that a statement reports."""
        if scope == Scope.ALL:
            entry.known |= entry.plan.destinations
        elif scope == Scope.GROUP:
            entry.known |= entry.plan.group_of(sender)
        if sender in entry.plan.destinations:
            entry.known.add(sender)

    def _state(self, to: int, each: WideId) -> None:
        """Answer what is known here of a message; nothing if it was not received."""
        entry = self.entries.get(each)
        if entry is None:
            scope = Scope.ALL if self.has_received(each) and self._receipts.is_expected(each) else Scope.NONE
        else:
            scope = self._scope(entry)
        if scope:
            self._outbox.add(to, WideStatement(each, scope), self._now)
            self._outbox.hurry(to, self._now)

    def _scope(self, entry: Entry) -> Scope:
        """Return the widest statement that this process can make about a message."""
        plan = entry.plan
        if plan.reports_to(self.process) and clauses.group_is_complete(entry, self.process):
            return Scope.GROUP
        return Scope.OWN if self.process in plan.destinations else Scope.NONE

    def _progress(self, entry: Entry) -> None:
        """Act on new knowledge: reliable receipt, or the completion of this process's subgroup."""
        if entry.data.id not in self.entries:
            return
        plan = entry.plan
        if clauses.is_received_by_all(entry):
            self._settle(entry)
            return
        if (
            not entry.reported
            and (peers := plan.reports_to(self.process))
            and clauses.group_is_complete(entry, self.process)
        ):
            entry.reported = True
            for peer in peers:
                self._outbox.add(peer, WideStatement(entry.data.id, Scope.GROUP), self._now)

    def _settle(self, entry: Entry) -> None:
        """End the keeping of a message: all destinations have received it."""
        each = entry.data.id
        del self.entries[each]
        self._effects.append(WideSettle(each))
        if (peers := entry.plan.reports_to(self.process)) and not entry.reported:
            for peer in peers:
                self._outbox.add(peer, WideStatement(each, Scope.ALL), self._now)
        for peer in entry.plan.accepts_to(self.process):
            self._outbox.add(peer, WideStatement(each, Scope.ALL), self._now)
        if each[:2] == (self.process, self.life):
            self._advance()

    # -- floors and delivery -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Find up to where the own messages are received everywhere; forget predecessors that are closed."""
        self._receipts.advance(self.entries.keys())
        self._history.forget(lambda each: self._receipts.is_closed(each, self.entries.keys()))

    def _on_floor(self, life: Life, view: int, floor: ReceiptFloor) -> None:
        """Note up to where the messages of a source are received everywhere."""
        if not self._receipts.raise_floor(life, view, floor, self._queue.waiting):
            return
        for each in [each for each in self.entries if each[:2] == life and each.number <= floor.settled]:
            entry = self.entries[each]
            entry.known |= entry.plan.destinations
            self._progress(entry)
        self._early.forget(lambda each: each[:2] == life and each.number <= floor.settled)
        self._advance()

    def _deliver(self) -> None:
        """Deliver the messages whose predecessors are delivered."""
        while (data := self._queue.ready()) is not None:
            self._history.add(data)
            self._receipts.note_delivered(data.id)
            payload = self._assembly.add(data)
            if payload is not None:
                self._effects.append(WideDeliver(data.id, payload))

    def _is_satisfied(self, predecessor: WidePredecessor, data: WideData) -> bool:
        """Return whether this process need not wait for a predecessor of a message any more."""
        each = predecessor.id
        if self.process not in members_of(predecessor, data) or not clauses.is_for_life(self.life, predecessor.view):
            return True
        if each in self._queue.waiting:
            return False
        return self._receipts.is_delivered(each) or self._receipts.is_lost(each)

    # -- timers -------------------------------------------------------------------------------------------

    def _watch(self, entry: Entry) -> None:
        """Set the time at which the first missing statement about a message is overdue."""
        due_ns = watch(entry, self.process, self.config.margin_ns + 2 * self.config.defer_ns)
        if due_ns is not None and (not entry.wake_ns or due_ns < entry.wake_ns):
            entry.wake_ns = due_ns
            heappush(self._timers, (due_ns, next(self._timer_numbers), entry.data.id, None))

    def _run_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            at_ns, _, each, copy = heappop(timers)
            if copy is not None:
                if copy.to in self._receipts.lives:
                    self._send(copy.to, copy.message)
                continue
            entry = self.entries.get(each) if each is not None else None
            if entry is None or entry.wake_ns != at_ns:
                continue
            entry.wake_ns = 0
            self._watch_overdue(entry)
            self._watch(entry)

    def _watch_overdue(self, entry: Entry) -> None:
        """Repair at the processes whose statements are overdue, or ask them."""
        config = self.config
        watch(entry, self.process, 0)
        for peer, watched in sorted(entry.watched.items()):
            if watched.due_ns > self._now:
                continue
            watched.attempts += 1
            round_trip_ns = config.matrix.round_trip_ns(self.process, peer)
            wait_ns = (round_trip_ns + config.margin_ns + config.defer_ns) * backoff(watched.attempts)
            watched.due_ns = self._now + int(wait_ns)
            holders = entry.known | ({entry.data.source} if entry.plan.source_lives else set())
            is_repair = watched.is_receipt and watched.attempts > entry.plan.rank(self.process, peer, holders)
            if not is_repair:
                self.ask_again(entry, peer)
            elif entry.kept:
                self.send_again(entry, peer)
            else:
                self._want(entry, watched.attempts)

    def _want(self, entry: Entry, attempt: int) -> None:
        """Request a message that this process must send on, and did not keep when another one coordinated."""
        plan = entry.plan
        sources = (plan.source,) if plan.source_lives else ()
        holders = [each for each in (*sources, *plan.coordinators) if each != self.process]
        if holders:
            statement = WideStatement(entry.data.id, Scope.OWN, wants=True)
            self._outbox.add(holders[attempt % len(holders)], statement, self._now)
            self._outbox.hurry(holders[attempt % len(holders)], self._now)

    def send_again(self, entry: Entry, to: int) -> None:
        """Send a message again, with as many copies as the first time."""
        self._copy(entry, to, WideRelay(self.process, self.generation, True, entry.data))

    def ask_again(self, entry: Entry, to: int) -> None:
        """Ask a process for its statement about a message."""
        self._outbox.add(to, WideStatement(entry.data.id, self._scope(entry), asks=True), self._now)
        self._outbox.hurry(to, self._now)

    def _confirm(self, to: int, statements: tuple[WideStatement, ...]) -> None:
        floor = self._receipts.own
        for at in range(0, max(len(statements), 1), MAX_TOGETHER):
            some = statements[at : at + MAX_TOGETHER]
            self._send(to, WideConfirm(self.process, self.generation, floor.settled, floor.closed, some))

    # -- membership ---------------------------------------------------------------------------------------

    def missing(self, now: int) -> tuple[int, ...]:
        """Return the processes that are awaited before the first view."""
        return self._founding.missing(now) if self._founding is not None and not self.life else ()

    def _on_request(self, request: WideRequest) -> None:
        """Note a request to join or to leave; repeat the view to a member that has missed it."""
        if not self.life and self._founding is not None:
            self._founding.hear(request, self._now)
        self._views.request(request)
        known = {member.process: member for member in self._views.members}.get(request.sender)
        if known is None or request.leaves or known.incarnation != request.incarnation:
            return
        if self._signs.may_send_view(request.sender, self._now):
            self._send_view(request.sender)

    def _send_view(self, to: int) -> None:
        content = WideContent(self._views.members, tuple(sorted(self._receipts.orphans)))
        self._effects.append(Send(to, WideView(self.process, self.generation, content)))

    def _found(self, founding: Founding) -> None:
        """Send the first view, and enter it, when all processes have requested it."""
        content = founding.content(self._now)
        if content is not None:
            others = (each for each in self.config.members if each != self.process)
            self._effects += [Send(each, WideView(self.process, 1, content)) for each in others]
            self._install(1, content)

    def _keep_membership(self) -> None:
        """Request to join or leave, send signs of life, and replace the view if there is a reason."""
        now, config = self._now, self.config
        if (not self.life or self._may_leave()) and now >= self._requested_ns + config.exchange_ns:
            self._requested_ns = now
            request = WideRequest(self.process, self.generation, self.incarnation, bool(self.life))
            peers = self.members if self.life else config.matrix.processes
            self._effects += [Send(each, request) for each in peers if each != self.process]
        if not self.life and self._founding is not None:
            self._found(self._founding)
        if not self.life:
            return
        for peer in self._signs.due(self.members, now):
            self._confirm(peer, ())
        self._effects += self._views.step(self._signs.suspects(self.members, now), now)

    def _may_leave(self) -> bool:
        return clauses.may_leave(self.leaving, len(self.entries))

    def _compare_views(self, sender: int, view: int) -> None:
        """Send the view to a process that has an older one, and show an older one to a process that has a newer."""
        if not self._signs.may_send_view(sender, self._now):
            return
        if view < self.generation:
            self._send_view(sender)
        else:
            self._confirm(sender, ())

    def _on_view(self, message: WideView) -> None:
        if not self.config.knows(message.content):
            return
        mine = {member.process: member for member in message.content.members}.get(self.process)
        if not self.life:
            if mine is not None and mine.incarnation == self.incarnation:
                self._install(message.view, message.content)
        elif message.view > self.generation:
            self._install(message.view, message.content)

    def _held_of_removed(self, without: frozenset[int]) -> Iterable[WideId]:
        """Return the held messages of sources that the next view will not have."""
        gone = without | {each.source for each in self.entries if self._receipts.lives.get(each.source) != each.life}
        return [each for each, entry in self.entries.items() if entry.kept and each.source in gone]

    def _install(self, view: int, content: WideContent) -> None:
        """Enter a view: the duties for all messages that are not received by all follow from it."""
        lives = {member.process: member.life for member in content.members}
        self._effects.append(WideInstall(view, tuple(sorted(lives))))
        if lives.get(self.process) is None or self.life not in (0, lives[self.process]):
            self.removed = True
            self.failed = bool(self.entries) or not self.leaving
            self.entries.clear()
            self._timers.clear()
            return
        for gone in set(self.lives) - set(lives):
            self._outbox.drop(gone)
        self._receipts.enter(content)
        self._signs.enter(lives, self._now)
        self._plans.clear()
        self._views.begin(view, content.members, self._now)
        self._early.forget(lambda each: not self._receipts.is_expected(each))
        for entry in list(self.entries.values()):
            self._resume(entry)
        self._advance()
        queued, self._queued = self._queued, []
        for payload, members in queued:
            self._send_message(payload, members)

    def _resume(self, entry: Entry) -> None:
        """Continue with a message in a new view."""
        each = entry.data.id
        if not self._receipts.is_expected(each):
            del self.entries[each]
            self._effects.append(WideSettle(each, by_all=False))
            return
        before, entry.plan = entry.plan, self.renew_plan(entry)
        entry.reported = False
        entry.watched.clear()
        entry.wake_ns = 0
        if self.process in entry.plan.destinations:
            for peer in entry.plan.confirms_to(self.process) - before.confirms_to(self.process):
                self._outbox.add(peer, WideStatement(each, Scope.OWN), self._now)
        self._progress(entry)
        if each in self.entries:
            self._watch(entry)

    def renew_plan(self, entry: Entry) -> MessagePlan:
        """Return the duties for a message by the present view."""
        return self._plans.find(entry.data, self.lives)
