"""[status], [tape] and [probe]: the status pages, storage and probes of nodes."""

from __future__ import annotations

from levelcast.network.fields import Fields, known
from levelcast.network.model import Keeping, Status
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.units import show_ns

_LEAST_PROBE_NS = 10_000_000


def read(root: Fields, draft: Draft) -> None:
    nodes = len(draft.network.node_names) * len(draft.network.stripes)
    draft.add(status=_read_status(root, nodes), tape=_read_tape(root), probe_ns=_read_probe(root))


def _read_status(root: Fields, nodes: int) -> Status | None:
    """Read the first TCP port: one per node and stripe, independent of the UDP ports of core and edge."""
    fields = root.table("status")
    if not fields.given:
        return None
    missing = "has no port; set the port of the first node, such as 32000; the others use the next ones"
    port = fields.whole("port", 1, ID_LIMIT + 1 - max(1, nodes), missing)
    return Status(port or 0, **known(address=fields.address("address")))


def _read_probe(root: Fields) -> int | None:
    fields = root.table("probe")
    if not fields.given:
        return None
    missing = 'has no every; set the interval between probes, such as every = "1s"'
    every_ns = fields.duration("every", missing=missing)
    if every_ns is not None and every_ns < _LEAST_PROBE_NS:
        fields.problem("every", f"has an interval of {show_ns(every_ns)}; the minimum is {show_ns(_LEAST_PROBE_NS)}")
    return every_ns


def _read_tape(root: Fields) -> Keeping:
    fields = root.table("tape")
    values = known(
        keep_bytes=fields.size("keep_bytes"),
        keep_age_ns=fields.age("keep_age"),
        durable=fields.choice("durable", "process", "power"),
        segment_records=fields.whole("segment", 1_000, 1_000_000_000),
    )
    return Keeping(**values)
