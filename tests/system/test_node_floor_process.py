"""A floor as a process trades with clients over sockets, and continues after a restart."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.client.trader import OrderRefused, Trader
from levelcast.errors import NetError
from levelcast.node.floor.process import FloorOptions, FloorProcess
from tests.floor_parts import PASSWORD, add_accounts, open_floor, prepare, running


def trader(address: str, name: str = "ANN", **options: object) -> Trader:
    return Trader(address, name, PASSWORD, **options)  # type: ignore[arg-type]


def test_two_traders_trade(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path, tables=True)
    prepare(floor, "ann", "bob")

    async def day(address: str) -> None:
        async with trader(address) as ann, trader(address, "BOB") as bob:
            assert await ann.instruments() == ["IBM"]
            view = await ann.watch("IBM")
            order = await ann.place("IBM", "buy", 300, "181.52")
            assert (order.is_live, order.left) == (True, 300)
            sold = await bob.place("IBM", "sell", 100, 181.5)
            assert sold.public_id == order.public_id + 1
            while order.filled != 100 or sold.filled != 100:
                await ann.moved()
            assert order.average == Decimal("181.52")
            assert (view.bid, view.bids[Decimal("181.52")], view.last) == (Decimal("181.52"), 200, Decimal("181.52"))
            order = await ann.replace(order, 400, "181.60")
            assert (order.size, order.left, order.price) == (400, 300, Decimal("181.6"))
            money = {each.asset: each for each in await ann.positions()}
            assert money["USD"].amount == Decimal("1000000") - 18152
            assert money["USD"].reserved == 300 * Decimal("181.6")
            assert money["IBM"].amount == 10_100
            with pytest.raises(OrderRefused, match="not a multiple of the tick"):
                await ann.place("IBM", "buy", 100, "181.523")
            with pytest.raises(OrderRefused, match="unknown instrument"):
                await ann.place("XYZ", "buy", 100, 1)
            assert len(await ann.refresh()) == 1
            order = await ann.cancel(order)
            assert not order.is_live
            with pytest.raises(OrderRefused, match="too late"):
                await ann.cancel(order)
            assert await ann.cancel_all() == 0
            kinds = [(await anext(ann)).kind for _ in range(4)]
            assert kinds == ["received", "accepted", "fill", "replace received"]

    with running(floor) as address:
        asyncio.run(day(address))
    fills = __import__("pyarrow.parquet", fromlist=["x"]).read_table(tmp_path / "tables" / "fills")
    assert fills.column("size").to_pylist() == [100, 100]
    assert fills.column("aggressor").to_pylist() == [True, False]


def test_its_book_is_rebuilt_from_its_tape(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path)
    prepare(floor, "ann", "bob")

    async def day(address: str) -> None:
        async with trader(address) as ann, trader(address, "BOB") as bob:
            await ann.place("IBM", "buy", 300, "181.52")
            await bob.place("IBM", "sell", 100, 181.5)

    with running(floor) as address:
        asyncio.run(day(address))
    engine = floor.floor.engine
    result = CliRunner().invoke(app, ["book", "show", str(tmp_path), "--json", "--levels", "1"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["books"][0]["bids"] == [[181_520_000_000, 200]]
    assert (found["sequence"], found["state"]) == (engine.sequence, engine.state_hash().hex())


def test_a_restarted_floor_continues(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann", "bob")
    floor = open_floor(tmp_path)
    prepare(floor, "ann", "bob")

    async def first(address: str) -> None:
        async with trader(address, journal=tmp_path / "ann.journal") as ann:
            await ann.place("IBM", "buy", 300, "181.52")

    with running(floor) as address:
        asyncio.run(first(address))
    chain = floor.floor.engine.chain

    async def second(address: str) -> None:
        async with trader(address, "BOB") as bob:
            await bob.place("IBM", "sell", 300, "181.52")
        async with trader(address, journal=tmp_path / "ann.journal") as ann:
            report = await anext(ann)
            assert (report.kind, report.size, report.order.left) == ("fill", 300, 0)

    floor = open_floor(tmp_path)
    assert floor.floor.engine.chain == chain
    with running(floor) as address:
        asyncio.run(second(address))


def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann")
    floor = open_floor(tmp_path)

    async def wrong(address: str) -> None:
        with pytest.raises(NetError, match="wrong password"):
            async with Trader(address, "ANN", "no"):
                pass
        with pytest.raises(NetError):
            async with Trader(address, "NOBODY", PASSWORD):
                pass
        async with trader(address) as ann:
            assert await ann.instruments() == []

    with running(floor) as address:
        asyncio.run(wrong(address))


def test_a_gateway_outside_of_loopback_needs_tls(tmp_path: Path) -> None:
    with pytest.raises(NetError, match="need TLS"):
        FloorProcess(FloorOptions(directory=tmp_path, address=("0.0.0.0", 0)))


def test_a_directory_has_one_floor(tmp_path: Path) -> None:
    floor = open_floor(tmp_path)
    with pytest.raises(Exception, match="another process"):
        open_floor(tmp_path)
    floor.close()
