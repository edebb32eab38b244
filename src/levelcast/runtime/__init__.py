"""Drive a protocol in real time: sockets, clocks, injected delay and loss, scheduling priority.

Imports `network`, `protocol`, `overlay` and `storage`. Imported by `client` and `node`.
"""
