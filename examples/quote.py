"""Quote both sides of an instrument around its last price, and move the quotes after every fill.

python examples/quote.py ANN IBM        with the password in LEVELCAST_PASSWORD
"""

import asyncio
import os
import sys
from decimal import Decimal

import levelcast

SIZE, SPREAD, START = 100, Decimal("0.10"), Decimal("181.50")


async def quote(trader: levelcast.Trader, symbol: str) -> None:
    middle = START
    await trader.place(symbol, "buy", SIZE, middle - SPREAD)
    await trader.place(symbol, "sell", SIZE, middle + SPREAD)
    async for report in trader:
        if report.kind != "fill" or report.order.is_live:
            continue
        print(f"{report.order.side} {report.size} at {report.price}", flush=True)
        middle = report.price
        await trader.cancel_all(symbol)
        trader.submit(symbol, "buy", SIZE, middle - SPREAD)
        trader.submit(symbol, "sell", SIZE, middle + SPREAD)


async def main(comp_id: str, symbol: str) -> None:
    async with levelcast.Trader("127.0.0.1:9878", comp_id, os.environ["LEVELCAST_PASSWORD"]) as trader:
        await quote(trader, symbol)


asyncio.run(main(*sys.argv[1:]))
