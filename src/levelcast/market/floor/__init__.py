"""A floor without I/O: the local sequencer, the machine of its frames, and the public part of its events as records.

Imports `protocol`, `records` and `market.engine`. Imported by `node` and `sim`.
"""
