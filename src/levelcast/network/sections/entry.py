"""[[gateway]] and [entry]: the gateways of orders, and the numbers of fair order entry (MS §7.2; E1 to E8).

The file has the first set of gateways. A running network reads the set and the numbers from the sequence
(`levelcast.wire.entry_change`).
"""

from __future__ import annotations

from functools import partial

from levelcast.network.fields import Fields, did_you_mean, known, show
from levelcast.network.keys import FileKey, FileTable
from levelcast.network.model import GatewayNode
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.timing.entry import STAMP_ERROR_NS, EntryGiven, entry_contradictions
from levelcast.units import show_ns
from levelcast.wire.entry_change import MAX_GATEWAYS

TABLES = (
    FileTable(
        "[[gateway]]",
        (
            FileKey("name", "its name, unique among all nodes"),
            FileKey("id", "its id on the ring, unique among all nodes; the `publisher_id` of its orders"),
            FileKey("site", "its location, which has a receiver"),
            FileKey("stripe", "its order stripe", "the first", "name of a stripe"),
        ),
        f"a gateway of orders; at most {MAX_GATEWAYS} ([entry.md](entry.md))",
    ),
    FileTable(
        "[entry]",
        (
            FileKey(
                "stamp_error",
                "largest systematic difference between two gateways of the time from release to stamp",
                show_ns(STAMP_ERROR_NS),
            ),
            FileKey("quantum", "q, length of a bucket of orders; 0: stamps alone", "100·stamp_error"),
            FileKey("close", "Θ, a bucket is closed this long after its end at the latest", "δ_N + 2·resend + m·τ"),
            FileKey(
                "late_cap",
                "largest correction of a stamp for a late release",
                "1 ms, at most half of the shortest delay between two sites",
            ),
        ),
    ),
)


def read(root: Fields, draft: Draft) -> None:
    gateways = []
    for place, fields in enumerate(root.tables("gateway")):
        gateways.append(_read_gateway(fields, draft))
        draft.check_later(partial(_check_gateway, draft, fields, place))
    draft.add(gateways=tuple(gateways))
    if len(gateways) > MAX_GATEWAYS:
        draft.report.add(("gateway", MAX_GATEWAYS, "name"), f"there are more than {MAX_GATEWAYS} gateways; remove some")
    fields = root.table("entry")
    values = known(
        stamp_error_ns=fields.duration("stamp_error"),
        quantum_ns=fields.duration("quantum", zero=True),
        close_ns=fields.duration("close"),
        late_cap_ns=fields.duration("late_cap", zero=True),
    )
    draft.add(entry=EntryGiven(**values))
    if fields.given and not gateways:
        fields.problem("stamp_error", "is set, but the file has no [[gateway]]; add the gateways of orders")
    draft.check_later(partial(_check_timing, draft, fields))


def _read_gateway(fields: Fields, draft: Draft) -> GatewayNode:
    name = fields.own_name("gateway")
    missing = f"has no id; set a unique id from 1 to {ID_LIMIT}"
    id_ = fields.whole("id", 1, ID_LIMIT, missing) or 0
    site = fields.name("site")
    if site is not None and site not in draft.site_names:
        hint = did_you_mean(site, draft.site_names)
        fields.problem("site", f'is at site "{site}", which is not defined in a [[site]]{hint}')
        site = None
    names = [stripe.name for stripe in draft.network.stripes]
    stripe = fields.raw("stripe")
    if stripe is None:
        stripe = names[0]
    elif stripe not in names:
        hint = did_you_mean(stripe, names)
        fields.problem("stripe", f"sends on stripe {show(stripe)}, which is not defined in [stripes]{hint}")
    return GatewayNode(name or "", id_, site or "", str(stripe))


def _check_gateway(draft: Draft, fields: Fields, place: int) -> None:
    """Check that name and id are unique among all nodes, and that a receiver is at its site (E1)."""
    network = draft.network
    gateway = network.gateways[place]
    others = [
        *((each.name, each.id) for each in (*network.releasing, *network.reformation, *network.floors)),
        *((each.name, each.id) for each in network.gateways[:place]),
    ]
    if gateway.name and any(gateway.name == name for name, _ in others):
        fields.problem("name", f'has the name "{gateway.name}", which another node already has')
    taken = {id_: name for name, id_ in others}
    if gateway.id and gateway.id in taken:
        fields.problem("id", f'has id {gateway.id}, which "{taken[gateway.id]}" already has; give it one of its own')
    publishers = {floor.publisher: floor.name for floor in network.floors}
    if gateway.id and gateway.id not in taken and gateway.id in publishers:
        fields.problem("id", f"has id {gateway.id}, the publisher of {publishers[gateway.id]}; give it one of its own")
    if gateway.site and network.receivers and gateway.site not in {each.site for each in network.releasing}:
        why = "stamps follow the releases of its site, so add a [[secondary]]"
        fields.problem("site", f'is at site "{gateway.site}", which has no receiver; {why}')


def _check_timing(draft: Draft, fields: Fields) -> None:
    """Check that the given numbers agree with the delays."""
    network = draft.network
    if draft.report.problems:
        return
    for stripe in network.order_stripes:
        path = network.entry_path(stripe)
        for key, message in entry_contradictions(network.entry_timing(stripe, bound=False), path, network.entry):
            draft.report.add(fields.at(key) if fields.given else ("gateway", 0, "site"), message)
