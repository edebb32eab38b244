"""The channel planner on TH's benchmark: the generator's facts, the paper's algorithms, ours, and scikit-learn's
K-means.

All at 50 groups and 1000 sessions, C_x / C_f with α = β = 1. `planner-grid` has other numbers of groups and sessions,
`planner-scale` larger instances and real symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.report import Cell, Figure, Options, Result, Stopwatch, Table, tell
from levelcast.native import planner
from levelcast.planner.annealing import Effort
from levelcast.planner.constrained import differences, replan
from levelcast.planner.costs import costs, members, relative_cost
from levelcast.planner.generator import Model, generate
from levelcast.planner.make import Algorithm, make_plan
from levelcast.planner.model import Instance, Limits, Plan, Weights, from_pairs, tidy

QUICK = Model(flows=1500, users=40, markets=4)
NOTED = {Algorithm.SF: 0.192, Algorithm.GF: 0.160, Algorithm.RRA: 0.153, Algorithm.IT: 0.150}
"""What prototypes of the paper's algorithms reached at 50 / 1000, mean of three seeds of another generator."""
FAST_LIMIT, BEST_LIMIT, BEST_LIMIT_S, OF_IT = 0.1435, 0.138, 120.0, 0.955


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it a run does."""

    model: Model
    groups: int
    sessions: int
    seeds: int
    facts: int
    compared: int
    efforts: tuple[Effort, ...]


FULL = Size(Model(), 50, 1000, 10, 20, 3, (Effort.FAST, Effort.BEST))
SMALL = Size(QUICK, 5, 60, 2, 3, 1, (Effort.FAST,))


def timed(
    instance: Instance,
    sessions: int,
    groups: int,
    seed: int = 0,
    algorithm: Algorithm = Algorithm.LEVELCAST,
    effort: Effort = Effort.FAST,
) -> tuple[Plan, Stopwatch]:
    """A plan, and how long it took."""
    with Stopwatch() as watch:
        plan = make_plan(instance, sessions, groups, algorithm=algorithm, effort=effort, seed=seed)
    return plan, watch


def flooding(instance: Instance) -> Plan:
    return Plan(np.where(instance.wanted, 0, -1).astype(np.int32), np.zeros(1, np.int32))


def mini_batch_k_means(instance: Instance, sessions: int, groups: int, seed: int) -> Plan | None:
    """scikit-learn on the same matrix: flows to sessions, then the sessions' users to groups. None without it."""
    try:
        from scipy.sparse import csr_array
        from sklearn.cluster import MiniBatchKMeans
    except ImportError:
        return None
    sent = np.flatnonzero(instance.wanted)
    flows = instance.subset(sent)
    shape = (flows.n_flows, flows.n_users)
    matrix = csr_array((np.ones(len(flows.users), np.float32), flows.users, flows.start.astype(np.int32)), shape=shape)
    label = MiniBatchKMeans(n_clusters=sessions, random_state=seed, n_init=1).fit_predict(matrix).astype(np.int32)
    bits = members(flows, label, sessions).view(np.uint8)
    centroids = np.unpackbits(bits, axis=1, bitorder="little", count=flows.n_users).astype(np.float32)
    group = MiniBatchKMeans(n_clusters=groups, random_state=seed, n_init=1).fit_predict(centroids)
    session = np.full(instance.n_flows, -1, np.int32)
    session[sent] = label
    return tidy(session, group)


def run(options: Options) -> Result:
    size = SMALL if options.quick else FULL
    result = Result("planner")
    if not planner.COMPILED:
        result.notes.append("The compiled kernel is not at work: times are those of its twin in Python.")
    result.tables.append(_facts(size))
    result.tables.append(_paper(size, result))
    _against_others(size, result)
    result.tables.append(_change(size))
    return result


def _facts(size: Size) -> Table:
    """TH §5.1 and §5.3: what a draw of the generator is like."""
    rows: list[tuple[float, ...]] = []
    for seed in range(size.facts):
        instance = generate(size.model, seed)
        symbols = np.bincount(instance.users, minlength=instance.n_users)
        found = costs(instance, flooding(instance))
        rows.append((symbols.max(), symbols.min(), symbols.mean(), 100 * found.flooding_goodput, found.unicast_factor))
    values = np.array(rows)
    names = ("maximum symbols per user", "minimum", "mean", "goodput of flooding, %", "unicast factor")
    paper: tuple[Cell, ...] = (102, 15, 68.85, 2, 10.1)
    table: list[tuple[Cell, ...]] = [
        (name, *(round(float(x), 2) for x in (column.mean(), column.min(), column.max())), said)
        for name, column, said in zip(names, values.T, paper, strict=True)
    ]
    return Table(
        f"The generator over {size.facts} seeds", ("fact", "mean", "minimum", "maximum", "the paper's draw"), table
    )


