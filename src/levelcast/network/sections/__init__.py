"""Read the sections of a network file, one module each: a function reads its tables into a `Draft`.

`SECTIONS` is the registry, in the order of reading. A section may use the results of earlier ones; checks that
need the complete network run at the end (`Draft.check_later`). A new section needs a new module, a line here, and a
field of `levelcast.network.model.Network`.
"""

from levelcast.network import include
from levelcast.network.sections import core, edge, entry, keys, links, nodes, services, sites, timing

SECTIONS = (sites.read, timing.read, links.read, nodes.read, entry.read, core.read, edge.read, services.read, keys.read)

TABLES = (
    include.TABLES[0],
    *sites.TABLES,
    *links.TABLES,
    *timing.TABLES,
    *nodes.TABLES,
    *entry.TABLES,
    *core.TABLES,
    *edge.TABLES,
    *services.TABLES,
    *keys.TABLES,
    include.TABLES[1],
)
"""The tables and keys of the file in the order of its documentation."""
