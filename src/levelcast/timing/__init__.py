"""Arithmetic of the timing rules (DESIGN rules 5 and 6): values, derivation, bounds, NACK sets."""
