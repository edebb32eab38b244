"""Read tables and write plans: Parquet or CSV, with every row checked and atomic writes.

Interest has the columns `user, flow`, rates have `flow, rate`; users and flows are strings or integers. A plan is a
directory with `flow_session.parquet` (`flow, session`), `session_group.parquet` (`session, group`) and `report.json`.
Errors in a file raise `PlanError` with a one-line message that names the file and the fault.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.planner.model import UNSENT, Curve, Instance, Ints, Plan, PlanError, from_pairs, scattered

FLOW_SESSION, SESSION_GROUP, REPORT = "flow_session.parquet", "session_group.parquet", "report.json"
RATES = "rates.parquet"


@dataclass(frozen=True, slots=True)
class NamedInstance:
    """An instance with the names in its files, as arrow arrays."""

    instance: Instance
    flows: Any
    users: Any


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A stored plan: names of flows, and numbers of sessions and groups that other programs use."""

    plan: Plan
    flows: Any
    session_ids: Ints
    group_ids: Ints
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredWeights:
    """Result of `python -m benchmarks filtering` on a machine."""

    alpha: Curve
    beta: Curve
    aggregation: float


def read_weights(path: Path) -> MeasuredWeights:
    """Read the part `"weights": {"alpha": "0.3+5/h", "beta": "0.1+2/h", "aggregation": 8}` of a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise PlanError(f"{path}: not JSON") from None
    found = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(found, dict) or not {"alpha", "beta", "aggregation"} <= found.keys():
        raise PlanError(
            f'{path}: has no "weights" with alpha, beta and aggregation; run `python -m benchmarks filtering`'
        )
    if content.get("quick"):
        raise PlanError(f"{path}: from a quick run, which is not precise enough for planning; run it without --quick")
    aggregation = found["aggregation"]
    if type(aggregation) not in (int, float) or not 1 <= aggregation < float("inf"):
        raise PlanError(f"{path}: aggregation must be a number of at least 1, not {aggregation!r}")
    try:
        return MeasuredWeights(Curve.parse(str(found["alpha"])), Curve.parse(str(found["beta"])), float(aggregation))
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None


def read_problem(interest: Path, rates: Path) -> NamedInstance:
    """Read both files; check them and their consistency."""
    pc = arrow("pyarrow.compute")
    names, values = _rates(rates)
    table = _read(interest, ("user", "flow"))
    wanted, users = _names(table["flow"]), _names(table["user"])
    if wanted.type != names.type:
        pa = arrow()
        names, wanted = names.cast(pa.string()), wanted.cast(pa.string())
    at = pc.index_in(wanted, value_set=names)
    if at.null_count:
        unknown = wanted.filter(pc.is_null(at))[0].as_py()
        raise PlanError(f"{interest}: flow {unknown!r} has no rate in {rates}")
    encoded = users.dictionary_encode()
    flow_index = np.asarray(at.to_numpy(zero_copy_only=False), np.int64)
    user_index = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
    try:
        instance = from_pairs(values, user_index, flow_index, len(encoded.dictionary))
    except PlanError:
        pair = _first_repeated(flow_index * (len(encoded.dictionary) + 1) + user_index)
        raise PlanError(
            f"{interest}: user {users[pair].as_py()!r} and flow {wanted[pair].as_py()!r} are paired more than once"
        ) from None
    return NamedInstance(instance, names, encoded.dictionary)


def read_rates(path: Path) -> dict[str, float]:
    """Return the rate of each flow, by its name."""
    names, values = _rates(path)
    return {str(name): float(value) for name, value in zip(names.to_pylist(), values, strict=True)}


def _read(path: Path, columns: tuple[str, str]) -> Any:
    """Read a table with at least these columns, without empty cells in them."""
    if not path.is_file():
        raise PlanError(f"{path}: file not found; check the path")
    try:
        if path.suffix in (".parquet", ".pq"):
            table = arrow("pyarrow.parquet").read_table(str(path))
        else:
            table = arrow("pyarrow.csv").read_csv(str(path))
    except (OSError, arrow().ArrowException) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise PlanError(f"{path}: cannot be read ({reason}); damaged, or neither Parquet nor CSV") from None
    for column in columns:
        if column not in table.column_names:
            raise PlanError(f"{path}: column {column!r} not found; required: {' and '.join(columns)}")
        if table[column].null_count:
            raise PlanError(f"{path}: {table[column].null_count:,} rows have no {column}")
    return table.select(list(columns))


def _names(column: Any) -> Any:
    """Convert to integers or strings, in one chunk."""
    pa = arrow()
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], joined.type)
    return joined.cast(pa.int64() if pa.types.is_integer(joined.type) else pa.string())


def _unique(column: Any, path: Path, what: str) -> Any:
    """Return the names of a column; raise PlanError for a repeated one."""
    names = _names(column)
    counts = names.value_counts()
    if len(counts) < len(names):
        twice = next(each for each in counts.to_pylist() if each["counts"] > 1)
        raise PlanError(f"{path}: {what} {twice['values']!r} appears {twice['counts']} times")
    return names


def _rates(path: Path) -> tuple[Any, npt.NDArray[np.float64]]:
    """Return the flows of a file, and the rate of each."""
    pa = arrow()
    table = _read(path, ("flow", "rate"))
    names = _unique(table["flow"], path, "flow")
    try:
        values = np.asarray(table["rate"].cast(pa.float64()).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise PlanError(f"{path}: a rate is not a number") from None
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        at = int(wrong[0])
        raise PlanError(f"{path}: flow {names[at].as_py()!r} has the rate {values[at]:g}; a rate is at least 0")
    return names, values


def _first_repeated(keys: npt.NDArray[np.int64]) -> int:
    order = np.argsort(keys, kind="stable")
    again = order[1:][keys[order][1:] == keys[order][:-1]]
    return int(again.min())


def write_problem(directory: Path, instance: Instance) -> None:
    """Write `interest.parquet` and `rates.parquet`, with numbers for names."""
    flows = np.arange(instance.n_flows)
    with all_or_nothing(directory) as made:
        wanted = np.repeat(flows, instance.degrees)
        write_table(made / "interest.parquet", {"user": instance.users, "flow": wanted})
        write_table(made / "rates.parquet", {"flow": flows, "rate": instance.rates})


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a Parquet file."""
    arrow("pyarrow.parquet").write_table(arrow().table(columns), str(path))


