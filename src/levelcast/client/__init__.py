"""Client library for programs: `Publisher`, `Subscriber`, `Group`, `ReliableMulticast`, `Trader`, recorded trades.

Imports nothing of a node. Imported by the package itself, by `node` and by `cli`.
"""
