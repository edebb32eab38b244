"""Drivers over real sockets: the protocol classes of `ring` as processes on UDP multicast, on disk and on the clock.

`driver` is the loop, `node` builds what it drives from a network file, `cluster` runs a whole file on one machine.
Imports everything below; imported by `cli` alone.
"""
