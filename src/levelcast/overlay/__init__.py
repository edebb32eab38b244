"""Measurement of delay, loss and clock offsets between nodes, and wide-area groups, sans I/O.

Imports `protocol` and `wire`. Driven by `runtime`, reported by `node`. The unicast overlay is planned here.
"""
