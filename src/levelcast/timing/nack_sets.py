"""NACK reduction: request a missing token or packet immediately, or wait for the answer to another member (MS §5.2).

Losses on a multicast tree are common to a branch: receivers below it miss the same packets (MS §3.9). If all of them
send requests, the holder repeats the same answer. So for each slot the members of the ring are divided into sets S_0,
S_1, ... S_(k_p − 1). S_i sends requests i·τ_r later than S_0, and answers are multicast; a member that has received the
answer by then sends none. d is the distance of a member from the slot owner in ring order, 1 to m:

| kind  | d is in                                                      | for |
|-------|--------------------------------------------------------------|-----|
| even  | S_((d − 1) mod k_p), the paper's formula                     | losses without a known pattern |
| tuned | the first set, in d's order, that is not full                | few in S_0 where a loss affects many |
| tree  | S_i, if i members of its own branch are nearer to the owner  | one of each branch before its neighbours |

- The sets rotate with the token, because they count from the slot owner: no member always waits.
- d is never in a set above d − 1, so a member sends requests before its own slot (MS §5.2's condition; in lockstep,
  where a slot is R, it has everything that it needs by then).
- The cost is time: the last set sends (k_p − 1)·τ_r later, so R and Δ_A are longer by that (`Timing.stagger_ns`,
  rule 6). MS §5.2 therefore advises against it for a market, and it is off unless the network file enables it.
- A secondary waits as its primary does: by then the primary has the items that it requests.

Deviation from MS §5.2: there S_i sends requests when it has received token t + i, so that each set costs a full token
pass. Here it sends by the clock, a request interval after the previous set, which is the time for an answer. In
lockstep, the paper's mode, k_p sets cost (k_p − 1)·τ_r instead of (k_p − 1)·τ.

>>> even = even_sets(3)
>>> [sets_of(even, (1, 2, 3, 4, 5), site=1)[member] for member in (2, 3, 4, 5, 1)]
[0, 1, 2, 0, 1]
>>> tree = tree_sets({1: "east", 2: "east", 3: "west", 4: "west", 5: "west"})
>>> [sets_of(tree, (1, 2, 3, 4, 5), site=1)[member] for member in (2, 3, 4, 5, 1)]
[0, 0, 1, 2, 1]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["even", "tuned", "tree"]

MOST_SETS = 16
TREE_SETS = 4
"""Default maximum number of sets of a tree: with more, a large branch would cost too much hold time."""


@dataclass(frozen=True, slots=True)
class NackSets:
    """Division of the members of a ring for each slot. Made by `even_sets`, `tuned_sets` and `tree_sets`."""

    kind: Kind
    count: int
    """k_p."""
    sizes: tuple[int, ...] = ()
    """Sizes of tuned sets; the last set contains all remaining members."""
    branch_of: Mapping[int, str] = field(default_factory=dict)
    """Branch of each member, for a tree. A member without an entry is a branch by itself."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_SETS:
            raise ValueError(f"{self.count} sets: there must be 1 to {MOST_SETS}")
        if any(size < 1 for size in self.sizes):
            raise ValueError(f"sets of {', '.join(map(str, self.sizes))} receivers: each needs at least one")


def even_sets(count: int) -> NackSets:
    """Return k_p sets of the same size, each spread evenly around the ring."""
    return NackSets("even", count)


def tuned_sets(sizes: Sequence[int]) -> NackSets:
    """Return sets of these sizes."""
    return NackSets("tuned", len(sizes), tuple(sizes))


def tree_sets(branch_of: Mapping[int, str], most: int = TREE_SETS) -> NackSets:
    """Return sets with one member of each branch in each set; the last of `most` sets contains the rest."""
    largest = max(Counter(branch_of.values()).values(), default=1)
    return NackSets("tree", min(largest, most), branch_of=branch_of)


def tuned_sizes(receivers: int, sets: int, share: float) -> tuple[int, ...]:
    """Return sizes with which every set is equally likely to be the one that sends requests (MS §5.2).

    `share` is the fraction of the receivers that miss an item if any of them does. The probability that none of n
    receivers sends a request is (1 − share)^n, which has to fall by the same amount with each set.

    >>> tuned_sizes(100, 4, 0.01), tuned_sizes(100, 4, 0.3)
    ((17, 21, 26, 36), (1, 1, 2, 96))
    """
    if not 1 <= sets <= receivers:
        raise ValueError(f"{sets} sets of {receivers} receivers: there must be at least one receiver in each")
    if not 0.0 < share < 1.0:
        raise ValueError(f"fraction {share} of the receivers: it must be between 0 and 1")
    asked = 1.0 - (1.0 - share) ** receivers
    sizes: list[int] = []
    for index in range(1, sets):
        upto = round(math.log(1.0 - index * asked / sets) / math.log(1.0 - share))
        room = receivers - sum(sizes) - (sets - index)
        sizes.append(min(max(1, upto - sum(sizes)), room))
    return (*sizes, receivers - sum(sizes))


def sets_of(sets: NackSets, members: Sequence[int], site: int) -> dict[int, int]:
    """Return the set of every member of the ring for the slots of `site`."""
    first = members.index(site) + 1
    behind = [*members[first:], *members[:first]]
    if sets.kind == "even":
        return {member: place % sets.count for place, member in enumerate(behind)}
    if sets.kind == "tuned":
        filled = [index for index, size in enumerate(sets.sizes[:-1]) for _ in range(size)]
        return {member: filled[place] if place < len(filled) else sets.count - 1 for place, member in enumerate(behind)}
    seen: Counter[str | int] = Counter()
    found: dict[int, int] = {}
    for member in behind:
        branch: str | int = sets.branch_of.get(member, member)
        found[member] = min(seen[branch], sets.count - 1)
        seen[branch] += 1
    return found


class Askers:
    """The sets of one ring: the set of a member for the slots of a slot owner."""

    def __init__(self, sets: NackSets, members: Sequence[int]) -> None:
        self._sets = sets
        self._members = tuple(members)
        self._by_site: dict[int, dict[int, int]] = {}

    def set_of(self, member: int | None, site: int) -> int:
        """Return i of S_i; 0 for a node outside the ring, which does not wait."""
        found = self._by_site.get(site)
        if found is None:
            found = self._by_site[site] = sets_of(self._sets, self._members, site)
        return found.get(member, 0) if member is not None else 0
