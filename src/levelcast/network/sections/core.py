"""[core]: the multicast group of the rings, and the parameters of its packets."""

from __future__ import annotations

from dataclasses import replace

from levelcast.network.fields import Fields, known
from levelcast.network.model import MOST_CREDIT, PORTS_PER_STRIPE, Carriage
from levelcast.network.sections.draft import ID_LIMIT, LEAST_PACKET, MOST_PACKET, Draft


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("core")
    last_port = ID_LIMIT + 1 - PORTS_PER_STRIPE * len(draft.network.stripes)
    place = known(address=fields.multicast("address"), port=fields.whole("port", 1, last_port))
    carriage = known(
        packet_bytes=fields.whole("packet", LEAST_PACKET, MOST_PACKET),
        trains=fields.flag("trains"),
        credit=fields.whole("credit", 1, MOST_CREDIT),
        rate_bytes=fields.size("rate"),
    )
    draft.add(core=replace(draft.network.core, **place), carriage=Carriage(**carriage))
