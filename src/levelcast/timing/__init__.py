"""Arithmetic of the timing rules (DESIGN rules 5 and 6, W1 to W8): values, derivation, bounds, NACK sets.

`hold` derives a short hold time from a model of the ring in numpy (`hold_*`); `hold_bound` bounds it in integers.
Imports only root modules. Every higher layer may import it.
"""
