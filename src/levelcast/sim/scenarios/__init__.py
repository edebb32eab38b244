"""Scenarios: what a seed draws, and what must hold at the end."""
