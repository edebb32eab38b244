"""The sections of a network file, one module each: a function that reads its tables into a `Draft`.

`SECTIONS` is the registry, in the order of reading. A section may use what those before it have read; what needs the
whole network is checked in the end (`Draft.check_later`). A new section is a new module with a line here, and a field
of `levelcast.network.model.Network`.
"""

from levelcast.network.sections import core, edge, links, nodes, services, sites, timing

SECTIONS = (sites.read, timing.read, links.read, nodes.read, core.read, edge.read, services.read)
