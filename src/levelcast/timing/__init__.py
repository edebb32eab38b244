"""Arithmetic of the timing rules (DESIGN rules 5 and 6): values, derivation, bounds, NACK sets.

Imports only root modules. Every higher layer may import it.
"""
