"""Measurement of delay and loss between nodes by probes, sans I/O.

Imports `protocol` and `wire`. Driven by `runtime`, reported by `node`. The unicast overlay is planned here.
"""
