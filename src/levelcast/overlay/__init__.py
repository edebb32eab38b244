"""Measurement of delay, loss and clock offsets between nodes, and decisions of a core without multicast; sans I/O.

Imports `protocol` and `wire`. Driven by `runtime`, reported by `node`.
"""
