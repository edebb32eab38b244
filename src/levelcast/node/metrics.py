"""A node's status as metrics: the text exposition format 0.0.4 that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4"

State = tuple[str, tuple[str, ...]] | None


class Metric(NamedTuple):
    """A figure of the status: where it stands, and what it is called."""

    key: str
    """Keys of the status, with a dot between each and the next; a figure that a node does not have is left out.

    `{label}` stands for every key of a table: each gives a sample, with the key as that label.
    """
    name: str
    """Ends in `_total` if it is a counter; the others are gauges."""
    help: str
    scale: float = 1.0


_METRICS = (
    Metric("uptime_s", "uptime_seconds", "Time since the node was started."),
    Metric("cpu_s", "cpu_seconds_total", "CPU time of the process."),
    Metric("rss_bytes", "resident_bytes", "Memory that the process has in use."),
    Metric("clock.trusted", "clock_trusted", "1 while the wall clock runs like the monotonic one (rule 13)."),
    Metric("clock.drift_ns", "clock_drift_seconds", "Wall against monotonic clock since the start.", 1e-9),
    Metric("clock.kernel.synchronised", "clock_synchronised", "1 while NTP or PTP keeps the clock."),
    Metric("clock.kernel.offset_ns", "clock_offset_seconds", "What the kernel still slews away.", 1e-9),
    Metric("clock.kernel.max_error_ns", "clock_max_error_seconds", "The kernel's bound of its error.", 1e-9),
    Metric("clock.kernel.estimated_error_ns", "clock_error_seconds", "The kernel's estimated error.", 1e-9),
    Metric("datagrams_in", "datagrams_received_total", "Datagrams of the core group that came."),
    Metric("datagrams_out", "datagrams_sent_total", "Datagrams that were sent."),
    Metric("unknown_peer", "unknown_peer_total", "Datagrams for a node that has not spoken yet."),
    Metric("send_refused", "send_refused_total", "Datagrams that the kernel had no room for."),
    Metric("namesakes", "namesakes_total", "Datagrams of another process that takes itself for this node."),
    Metric("lost_on_purpose", "lost_on_purpose_total", "Datagrams that --impair has dropped."),
    Metric("journal_bytes", "journal_bytes", "Size of the journal."),
    Metric("life", "life", "The life of the disk (rule 12)."),
)

_LABELLED = (
    Metric("malformed.{reason}", "malformed_total", "Datagrams that were not delivered, by reason."),
    Metric("reports.{kind}", "reports_total", "What the protocol reported, by kind."),
    Metric("edge.unsent.{reason}", "edge_unsent_total", "Packets for customers that could not be sent, by reason."),
    Metric("edge.refused.{reason}", "edge_refused_total", "Requests of customers that were not answered, by reason."),
    Metric(
        "group.members.{secondary}.lag",
        "secondary_lag_slots",
        "Slots that a secondary is behind the primary which serves it.",
    ),
    Metric(
        "group.members.{secondary}.counts",
        "secondary_counts",
        "1 while the primary's tokens claim no more than the secondary has (rule 11).",
    ),
    Metric("probes.{peer}.answered", "probes_answered_total", "Probes that the peer has answered."),
    Metric("probes.{peer}.lost", "probes_lost_total", "Probes that were lost, there or back."),
    Metric("probes.{peer}.last_ns", "probe_round_trip_seconds", "The last round trip to the peer.", 1e-9),
    Metric("probes.{peer}.least_ns", "probe_least_round_trip_seconds", "The shortest round trip to the peer.", 1e-9),
)


def exposition(status: Mapping[str, Any], own: Sequence[Metric] = (), state: State = None) -> str:
    """Return the metrics of a status, with the labels `node` and `role`, and `stripe` where there are several.

    `own` are the metrics of the node's role; `state` is the key of its state, with the possible values.
    """
    labels = {"node": status["name"], "role": status["role"]}
    if status.get("part", status["name"]) != status["name"]:
        labels["stripe"] = status["stripe"]
    return "\n".join(_lines(status, labels, own, state)) + "\n"


def _lines(status: Mapping[str, Any], labels: dict[str, str], own: Sequence[Metric], state: State) -> Iterator[str]:
    yield from _family("info", "gauge", "1, with the version as a label.")
    yield _sample("info", {**labels, "version": status["version"]}, 1)
    for metric in (*_METRICS, *own, *_LABELLED):
        if figures := list(_figures(status, metric.key, labels)):
            yield from _family(metric.name, "counter" if metric.name.endswith("_total") else "gauge", metric.help)
        for labelled, value in figures:
            yield _sample(metric.name, labelled, value * metric.scale if metric.scale != 1.0 else value)
    if state is not None and state[0] in status:
        key, words = state
        yield from _family(key, "gauge", f"1 for the {key} that the node is in, 0 for the others.")
        for word in words:
            yield _sample(key, {**labels, key: word}, word == status[key])
    if "lateness" in status:
        yield from _histogram(status["lateness"], labels)


def _histogram(lateness: Mapping[str, Any], labels: dict[str, str]) -> Iterator[str]:
    name = "release_lateness_seconds"
    yield from _family(name, "histogram", "How long after its instant a frame was released.")
    bounds = [f"{bound:g}" for bound in lateness["bounds_s"]]
    counts = list(accumulate(lateness["counts"]))
    for bound, count in zip([*bounds, "+Inf"], counts, strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_sum", labels, lateness["sum_s"])
    yield _sample(f"{name}_count", labels, counts[-1])


def _figures(status: object, key: str, labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
    """The figures that are known at a key, each with its labels."""
    part, _, rest = key.partition(".")
    if not part and isinstance(status, int | float):
        yield labels, status
    elif part.startswith("{") and isinstance(status, Mapping):
        for each in sorted(status):
            yield from _figures(status[each], rest, {**labels, part[1:-1]: str(each)})
    elif part and isinstance(status, Mapping):
        yield from _figures(status.get(part), rest, labels)


def _family(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP levelcast_{name} {about}"
    yield f"# TYPE levelcast_{name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    listed = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"levelcast_{name}{{{listed}}} {int(value) if isinstance(value, bool) else value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
