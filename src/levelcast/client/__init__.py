"""The library of a floor's or a subscriber's program: `Publisher`, `Subscriber`, replay of recorded trades.

Imports nothing of a node. Imported by the package itself, by `node` and by `cli`.
"""
