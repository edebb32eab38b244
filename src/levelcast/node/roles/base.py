"""Define the interface of a role: a protocol class on its files, services, own work, status and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from levelcast.network import Network
from levelcast.network.placement import Placement
from levelcast.network.roles import RoleKind
from levelcast.node.metrics import Metric
from levelcast.node.options import NodeOptions
from levelcast.overlay.hold_feedback import HoldFeedback
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.events import Event
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.machine import Machine
from levelcast.runtime.driver import Counters, Service, Work
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import JournalStore
from levelcast.storage.receiver_store import ReceiverStore

if TYPE_CHECKING:
    from levelcast.keys.core_security import CoreSecurity

Names = Mapping[int, str]
"""Names of nodes by their ids."""
Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """Arguments of a role: a node's placement, configuration, directory and options."""

    network: Network
    place: Placement
    config: StripeConfig
    directory: Path
    now: int
    options: NodeOptions = field(default_factory=NodeOptions)
    report: Callable[[Event], None] = lambda _: None
    security: CoreSecurity | None = None
    """The node's keys at work; None in a network without keys."""

    @property
    def until_ns(self) -> int | None:
        """Time at which the node stops; None: on a signal."""
        return None if self.options.run_ns is None else self.now + self.options.run_ns

    def journal(self) -> tuple[JournalStore, JournalImage]:
        """Open the journal of a node that has no other files."""
        journal, image = JournalFile.open(self.directory / "journal", durable=self.network.tape.durable)
        return JournalStore(journal), image


class Role:
    """The role of one node. The defaults are those of a role with only a protocol class."""

    KIND: ClassVar[RoleKind]
    METRICS: ClassVar[tuple[Metric, ...]] = ()
    """Metrics that only nodes of this role have."""
    STATE: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    """Key of the node's state in the status, and its possible values."""
    machine: Machine
    feedback: HoldFeedback | None = None
    """Follows the measured delays with the hold time, at a receiver."""
    store: JournalStore | ReceiverStore

    def __init__(self, setup: NodeSetup) -> None:
        """Open the node's files, and create its protocol class from their contents."""
        raise NotImplementedError

    def services(self) -> Iterator[Service]:
        """Open the services that run in the same loop as the protocol class."""
        yield from ()

    def work(self) -> Work | None:
        """Return the work that the node does on its own."""
        return None

    def status(self, counters: Counters, names: Names, now: int) -> Status:
        """Return the role's part of the status line, which a node prints a few times per second."""
        raise NotImplementedError

    def details(self, known: Status, now: int) -> Status:
        """Return the details that only the status page has; `known` is the status line."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Return whether the node may exit when its time is over."""
        return True

    def leave(self, now: int) -> None:
        """Announce a planned stop."""
        self.machine.leave()

    def has_left(self) -> bool:
        """Return whether the node may exit after `leave`: no other node expects anything of it."""
        return self.machine.has_left

    def end_sessions(self) -> None:
        """End the sessions of subscribers, if it has any. The ring and the tape continue."""


def name_of(node: int, names: Names) -> str | None:
    """Return a node's name; its id if it is not in the file, None for no node (0)."""
    return names.get(node, str(node)) if node else None