@contextmanager
def all_or_nothing(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory; move its files to `directory` at the end, or none of them after an error."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        yield made
        if directory.is_dir():
            for each in sorted(made.iterdir()):
                os.replace(each, directory / each.name)
            made.rmdir()
        else:
            made.chmod(0o755)
            os.replace(made, directory)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def write_plan(directory: Path, stored: StoredPlan, extra: Callable[[Path], None] = lambda _: None) -> None:
    """Write the three files of a plan, and those of `extra`. The caller has checked that the plan is legal."""
    plan, sent = stored.plan, np.flatnonzero(stored.plan.session >= 0)
    with all_or_nothing(directory) as made:
        flows = stored.flows.take(arrow().array(sent))
        write_table(made / FLOW_SESSION, {"flow": flows, "session": stored.session_ids[plan.session[sent]]})
        write_table(made / SESSION_GROUP, {"session": stored.session_ids, "group": stored.group_ids[plan.group]})
        text = json.dumps(stored.report, indent=1, ensure_ascii=False)
        (made / REPORT).write_text(text + "\n", encoding="utf-8")
        extra(made)


def require_plan(directory: Path) -> None:
    """Raise PlanError for a directory without a plan."""
    if not (directory / FLOW_SESSION).is_file():
        remedy = f"make one with `levelcast plan make --out {directory}`"
        raise PlanError(f"{directory}: not a plan, {FLOW_SESSION} not found; {remedy}")


def read_plan(directory: Path) -> StoredPlan:
    """Read a plan from its directory. Its flows are those that are sent."""
    pc = arrow("pyarrow.compute")
    require_plan(directory)
    flow_table = _read(directory / FLOW_SESSION, ("flow", "session"))
    group_table = _read(directory / SESSION_GROUP, ("session", "group"))
    flows = _unique(flow_table["flow"], directory / FLOW_SESSION, "flow")
    sessions = _unique(group_table["session"], directory / SESSION_GROUP, "session")
    at = pc.index_in(_names(flow_table["session"]), value_set=sessions)
    if at.null_count:
        raise PlanError(f"{directory / FLOW_SESSION}: a flow is in a session that {SESSION_GROUP} does not have")
    group_ids, group = np.unique(_names(group_table["group"]).to_numpy(zero_copy_only=False), return_inverse=True)
    try:
        report = json.loads((directory / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        report = {}
    except ValueError:
        raise PlanError(f"{directory / REPORT}: not JSON") from None
    session = np.asarray(at.to_numpy(zero_copy_only=False), np.int32)
    ids = np.asarray(sessions.to_numpy(zero_copy_only=False), np.int32)
    return StoredPlan(Plan(session, group.astype(np.int32)), flows, ids, group_ids.astype(np.int32), report)


def for_problem(stored: StoredPlan, problem: NamedInstance) -> Plan:
    """Return the stored plan for the flows of a problem, in their order; unknown flows are UNSENT."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    names, flows = problem.flows, stored.flows
    if names.type != flows.type:
        names, flows = names.cast(pa.string()), flows.cast(pa.string())
    at = pc.fill_null(pc.index_in(names, value_set=flows), UNSENT).to_numpy(zero_copy_only=False)
    return Plan(scattered(len(at), at >= 0, stored.plan.session[at[at >= 0]]), stored.plan.group)
