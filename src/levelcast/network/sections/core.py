"""[core]: the multicast group of the rings, and how packets travel in it."""

from __future__ import annotations

from levelcast.network.fields import Fields
from levelcast.network.model import MOST_CREDIT, PORTS_PER_STRIPE, Carriage, MulticastGroup
from levelcast.network.sections.draft import ID_LIMIT, LEAST_PACKET, MOST_PACKET, Draft


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("core", "[core]")
    if fields is None:
        return
    core, carriage = draft.network.core, Carriage()
    last_port = ID_LIMIT + 1 - PORTS_PER_STRIPE * len(draft.network.stripes)
    draft.add(
        core=MulticastGroup(
            "core", fields.multicast("address") or core.address, fields.whole("port", 1, last_port) or core.port
        ),
        carriage=Carriage(
            fields.whole("packet", LEAST_PACKET, MOST_PACKET) or carriage.packet_bytes,
            fields.flag("trains", carriage.trains),
            fields.whole("credit", 1, MOST_CREDIT),
            fields.size("rate"),
        ),
    )
    fields.finish()
