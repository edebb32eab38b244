"""Order entry without I/O (G1 to G5): FIX messages become commands of the engine, its events become reports.

`gateway` is the machine; `requests`, `reports`, `queries` and `market_data` are its parts, `order_state` what it knows
of orders, `journal` its entries as bytes. Imports `market.fix`, `records` and `native`. Imported by `node` and `sim`.
"""
