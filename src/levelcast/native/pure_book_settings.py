"""Commands that are not orders: deposits, withdrawals, busts, limits of accounts, settings of instruments (S4, S6, M8).

Only the treasury, a publisher, may send them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelcast.native import pure_book_ledger as ledgers
from levelcast.native.book_codes import (
    ACCOUNT_LIMIT,
    BUST,
    DEPOSIT,
    IGNORED_COMMANDS,
    MAX_PRICE,
    OLDEST_RULES,
    RULES_VERSION,
    SETTING,
    WITHDRAWAL,
    AccountSetting,
    BookReason,
    EventKind,
    InstrumentSetting,
    MatchRule,
    PriceRule,
)
from levelcast.native.pure_book_state import Balance, BookAccount

if TYPE_CHECKING:
    from levelcast.native.pure_book import BookKernel
    from levelcast.native.pure_book_entry import Command

NEEDS_EMPTY_BOOK = frozenset(
    {InstrumentSetting.PRICE_RULE, InstrumentSetting.MATCH_RULE, InstrumentSetting.INTERVAL,
     InstrumentSetting.MAKER_FEE, InstrumentSetting.TAKER_FEE, InstrumentSetting.DUTCH_START,
     InstrumentSetting.DUTCH_STEP}
)  # fmt: skip
"""Settings that live orders rely on."""
LARGEST_VALUE = {
    InstrumentSetting.PRICE_RULE: max(PriceRule),
    InstrumentSetting.MATCH_RULE: max(MatchRule),
}


def apply(book: BookKernel, command: Command) -> None:
    """Apply a command of the treasury, or refuse it; ignore those of order entry and open offers."""
    if command.command in IGNORED_COMMANDS:
        return
    if command.command not in (DEPOSIT, WITHDRAWAL, BUST, ACCOUNT_LIMIT, SETTING):
        reason, kind = BookReason.ACTION, EventKind.REJECTED
    elif not is_treasury(book, command):
        reason, kind = BookReason.NOT_TREASURY, EventKind.REJECTED
    elif command.command == BUST:
        kind = EventKind.BUSTED
        reason = ledgers.bust(book.ledger, book.listings, command.order_id)
    elif command.command == ACCOUNT_LIMIT:
        kind = EventKind.LIMIT_SET
        reason = _limit(book, command)
    elif command.command == SETTING:
        kind = EventKind.SET
        reason = _setting(book, command)
    else:
        kind = EventKind.DEPOSITED if command.command == DEPOSIT else EventKind.WITHDRAWN
        reason = _payment(book, command, 1 if command.command == DEPOSIT else -1)
    if reason:
        book.refuse(command, reason)
    else:
        book.tell_command(kind, command)


def is_treasury(book: BookKernel, command: Command) -> bool:
    return command.publisher == book.treasury


def _account(book: BookKernel, number: int) -> BookAccount:
    return book.ledger.accounts.setdefault(number, BookAccount(number))


def _asset_key(book: BookKernel, command: Command) -> int | None:
    """Return the key of the asset of a payment: an instrument's shares, or the currency in `order_id`."""
    if command.instrument:
        return command.instrument if command.instrument in book.listings else None
    return ledgers.CURRENCY | command.order_id if 0 < command.order_id < ledgers.CURRENCY else None


def _payment(book: BookKernel, command: Command, sign: int) -> BookReason:
    """Deposit, or withdraw what is free (S4)."""
    key, amount, ledger = _asset_key(book, command), command.price, book.ledger
    if not book.has_accounts or command.account == ledgers.FLOOR_ACCOUNT:
        return BookReason.UNKNOWN_ACCOUNT
    if key is None:
        return BookReason.UNKNOWN_INSTRUMENT
    if not 0 < amount <= MAX_PRICE:
        return BookReason.AMOUNT
    if sign < 0:
        if command.account not in ledger.accounts:
            return BookReason.UNKNOWN_ACCOUNT
        if not can_withdraw(ledger.balances.get((command.account, ledger.assets.get(key, -1))), amount):
            return BookReason.SHARES if command.instrument else BookReason.FUNDS
    _account(book, command.account)
    asset = ledger.asset(key)
    ledger.move(ledger.balance(command.account, asset), sign * amount)
    ledger.due[asset] += sign * amount
    return BookReason.NONE


def can_withdraw(balance: Balance | None, amount: int) -> bool:
    """Return whether the amount is free: what is reserved stays, and nothing is lent."""
    return balance is not None and balance.free >= amount


def _limit(book: BookKernel, command: Command) -> BookReason:
    """Set a limit of an account (M8)."""
    value, setting = command.price, command.order_id
    if not book.has_accounts or command.account == ledgers.FLOOR_ACCOUNT:
        return BookReason.UNKNOWN_ACCOUNT
    if setting not in list(AccountSetting) or not 0 <= value <= MAX_PRICE:
        return BookReason.SETTING
    if setting in (AccountSetting.ALLOWED, AccountSetting.SHORT_LIMIT):
        listing = book.listings.get(command.instrument)
        if listing is None:
            return BookReason.UNKNOWN_INSTRUMENT
        account = _account(book, command.account)
        stock = book.ledger.balance(account.number, listing.asset)
        if setting == AccountSetting.ALLOWED:
            stock.allowed = value > 0
        elif stock.free + value < 0:
            return BookReason.SHARES
        else:
            stock.short = value
        return BookReason.NONE
    account = _account(book, command.account)
    if setting == AccountSetting.OWNER:
        account.owner = value
    elif setting == AccountSetting.LARGEST_ORDER:
        account.largest_order = value
    elif setting == AccountSetting.LARGEST_OPEN:
        account.largest_open = value
    elif setting == AccountSetting.ORDERS_PER_SECOND:
        account.orders_per_second = value
    elif setting == AccountSetting.RESTRICTED:
        account.restricted = value > 0
    else:
        account.locked = value > 0
    return BookReason.NONE


def _setting(book: BookKernel, command: Command) -> BookReason:
    """Set a parameter of an instrument, or the version of the rules."""
    setting, value = command.order_id, command.price
    if setting == InstrumentSetting.RULES:
        if not OLDEST_RULES <= value <= RULES_VERSION:
            return BookReason.RULES_VERSION
        book.rules = value
        return BookReason.NONE
    if setting > max(InstrumentSetting):
        return BookReason.SETTING
    if not 0 <= value <= LARGEST_VALUE.get(InstrumentSetting(setting), MAX_PRICE):
        return BookReason.SETTING
    listing = book.listings.get(command.instrument)
    if listing is None:
        return BookReason.UNKNOWN_INSTRUMENT
    if setting in NEEDS_EMPTY_BOOK and listing.orders():
        return BookReason.SETTING
    listing.settings[setting] = value
    if setting == InstrumentSetting.REFERENCE:
        listing.band_reference = value
    return BookReason.NONE
