"""Read the network file: check the TOML text that describes a deployment, and convert it to values.

| subject                     | modules                                                                           |
|-----------------------------|-----------------------------------------------------------------------------------|
| reading                     | `parse`, `sections` (one module each), `fields`, `include`, `toml_lines`          |
| the result                  | `model`, `warnings`; `example` is a file to start from                            |
| placement of nodes          | `placement`, `line_assignment`, `regions`                                         |
| for protocols and clients   | `stripe_config`, `sessions`, `symbols`                                            |

Opens no socket. `tests/test_architecture.py` lists the packages that it may import.
"""

from levelcast.network.example import FiveCities, five_cities
from levelcast.network.fields import Problem
from levelcast.network.model import (
    Carriage,
    Floor,
    GatewayNode,
    Keeping,
    Link,
    Links,
    MulticastGroup,
    Network,
    ReceiverNode,
    ReformationNode,
    SecondaryNode,
    Stripe,
)
from levelcast.network.parse import NetworkError, load_network, parse_network
from levelcast.network.symbols import SymbolDirectory

__all__ = [
    "Carriage",
    "FiveCities",
    "Floor",
    "GatewayNode",
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
    "Stripe",
    "SymbolDirectory",
    "five_cities",
    "load_network",
    "parse_network",
]
