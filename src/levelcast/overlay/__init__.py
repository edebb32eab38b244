"""Measurement of delay, loss and clock offsets, decisions of a core without multicast, and wide-area groups; sans I/O.

Imports `protocol` and `wire`. Driven by `runtime`, reported by `node`.
"""
