"""Levelcast: every subscriber sees the same market data, in the same order, at the same instant.

The protocol packages do no I/O: a driver, such as the simulator in `levelcast.sim`, runs them.
"""

__version__ = "0.1.0"
