"""How many token passes find a failure when receivers are in layers (MS §4.1).

One ring of L_1 receivers needs L_1 passes: a receiver that dies right after its turn is missed at its next one. In i
layers of rings with n members each there are n^i receivers, every ring passes its own token, and n passes are enough:
L_i = L_1^(1/i), rounded up to whole members.

>>> [passes_to_detect(100, layers) for layers in (1, 2, 3)]
[100, 10, 5]
>>> [passes_to_detect(10_000, layers) for layers in (1, 2, 3)]
[10000, 100, 22]
"""

from __future__ import annotations


def passes_to_detect(receivers: int, layers: int) -> int:
    """L_i: the members of the smallest rings that hold so many receivers in so many layers."""
    if receivers < 1 or layers < 1:
        raise ValueError(f"{receivers} receivers in {layers} layers: both must be 1 or more")
    members: int = max(1, round(receivers ** (1 / layers)) - 1)
    while members**layers < receivers:
        members += 1
    return members
