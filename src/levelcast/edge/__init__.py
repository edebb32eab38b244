"""From released frames to customers, sans I/O: gathering into sessions, retransmission, and the customer's side.

Imports `wire`, `records`, `ring` and `tape`; driven by `net` and `sim`. What users see of it is in docs/edge.md.
"""
