"""Accounts and sessions of a gateway, as its database has them: identity and rights only (G1, S1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TradingAccount:
    number: int
    """In commands and events."""
    name: str
    """FIX 1."""
    owner: int
    """Accounts of one owner do not trade with each other (M7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TradingLogin:
    """A FIX session: who may connect, and for which accounts."""

    comp_id: str
    number: int
    """Number of the session in the journal; it is never used again."""
    accounts: tuple[TradingAccount, ...] = ()
    """The first one is that of messages without an Account (FIX 1)."""
    copies: tuple[TradingAccount, ...] = ()
    """Accounts whose reports the session receives as drop copies."""
    cancel_after_ns: int | None = None
    """Cancel on disconnect after this time (G4); None: never."""
    locked: bool = False
    policy: bytes = b"N"
    """Self-trade policy of orders (M7)."""


class RightsTable:
    """All logins of a gateway."""

    def __init__(self, logins: Iterable[TradingLogin] = ()) -> None:
        self.logins: dict[str, TradingLogin] = {}
        self.accounts: dict[int, TradingAccount] = {}
        self.copies: dict[int, list[int]] = {}
        """Numbers of the sessions that receive drop copies, by account."""
        for login in logins:
            self.add(login)

    def add(self, login: TradingLogin) -> None:
        """Add or replace a login."""
        self.logins[login.comp_id] = login
        for numbers in self.copies.values():
            if login.number in numbers:
                numbers.remove(login.number)
        for account in (*login.accounts, *login.copies):
            self.accounts[account.number] = account
        for account in login.copies:
            self.copies.setdefault(account.number, []).append(login.number)
