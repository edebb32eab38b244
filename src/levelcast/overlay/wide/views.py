"""Change the membership of a wide-area group: members join, leave, and are removed after a failure (TT §2, GM).

The next view is agreed on by the members of the present one, as in Paxos: a majority must promise, and a majority must
accept. In addition all members that stay must promise, because a promise reports the messages of removed processes that
its sender holds. From its promise to the next view a process receives and sends no new messages, so that the report
stays true: a message that no member reports is received by none of them later.

The first member that nobody suspects proposes; the others wait in their order. A process that is removed by mistake
learns it from the view, and may join again as a new life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from levelcast.overlay.wide import clauses
from levelcast.overlay.wide.config import GroupConfig
from levelcast.protocol.effects import Effect, Send
from levelcast.wire.wide_codec import MAX_ORPHANS
from levelcast.wire.wide_messages import (
    WideAccept,
    WideAccepted,
    WideContent,
    WideId,
    WideMember,
    WidePrepare,
    WidePromise,
    WideRequest,
    WideView,
)

TRIES = 4
"""Exchanges after which a member that does not answer a proposal is left out of the next view."""
Ballot = tuple[int, int]
"""Round and proposer."""
NO_CONTENT = WideContent((), ())


class ProposalStage(Enum):
    IDLE = "idle"
    PREPARE = "prepare"
    ACCEPT = "accept"


class ViewChange:
    """Agreement on the view after the present one, at one member."""

    def __init__(
        self,
        config: GroupConfig,
        process: int,
        report: Callable[[frozenset[int]], Iterable[WideId]],
        number: Callable[[], int],
        install: Callable[[int, WideContent], None],
    ) -> None:
        """`report` returns the held messages of lives that the next view will not have, without given members."""
        self._config, self._process = config, process
        self._report, self._number, self._install = report, number, install
        self.joining: dict[int, int] = {}
        """Incarnations of processes that request to join."""
        self.leaving: set[int] = set()
        self.begin(0, (), 0)

    def begin(self, view: int, members: tuple[WideMember, ...], now: int) -> None:
        """Begin with a view that was installed."""
        self.view, self.members = view, members
        self.promised: Ballot = (0, 0)
        self._promised_ns = now
        self._accepted: tuple[Ballot, WideContent] = ((0, 0), NO_CONTENT)
        self.stage = ProposalStage.IDLE
        self._round = 0
        self._without: frozenset[int] = frozenset()
        self._refused: set[int] = set()
        """Members that did not answer a proposal in this view."""
        self._promises: dict[int, WidePromise] = {}
        self._agreed: set[int] = set()
        self._content = NO_CONTENT
        self._tries = 0
        self._again_ns: int | None = None
        self._reason_ns: int | None = None
        """Since when there is a reason for a new view."""
        known = {member.process: member for member in members}
        self.leaving &= known.keys()
        for process, incarnation in list(self.joining.items()):
            if process in known and known[process].incarnation >= incarnation:
                del self.joining[process]

    @property
    def frozen(self) -> bool:
        """Return whether this member has promised, so that it receives no messages before the next view."""
        return self.promised != (0, 0)

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(member.process for member in self.members)

    @property
    def _majority(self) -> int:
        return len(self.members) // 2 + 1

    # -- requests -----------------------------------------------------------------------------------------

    def request(self, request: WideRequest) -> None:
        """Note a request to join or to leave."""
        known = {member.process: member for member in self.members}.get(request.sender)
        if request.leaves:
            if known is not None and known.incarnation == request.incarnation:
                self.leaving.add(request.sender)
        elif known is None or known.incarnation < request.incarnation:
            self.joining[request.sender] = max(request.incarnation, self.joining.get(request.sender, 0))

    # -- time ---------------------------------------------------------------------------------------------

    def step(self, suspects: frozenset[int], now: int) -> list[Effect]:
        """Begin a proposal if there is a reason and it is this member's turn; repeat or replace one without answers."""
        if self.stage is not ProposalStage.IDLE:
            return self._repeat(now) if self._again_ns is not None and now >= self._again_ns else []
        waits = self.frozen or self.leaving or self.joining or suspects
        if not waits or self._process in self.leaving:
            self._reason_ns = None
            return []
        if self._reason_ns is None:
            self._reason_ns = now
        able = [each for each in self.processes if each not in suspects and each not in self.leaving]
        turn = able.index(self._process) if self._process in able else len(able)
        patience_ns = 2 * TRIES * self._config.exchange_ns
        if now < self._reason_ns + turn * patience_ns:
            return []
        if self.frozen and now < self._promised_ns + (turn + 1) * patience_ns:
            return []
        return self._propose(suspects, now)

    def _propose(self, suspects: frozenset[int], now: int) -> list[Effect]:
        again = self.joining.keys() & set(self.processes)
        self._without = (suspects | self._refused | self.leaving | again) - {self._process}
        self._round = self.promised[0] + 1
        self.stage, self._promises, self._agreed = ProposalStage.PREPARE, {}, set()
        self._tries = 0
        return self._repeat(now)

    def _repeat(self, now: int) -> list[Effect]:
        """Send the proposal to all that have not answered; after some tries leave them out, or begin again."""
        self._tries += 1
        if self._tries > TRIES:
            if self.stage is ProposalStage.PREPARE:
                self._refused |= set(self.processes) - self._promises.keys() - {self._process}
            if self.promised[1] != self._process and self.promised[0] >= self._round:
                self._promised_ns, self.stage = now, ProposalStage.IDLE  # another member proposes: wait for it
                return []
            return self._propose(self._without, now)
        self._again_ns = now + self._config.exchange_ns
        if self.stage is ProposalStage.PREPARE:
            prepare = WidePrepare(self._process, self.view, self._round, tuple(sorted(self._without)))
            effects: list[Effect] = [Send(each, prepare) for each in self._others(self._promises.keys())]
            return effects + (self.prepare(prepare, now) if self._process not in self._promises else [])
        accept = WideAccept(self._process, self.view, self._round, self._content)
        effects = [Send(each, accept) for each in self._others(self._agreed)]
        return effects + (self.accept(accept, now) if self._process not in self._agreed else [])

    def _others(self, answered: Iterable[int]) -> list[int]:
        return sorted(set(self.processes) - set(answered) - {self._process})

    @property
    def wake_ns(self) -> int | None:
        return self._again_ns if self.stage is not ProposalStage.IDLE else None

    # -- messages -----------------------------------------------------------------------------------------

    def prepare(self, message: WidePrepare, now: int) -> list[Effect]:
        """Promise to take part in no lower ballot, and report."""
        ballot = (message.round, message.sender)
        if message.view != self.view or ballot < self.promised:
            return []
        if ballot > self.promised:
            self.promised, self._promised_ns = ballot, now
            if message.sender != self._process:
                self.stage = ProposalStage.IDLE
        (accepted_round, accepted_by), content = self._accepted if clauses.adopts() else ((0, 0), NO_CONTENT)
        held = tuple(sorted(self._report(frozenset(message.without))))[:MAX_ORPHANS]
        promise = WidePromise(
            self._process,
            self.view,
            message.round,
            message.sender,
            accepted_round,
            accepted_by,
            content,
            self._number(),
            held,
        )
        return self.promise(promise, now) if message.sender == self._process else [Send(message.sender, promise)]

    def promise(self, message: WidePromise, now: int) -> list[Effect]:
        """Count a promise. When all that stay have promised, request the acceptance of the content."""
        if self.stage is not ProposalStage.PREPARE or not self._is_answer(message):
            return []
        self._promises[message.sender] = message
        accepted = [each for each in self._promises.values() if each.accepted_round]
        if len(self._promises) < self._majority:
            return []
        if not accepted and self._answering():
            self._refused.clear()  # the fault may have been here: give all others their time again
            return self._propose(frozenset(), now)
        if accepted:
            self._content = max(accepted, key=lambda each: (each.accepted_round, each.accepted_by)).accepted
        elif set(self.processes) - self._without <= self._promises.keys() or not clauses.waits_for_all():
            self._content = self._next_content()
        else:
            return []
        self.stage, self._tries = ProposalStage.ACCEPT, 0
        return self._repeat(now)

    def _answering(self) -> frozenset[int]:
        """Return the members that were to be removed because they did not answer, and have answered now."""
        wanted = self.leaving | (self.joining.keys() & set(self.processes))
        return (self._without & self._promises.keys()) - wanted

    def _next_content(self) -> WideContent:
        stay = [
            member._replace(number=self._promises[member.process].number)
            for member in self.members
            if member.process not in self._without and member.process in self._promises
        ]
        joins = [
            WideMember(process, self.view + 1, incarnation, 0)
            for process, incarnation in self.joining.items()
            if process not in {member.process for member in stay}
        ]
        members = tuple(sorted((*stay, *joins)))
        lives = {member[:2] for member in members}
        held = {each for member in stay for each in self._promises[member.process].held}
        return WideContent(members, tuple(sorted(each for each in held if each[:2] not in lives))[:MAX_ORPHANS])

    def accept(self, message: WideAccept, now: int) -> list[Effect]:
        ballot = (message.round, message.sender)
        if message.view != self.view or ballot < self.promised:
            return []
        self.promised, self._promised_ns = ballot, now
        self._accepted = (ballot, message.content)
        answer = WideAccepted(self._process, self.view, message.round, message.sender)
        return self.accepted(answer, now) if message.sender == self._process else [Send(message.sender, answer)]

    def accepted(self, message: WideAccepted, now: int) -> list[Effect]:
        """Count an acceptance. With a majority the view is decided."""
        if self.stage is not ProposalStage.ACCEPT or not self._is_answer(message):
            return []
        self._agreed.add(message.sender)
        if len(self._agreed) < self._majority:
            return []
        decided = WideView(self._process, self.view + 1, self._content)
        others = {*self.processes, *(member.process for member in self._content.members)} - {self._process}
        effects: list[Effect] = [Send(each, decided) for each in sorted(others)]
        self._install(self.view + 1, self._content)
        return effects

    def _is_answer(self, message: WidePromise | WideAccepted) -> bool:
        """Return whether an answer is to the present proposal of this member."""
        of_view = message.view == self.view and message.sender in self.processes
        return of_view and (message.round, message.proposer) == (self._round, self._process)
