"""The planner on instances larger than TH's, each in a process of its own, and on the symbols of a real market.

The large ones are TH's model with more flows and users: each user still two of ten markets and 1 % of each.

The real case: rates are the shares traded a day in 7,100 US symbols, mean of five days; the interest is a model,
because who wants what is nobody's public data. Of 500 users, 70 % are desks that follow two sectors and take 70
symbols of them by dollars traded, 20 % follow an index (the 50, 100 or 500 symbols with the most dollars), and 10 %
take 100 symbols at random. The sectors are those of today's listings where the symbol is still listed, and drawn by
their frequencies where not.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.planner import flooding, timed
from benchmarks.report import Cell, Figure, Options, Result, Stopwatch, Table, tell
from levelcast.planner.annealing import Effort
from levelcast.planner.costs import costs, relative_cost
from levelcast.planner.files import write_problem
from levelcast.planner.generator import Model, generate
from levelcast.planner.make import Algorithm, make_plan
from levelcast.planner.model import Instance, Plan, from_pairs, tidy

GROUPS, SESSIONS = 50, 1000
LIMITS = {  # flows, users: cost, seconds
    (100_000, 1_000): (0.275, 2.0),
    (100_000, 10_000): (0.304, 3.0),
    (1_000_000, 10_000): (0.425, 15.0),
}
GROWTH = ((20_000, 500), (50_000, 500), (100_000, 1_000), (200_000, 2_000), (100_000, 10_000), (1_000_000, 10_000))
LATER_LIMIT, LATER_LIMIT_S = 0.268, 20.0
MEMORY_LIMIT_GB = 2.0
SPARK_LIMIT, SPARK_LIMIT_S = 0.430, 90.0


def run(options: Options) -> Result:
    result = Result("planner-scale")
    sizes = ((2_000, 50), (4_000, 50)) if options.quick else GROWTH
    _large(sizes, result)
    if not options.quick:
        _on_spark(result)
    data = data_dir()
    if data is None:
        result.notes.append("The real case was left out: LEVELCAST_DATA does not point to the recorded market data.")
    else:
        _real(data, options, result)
    return result


# -- large instances ------------------------------------------------------------------------------------------------


def measure(flows: int, users: int, effort: Effort) -> dict[str, float]:
    """Generate, plan, and tell how long and how much memory it took. For a process of its own."""
    begun = time.perf_counter()
    instance = generate(Model(flows=flows, users=users), 0)
    loaded = time.perf_counter() - begun
    plan, took = timed(instance, SESSIONS, GROUPS, effort=effort)
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    cost = relative_cost(instance, plan)
    return {
        "pairs": len(instance.users),
        "load_s": loaded,
        "s": took.wall_s,
        "cpu_s": took.cpu_s,
        "cost": cost,
        "peak_gb": peak_gb,
    }


def _large(sizes: tuple[tuple[int, int], ...], result: Result) -> None:
    rows: list[tuple[Cell, ...]] = []
    used: dict[str, float] = {}
    for flows, users in sizes:
        tell(f"planner-scale: {flows:,} flows, {users:,} users")
        command = [sys.executable, "-m", "benchmarks.planner_scale", str(flows), str(users), Effort.FAST]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        found = json.loads(done.stdout)
        pairs = int(found["pairs"])
        rows.append(
            (
                f"{flows:,} x {users:,}", pairs, f"{found['cost']:.4f}", f"{found['s']:.2f}",
                f"{found['cpu_s']:.2f}",
                f"{found['cpu_s'] / pairs * 1e6:.2f}", f"{found['peak_gb']:.2f}",
            )
        )  # fmt: skip
        name = f"{flows:,} x {users:,}"
        used[name] = found["cpu_s"]
        limit = LIMITS.get((flows, users))
        if limit is not None:
            result.figures.append(Figure(f"cost, {name}", found["cost"], "C_x / C_f", "limit", limit[0]))
            result.figures.append(Figure(f"CPU time, {name}", found["cpu_s"], "s", "limit", limit[1]))
        if (flows, users) == (100_000, 1_000):
            against = f"limit for {LATER_LIMIT_S:.0f} s"
            result.figures.append(Figure(f"cost, {name}", found["cost"], "C_x / C_f", against, LATER_LIMIT))
        if (flows, users) == (1_000_000, 10_000):
            result.figures.append(Figure(f"memory, {name}", found["peak_gb"], "GB", "limit", MEMORY_LIMIT_GB))
    (smallest, little), *_, (largest, much) = used.items()
    result.figures.append(Figure(f"CPU time, {largest}", much, "s", smallest, little))
    columns = ("flows x users", "pairs", "C_x / C_f", "s after loading", "CPU s", "CPU µs per pair", "peak GB")
    result.tables.append(Table(f"{GROUPS} groups, {SESSIONS} sessions, effort fast, one core", columns, rows))


def _on_spark(result: Result) -> None:
    """A million flows by `levelcast plan make --engine spark`, the pairs never on the driver."""
    if find_spec("pyspark") is None or shutil.which("java") is None:
        result.notes.append("Spark was not measured: pip install 'levelcast[spark]' brings it, and it needs Java 17.")
        return
    flows, users = GROWTH[-1]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "in"
        write_problem(files, generate(Model(flows=flows, users=users), 0))
        tell(f"planner-scale: {flows:,} flows, {users:,} users on Spark")
        command = [sys.executable, "-m", "levelcast", "plan", "make", "--engine", "spark", "--json"]
        tables = ["--interest", str(files / "interest.parquet"), "--rates", str(files / "rates.parquet")]
        out = ["--groups", str(GROUPS), "--sessions", str(SESSIONS), "--out", str(Path(folder) / "plan")]
        with Stopwatch() as watch:
            done = subprocess.run([*command, *tables, *out], check=True, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    name = f"{flows:,} x {users:,} on Spark, {found['master']}"
    result.figures.append(Figure(f"cost, {name}", found["relative_cost"], "C_x / C_f", "limit", SPARK_LIMIT))
    result.figures.append(Figure(f"time, {name}, complete command", watch.wall_s, "s", "limit", SPARK_LIMIT_S))


# -- a real market --------------------------------------------------------------------------------------------------


def data_dir() -> Path | None:
    """LEVELCAST_DATA, or shared/data beside the checkout."""
    given = os.environ.get("LEVELCAST_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if (folder / "us_equities_daily_by_symbol_201403").is_dir() else None


def real_instance(data: Path, users: int, seed: int) -> tuple[Instance, list[str]]:
    """The instance described above, and the symbols in the order of the alphabet."""
    shares: dict[str, list[float]] = {}
    dollars: dict[str, list[float]] = {}
    days = sorted((data / "us_equities_daily_by_symbol_201403").glob("coarse_*.csv.gz"))
    for day in days:
        with gzip.open(day, "rt", encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                shares.setdefault(row[1], []).append(float(row[3]))
                dollars.setdefault(row[1], []).append(float(row[4]))
    symbols = sorted(shares)
    rates = np.array([sum(shares[symbol]) / len(days) for symbol in symbols])
    value = np.array([sum(dollars[symbol]) / len(days) for symbol in symbols]) + 1.0
    random = np.random.default_rng(seed)
    sector = _sectors(data, symbols, random)
    by_value = np.argsort(-value)
    pairs = []
    for user in range(users):
        if user < 0.7 * users:
            followed = random.choice(sector.max() + 1, size=2, replace=False)
            there = np.flatnonzero(np.isin(sector, followed))
            chosen = random.choice(there, size=min(70, len(there)), replace=False, p=value[there] / value[there].sum())
        elif user < 0.9 * users:
            chosen = by_value[: random.choice([50, 100, 500])]
        else:
            chosen = random.choice(len(symbols), size=100, replace=False)
        pairs.append(np.stack([np.full(len(chosen), user), chosen]))
    at_user, at_flow = np.concatenate(pairs, axis=1)
    return from_pairs(rates, at_user, at_flow, users), symbols


def _sectors(data: Path, symbols: list[str], random: np.random.Generator) -> np.ndarray:
    known: dict[str, str] = {}
    for path in sorted((data / "us_listed_symbols_20260821").glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            known |= {row["symbol"]: row["sector"] for row in csv.DictReader(file) if row["sector"]}
    names = sorted(set(known.values())) or ["all", "others"]
    listed = np.array([names.index(known[symbol]) if symbol in known else -1 for symbol in symbols])
    there = listed[listed >= 0] if (listed >= 0).any() else np.arange(len(names))
    return np.where(listed >= 0, listed, random.choice(there, size=len(symbols)))


def split(instance: Instance, order: np.ndarray, sessions: int, groups: int, by_rate: bool) -> Plan:
    """The wanted flows in an order, cut into sessions of equal length, or of equal rate, and these into groups."""
    order = order[instance.wanted[order]]
    rate = np.cumsum(instance.rates[order]) if by_rate else np.arange(1, len(order) + 1, dtype=float)
    session = np.full(instance.n_flows, -1, np.int64)
    session[order] = np.minimum((rate / rate[-1] * sessions - 1e-9).astype(np.int64), sessions - 1)
    return tidy(session, np.arange(sessions) * groups // sessions)


def _real(data: Path, options: Options, result: Result) -> None:
    instance, _ = real_instance(data, 50 if options.quick else 500, seed=0)
    groups, sessions = (5, 60) if options.quick else (GROUPS, SESSIONS)
    alphabet, volume = np.arange(instance.n_flows), np.argsort(-instance.rates, kind="stable")
    plans: dict[str, Plan] = {
        "flooding": flooding(instance),
        "by alphabet, equal numbers of symbols": split(instance, alphabet, sessions, groups, False),
        "by alphabet, equal rates": split(instance, alphabet, sessions, groups, True),
        "by volume, equal numbers of symbols": split(instance, volume, sessions, groups, False),
        "by volume, equal rates": split(instance, volume, sessions, groups, True),
        "IT": make_plan(instance, sessions, groups, algorithm=Algorithm.IT),
        "levelcast, fast": make_plan(instance, sessions, groups),
    }
    if not options.quick:
        plans["levelcast, balanced"] = make_plan(instance, sessions, groups, effort=Effort.BALANCED)
    found = {name: costs(instance, plan) for name, plan in plans.items()}
    factor = found["flooding"].unicast_factor
    rows: list[tuple[Cell, ...]] = [
        (name, f"{each.relative:.4f}", f"{100 * each.goodput:.1f}", "1") for name, each in found.items()
    ]
    rows.append(("unicast", "0.0000", "100.0", f"{factor:.1f}"))
    title = (
        f"{instance.n_flows:,} US symbols, {int(instance.wanted.sum()):,} requested by {instance.n_users} users: "
        f"{groups} groups, {sessions} sessions"
    )
    result.tables.append(Table(title, ("plan", "C_x / C_f", "goodput, %", "times sent"), rows))
    best, usual = found["levelcast, fast"], found["by alphabet, equal numbers of symbols"]
    result.figures.append(Figure("cost, US symbols", best.relative, "C_x / C_f", "by alphabet", usual.relative))
    result.figures.append(Figure("goodput, US symbols", 100 * best.goodput, "%", "by alphabet", 100 * usual.goodput))


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), Effort(sys.argv[3]))))
