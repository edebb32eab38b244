"""The bytes of core datagrams and MoldUDP64 packets, and the values that they stand for; nothing else.

Imports nothing of Levelcast and does no I/O. Every other package may import it.
"""
