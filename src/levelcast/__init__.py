"""Levelcast: every subscriber sees the same market data, in the same order, at the same time.

The protocol packages do no I/O: a driver, such as the simulator in `levelcast.sim`, runs them. A program that reads the
feed uses `levelcast.Subscriber` (docs/edge.md), a program of a trading floor `levelcast.Publisher`
(docs/operations.md), and one that trades `levelcast.Trader` (docs/floor.md). `levelcast.Group` is a process of a
wide-area group (docs/group.md). `levelcast.ReliableMulticast` is a member of a group in which some may lie
(docs/byzantine.md). Each is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from levelcast.version import __version__

if TYPE_CHECKING:
    from levelcast.client.group import WideGroup as Group
    from levelcast.client.publisher import Publisher
    from levelcast.client.reliable_multicast import ReliableMulticast
    from levelcast.client.subscriber import Subscriber
    from levelcast.client.trader import Trader

__all__ = ["Group", "Publisher", "ReliableMulticast", "Subscriber", "Trader", "__version__"]

_PLACES = {
    "Group": ("levelcast.client.group", "WideGroup"),
    "Publisher": ("levelcast.client.publisher", "Publisher"),
    "ReliableMulticast": ("levelcast.client.reliable_multicast", "ReliableMulticast"),
    "Subscriber": ("levelcast.client.subscriber", "Subscriber"),
    "Trader": ("levelcast.client.trader", "Trader"),
}
"""Module and class of each name. `wire` has another `Group`, the message that forms a secondary ring."""


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
