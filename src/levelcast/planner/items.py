"""Merge flows that always move together into one item: flows with the same users, and flows pinned together.

Two flows with equal columns of W have the lowest cost in one session: of their two sessions (and groups) one is not
larger than the other, and moving the other flow there cannot raise C_w. So, without capacity limits, merging loses
nothing; the search gets shorter and its moves larger. This is an addition to the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from levelcast.planner.costs import members, rates_of
from levelcast.planner.model import Instance, Ints, Longs


def merge_equal(instance: Instance, keep_apart: npt.NDArray[np.integer] | None = None) -> Ints:
    """Return the class of each flow: flows of one class have equal columns, and equal `keep_apart` if given."""
    keys = np.random.default_rng(0x5EED).integers(1, 2**63, size=instance.n_users + 1, dtype=np.uint64)
    total = np.concatenate(([np.uint64(0)], np.cumsum(keys[instance.users], dtype=np.uint64)))
    digest = total[instance.start[1:]] - total[instance.start[:-1]]  # modulo 2**64, as a hash should be
    if keep_apart is not None:
        digest += keep_apart.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    _, first, label = np.unique(digest, return_index=True, return_inverse=True)
    classes = label.astype(np.int64)
    collided = _differs(instance, label, first)
    if keep_apart is not None:
        collided = np.union1d(collided, np.flatnonzero(keep_apart != keep_apart[first[label]]))
    classes[collided] = len(first) + np.arange(len(collided))  # one pair in 2**64
    return np.unique(classes, return_inverse=True)[1].astype(np.int32)


def _equal_columns(instance: Instance, one: Longs, other: Longs) -> npt.NDArray[np.bool_]:
    left, right = instance.subset(one), instance.subset(other)
    unlike = np.concatenate(([0], np.cumsum(left.users != right.users)))
    return np.asarray(unlike[left.start[1:]] == unlike[left.start[:-1]])


def join(instance: Instance, label: Ints) -> Instance:
    """Return one item per class: the sum of the rates, the union of the users."""
    n = int(label.max()) + 1 if len(label) else 0
    _, first = np.unique(label, return_index=True)
    rates = np.asarray(np.bincount(label, instance.rates, n), np.float64)
    head = instance.subset(first)
    unlike = np.unique(label[_differs(instance, label, first)])
    if not len(unlike):
        return Instance(rates, head.start, head.users, instance.n_users)
    sets = np.split(head.users, head.start[1:-1])
    for item in unlike:
        sets[item] = np.unique(instance.subset(np.flatnonzero(label == item)).users)
    start = np.concatenate(([0], np.cumsum([len(each) for each in sets]))).astype(np.int64)
    return Instance(rates, start, np.concatenate(sets), instance.n_users)


def _differs(instance: Instance, label: Ints, first: Longs) -> Longs:
    """Return the flows with another column than the first flow of their class."""
    repeated = np.flatnonzero(first[label] != np.arange(instance.n_flows))
    head = first[label[repeated]]
    same = instance.degrees[repeated] == instance.degrees[head]
    same[same] = _equal_columns(instance, repeated[same], head[same])
    return np.asarray(repeated[~same], np.int64)


def pin(label: Ints, together: Iterable[Sequence[int]]) -> Ints:
    """Merge the classes of the flows in each set of `together`."""
    parent = np.arange(int(label.max()) + 1 if len(label) else 0)

    def root(at: int) -> int:
        while parent[at] != at:
            at = int(parent[at])
        return at

    for flows in together:
        for flow in flows[1:]:
            a, b = sorted((root(int(label[flows[0]])), root(int(label[flow]))))
            parent[b] = a
    roots = np.array([root(at) for at in range(len(parent))], np.int64)
    return np.unique(roots[label], return_inverse=True)[1].astype(np.int32) if len(label) else label


def as_items(instance: Instance, label: Ints, clusters: int) -> Instance:
    """Return the clusters as items of the next level: rate θ_l, users C_l (TH (7))."""
    start, users = [0], [np.empty(0, np.int32)]
    for row in members(instance, label, clusters):
        users.append(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).astype(np.int32))
        start.append(start[-1] + len(users[-1]))
    rates = rates_of(instance, label, clusters)
    return Instance(rates, np.array(start, np.int64), np.concatenate(users), instance.n_users)
