"""Hold the network while its sections are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from levelcast.network.fields import ProblemReport
from levelcast.network.model import Edge, MulticastGroup, Network
from levelcast.network.toml_lines import KeyPath

DEFAULT_CORE = MulticastGroup("core", "239.192.74.1", 30001)
ID_LIMIT = 65535
LEAST_PACKET, MOST_PACKET = 1_200, 65_000
"""The minimum fits the largest record (1,020 bytes) and all headers; the maximum is just below the largest datagram."""


class Draft:
    """A partly read network, and the checks to run when it is complete."""

    def __init__(self, report: ProblemReport) -> None:
        self.report = report
        self.network = Network("", (), (), (), (), (), None, DEFAULT_CORE, Edge())
        self.checks: list[Callable[[], None]] = []
        self.loss_at: dict[str, KeyPath] = {}
        """Path of each pair's loss, by the pair's name in messages."""

    def add(self, **values: Any) -> None:
        """Set fields of the network."""
        self.network = replace(self.network, **values)

    def check_later(self, check: Callable[[], None]) -> None:
        """Add a check that depends on later sections."""
        self.checks.append(check)

    @property
    def site_names(self) -> set[str]:
        return {site.name for site in self.network.sites}
