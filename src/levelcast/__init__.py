"""Levelcast: every subscriber sees the same market data, in the same order, at the same time.

The protocol packages do no I/O: a driver, such as the simulator in `levelcast.sim`, runs them. A program that
reads the feed uses `levelcast.Subscriber` (docs/edge.md). A program of a trading floor uses `levelcast.Publisher`
(docs/operations.md). A program that trades uses
`levelcast.Trader` (docs/floor.md). Each is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from levelcast.version import __version__

if TYPE_CHECKING:
    from levelcast.client.publisher import Publisher
    from levelcast.client.subscriber import Subscriber
    from levelcast.client.trader import Trader

__all__ = ["Publisher", "Subscriber", "Trader", "__version__"]


def __getattr__(name: str) -> object:
    if name not in ("Publisher", "Subscriber", "Trader"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"levelcast.client.{name.lower()}"), name)
