"""Run audits by name, and store their results in a lake."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from levelcast.pipeline.audit import entry, fairness, order, timeliness
from levelcast.pipeline.audit.base import AUDITS, FOUND, PASSED, Job, Result, register
from levelcast.pipeline.lake.tables import AUDIT_FINDINGS, AUDIT_RUNS, day_of
from levelcast.storage.append_file import TapeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from levelcast.pipeline.lake.lake import Lake

ALL = "all"
NOT_RUN = 2

for _audit in (order.ORDER, fairness.FAIRNESS, timeliness.TIMELINESS, entry.ENTRY_AUDIT):
    register(_audit)


@dataclass(slots=True)
class AuditOutcome:
    """Results of a command."""

    results: list[Result] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    """Audits that could not be run, with the reason."""

    @property
    def exit_code(self) -> int:
        """Return the exit code; a finding has priority over an audit that could not be run."""
        if any(not result.passed for result in self.results):
            return FOUND
        return NOT_RUN if self.not_run else PASSED


def names_of(which: str) -> list[str]:
    """Return the audits that a name selects; raise TapeError if it is unknown."""
    if which == ALL:
        return list(AUDITS)
    if which not in AUDITS:
        raise TapeError(f'unknown audit "{which}"; use one of {", ".join(AUDITS)}, or {ALL}')
    return [which]


def run(names: Sequence[str], job: Job) -> AuditOutcome:
    """Run each audit separately; if one of several cannot be run, the others still run."""
    outcome = AuditOutcome()
    for name in names:
        try:
            outcome.results.append(AUDITS[name].run(job))
        except TapeError as error:
            if len(names) == 1:
                raise
            outcome.not_run[name] = str(error)
    return outcome


def keep(spark: SparkSession, lake: Lake, results: Sequence[Result], receivers: Sequence[str]) -> str:
    """Add rows to `audits` and `audit_findings`; return the name of the run."""
    now_ns = time.time_ns()
    run_id, day = uuid.uuid4().hex, day_of(now_ns)
    faults = [
        {"run": run_id, "audit": result.audit, "number": number, "day": day, **asdict(finding)}
        for result in results
        for number, finding in enumerate(result.findings, 1)
    ]
    if faults:
        rows = [tuple(fault[name] for name in AUDIT_FINDINGS.names) for fault in faults]
        lake.append("audit_findings", spark.createDataFrame(rows, AUDIT_FINDINGS.ddl).coalesce(1))
    told = []
    for result in results:
        as_json = result.as_json()
        texts = (json.dumps(as_json[name]) for name in ("looked_at", "remarks", "figures"))
        whose = json.dumps(list(receivers))
        verdict = (result.verdict, len(result.findings), result.sentence)
        told.append((run_id, result.audit, now_ns, *verdict, *texts, whose, day))
    if told:
        lake.append("audits", spark.createDataFrame(told, AUDIT_RUNS.ddl).coalesce(1))
    return run_id
