"""Trading: `synthetic`, the generated trades of a trading floor, and `fix`, order entry by FIX 4.4 without I/O.

Imports `records` and `network`. Imported by `node` and `sim`.
"""
