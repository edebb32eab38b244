"""Synthetic trades of a trading floor."""
