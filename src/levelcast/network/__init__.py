"""The network file: one TOML text that describes a whole deployment, checked and turned into values.

`parse` reads it (`fields` one table, `locate` the line that an error names), `model` is the result, `example`
is the file to start from, `directory` the numbers of symbols and floors. Imports the timing of `ring` and its
derivation. Imported by `market`, `net`, `sim`, `pipeline` and `cli`. Opens no socket.
"""

from levelcast.network.example import five_cities
from levelcast.network.fields import Problem
from levelcast.network.model import (
    Carriage,
    Edge,
    Floor,
    Group,
    Keeping,
    Link,
    Links,
    Network,
    Receiver,
    ReformationServer,
    Rules,
    Secondary,
    Site,
    Status,
    Stripe,
)
from levelcast.network.parse import NetworkError, load_network, parse_network
from levelcast.network.symbols import Directory

__all__ = [
    "Carriage",
    "Directory",
    "Edge",
    "Floor",
    "Group",
    "Keeping",
    "Link",
    "Links",
    "Network",
    "NetworkError",
    "Problem",
    "Receiver",
    "ReformationServer",
    "Rules",
    "Secondary",
    "Site",
    "Status",
    "Stripe",
    "five_cities",
    "load_network",
    "parse_network",
]
