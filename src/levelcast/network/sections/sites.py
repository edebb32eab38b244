"""[network] and [[site]]: the name of the network, and the locations of nodes."""

from __future__ import annotations

from levelcast.network.fields import Fields
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.model import Site
from levelcast.network.sections.draft import Draft

TABLES = (
    FileTable(
        "[network]",
        (
            FileKey("name", "title", NONE),
            FileKey(
                "id",
                "network identifier; in every core datagram and journal, so that two networks on one multicast group "
                "ignore each other. `levelcast init` draws it, and derives groups and ports from it",
                "hash of the name and of the ids of receivers and reformation servers",
            ),
        ),
    ),
    FileTable(
        "[[site]]",
        (
            FileKey("name", "location of nodes"),
            FileKey("city", "for reports", NONE),
            FileKey("region", "the receivers of this site send to the edge groups of this region", NONE),
        ),
        "at least one",
    ),
)


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("network")
    draft.add(name=fields.text("name"), given_id=fields.identifier("id"), sites=_read_sites(root))


def _read_sites(root: Fields) -> tuple[Site, ...]:
    found: dict[str, tuple[Site, Fields]] = {}
    for fields in root.tables("site", missing="[[site]] is missing; every node needs one"):
        name = fields.own_name("site")
        site = Site(name or "", fields.text("city"), fields.text("region"))
        if name is not None and found.setdefault(name, (site, fields))[1] is not fields:
            line = fields.report.line_of(found[name][1].at("name"))
            fields.problem("name", f"is defined twice; the first is on line {line}")
    return tuple(site for site, _ in found.values())
