"""Duties of each process for one message: delivery, confirmation, repair and copies (TT §4, §5).

A plan is a function of the view, the matrix, the choices, the source and the destinations of a message. So all
processes of a view compute the same one, and a view without a failed coordinator gives its duties to the next in order.

- A *participant* is the source or a destination, while it is in the view. No other process gets the message: in a
  subgroup whose coordinator is no destination, the next destination in the order of succession coordinates.
- Deviation from N (T1): a source coordinates its own subgroup if it precedes all destinations there in that order, and
  a coordinator without other destinations in its subgroup confirms its receipt and that of the subgroup at once.
- Coordinators also state their own receipt to each other, before that of their subgroups, so that a repair between
  them need not wait for the subgroup (as in M).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from levelcast.overlay.wide.choices import Choices, ConfirmationPath, CopiesBy, DeliveryPath, RepairBy
from levelcast.overlay.wide.matrix import NEAR_NS, PathMatrix
from levelcast.timing.replication import CopyPath, copies_needed, forwards

MAX_COPIES = 8


@dataclass(frozen=True, slots=True)
class PlanRules:
    """The part of a group's configuration that decides the plans."""

    choices: Choices
    matrix: PathMatrix
    near_ns: int = NEAR_NS
    allowed_loss: float = 0.01
    """ε: maximum probability that all copies to a destination are lost (TT §4.3)."""
    forwarders: int = 1
    """Number of processes that forward a copy to one destination."""


