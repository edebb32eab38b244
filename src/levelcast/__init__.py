"""Levelcast: every subscriber sees the same market data, in the same order, at the same instant.

The protocol packages do no I/O: a driver, such as the simulator in `levelcast.sim`, runs them. What a program
of a customer needs is here, `levelcast.Subscriber` (docs/edge.md), and what one of a trading floor needs,
`levelcast.Publisher` (docs/operations.md). Each is loaded when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from levelcast.version import __version__

if TYPE_CHECKING:
    from levelcast.client.publisher import Publisher
    from levelcast.client.subscriber import Subscriber

__all__ = ["Publisher", "Subscriber", "__version__"]


def __getattr__(name: str) -> object:
    if name not in ("Publisher", "Subscriber"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"levelcast.client.{name.lower()}"), name)
