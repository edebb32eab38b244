"""Convert a node's status to metrics in the Prometheus text exposition format 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4"

State = tuple[str, tuple[str, ...]] | None


class MetricFamily(NamedTuple):
    """A metric as Prometheus describes it; the labels `node` and `role` of every sample are left out."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()

    def head(self) -> Iterator[str]:
        yield f"# HELP levelcast_{self.name} {self.help}"
        yield f"# TYPE levelcast_{self.name} {self.type}"


class Metric(NamedTuple):
    """A metric: its key in the status, its name and its description."""

    key: str
    """Keys of the status, separated by dots; a metric that a node does not have is omitted.

    `{label}` matches every key of a table: each yields a sample with the key as that label.
    """
    name: str
    """Ends in `_total` if it is a counter; the others are gauges."""
    help: str
    scale: float = 1.0

    @property
    def family(self) -> MetricFamily:
        kind = "counter" if self.name.endswith("_total") else "gauge"
        return MetricFamily(self.name, kind, self.help, tuple(re.findall(r"\{(\w+)\}", self.key)))


_METRICS = (
    Metric("uptime_s", "uptime_seconds", "Time since the node was started."),
    Metric("cpu_s", "cpu_seconds_total", "CPU time of the process."),
    Metric("rss_bytes", "resident_bytes", "Resident memory of the process."),
    Metric("clock.trusted", "clock_trusted", "1 while the node trusts its wall clock (rule 13)."),
    Metric("clock.drift_ns", "clock_drift_seconds", "Drift of wall against monotonic clock since the start.", 1e-9),
    Metric("clock.kernel.synchronised", "clock_synchronised", "1 while NTP or PTP synchronises the clock."),
    Metric("clock.kernel.offset_ns", "clock_offset_seconds", "Remaining clock offset that the kernel slews.", 1e-9),
    Metric("clock.kernel.max_error_ns", "clock_max_error_seconds", "The kernel's bound of the clock error.", 1e-9),
    Metric("clock.kernel.estimated_error_ns", "clock_error_seconds", "The kernel's estimate of the clock error.", 1e-9),
    Metric("clock.vouched", "clock_vouched", "1 if a time source vouches for the clock (C1)."),
    Metric("clock.error_ns", "clock_error_bound_seconds", "Error bound of the clock, or the file's clock_error.", 1e-9),
    Metric("clock.group_offset_ns", "clock_group_offset_seconds", "Offset from the median member (C2).", 1e-9),
    Metric("clock.leap_announced", "clock_leap_announced", "1 while a leap second is announced (C4)."),
    Metric("datagrams_in", "datagrams_received_total", "Datagrams received in the core group."),
    Metric("datagrams_out", "datagrams_sent_total", "Datagrams sent."),
    Metric("unknown_peer", "unknown_peer_total", "Datagrams for a node without a known address."),
    Metric("send_refused", "send_refused_total", "Datagrams that the kernel had no buffer space for."),
    Metric("namesakes", "namesakes_total", "Datagrams of another process that runs under this node's name."),
    Metric("lost_on_purpose", "lost_on_purpose_total", "Datagrams dropped by --impair."),
    Metric("edge.together.subscribers", "together_subscribers", "Subscribers that deliver together and report it."),
    Metric("edge.together.missing", "together_missing", "Those whose p99 delay exceeds their bound."),
    Metric("edge.together.late", "together_late_records", "Their late records in the last reports."),
    Metric("edge.together.records", "together_records", "Their records on time in the last reports."),
    Metric("edge.together.needed_ns", "together_needed_seconds", "Their largest p99 delay after the release.", 1e-9),
    Metric("edge.together.spread_ns", "together_spread_seconds", "p99 of their delivery after the bound.", 1e-9),
    Metric(
        "edge.together.spread_on_arrival_ns",
        "together_arrival_spread_seconds",
        "From their smallest median delay to their largest p99 delay.",
        1e-9,
    ),
    Metric("journal_bytes", "journal_bytes", "Size of the journal."),
    Metric("life", "life", "Life of the disk (rule 12)."),
)