class MessagePlan:
    """Duties for messages of one source to one set of destinations, in one view."""

    def __init__(
        self,
        rules: PlanRules,
        subgroups: Iterable[tuple[int, ...]],
        source: int,
        members: Collection[int],
        view: Collection[int],
    ) -> None:
        self._rules, self._matrix, self._choices = rules, rules.matrix, rules.choices
        self.source = source
        self.source_lives = source in view
        self.destinations = frozenset(members) & frozenset(view)
        self.participants = self.destinations | ({source} if self.source_lives else frozenset())
        self._coordinator: dict[int, int] = {}
        """Coordinator of each participant."""
        self._group: dict[int, tuple[int, ...]] = {}
        """Destinations that each coordinator cares for, itself not included."""
        for group in subgroups:
            present = [process for process in group if process in self.participants]
            if present:
                self._coordinator |= dict.fromkeys(present, present[0])
                others = tuple(each for each in present[1:] if each != source)
                self._group[present[0]] = others
        self.coordinators = tuple(sorted(self._group))
        self.is_nested = self._choices.delivery is DeliveryPath.NESTED
        self.is_distributed = self._choices.confirmation is ConfirmationPath.DISTRIBUTED

    # -- delivery -----------------------------------------------------------------------------------------

    @property
    def first(self) -> int | None:
        """Return the coordinator of the source's subgroup; None without one."""
        return self._coordinator.get(self.source)

    def children(self, process: int) -> tuple[int, ...]:
        """Return the processes to which a process sends the message when it has it for the first time."""
        if not self.is_nested:
            return tuple(sorted(self.destinations)) if process == self.source else ()
        first = self.first
        if process == self.source and first is not None and first != process:
            return (first,)
        if process not in self._group:
            return ()
        across = self.coordinators if process == self.first else ()
        return tuple(each for each in (*across, *self._group[process]) if each not in (process, self.source))

    def parent(self, process: int) -> int:
        """Return the process from which a destination first gets the message."""
        if not self.is_nested:
            return self.source
        coordinator = self._coordinator[process]
        if coordinator != process:
            return coordinator
        return self.source if process == self.first or self.first is None else self.first

    def arrival_ns(self, process: int) -> int:
        """Return the expected time from sending the message to its receipt."""
        if process == self.source:
            return 0
        parent = self.parent(process)
        before = self.arrival_ns(parent) if parent != self.source else 0
        return before + self._matrix.delay_ns(parent, process)

    def keeps(self, process: int) -> bool:
        """Return whether a process keeps the message until it is received by all (TT §5)."""
        if process == self.source:
            return True
        if self.is_nested and (not self.is_distributed or self._choices.repair is RepairBy.SENDER):
            return process in self._group
        return self._choices.repair is RepairBy.NEAREST

    # -- confirmation -------------------------------------------------------------------------------------

    def _as_source(self) -> tuple[int, ...]:
        return (self.source,) if self.source_lives else ()

    def confirms_to(self, process: int) -> frozenset[int]:
        """Return the processes to which a destination states its own receipt."""
        if self.is_distributed:
            return self.participants - {process}
        if not self.is_nested:
            return frozenset(self._as_source())
        if process not in self._group:
            return frozenset({self._coordinator[process]})
        first = self._as_source() if process == self.first else ()
        return frozenset((*self.coordinators, *first)) - {process}

    def reports_to(self, process: int) -> frozenset[int]:
        """Return the processes to which a coordinator states the receipt of its subgroup."""
        if self.is_distributed or not self.is_nested or process not in self._group or not self.group_of(process):
            return frozenset()
        return frozenset(self.coordinators) - {process}

    def accepts_to(self, process: int) -> frozenset[int]:
        """Return the processes to which a process states that all have received the message."""
        if self.is_distributed:
            return frozenset()
        if not self.is_nested:
            return self.destinations if process == self.source else frozenset()
        if process not in self._group:
            return frozenset()
        first = self._as_source() if process == self.first else ()
        return frozenset((*self._group[process], *first)) - {process}

    def group_of(self, coordinator: int) -> frozenset[int]:
        """Return the destinations that the statement of a coordinator about its subgroup covers."""
        return frozenset((*self._group.get(coordinator, ()), coordinator)) & self.destinations

    def asks(self, process: int, unknown: int) -> int | None:
        """Return the process from which `process` learns of the receipt by `unknown`; None: from nobody."""
        if self.is_distributed:
            return unknown
        if not self.is_nested:
            return unknown if process == self.source else (self.source if self.source_lives else None)
        if process not in self._group:
            return self._coordinator[process]
        return unknown if unknown in self._group[process] else self._coordinator[unknown]

    def stated_ns(self, process: int, by: int, *, is_receipt: bool) -> int:
        """Return the expected time from sending the message until a statement arrives: of receipt, or of more."""
        matrix = self._matrix
        if self.is_distributed or is_receipt:
            return self.arrival_ns(by) + matrix.delay_ns(by, process)
        if not self.is_nested:
            collected = max((self._round_trip_ns(self.source, each) for each in self.destinations), default=0)
            return collected + matrix.delay_ns(by, process)
        groups_ns = {each: self._collected_ns(each) for each in self.coordinators}
        if process in self._group:
            return groups_ns[by] + matrix.delay_ns(by, process)
        everywhere = max((ns + matrix.delay_ns(each, by) for each, ns in groups_ns.items()), default=0)
        return everywhere + matrix.delay_ns(by, process)

    def _round_trip_ns(self, a: int, b: int) -> int:
        return self._matrix.round_trip_ns(a, b)

    def _collected_ns(self, coordinator: int) -> int:
        """Return the expected time until a coordinator knows of the receipts in its subgroup."""
        longest = max((self._round_trip_ns(coordinator, each) for each in self._group[coordinator]), default=0)
        return self.arrival_ns(coordinator) + longest

    # -- repair -------------------------------------------------------------------------------------------

    def repairs(self, process: int, receiver: int) -> bool:
        """Return whether a process that holds the message sends it again to a destination."""
        if process == receiver:
            return False
        if self._choices.repair is RepairBy.SENDER:
            if receiver not in self.destinations:
                return False
            orphaned = not self.source_lives and self.parent(receiver) == self.source
            return process in self._group if orphaned and self.is_nested else process == self.parent(receiver)
        if not self.is_nested or self.is_distributed:
            return True
        if process in self._group and receiver in self._group:
            return True
        return process == self.parent(receiver)

    def rank(self, process: int, receiver: int, holders: Collection[int]) -> int:
        """Return how many known holders are nearer to a destination. The source is the last one (M, R)."""
        if self._choices.repair is RepairBy.SENDER:
            return 0
        others = [each for each in holders if each != process and self.repairs(each, receiver)]
        if process == self.source:
            return len(others)
        own = self._matrix.repair_ns(process, receiver), process
        nearer = [each for each in others if (self._matrix.repair_ns(each, receiver), each) < own]
        return sum(each != self.source for each in nearer)

    # -- copies -------------------------------------------------------------------------------------------

    def copies(self, sender: int, receiver: int) -> int:
        """Return h: the number of copies that a process sends at once to one destination."""
        if self._choices.copies is not CopiesBy.SENDER:
            return 1
        return self._copies_needed(sender, receiver)

    def _copies_needed(self, sender: int, receiver: int) -> int:
        loss = self._matrix.loss(sender, receiver)
        return MAX_COPIES if loss >= 1 else min(MAX_COPIES, copies_needed(loss, self._rules.allowed_loss))

    def forwards(self, process: int) -> tuple[int, ...]:
        """Return the destinations to which a process forwards an additional copy on receipt (TT Figure 6)."""
        if self._choices.copies is not CopiesBy.FORWARDED or process == self.source:
            return ()
        siblings = [each for each in self.children(self.parent(process)) if each != process]
        return tuple(each for each in siblings if process in self._forwarders(each))

    def _forwarders(self, receiver: int) -> list[int]:
        """Return the processes that forward to a destination, if it needs more than one copy."""
        parent, matrix = self.parent(receiver), self._matrix
        if self._copies_needed(parent, receiver) == 1:
            return []
        direct = CopyPath(matrix.delay_ns(parent, receiver), matrix.loss(parent, receiver))

        def over(process: int) -> tuple[int, int, int]:
            last_ns = matrix.delay_ns(process, receiver)
            return matrix.delay_ns(parent, process) + last_ns, last_ns, process

        able = [
            each
            for each in self.children(parent)
            if each != receiver and forwards(direct, matrix.delay_ns(parent, each), matrix.delay_ns(each, receiver))
        ]
        return sorted(able, key=over)[: self._rules.forwarders]
