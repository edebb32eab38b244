"""MS §5.2: requests for each loss, with and without sets of receivers that ask one after the other.

What is multicast is lost at the branches of a tree for all receivers below, and at single receivers. It is measured

- *in the simulator*: a ring of 48 receivers below 8 branches, the same network and load for every kind of sets. A loss
  is a token or packet that at least one receiver did not get; a request that names three of them is three requests;
- *in arrays*, for 1,000 and 10,000 receivers, with the same sets (`levelcast.timing.nack_sets.sets_of`): in each
  request interval the sets whose turn has come ask, and one answer is multicast over the same tree. For 48 receivers it
  stands beside the simulator, to show how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from benchmarks.report import Cell, Figure, Table
from levelcast.protocol.effects import Effect, Send
from levelcast.sim.compare_protocols import ProtocolFigures, ProtocolRecorder
from levelcast.sim.engine.network import Copy, VirtualNetwork
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.steady import MS, steady_world
from levelcast.timing.nack_sets import NackSets, even_sets, sets_of, tree_sets, tuned_sets, tuned_sizes
from levelcast.units import quantile
from levelcast.wire.messages import Request

MEMBERS, BRANCHES = 48, 8
QUICK_MEMBERS, QUICK_BRANCHES = 12, 4
BRANCH_LOSS, LEAF_LOSS = 0.02, 0.0005
SLOT_MS, LOAD = 50, 40
KINDS_OF_SOURCE = (1, 2)
"""Datagram kinds of packets and tokens (`levelcast.wire.codec`)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to divide the receivers."""

    name: str
    sets: NackSets | None

    @property
    def count(self) -> int:
        return self.sets.count if self.sets is not None else 1


def cases(members: int, branches: int) -> list[Case]:
    """All ask at once; even sets; tuned ones; a tree. Tuned to the share that misses what somebody misses."""
    share = expected_share(members, branches)
    branch = {member: str(place) for member, place in below(members, branches).items()}
    found = [Case("none", None)]
    found += [Case(f"{count} even", even_sets(count)) for count in (2, 4, 8)]
    found += [Case(f"{count} tuned", tuned_sets(tuned_sizes(members, count, share))) for count in (2, 4)]
    found += [Case(f"{count} by the tree", tree_sets(branch, count)) for count in (2, 4)]
    return found


def below(members: int, branches: int) -> dict[int, int]:
    """The branch that each member hangs below, equally many at each, wherever they stand in the ring."""
    places = [1 + index % branches for index in range(members)]
    Random(members).shuffle(places)
    return dict(zip(range(1, members + 1), places, strict=True))


def expected_share(members: int, branches: int) -> float:
    """Receivers that miss a multicast, as a share of all, given that somebody misses it."""
    missed = 1.0 - (1.0 - BRANCH_LOSS) * (1.0 - LEAF_LOSS)
    nobody = (1.0 - BRANCH_LOSS) ** branches * (1.0 - LEAF_LOSS) ** members
    return missed / (1.0 - nobody)


@dataclass(slots=True)
class Counted:
    """What one case came to."""

    case: Case
    losses: int = 0
    missed: int = 0
    """Receivers that did not get something, all losses added up."""
    requests: int = 0
    repairs: int = 0
    repair_ns: list[int] = field(default_factory=list)
    """Timestamp until held, at receivers that missed something of a slot."""
    hold_ns: int = 0
    recovery_ns: int = 0
    late: int = 0

    @property
    def per_loss(self) -> float:
        return self.requests / max(self.losses, 1)


@dataclass(slots=True)
class CountingNetwork(VirtualNetwork):
    """Counts what the first sending of tokens and packets loses on the way to members."""

    members: frozenset[int] = frozenset()
    losses: int = 0
    missed: int = 0

    def copies(self, sender: int, receivers: Sequence[int], datagram: bytes) -> list[Copy]:
        copies = VirtualNetwork.copies(self, sender, receivers, datagram)
        if datagram[3] in KINDS_OF_SOURCE and len(receivers) > 1:
            arrived = {copy.to for copy in copies}
            missed = sum(node in self.members and node not in arrived for node in receivers)
            self.missed += missed
            self.losses += missed > 0
        return copies


class Requests:
    """Counts what is asked for, one by one."""

    def __init__(self) -> None:
        self.items = 0

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send) and isinstance(effect.message, Request):
            packets = sum(run.last - run.first + 1 for run in effect.message.packets)
            self.items += len(effect.message.slots) + packets


def in_simulator(work: tuple[Case, int, int, int, int]) -> Counted:
    """One case with one seed: members, branches, load for so many ns."""
    case, members, branches, seed, lasting_ns = work
    branch_of = below(members, branches)
    ring = steady_world(
        members, LEAF_LOSS, seed=seed, slot_ns=SLOT_MS * MS, witnesses=1, sources=2, gap_ns=2_000 * MS // LOAD,
        branch_of=branch_of, branch_loss=BRANCH_LOSS, nack=case.sets, as_in_paper=True,
    )  # fmt: skip
    ring.form()
    plain = ring.world.network
    counting = CountingNetwork(
        plain.rng, plain.delay_ns, plain.branch_of, plain.weather, members=frozenset(ring.roles.members)
    )
    ring.world.network = counting
    found = ProtocolFigures("timed", members, LEAF_LOSS, LOAD, ring.timing)
    ledger, requests = ProtocolRecorder(ring.world, ring.roles.members, found), Requests()
    ring.world.watchers += [ledger, requests]
    ledger.counting = True
    ring.load(lasting_ns)
    ring.drain()
    late_ns = ring.timing.late_ns
    return Counted(
        case,
        counting.losses,
        counting.missed,
        requests.items,
        found.sent["repair"],
        [ready for slot in ledger.ready_ns() for ready in slot if ready > late_ns + MS],
        ring.timing.hold_ns,
        ring.timing.recovery_ns,
        ring.samples.late,
    )


def add(total: Counted, one: Counted) -> None:
    """Seeds of one case."""
    for name in ("losses", "missed", "requests", "repairs", "late"):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    total.repair_ns += one.repair_ns
    total.hold_ns, total.recovery_ns = one.hold_ns, one.recovery_ns


# Arrays


@dataclass(frozen=True, slots=True)
class Bulk:
    """A case with many receivers."""

    case: Case
    members: int
    missed: float
    """Receivers that miss what is lost, per loss."""
    requests: float
    answers: float
    rounds: float
    """Request intervals until nobody misses it: mean."""
    worst_rounds: int


def in_bulk(case: Case, members: int, branches: int, losses: int, seed: int = 1) -> Bulk:
    """So many losses, each repaired until nobody misses it."""
    rng = np.random.default_rng(seed)
    branch = np.array(list(below(members, branches).values())) - 1
    names = tuple(range(1, members + 1))
    turn_of = np.zeros(members, dtype=np.int64)
    requests = answers = missed_all = rounds_all = 0
    worst = found = 0
    while found < losses:
        missing = _lost(rng, branch, branches)
        if not missing.any():
            continue
        if found % 32 == 0 and case.sets is not None:  # the sets turn with the token
            turns = sets_of(case.sets, names, int(rng.integers(1, members + 1)))
            turn_of = np.array([turns[name] for name in names])
        found += 1
        missed_all += int(missing.sum())
        interval = 0
        while missing.any():
            asking = missing & (turn_of <= interval)
            requests += int(asking.sum())
            heard = asking & (rng.random(members) >= LEAF_LOSS)
            if heard.any():
                answers += 1
                missing &= _lost(rng, branch, branches)
            interval += 1
        rounds_all += interval
        worst = max(worst, interval)
    per = 1.0 / losses
    return Bulk(case, members, missed_all * per, requests * per, answers * per, rounds_all * per, worst)


def _lost(rng: np.random.Generator, branch: np.ndarray, branches: int) -> np.ndarray:
    """Who does not get one multicast."""
    at_branch = rng.random(branches) < BRANCH_LOSS
    mask: np.ndarray = at_branch[branch] | (rng.random(len(branch)) < LEAF_LOSS)
    return mask


# What is said


def figures(counted: list[Counted]) -> list[Figure]:
    plain = counted[0]
    chosen = [one for one in counted if one.case.name in ("4 even", "4 tuned", "4 by the tree")]
    found = [
        Figure(f"requests per loss, {one.case.name}", one.per_loss, "requests", "none", plain.per_loss)
        for one in chosen
    ]
    found += [
        Figure(f"hold time (w = 1), {one.case.name}", one.hold_ns / 1e9, "s", "none", plain.hold_ns / 1e9)
        for one in chosen[:1]
    ]
    return found


def predicted(case: Case, missed: float) -> float | None:
    """What MS §5.2 leads one to expect: a k_p-th of those who miss it asks, or one where sets go by the tree.

    It gives no number for tuned sets.
    """
    if not missed or (case.sets is not None and case.sets.kind == "tuned"):
        return None
    if case.sets is None:
        return missed
    return max(1.0, missed / case.count) if case.sets.kind == "even" else 1.0


def tables(counted: list[Counted], bulk: list[Bulk], members: int, branches: int) -> list[Table]:
    rows: list[tuple[Cell, ...]] = []
    plain = counted[0]
    for one in counted:
        missed = one.missed / max(one.losses, 1)
        times = sorted(one.repair_ns)
        expected = predicted(one.case, missed)
        rows.append(
            (
                one.case.name,
                one.losses,
                f"{missed:.2f}",
                f"{one.per_loss:.2f}",
                f"{expected:.2f}" if expected is not None else "-",
                f"{one.per_loss / expected:.2f}" if expected is not None else "-",
                f"{one.repairs / max(one.losses, 1):.2f}",
                f"{quantile(times, 0.5) / 1e6:.0f}",
                f"{quantile(times, 0.99) / 1e6:.0f}",
                f"{quantile(times, 1.0) / 1e6:.0f}",
                f"{one.hold_ns / 1e6:.0f}",
                f"+{(one.hold_ns - plain.hold_ns) / 1e6:.0f}",
                one.late,
            )
        )
    columns = (
        "sets", "losses", "missed by", "requests", "expected", "ratio", "replies", "repaired p50", "p99", "max ms",
        "Δ_A ms", "more", "late",
    )  # fmt: skip
    title = f"per loss, {members} receivers below {branches} branches, in the simulator; w = 1"
    wide: list[tuple[Cell, ...]] = []
    for large in bulk:
        name = f"{large.members:,}, {large.case.name}"
        first = next(each for each in bulk if each.members == large.members)
        wide.append(
            (
                name,
                f"{large.missed:.2f}",
                f"{large.requests:.2f}",
                f"{large.requests / first.requests:.3f}",
                f"{large.answers:.2f}",
                f"{large.rounds:.2f}",
                large.worst_rounds,
            )
        )
    bulk_columns = ("receivers, sets", "missed by", "requests", "relative to none", "replies", "intervals", "max")
    bulk_title = f"per loss in arrays, {BRANCH_LOSS:.0%} lost at a branch and {LEAF_LOSS:.2%} at a receiver"
    return [Table(title, columns, rows), Table(bulk_title, bulk_columns, wide)]


def bulk_sizes(*, quick: bool) -> list[tuple[int, int, int]]:
    """Receivers, branches, losses."""
    if quick:
        return [(QUICK_MEMBERS, QUICK_BRANCHES, 50)]
    return [(MEMBERS, BRANCHES, 5_000), (1_000, 32, 2_000), (10_000, 100, 500)]
