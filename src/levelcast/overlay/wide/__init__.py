"""Group communication without multicast: the protocols of TT, sans I/O.

Imports `protocol`, `timing` and `wire`. Driven by `runtime` and `sim`.
"""
