"""The database of a gateway: accounts, logins, password hashes, rights (G1). SQLite, or PostgreSQL by its URL.

Balances are not here: they are state of the engine (S1). Nothing is deleted, because the numbers are in the journal and
on the tape; what must not be used any more is locked. A password is stored as scrypt hash with its parameters and salt.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from levelcast.errors import UserError
from levelcast.market.entry.rights import RightsTable, TradingAccount, TradingLogin

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS accounts (
        number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner BIGINT NOT NULL, locked INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS logins (
        number BIGINT PRIMARY KEY, comp_id TEXT NOT NULL UNIQUE, password TEXT NOT NULL, cancel_after_ns BIGINT,
        locked INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS rights (
        login BIGINT NOT NULL, account BIGINT NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL,
        PRIMARY KEY (login, account, kind))""",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,31}", re.ASCII)
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1
MAX_ACCOUNTS = 600
"""Of a login: a mass cancel is one entry of the journal."""
TRADE_RIGHT, COPY_RIGHT = "trade", "copy"


class AccountError(UserError):
    """A request to the database that the user can correct."""


class AccountRow(NamedTuple):
    """An account with its logins, for a list."""

    number: int
    name: str
    owner: int
    locked: bool
    logins: tuple[str, ...]
    copies: tuple[str, ...]


def hash_password(password: str, salt: bytes | None = None) -> str:
    """Return the hash of a password with its parameters."""
    salt = salt or secrets.token_bytes(16)
    found = hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${found.hex()}"


def password_matches(stored: str, password: bytes) -> bool:
    """Return whether a password has the stored hash."""
    try:
        name, n, r, p, salt, expected = stored.split("$")
        if name != "scrypt":
            return False
        found = hashlib.scrypt(password, salt=bytes.fromhex(salt), n=int(n), r=int(r), p=int(p))
    except ValueError:
        return False
    return hmac.compare_digest(found, bytes.fromhex(expected))


