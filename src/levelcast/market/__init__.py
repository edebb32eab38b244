"""Trading: `engine` applies frames to the matching engine of `native`; `replay` runs recorded order flow through it.

`match_rules` has the rules by name, `public_events` what the public sees, `synthetic` and `synthetic_orders` generated
trades and orders. `book_service` returns the engine's state at any sequence of a tape. `fix` has FIX 4.4 sessions,
`entry` the gateway, `floor` a floor and `fair` the fair order of several gateways, all without I/O. Imports `protocol`,
`wire`, `records`, `native` and `network`. Imported by `client`, `node`, `sim`, `pipeline` and `cli`.
"""
