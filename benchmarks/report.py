"""What a benchmark hands back, and how it is printed and written down."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from levelcast.runtime.cpu_contention import ContentionMeter, CpuContention, explain_contention

CONTENTION_EFFECT = "which affects its results"

Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: `quick` is for tests and gives no figure worth quoting."""

    quick: bool = False
    out: Path = Path("out/bench")
    plots: Path = Path("docs/plots")
    """Where a full run puts its plots. A quick one leaves them under `out`, where they mislead nobody."""

    @property
    def plot_dir(self) -> Path:
        return self.out if self.quick else self.plots


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside what it is compared with."""

    name: str
    value: float
    unit: str
    against: str
    against_value: float

    @property
    def ratio(self) -> float:
        return self.value / self.against_value if self.against_value else float("nan")

    def __str__(self) -> str:
        return (
            f"{self.name}: {show(self.value)} {self.unit} | {self.against}: {show(self.against_value)} {self.unit}"
            f" | ratio {self.ratio:.3g}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that belong side by side."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]

    def __str__(self) -> str:
        lines = [self.columns, *(tuple(show(cell) for cell in row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        # The first column names the row; numbers read best against the right edge.
        text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        text.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, *(f"  {line}".rstrip() for line in text)])


@dataclass(slots=True)
class Result:
    """Everything that one benchmark found."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plots: list[str] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    """What other programs read from the JSON: it stands there beside the rest."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    contention: CpuContention = field(default_factory=CpuContention)
    """Stolen CPU time and CPU pressure of the run."""

    def set_times(self, watch: Stopwatch) -> None:
        self.wall_s, self.cpu_s, self.contention = watch.wall_s, watch.cpu_s, watch.contention

    def __str__(self) -> str:
        parts = ["\n".join(str(figure) for figure in self.figures), *(str(table) for table in self.tables)]
        parts.append("\n".join([*self.notes, *(f"plot: {plot}" for plot in self.plots)]))
        needed = f"{self.name} needed {self.wall_s:.1f} s of wall time and {self.cpu_s:.1f} s of CPU"
        parts.append("\n".join([needed, *show_contention(self.contention)]))
        return "\n\n".join(part for part in parts if part)

    def as_json(self) -> dict[str, object]:
        values = asdict(self)
        for figure, value in zip(self.figures, values["figures"], strict=True):
            value["ratio"] = figure.ratio
        more: dict[str, object] = values.pop("more")
        return values | more


class Stopwatch:
    """Wall time and CPU time, that of finished child processes included; stolen CPU time and CPU pressure."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.contention = CpuContention()

    def __enter__(self) -> Stopwatch:
        self._meter = ContentionMeter()
        self._wall, self._cpu = time.perf_counter(), _cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = _cpu_s() - self._cpu
        self.contention = self._meter.measure()


def _cpu_s() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def show_contention(contention: CpuContention) -> list[str]:
    """Return one line for stolen CPU time and one for CPU pressure, if they matter."""
    return explain_contention(contention, CONTENTION_EFFECT)


def least_cpu_s(work: Callable[[], object], repeats: int) -> float:
    """The least CPU time of a few runs: noise on a shared machine only ever adds."""
    least = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
    return least


def show(value: Cell) -> str:
    """A number as a person reads it: three digits are enough, whole numbers get separators."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine_facts() -> dict[str, Cell]:
    """What a figure depends on besides the code."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "code": revision(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "load_average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def revision() -> str:
    """The commit that is measured, marked if files differ from it; "unknown" outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def show_facts(facts: dict[str, Cell]) -> str:
    return " | ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())


def write_json(result: Result, facts_before: dict[str, Cell], options: Options) -> Path:
    """Write a result with the machine's facts, the load after the run beside the load before it."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{result.name}.json"
    machine = {**facts_before, "load_average_after": machine_facts()["load_average"]}
    values = {
        **result.as_json(),
        "quick": options.quick,
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join(["python -m benchmarks", result.name, *(["--quick"] if options.quick else [])]),
        "machine": machine,
    }
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def tell(text: str) -> None:
    """Progress goes to standard error, so that standard output is the report."""
    print(text, file=sys.stderr, flush=True)
