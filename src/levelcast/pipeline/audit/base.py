"""Audits: checks of the recorded tapes and release logs. Each returns findings, a verdict and a summary message.

An audit is a function from a `Job` to a `Result`. `AUDITS` maps names to audits, and `register` adds one. The command,
the JSON output and the lake's tables `audits` and `audit_findings` then include it.

| verdict    | exit code | means |
|------------|-----------|-------|
| passed     | 0         | nothing was found |
| found      | 1         | every row of the findings is a fault, located as exactly as the files allow |
| not run    | 2         | the input does not allow the check (`TapeError`, one message) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from levelcast.pipeline.audit.inputs import Inputs
from levelcast.pipeline.session import describe_job, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSED, FOUND = 0, 1

Tell = Callable[[str], None]
Unit = TypeVar("Unit")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. Fields that do not apply to its kind are None."""

    kind: str
    subject: str
    """The receiver, region, source or floor at fault."""
    says: str
    stripe: int | None = None
    file: str | None = None
    segment: int | None = None
    """First sequence of the segment."""
    slot: int | None = None
    sequence: int | None = None
    """Sequence of the first record of the frame."""
    record: int | None = None
    """Sequence of the first record concerned."""
    offset: int | None = None
    """Byte offset in the file."""
    value: float | None = None
    """Effect size, in the unit that `says` uses: nanoseconds, or a fraction."""
    low: float | None = None
    high: float | None = None
    """Confidence interval of the value."""
    p: float | None = None
    """p value after Holm's correction."""


@dataclass(frozen=True, slots=True)
class AuditTable:
    """A table of measured values, with or without faults."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(slots=True)
class Result:
    """Result of an audit."""

    audit: str
    findings: list[Finding] = field(default_factory=list)
    sentence: str = ""
    remarks: list[str] = field(default_factory=list)
    """Notes that are not faults: a tape that ends earlier, checks that were not possible."""
    figures: list[AuditTable] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)
    """Amounts checked: records, frames, slots, or other units that the audit counts."""

    @property
    def passed(self) -> bool:
        return not self.findings

    @property
    def verdict(self) -> str:
        return "passed" if self.passed else "found"

    def first_finding(self, opening: str) -> str:
        """Return a message about the first finding and the number of further findings."""
        first, others = self.findings[0], len(self.findings) - 1
        more = f"; {others} more findings" if others else ""
        return f"{opening}: {first.subject}, {first.kind}: {first.says}{more}."

    def as_json(self) -> dict[str, Any]:
        return {
            "audit": self.audit,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "findings": [
                {name: value for name, value in asdict(each).items() if value is not None} for each in self.findings
            ],
            "remarks": self.remarks,
            "looked_at": self.looked_at,
            "figures": {each.name: [dict(zip(each.columns, row, strict=True)) for row in each.rows]
                        for each in self.figures},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit; durations in nanoseconds."""

    bytes: bool = True
    """*order* reads the records as well as the indexes."""
    early_ns: int = 100_000
    """Tolerance for a release that is logged before its scheduled release time."""
    threshold_ns: int = 500_000
    """Ignore mean differences between receivers or regions up to this duration."""
    wait_threshold_ns: int | None = None
    """The same for the waiting times of sources; None: a tenth of a slot plus twice the clock error."""
    late_share: float = 0.01
    """Maximum fraction of late releases of a receiver."""
    level: float = 1e-3
    """Probability that a fault-free run yields one or more false findings, over all tests together."""
    old_ns: int = 1_000_000_000
    """*timeliness*: a record older than this at its acknowledgement is old."""
    old_share: float = 0.01
    """Maximum fraction of old records, and of records from the future, of a floor."""
    ahead_ns: int = 2_000_000
    """Tolerance for a record time after its acknowledgement: twice the clock error, the floor's plus the site's."""


@dataclass(frozen=True, slots=True)
class Job:
    """Input of an audit."""

    spark: SparkSession | None
    """None: compute everything in this process, for small tapes and for tests of the rules."""
    inputs: Inputs
    options: AuditOptions = AuditOptions()
    tell: Tell = lambda _: None

    def each(self, step: str, work: Callable[[Unit], Made], units: Sequence[Unit]) -> list[Made]:
        """Apply `work` to every unit, each in its own task; return the results in the order of the units."""
        self.tell(step)
        if self.spark is None:
            return [work(unit) for unit in units]
        describe_job(self.spark, step)
        try:
            return on_spark(self.spark, work, units)
        finally:
            describe_job(self.spark, "")


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit that can be run by name."""

    name: str
    says: str
    run: Callable[[Job], Result]


AUDITS: dict[str, Audit] = {}


def register(audit: Audit) -> Audit:
    """Register an audit: `levelcast audit NAME` and `levelcast audit all` then run it."""
    AUDITS[audit.name] = audit
    return audit
