"""Trading: `engine` applies frames to the matching engine of `native`; `replay` runs recorded order flow through it.

`match_rules` has the rules by name, `public_events` what the public sees, `synthetic` and `synthetic_orders` generated
trades and orders, `fix` order entry by FIX 4.4 without I/O. Imports `records`, `native` and `network`. Imported by
`node`, `sim` and `cli`.
"""
