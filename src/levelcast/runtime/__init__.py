"""The real-time driver of a protocol: sockets, clocks, added delay and loss, scheduling priority.

Imports `network`, `protocol`, `overlay` and `storage`. Imported by `client` and `node`.
"""