def _paper(size: Size, result: Result) -> Table:
    """TH figure 7 at one point, and ours beside it."""
    found: dict[Algorithm, list[float]] = {each: [] for each in Algorithm}
    seconds: dict[Algorithm, float] = dict.fromkeys(Algorithm, 0.0)
    for seed in range(size.seeds):
        instance = generate(size.model, seed)
        for algorithm in Algorithm:
            plan, took = timed(instance, size.sessions, size.groups, seed, algorithm)
            found[algorithm].append(relative_cost(instance, plan))
            seconds[algorithm] += took.cpu_s / size.seeds
        tell(f"planner: seed {seed} of {size.seeds}")
    means = {algorithm: float(np.mean(values)) for algorithm, values in found.items()}
    order = (Algorithm.SF, Algorithm.GF, Algorithm.RRA, Algorithm.IT, Algorithm.LEVELCAST)
    for one, other in pairwise(order):
        holds = "above" if means[one] > means[other] else "NOT ABOVE"
        result.notes.append(f"{one} {means[one]:.4f} is {holds} {other} {means[other]:.4f}.")
    rows: list[tuple[Cell, ...]] = []
    for algorithm in order:
        noted = NOTED.get(algorithm)
        values = found[algorithm]
        rows.append(
            (
                str(algorithm), f"{means[algorithm]:.4f}", f"{min(values):.4f}", f"{max(values):.4f}",
                f"{noted:.3f}" if noted and size is FULL else "", f"{means[algorithm] / noted:.3f}" if noted else "",
                f"{means[algorithm] / means[Algorithm.IT]:.3f}", f"{seconds[algorithm]:.2f}",
            )
        )  # fmt: skip
    title = (
        f"C_x / C_f at {size.groups} groups, {size.sessions} sessions, {size.seeds} seeds; levelcast with effort fast"
    )
    return Table(
        title, ("algorithm", "mean", "minimum", "maximum", "prototype", "of prototype", "of IT", "CPU s"), rows
    )


def _change(size: Size) -> Table:
    """A tenth of the users are others tomorrow: what it costs to keep today's plan, and to change it a little."""
    today, others = (generate(size.model, seed) for seed in (0, 1))
    stay = int(0.9 * today.n_users)
    pairs = [
        (each.users[chosen], np.repeat(np.arange(each.n_flows), each.degrees)[chosen])
        for each, chosen in ((today, today.users < stay), (others, others.users >= stay))
    ]
    at_user, at_flow = (np.concatenate(part) for part in zip(*pairs, strict=True))
    tomorrow = from_pairs(today.rates, at_user, at_flow, today.n_users)
    old = make_plan(today, size.sessions, size.groups)
    rows: list[tuple[Cell, ...]] = []
    for allowed in (0, 10, 100, 1000):
        with Stopwatch() as watch:
            change = replan(tomorrow, old, size.sessions, size.groups, allowed, Weights(), Limits(), 0, lambda *_: None)
        cost = relative_cost(tomorrow, change.plan)
        rows.append((f"{allowed} may move", change.moved, f"{cost:.4f}", f"{watch.cpu_s:.2f}"))
    new, took = timed(tomorrow, size.sessions, size.groups)
    known = np.flatnonzero((old.session >= 0) & (new.session >= 0))
    moved, _ = differences(old, new, np.stack([known, known], axis=1))
    rows.append(("a new plan", moved, f"{relative_cost(tomorrow, new):.4f}", f"{took.cpu_s:.2f}"))
    return Table("A tenth of the users replaced", ("flows", "moved", "C_x / C_f", "CPU s"), rows)


def _against_others(size: Size, result: Result) -> None:
    """Ours and scikit-learn on the same matrices, in the same run."""
    rows: list[tuple[Cell, ...]] = []
    ours: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(size.compared):
        instance = generate(size.model, seed)

        def note(name: str, plan: Plan, took: Stopwatch, given: Instance = instance, number: int = seed) -> None:
            cost = relative_cost(given, plan)
            ours.setdefault(name, []).append((cost, took.wall_s, took.cpu_s))
            rows.append((name, number, f"{cost:.4f}", f"{took.wall_s:.2f}", f"{took.cpu_s:.2f}"))

        for effort in size.efforts:
            plan, took = timed(instance, size.sessions, size.groups, seed, effort=effort)
            note(f"levelcast, {effort}", plan, took)
            tell(f"planner: effort {effort}, seed {seed}: {took.wall_s:.1f} s")
        plan, took = timed(instance, size.sessions, size.groups, seed, Algorithm.IT)
        note("IT", plan, took)
        with Stopwatch() as watch:
            theirs = mini_batch_k_means(instance, size.sessions, size.groups, seed)
        if theirs is not None:
            note("MiniBatchKMeans", theirs, watch)
    result.tables.append(Table("The same matrices in turn", ("planner", "seed", "C_x / C_f", "s", "CPU s"), rows))
    mean = {name: tuple(np.mean(values, axis=0).tolist()) for name, values in ours.items()}
    fast_cost, fast_s, fast_cpu_s = mean[f"levelcast, {Effort.FAST}"]
    figures = [
        Figure("cost, effort fast", fast_cost, "C_x / C_f", "limit", FAST_LIMIT),
        Figure("cost, effort fast", fast_cost, "C_x / C_f", f"{OF_IT} of our own IT", OF_IT * mean["IT"][0]),
    ]
    peer = mean.get("MiniBatchKMeans")
    if peer is not None:
        figures.append(Figure("cost, effort fast", fast_cost, "C_x / C_f", "MiniBatchKMeans", peer[0]))
        figures.append(Figure("time, effort fast", fast_s, "s", "MiniBatchKMeans", peer[1]))
        figures.append(Figure("CPU time, effort fast", fast_cpu_s, "s", "MiniBatchKMeans", peer[2]))
    else:
        result.notes.append("MiniBatchKMeans was not measured: pip install 'levelcast[bench]' brings scikit-learn.")
    if Effort.BEST in size.efforts:
        best_cost, best_s, _ = mean[f"levelcast, {Effort.BEST}"]
        figures.append(Figure("cost, effort best", best_cost, "C_x / C_f", "limit", BEST_LIMIT))
        figures.append(Figure("time, effort best", best_s, "s", "limit", BEST_LIMIT_S))
    result.figures += figures
