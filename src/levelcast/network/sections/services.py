"""[status], [tape] and [probe]: what nodes serve over HTTP, keep on disk and measure."""

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
    """TCP ports, one a node and stripe from the first on: they share nothing with the UDP ports of core and edge."""
    fields = root.table("status")
    if not fields.given:
        return None
    missing = "has no port: give the first node one, such as 32000, and the others take the next ones"
    port = fields.whole("port", 1, ID_LIMIT + 1 - max(1, nodes), missing)
    return Status(port or 0, **known(address=fields.address("address")))


def _read_probe(root: Fields) -> int | None:
    fields = root.table("probe")
    if not fields.given:
        return None
    missing = 'has no every: say how often each node probes the others, such as every = "1s"'
    every_ns = fields.duration("every", missing=missing)
    if every_ns is not None and every_ns < _LEAST_PROBE_NS:
        fields.problem("every", f"probes every {show_ns(every_ns)}: {show_ns(_LEAST_PROBE_NS)} is the least")
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
