"""Checkers of the invariants of ring and edge."""
