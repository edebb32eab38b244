"""Assign lines to receivers (MS §4.3): the function that all servers use.

A region has lines, and an order of preference of the receivers (`levelcast.network.line_assignment`). The preferred
receiver of its first line is the first in that order, of its second line the second.

- A line stays at its preferred receiver while that is operable.
- Otherwise it is assigned to the first operable receiver in that order that has no line and is preferred for none;
  failing that, to the one with the fewest lines. So two lines have two receivers while two are operable, and a line at
  its preferred receiver stays there when other receivers fail or return.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Receiver = TypeVar("Receiver", bound=Hashable)


class RegionLines(NamedTuple, Generic[Receiver]):
    """The lines of one region, and all receivers in its order of preference."""

    lines: tuple[str, ...]
    order: tuple[Receiver, ...]


def holders(regions: Iterable[RegionLines[Receiver]], operable: Collection[Receiver]) -> dict[str, Receiver]:
    """Return the receiver of each line; empty if no receiver is operable."""
    found: dict[str, Receiver] = {}
    for lines, order in regions:
        preferred = {line: order[number % len(order)] for number, line in enumerate(lines)}
        able = [receiver for receiver in order if receiver in operable]
        spare = [receiver for receiver in able if receiver not in preferred.values()]
        used = [receiver for receiver in preferred.values() if receiver in operable]
        for line in lines:
            if preferred[line] in operable:
                found[line] = preferred[line]
            elif able:
                found[line] = spare.pop(0) if spare else min(able, key=used.count)
                used.append(found[line])
    return found
