"""[status], [tape], [log] and [probe]: the status pages, storage, logs and probes of nodes."""

from __future__ import annotations

from levelcast.network.fields import Fields, known
from levelcast.network.keys import FileKey, FileTable
from levelcast.network.model import Keeping, LogFiles, Status
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.units import show_ns

_LEAST_PROBE_NS = 10_000_000
_LEAST_LOG_BYTES = 10_000
_MOST_LOGS = 1000

_KEEPING = Keeping()
_LOG = LogFiles()
TABLES = (
    FileTable(
        "[status]",
        (
            FileKey(
                "port",
                "TCP status port of the first node (receivers, then reformation servers, floors, secondaries); each "
                "further node uses the next port, and each further stripe continues after the last",
                type="port",
            ),
            FileKey("address", "address at which each node serves its status", Status(1).address),
        ),
        "without it, nodes serve no status",
    ),
    FileTable(
        "[probe]",
        (
            FileKey(
                "every",
                f"interval at which each node probes the others, at least {show_ns(_LEAST_PROBE_NS)} "
                "([matrix.md](matrix.md#probes))",
            ),
        ),
        "without it, nodes only reply to probes",
    ),
    FileTable(
        "[tape]",
        (
            FileKey(
                "keep_bytes",
                "maximum size: a receiver removes its oldest finished segments, so a tape may be one segment longer",
                "no limit",
            ),
            FileKey("keep_age", "maximum age, in the same way", "no limit"),
            FileKey("segment", "records per tape segment, approximately", f"{_KEEPING.segment_records}"),
            FileKey(
                "durable",
                "writes of all nodes survive a crash of the process, or also a power loss "
                "([cost](tape.md#cost), which `process` of `[timing]` must cover)",
                f'`"{_KEEPING.durable}"`',
            ),
        ),
    ),
    FileTable(
        "[log]",
        (
            FileKey(
                "bytes",
                f"size at which a [log](monitoring.md#logs) of a node is renamed to `NAME.log.1`, at least "
                f"{_LEAST_LOG_BYTES // 1000} kB",
                f'`"{_LOG.bytes // 1_000_000}MB"`',
            ),
            FileKey("keep", "number of renamed logs; older ones are removed", f"{_LOG.keep}"),
            FileKey("json", "also write the events as JSON lines", "true"),
        ),
    ),
)


def read(root: Fields, draft: Draft) -> None:
    nodes = len(draft.network.node_names) * len(draft.network.stripes)
    draft.add(status=_read_status(root, nodes), tape=_read_tape(root), log=_read_log(root), probe_ns=_read_probe(root))


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


def _read_log(root: Fields) -> LogFiles:
    fields = root.table("log")
    size = fields.size("bytes")
    if size is not None and size < _LEAST_LOG_BYTES:
        fields.problem("bytes", f"has a size of {size:,} bytes; the minimum is {_LEAST_LOG_BYTES // 1000} kB")
    return LogFiles(**known(bytes=size, keep=fields.whole("keep", 1, _MOST_LOGS), json=fields.flag("json")))
