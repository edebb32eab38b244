"""Audits: questions to the recorded tapes and release logs, each answered by findings, a verdict and a sentence.

An audit is a function from a `Job` to a `Result`. `AUDITS` has them by name; `register` adds one, and everything
else (the command, JSON, the lake's tables `audits` and `audit_findings`) knows it by that.

| verdict    | exit code | means |
|------------|-----------|-------|
| passed     | 0         | nothing was found |
| found      | 1         | every row of the findings is a fault, named as exactly as the files allow |
| not run    | 2         | the input does not allow the question (`TapeError`, one sentence) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from levelcast.pipeline.audit.inputs import Inputs
from levelcast.pipeline.session import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSED, FOUND = 0, 1

Tell = Callable[[str], None]
Unit = TypeVar("Unit")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. What does not apply to its kind is None."""

    kind: str
    subject: str
    """Whose fault it is: a receiver, a region, a source, a floor."""
    says: str
    stripe: int | None = None
    file: str | None = None
    segment: int | None = None
    """The sequence that the segment begins with."""
    slot: int | None = None
    sequence: int | None = None
    """Of the first record of the frame."""
    record: int | None = None
    """The sequence of the first record concerned."""
    offset: int | None = None
    """The byte of the file."""
    value: float | None = None
    """How large an effect is, in the unit that `says` has: nanoseconds, or a share."""
    low: float | None = None
    high: float | None = None
    """Its confidence interval."""
    p: float | None = None
    """As Holm's correction gives it."""


@dataclass(frozen=True, slots=True)
class AuditTable:
    """A table of what was measured, faults or not."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(slots=True)
class Result:
    """What an audit has found."""

    audit: str
    findings: list[Finding] = field(default_factory=list)
    sentence: str = ""
    remarks: list[str] = field(default_factory=list)
    """What is no fault and yet worth saying: a tape that ends earlier, what could not be judged."""
    figures: list[AuditTable] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)
    """How much: records, frames, slots, whatever the audit counts."""

    @property
    def passed(self) -> bool:
        return not self.findings

    @property
    def verdict(self) -> str:
        return "passed" if self.passed else "found"

    def first_finding(self, opening: str) -> str:
        """A sentence about the first finding, and how many more there are."""
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
    """What may be asked for differently; durations in nanoseconds."""

    bytes: bool = True
    """Whether *order* reads the records as well as the indexes."""
    early_ns: int = 100_000
    """How much before its instant a release may be written down."""
    threshold_ns: int = 500_000
    """A mean difference between receivers or regions up to this is not worth a finding."""
    wait_threshold_ns: int | None = None
    """The same for the waiting of sources; None: a tenth of a slot and twice the clock error."""
    late_share: float = 0.01
    """The share of late releases that a receiver may have."""
    level: float = 1e-3
    """How likely a clean run gives one false finding or more, over all tests together."""
    old_ns: int = 1_000_000_000
    """*timeliness*: a record older than this at its acknowledgement is old."""
    old_share: float = 0.01
    """The share of old records, and of records from the future, that a floor may have."""
    ahead_ns: int = 2_000_000
    """How far a record may be dated after its acknowledgement: twice the clock error, the floor's and the site's."""


@dataclass(frozen=True, slots=True)
class Job:
    """What an audit gets."""

    spark: SparkSession | None
    """None: everything is done in this process, for small tapes and for tests of the rules."""
    inputs: Inputs
    options: AuditOptions = AuditOptions()
    tell: Tell = lambda _: None

    def each(self, step: str, work: Callable[[Unit], Made], units: Sequence[Unit]) -> list[Made]:
        """`work` done to every unit, each in a task of its own; results in the order of the units."""
        self.tell(step)
        if self.spark is None:
            return [work(unit) for unit in units]
        self.spark.sparkContext.setJobDescription(step)
        try:
            return on_spark(self.spark, work, units)
        finally:
            self.spark.sparkContext.setJobDescription("")


@dataclass(frozen=True, slots=True)
class Audit:
    """A question that can be asked by name."""

    name: str
    says: str
    run: Callable[[Job], Result]


AUDITS: dict[str, Audit] = {}


def register(audit: Audit) -> Audit:
    """Make an audit known: `levelcast audit NAME` runs it, and `all` with the others."""
    AUDITS[audit.name] = audit
    return audit
