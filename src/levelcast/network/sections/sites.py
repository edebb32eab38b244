"""[network] and [[site]]: the name of the network, and the places where nodes are."""

from __future__ import annotations

from levelcast.network.fields import Fields
from levelcast.network.model import Site
from levelcast.network.sections.draft import Draft


def read(root: Fields, draft: Draft) -> None:
    draft.add(name=root.table("network").text("name"), sites=_read_sites(root))


def _read_sites(root: Fields) -> tuple[Site, ...]:
    found: dict[str, tuple[Site, Fields]] = {}
    for fields in root.tables("site", missing="there is no [[site]]: every node stands at one"):
        name = fields.own_name("site")
        site = Site(name or "", fields.text("city"), fields.text("region"))
        if name is not None and found.setdefault(name, (site, fields))[1] is not fields:
            line = fields.report.line_of(found[name][1].at("name"))
            fields.problem("name", f"is named twice; the first is on line {line}")
    return tuple(site for site, _ in found.values())
