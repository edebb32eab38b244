"""The timed-token ring, sans I/O: schedule, source, listener, member, secondary, witness, reformation servers.

Imports `protocol`, `timing` and `wire`. Imported by `client` (source), `node` and `sim`, which drive it.
"""
