"""What is traded, and by which rules: for now the synthetic trades that floors send where no real ones are replayed.

Imports `records` and `network`. Imported by `net` and `sim`.
"""
