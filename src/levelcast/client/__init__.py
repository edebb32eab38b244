"""Client library for programs of floors and subscribers: `Publisher`, `Subscriber`, replay of recorded trades.

Imports nothing of a node. Imported by the package itself, by `node` and by `cli`.
"""
