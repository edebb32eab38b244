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
    Keeping,
    Link,
    Links,
    MulticastGroup,
    Network,
    ReceiverNode,
    ReformationNode,
    SecondaryNode,
    Site,
    Status,
    Stripe,
    TimingRules,
)
from levelcast.network.parse import NetworkError, load_network, parse_network
from levelcast.network.symbols import SymbolDirectory

__all__ = [
    "Carriage",
    "Edge",
    "Floor",
    "Keeping",
    "Link",
    "Links",
    "MulticastGroup",
    "Network",
    "NetworkError",
    "Problem",
    "ReceiverNode",
    "ReformationNode",
    "SecondaryNode",
    "Site",
    "Status",
    "Stripe",
    "SymbolDirectory",
    "TimingRules",
    "five_cities",
    "load_network",
    "parse_network",
]
