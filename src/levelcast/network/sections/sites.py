"""[network] and [[site]]: the name of the network, and the places where nodes are."""

from __future__ import annotations

from levelcast.network.fields import Fields
from levelcast.network.model import Site
from levelcast.network.sections.draft import Draft, broken


def read(root: Fields, draft: Draft) -> None:
    about = root.table("network", "[network]")
    if about is not None:
        draft.add(name=about.text("name"))
        about.finish()
    draft.add(sites=_read_sites(root))


def _read_sites(root: Fields) -> tuple[Site, ...]:
    found: dict[str, Site] = {}
    tables = root.tables("site", "[[site]]")
    first_lines: dict[str, int] = {}
    for fields in tables:
        name = fields.name()
        if name is not None:
            fields.label = f'site "{name}"'
        site = Site(name or "", fields.text("city"), fields.text("region"))
        if name in found:
            fields.problem("name", f"is named twice; the first is on line {first_lines[name]}")
        elif name is not None:
            found[name] = site
            first_lines[name] = fields.report.line_of(fields.at("name"))
        fields.finish()
    if not tables and not broken(root, "site"):
        root.report.add((), "there is no [[site]]: every node stands at one")
    return tuple(found.values())
