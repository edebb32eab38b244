"""The ledger of the matching engine (S1 to S6). Amounts of money are integers in 1e-9; sizes are counts.

A balance is free or reserved. Reserving moves an amount from free to reserved, a trade moves it to the other side. The
sum of all balances of an asset is `held`; deposits minus withdrawals are `due`. They are equal after every frame.
"""

from __future__ import annotations

from levelcast.native.book_codes import BUY, KEPT_TRADES, BookReason, InstrumentSetting
from levelcast.native.pure_book_state import Balance, BookAccount, BookOrder, Listing, PastTrade

FLOOR_ACCOUNT = 0
"""Receives the fees; no orders are accepted from it."""
CURRENCY = 1 << 32
"""Keys of assets: a currency has this bit, the shares of an instrument are its id."""


class Ledger:
    """Accounts, assets, balances, and the trades that a bust may reverse."""

    def __init__(self) -> None:
        self.accounts: dict[int, BookAccount] = {}
        self.seen: dict[tuple[int, int], int] = {}
        """Highest count of client order ids by account and gateway (M3)."""
        self.assets: dict[int, int] = {}
        self.held: list[int] = []
        self.due: list[int] = []
        self.balances: dict[tuple[int, int], Balance] = {}
        self.trades: dict[int, PastTrade] = {}

    def asset(self, key: int) -> int:
        """Return the number of an asset, new if necessary."""
        if key not in self.assets:
            self.assets[key] = len(self.held)
            self.held.append(0)
            self.due.append(0)
        return self.assets[key]

    def balance(self, account: int, asset: int) -> Balance:
        """Return a balance, new if necessary."""
        key = account, asset
        if key not in self.balances:
            self.balances[key] = Balance(account, asset)
        return self.balances[key]

    def move(self, balance: Balance, free: int, reserved: int = 0) -> None:
        balance.free += free
        balance.reserved += reserved
        self.held[balance.asset] += free + reserved

    def conserved(self) -> bool:
        """Check S5: what is held is what was deposited."""
        return self.held == self.due


def reserved_fee(listing: Listing) -> int:
    return max(listing.settings[InstrumentSetting.MAKER_FEE], listing.settings[InstrumentSetting.TAKER_FEE])


def needs(listing: Listing, side: int, bound: int, size: int) -> tuple[int, int]:
    """Return the cash and the shares that an order reserves (S2)."""
    fee = reserved_fee(listing)
    return ((bound + fee) * size, 0) if side == BUY else (fee * size, size)


def lacks(ledger: Ledger, listing: Listing, account: int, cash: int, shares: int) -> BookReason:
    """Return why an account cannot reserve these amounts."""
    money = ledger.balances.get((account, listing.cash))
    if cash > (money.free if money else 0):
        return BookReason.FUNDS
    stock = ledger.balances.get((account, listing.asset))
    if shares > 0 and shares > (stock.free + stock.short if stock else 0):
        return BookReason.SHARES
    return BookReason.NONE


def hold(ledger: Ledger, order: BookOrder, size: int) -> None:
    """Reserve what `size` of an order needs; negative sizes release it."""
    if order.account is None or order.cash is None or order.shares is None:
        return
    cash, shares = needs(order.listing, order.side, order.bound, size)
    if cash:
        ledger.move(order.cash, -cash, cash)
    if shares:
        ledger.move(order.shares, -shares, shares)
    order.account.open_value += order.bound * size


def release(ledger: Ledger, order: BookOrder, size: int) -> None:
    """Return what `size` of an order had reserved."""
    hold(ledger, order, -size)


def settle(ledger: Ledger, number: int, price: int, size: int, buy: BookOrder, sell: BookOrder, taker: int) -> None:
    """Move both sides of a trade at once (S3). `taker` is the side that pays the taker's fee, 0 in an auction."""
    if buy.account is None or sell.account is None:
        return
    assert buy.cash is not None
    assert buy.shares is not None
    assert sell.cash is not None
    assert sell.shares is not None
    listing = buy.listing
    maker_fee = listing.settings[InstrumentSetting.MAKER_FEE]
    taker_fee = listing.settings[InstrumentSetting.TAKER_FEE]
    buyer_fee = taker_fee if buy.side == taker else maker_fee
    seller_fee = taker_fee if sell.side == taker else maker_fee
    cash, _ = needs(listing, buy.side, buy.bound, size)
    ledger.move(buy.cash, cash - (price + buyer_fee) * size, -cash)
    ledger.move(buy.shares, size)
    cash, shares = needs(listing, sell.side, sell.bound, size)
    ledger.move(sell.cash, cash + (price - seller_fee) * size, -cash)
    ledger.move(sell.shares, 0, -shares)
    if buyer_fee + seller_fee:
        ledger.move(ledger.balance(FLOOR_ACCOUNT, listing.cash), (buyer_fee + seller_fee) * size)
    buy.account.open_value -= buy.bound * size
    sell.account.open_value -= sell.bound * size
    ledger.trades[number] = PastTrade(
        listing.id, buy.account.number, sell.account.number, price, size, buyer_fee, seller_fee
    )
    ledger.trades.pop(number - KEPT_TRADES, None)


def bust(ledger: Ledger, listings: dict[int, Listing], number: int) -> BookReason:
    """Reverse a trade, or return why not (S6)."""
    trade = ledger.trades.get(number)
    if trade is None:
        return BookReason.UNKNOWN_TRADE
    if trade.busted:
        return BookReason.ALREADY_BUSTED
    listing = listings[trade.listing]
    fees = (trade.buyer_fee + trade.seller_fee) * trade.size
    proceeds = (trade.price - trade.seller_fee) * trade.size
    floor = ledger.balances.get((FLOOR_ACCOUNT, listing.cash))
    cash = ledger.balance(trade.seller, listing.cash)
    shares = ledger.balance(trade.buyer, listing.asset)
    if cash.free < proceeds or shares.free + shares.short < trade.size or (floor.free if floor else 0) < fees:
        return BookReason.BUST_LACKS
    ledger.move(cash, -proceeds)
    ledger.move(shares, -trade.size)
    ledger.move(ledger.balance(trade.buyer, listing.cash), (trade.price + trade.buyer_fee) * trade.size)
    ledger.move(ledger.balance(trade.seller, listing.asset), trade.size)
    if fees:
        ledger.move(ledger.balance(FLOOR_ACCOUNT, listing.cash), -fees)
    trade.busted = True
    return BookReason.NONE