_LABELLED = (
    Metric("malformed.{reason}", "malformed_total", "Datagrams that were not delivered, by reason."),
    Metric("reports.{kind}", "reports_total", "Events that the protocol reported, by kind."),
    Metric("edge.unsent.{reason}", "edge_unsent_total", "Packets for subscribers that could not be sent, by reason."),
    Metric("edge.refused.{reason}", "edge_refused_total", "Requests of subscribers that were refused, by reason."),
    Metric(
        "group.members.{secondary}.lag",
        "secondary_lag_slots",
        "Lag of a secondary after the primary that serves it, in slots.",
    ),
    Metric(
        "group.members.{secondary}.counts",
        "secondary_counts",
        "1 while the primary's tokens claim no more than the secondary has (rule 11).",
    ),
    Metric("probes.{peer}.answered", "probes_answered_total", "Probes answered by the peer."),
    Metric("probes.{peer}.lost", "probes_lost_total", "Probes lost in either direction."),
    Metric("probes.{peer}.last_ns", "probe_round_trip_seconds", "Last round-trip time to the peer.", 1e-9),
    Metric("probes.{peer}.least_ns", "probe_least_round_trip_seconds", "Minimum round-trip time to the peer.", 1e-9),
    Metric("clock.members.{peer}.offset_ns", "clock_member_offset_seconds", "Offset from the member's clock.", 1e-9),
    Metric("paths.{peer}.heard", "path_messages", "Beats or probes of the peer that arrived in the last 10 minutes."),
    Metric("paths.{peer}.loss_ratio", "path_loss_ratio", "Fraction of them that was lost on the way here."),
    Metric("paths.{peer}.p50_ns", "path_delay_seconds", "Median delay from the peer, by two clocks.", 1e-9),
    Metric("paths.{peer}.p99_ns", "path_delay_p99_seconds", "0.99 quantile of the delay from the peer.", 1e-9),
)


_INFO = MetricFamily("info", "gauge", "1, with the version as a label.", ("version",))
LATENESS = MetricFamily(
    "release_lateness_seconds", "histogram", "Delay of releases after the scheduled release time.", ("le",)
)
SCHEDULING = MetricFamily(
    "release_scheduling_delay_seconds",
    "histogram",
    "Delay of releases after the time from which they were possible: the process ran late.",
    ("le",),
)
HISTOGRAMS = {"lateness": LATENESS, "scheduling_delay": SCHEDULING}
"""Only of nodes that release frames; by the key of the status."""


def state_family(state: State) -> Iterator[MetricFamily]:
    """Yield the metric of a node's state, if its role has one."""
    if state is not None:
        yield MetricFamily(
            state[0], "gauge", f"1 for the current {state[0]} of the node, 0 for the others.", (state[0],)
        )


def common_families() -> list[MetricFamily]:
    """Return the metrics that do not depend on the role."""
    return [_INFO, *(metric.family for metric in (*_METRICS, *_LABELLED))]


def exposition(status: Mapping[str, Any], own: Sequence[Metric] = (), state: State = None) -> str:
    """Return the metrics of a status, with the labels `node` and `role`, and `stripe` with several stripes.

    `own` are the metrics of the node's role; `state` is the key of its state, with the possible values.
    """
    labels = {"node": status["name"], "role": status["role"]}
    if status.get("part", status["name"]) != status["name"]:
        labels["stripe"] = status["stripe"]
    return "\n".join(_lines(status, labels, own, state)) + "\n"


def _lines(status: Mapping[str, Any], labels: dict[str, str], own: Sequence[Metric], state: State) -> Iterator[str]:
    yield from _INFO.head()
    yield _sample(_INFO.name, {**labels, "version": status["version"]}, 1)
    for metric in (*_METRICS, *own, *_LABELLED):
        if figures := list(_figures(status, metric.key, labels)):
            yield from metric.family.head()
        for labelled, value in figures:
            yield _sample(metric.name, labelled, value * metric.scale if metric.scale != 1.0 else value)
    if state is not None and state[0] in status:
        key, words = state
        for family in state_family(state):
            yield from family.head()
        for word in words:
            yield _sample(key, {**labels, key: word}, word == status[key])
    for key, family in HISTOGRAMS.items():
        if key in status:
            yield from _histogram(family, status[key], labels)


def _histogram(family: MetricFamily, found: Mapping[str, Any], labels: dict[str, str]) -> Iterator[str]:
    name = family.name
    yield from family.head()
    bounds = [f"{bound:g}" for bound in found["bounds_s"]]
    counts = list(accumulate(found["counts"]))
    for bound, count in zip([*bounds, "+Inf"], counts, strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_sum", labels, found["sum_s"])
    yield _sample(f"{name}_count", labels, counts[-1])


def _figures(status: object, key: str, labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the values at a key, each with its labels."""
    part, _, rest = key.partition(".")
    if not part and isinstance(status, int | float):
        yield labels, status
    elif part.startswith("{") and isinstance(status, Mapping):
        for each in sorted(status):
            yield from _figures(status[each], rest, {**labels, part[1:-1]: str(each)})
    elif part and isinstance(status, Mapping):
        yield from _figures(status.get(part), rest, labels)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    listed = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"levelcast_{name}{{{listed}}} {int(value) if isinstance(value, bool) else value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
