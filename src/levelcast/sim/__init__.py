"""Simulator: a virtual network in virtual time, with faults and invariant checkers.

One seed gives one history, bit for bit. Drives the protocol packages; only `cli` and `web` may import it.
"""
