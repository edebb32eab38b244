"""Core datagrams, MoldUDP64 packets and records of the network itself, as values and as bytes.

Imports `records` and `native`, and does no I/O. Every higher layer may import it.
"""
