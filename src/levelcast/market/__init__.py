"""Trading: currently `synthetic`, the generated trades of a trading floor.

Imports `records` and `network`. Imported by `node` and `sim`.
"""
