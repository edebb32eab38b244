"""Write `docs/metrics.md`: every Prometheus metric of a node."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.node.metrics import HISTOGRAMS, MetricFamily, common_families, state_family
from levelcast.node.roles import ROLES
from levelcast.node.roles.releasing import ReleasingRole
from website.reference import markdown

_INTRO = """
Every node serves these metrics at `/metrics` of its status port ([monitoring.md](monitoring.md)), in the Prometheus
text format 0.0.4. All samples have the labels `node` and `role`, and `stripe` if the network has several stripes. A
node omits metrics that do not apply to it.
"""
_TITLES = {
    "receiver": "Receivers",
    "reformation": "Reformation servers",
    "floor": "Floors",
    "secondary": "Secondaries",
}


def _section(title: str, families: Iterable[MetricFamily]) -> str:
    rows = [
        (
            markdown.code(f"levelcast_{family.name}"),
            family.type,
            ", ".join(map(markdown.code, family.labels)),
            family.help,
        )
        for family in families
    ]
    return f"## {title}\n\n" + markdown.table(("metric", "type", "labels", "meaning"), rows)


def page() -> str:
    """Return the page."""
    both = {metric.family for metric in ReleasingRole.METRICS}
    releasing = [*(metric.family for metric in ReleasingRole.METRICS), *HISTOGRAMS.values()]
    parts = [_section("All nodes", common_families()), _section("Receivers and secondaries", releasing)]
    for name, role in ROLES.items():
        own = [metric.family for metric in role.METRICS if metric.family not in both]
        parts.append(_section(_TITLES[name], [*own, *state_family(role.STATE)]))
    return markdown.page("Metrics", _INTRO, *parts)
