"""The core ring protocol, sans I/O: its timing, schedule, source, receiver, repair and reformation.

Imports `wire` and `records` only. Imported by `network` (for its timing) and by the layers
above, which drive it: `edge`, `market`, `net`, `sim`.
"""