class AccountStore:
    """An open database. Every method is one transaction."""

    def __init__(self, where: Path | str) -> None:
        self.where = str(where)
        self._postgres = self.where.startswith(("postgresql://", "postgres://"))
        self._connection = self._open()
        for statement in _SCHEMA:
            self._run(statement)
        self._connection.commit()

    def _open(self) -> Any:
        if self._postgres:
            try:
                return import_module("psycopg").connect(self.where)
            except ImportError:
                raise AccountError(
                    "psycopg is not installed, and PostgreSQL needs it; run: pip install 'psycopg[binary]'"
                ) from None
            except Exception as error:
                raise AccountError(f"cannot open the database of accounts ({str(error).strip()})") from error
        try:
            connection = sqlite3.connect(self.where, timeout=10, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise AccountError(f"{self.where}: cannot open the database of accounts ({error})") from error
        return connection

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, values: Iterable[object] = ()) -> list[Any]:
        if self._postgres:
            statement = statement.replace("?", "%s")
        try:
            cursor = self._connection.execute(statement, tuple(values))
            return list(cursor.fetchall()) if cursor.description else []
        except Exception as error:
            self._connection.rollback()
            raise AccountError(f"{self.where}: {str(error).strip()}") from error

    # Changes

    def add_account(self, name: str, owner: int | None = None) -> int:
        """Add an account; return its number, which is also its owner if none is given."""
        _check_name(name, "account name")
        if self._run("SELECT 1 FROM accounts WHERE name = ?", (name,)):
            raise AccountError(f"account {name} exists already; choose another name")
        ((number,),) = self._run("SELECT COALESCE(MAX(number), 0) + 1 FROM accounts")
        self._run("INSERT INTO accounts VALUES (?, ?, ?, 0)", (number, name, owner or number))
        self._connection.commit()
        return int(number)

    def add_login(self, comp_id: str, password: str, cancel_after_ns: int | None = None) -> int:
        """Add a login; return its number."""
        _check_name(comp_id, "CompID")
        if self._run("SELECT 1 FROM logins WHERE comp_id = ?", (comp_id,)):
            raise AccountError(f"CompID {comp_id} exists already; choose another one")
        ((number,),) = self._run("SELECT COALESCE(MAX(number), 0) + 1 FROM logins")
        values = (number, comp_id, hash_password(password), cancel_after_ns)
        self._run("INSERT INTO logins VALUES (?, ?, ?, ?, 0)", values)
        self._connection.commit()
        return int(number)

    def grant(self, comp_id: str, account: str, kind: str = TRADE_RIGHT) -> None:
        """Allow a login to trade for an account, or to receive its reports as drop copies."""
        login, number = self._login(comp_id), self.number_of(account)
        ((held,),) = self._run("SELECT COUNT(*) FROM rights WHERE login = ? AND kind = ?", (login, kind))
        if held >= MAX_ACCOUNTS:
            raise AccountError(f"CompID {comp_id} has {held} accounts; use another one")
        if self._run("SELECT 1 FROM rights WHERE login = ? AND account = ? AND kind = ?", (login, number, kind)):
            return
        self._run("INSERT INTO rights VALUES (?, ?, ?, ?)", (login, number, kind, held))
        self._connection.commit()

    def set_password(self, comp_id: str, password: str) -> None:
        self._run("UPDATE logins SET password = ? WHERE number = ?", (hash_password(password), self._login(comp_id)))
        self._connection.commit()

    def lock(self, account: str, locked: bool) -> None:
        """Lock or unlock an account and the logins that trade for it alone."""
        number = self.number_of(account)
        self._run("UPDATE accounts SET locked = ? WHERE number = ?", (int(locked), number))
        alone = """number IN (SELECT login FROM rights WHERE account = ? AND kind = 'trade')
            AND number NOT IN (SELECT login FROM rights WHERE account <> ? AND kind = 'trade')"""
        self._run(f"UPDATE logins SET locked = ? WHERE {alone}", (int(locked), number, number))
        self._connection.commit()

    # Queries

    def number_of(self, account: str) -> int:
        """Return the number of an account."""
        found = self._run("SELECT number FROM accounts WHERE name = ?", (account,))
        if not found:
            raise AccountError(f"account {account} not found; `levelcast account list` shows the accounts")
        return int(found[0][0])

    def _login(self, comp_id: str) -> int:
        found = self._run("SELECT number FROM logins WHERE comp_id = ?", (comp_id,))
        if not found:
            raise AccountError(f"CompID {comp_id} not found; `levelcast account list` shows the CompIDs")
        return int(found[0][0])

    def rows(self) -> list[AccountRow]:
        """Return all accounts with their logins, by number."""
        found = []
        for number, name, owner, locked in self._run("SELECT number, name, owner, locked FROM accounts ORDER BY 1"):
            names = {kind: self._logins_of(number, kind) for kind in (TRADE_RIGHT, COPY_RIGHT)}
            found.append(AccountRow(int(number), name, int(owner), bool(locked), names[TRADE_RIGHT], names[COPY_RIGHT]))
        return found

    def _logins_of(self, account: int, kind: str) -> tuple[str, ...]:
        rows = self._run(
            """SELECT comp_id FROM logins, rights WHERE login = number AND account = ? AND kind = ?
            ORDER BY comp_id""",
            (account, kind),
        )
        return tuple(name for (name,) in rows)

    def rights(self) -> RightsTable:
        """Return all logins with their rights, for a gateway."""
        accounts = {
            number: TradingAccount(int(number), name, int(owner))
            for number, name, owner in self._run("SELECT number, name, owner FROM accounts")
        }
        held: dict[tuple[int, str], list[TradingAccount]] = {}
        for login, account, kind in self._run("SELECT login, account, kind FROM rights ORDER BY login, kind, place"):
            held.setdefault((login, kind), []).append(accounts[account])
        table = RightsTable(
            TradingLogin(
                comp_id=comp_id,
                number=int(number),
                accounts=tuple(held.get((number, TRADE_RIGHT), ())),
                copies=tuple(held.get((number, COPY_RIGHT), ())),
                cancel_after_ns=None if cancel is None else int(cancel),
                locked=bool(locked),
            )
            for number, comp_id, cancel, locked in self._run(
                "SELECT number, comp_id, cancel_after_ns, locked FROM logins ORDER BY number"
            )
        )
        self._connection.commit()
        return table

    def hashes(self) -> dict[str, str]:
        """Return the password hash of each CompID."""
        return dict(self._run("SELECT comp_id, password FROM logins"))


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise AccountError(
            f'"{name}" is not allowed as {what}; use 1 to 32 letters, digits, "-", "_" and ".", beginning with a '
            "letter or digit"
        )
