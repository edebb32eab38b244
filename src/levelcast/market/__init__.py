"""Trading: `engine` applies frames to the matching engine of `native`; `replay` runs recorded order flow through it.

`match_rules` has the rules by name, `public_events` what the public sees, `synthetic` and `synthetic_orders` generated
trades and orders, `fix` FIX 4.4 sessions, `entry` the gateway and `floor` a floor, all three without I/O. Imports
`protocol`, `records`, `native` and `network`. Imported by `client`, `node`, `sim` and `cli`.
"""
