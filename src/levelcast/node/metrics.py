"""A node's status as metrics: the text exposition format 0.0.4 that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4"

State = tuple[str, tuple[str, ...]] | None


class Metric(NamedTuple):
    """A figure of the status: where it stands, and what it is called."""

    key: str
    """Keys of the status, with a dot between each and the next; a figure that a node does not have is left out."""
    name: str
    kind: Literal["counter", "gauge"]
    help: str
    scale: float = 1.0


_METRICS = (
    Metric("uptime_s", "uptime_seconds", "gauge", "Time since the node was started."),
    Metric("cpu_s", "cpu_seconds_total", "counter", "CPU time of the process."),
    Metric("rss_bytes", "resident_bytes", "gauge", "Memory that the process has in use."),
    Metric("clock.trusted", "clock_trusted", "gauge", "1 while the wall clock runs like the monotonic one (rule 13)."),
    Metric("clock.drift_ns", "clock_drift_seconds", "gauge", "Wall against monotonic clock since the start.", 1e-9),
    Metric("clock.kernel.synchronised", "clock_synchronised", "gauge", "1 while NTP or PTP keeps the clock."),
    Metric("clock.kernel.offset_ns", "clock_offset_seconds", "gauge", "What the kernel still slews away.", 1e-9),
    Metric("clock.kernel.max_error_ns", "clock_max_error_seconds", "gauge", "The kernel's bound of its error.", 1e-9),
    Metric("clock.kernel.estimated_error_ns", "clock_error_seconds", "gauge", "The kernel's estimated error.", 1e-9),
    Metric("datagrams_in", "datagrams_received_total", "counter", "Datagrams of the core group that came."),
    Metric("datagrams_out", "datagrams_sent_total", "counter", "Datagrams that were sent."),
    Metric("unknown_peer", "unknown_peer_total", "counter", "Datagrams for a node that has not spoken yet."),
    Metric("send_refused", "send_refused_total", "counter", "Datagrams that the kernel had no room for."),
    Metric("namesakes", "namesakes_total", "counter", "Datagrams of another process that takes itself for this node."),
    Metric("lost_on_purpose", "lost_on_purpose_total", "counter", "Datagrams that --impair has dropped."),
    Metric("journal_bytes", "journal_bytes", "gauge", "Size of the journal."),
    Metric("life", "life", "gauge", "The life of the disk (rule 12)."),
)

_COUNTED_BY = (
    ("malformed", "malformed_total", "reason", "Datagrams that were not delivered, by reason."),
    ("reports", "reports_total", "kind", "What the protocol reported, by kind."),
    ("edge.unsent", "edge_unsent_total", "reason", "Packets for customers that could not be sent, by reason."),
    ("edge.refused", "edge_refused_total", "reason", "Requests of customers that were not answered, by reason."),
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
    for metric in (*_METRICS, *own):
        value = _find(status, metric.key)
        if isinstance(value, int | float):
            yield from _family(metric.name, metric.kind, metric.help)
            yield _sample(metric.name, labels, value * metric.scale if metric.scale != 1.0 else value)
    for key, name, label, about in _COUNTED_BY:
        counts = _find(status, key)
        if isinstance(counts, Mapping) and counts:
            yield from _family(name, "counter", about)
            for which, count in sorted(counts.items()):
                yield _sample(name, {**labels, label: str(which)}, count)
    yield from _covered(_find(status, "group.members"), labels)
    yield from _probed(_find(status, "probes"), labels)
    if state is not None and state[0] in status:
        key, words = state
        yield from _family(key, "gauge", f"1 for the {key} that the node is in, 0 for the others.")
        for word in words:
            yield _sample(key, {**labels, key: word}, word == status[key])
    if "lateness" in status:
        yield from _histogram(status["lateness"], labels)


_OF_SECONDARIES = (
    ("lag", "secondary_lag_slots", "Slots that a secondary is behind the primary which serves it."),
    ("counts", "secondary_counts", "1 while the primary's tokens claim no more than the secondary has (rule 11)."),
)


def _covered(members: object, labels: dict[str, str]) -> Iterator[str]:
    """Of each secondary that a primary covers; a secondary itself knows only who they are."""
    if not isinstance(members, Mapping) or not members:
        return
    for key, name, about in _OF_SECONDARIES:
        yield from _family(name, "gauge", about)
        for secondary, each in sorted(members.items()):
            if each[key] is not None:
                yield _sample(name, {**labels, "secondary": secondary}, each[key])


_OF_PROBES: tuple[tuple[str, str, Literal["counter", "gauge"], str, float], ...] = (
    ("answered", "probes_answered_total", "counter", "Probes that the peer has answered.", 1.0),
    ("lost", "probes_lost_total", "counter", "Probes that were lost, there or back.", 1.0),
    ("last_ns", "probe_round_trip_seconds", "gauge", "The last round trip to the peer.", 1e-9),
    ("least_ns", "probe_least_round_trip_seconds", "gauge", "The shortest round trip to the peer.", 1e-9),
)


def _probed(peers: object, labels: dict[str, str]) -> Iterator[str]:
    """Of each peer that this node probes."""
    if not isinstance(peers, Mapping) or not peers:
        return
    for key, name, kind, about, scale in _OF_PROBES:
        yield from _family(name, kind, about)
        for peer, each in sorted(peers.items()):
            if each[key] is not None:
                yield _sample(name, {**labels, "peer": peer}, each[key] * scale if scale != 1.0 else each[key])


def _histogram(lateness: Mapping[str, Any], labels: dict[str, str]) -> Iterator[str]:
    name = "release_lateness_seconds"
    yield from _family(name, "histogram", "How long after its instant a frame was released.")
    bounds = [f"{bound:g}" for bound in lateness["bounds_s"]]
    counts = list(accumulate(lateness["counts"]))
    for bound, count in zip([*bounds, "+Inf"], counts, strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_sum", labels, lateness["sum_s"])
    yield _sample(f"{name}_count", labels, counts[-1])


def _find(status: Mapping[str, Any], key: str) -> object:
    value: Any = status
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _family(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP levelcast_{name} {about}"
    yield f"# TYPE levelcast_{name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    listed = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"levelcast_{name}{{{listed}}} {int(value) if isinstance(value, bool) else value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
