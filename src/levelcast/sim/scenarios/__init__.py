"""Scenarios: build a history from a seed, run it and check its end."""
