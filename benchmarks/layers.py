"""Compute how many token passes find a failure when receivers are in layers (MS §4.1).

One ring of L_1 receivers needs L_1 passes: a receiver that dies right after its turn is missed at its next one. In i
layers of rings with n members each, the head of a ring being a member of a ring in the layer above too, there are n^i
receivers. Every ring passes its own token, and n passes are enough: L_i = L_1^(1/i), rounded up to whole members.

>>> [passes_to_detect(100, layers) for layers in (1, 2, 3)]
[100, 10, 5]
>>> [passes_to_detect(10_000, layers) for layers in (1, 2, 3)]
[10000, 100, 22]

Deviation from MS §4.1: the paper gives L_i for guaranteeing delivery too. That holds within each ring. That *all*
receivers have a message is known at the top only when the rings have gone round one layer after the other, because a
head claims for the ring below it (rule 11) only what it has heard there: i·L_i passes.

>>> [passes_to_know(100, layers) for layers in (1, 2, 3)]
[100, 20, 15]
"""

from __future__ import annotations


def passes_to_detect(receivers: int, layers: int) -> int:
    """L_i: the members of the smallest rings that hold so many receivers in so many layers."""
    if receivers < 1 or layers < 1:
        raise ValueError(f"{receivers} receivers in {layers} layers: both must be 1 or more")
    low, high = 1, receivers
    while low < high:  # in whole numbers: a root of floats is off by one where it matters
        middle = (low + high) // 2
        if middle**layers < receivers:
            low = middle + 1
        else:
            high = middle
    return low


def passes_to_know(receivers: int, layers: int) -> int:
    """Passes within which the ring at the top knows that everybody has a message: one round for each layer."""
    return layers * passes_to_detect(receivers, layers)


def rings(receivers: int, layers: int) -> list[list[tuple[int, ...]]]:
    """Receivers 0, 1, ... in layers of rings of at most L_i members, the top layer first.

    The first member of a ring is its head and stands in the layer above too; the top layer is one ring.

    >>> rings(8, 3)
    [[(0, 4)], [(0, 2), (4, 6)], [(0, 1), (2, 3), (4, 5), (6, 7)]]
    """
    size = passes_to_detect(receivers, layers)
    members = tuple(range(receivers))
    found: list[list[tuple[int, ...]]] = []
    for _ in range(layers):
        layer = [members[first : first + size] for first in range(0, len(members), size)]
        found.insert(0, layer)
        members = tuple(ring[0] for ring in layer)
    return found
