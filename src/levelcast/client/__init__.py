"""Client library for programs: `Publisher`, `Subscriber`, `Group`, `Trader`, replay of recorded trades.

Imports nothing of a node. Imported by the package itself, by `node` and by `cli`.
"""
