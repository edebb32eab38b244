"""`levelcast account`: accounts of a floor, their logins, passwords, money and limits."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from levelcast.cli.errors import duration_ns
from levelcast.cli.floor.options import FLOOR_DIR, Database, FloorDir, database_of, operate, reload_rights
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, option
from levelcast.cli.output import print_json, table
from levelcast.errors import UserError
from levelcast.node.floor.accounts import COPY_RIGHT, AccountStore
from levelcast.node.floor.process import DATABASE

app = typer.Typer(help=COMMANDS["account"].help, no_args_is_help=True)

Account = Annotated[str, typer.Argument(metavar="ACCOUNT", help="Name of the account (FIX 1).")]
PasswordFile = Annotated[
    Path | None,
    option("File with the password in its first line, or - for stdin.", metavar="FILE", unset="a generated one"),
]


def _store(data: Path, database: str) -> AccountStore:
    if not database_of(database):
        data.mkdir(parents=True, exist_ok=True)
    return AccountStore(database_of(database) or data / DATABASE)


def _password(path: Path | None) -> tuple[str, bool]:
    """Return a password, and whether it was generated."""
    if path is None:
        return secrets.token_urlsafe(12), True
    text = sys.stdin.readline() if str(path) == "-" else path.read_text(encoding="utf-8").partition("\n")[0]
    password = text.rstrip("\r\n")
    if not password or not password.isascii() or not password.isprintable():
        raise UserError(f"{path}: the first line is not a password of printable ASCII characters")
    return password, False


@app.command()
def add(
    account: Account,
    data: FloorDir = FLOOR_DIR,
    comp_id: Annotated[
        str,
        option("CompID of the login that trades for it; an existing one gets it too.", unset="the name in capitals"),
    ] = "",
    owner: Annotated[
        int, option("Owner: orders of one owner do not trade with each other.", min=0, unset="the account")
    ] = 0,
    copy_to: Annotated[
        list[str] | None, option("CompID that receives its reports as drop copies (repeatable).", unset="none")
    ] = None,
    cancel_after: Annotated[
        str | None, option("Cancel the orders of a lost session after this time.", metavar="TIME", unset="never")
    ] = None,
    password_file: PasswordFile = None,
    database: Database = "",
) -> None:
    """Add an account with its login; print the password if it is generated.

    Examples:

    levelcast account add ann

    levelcast account add fund7 --comp-id BROKER --copy-to RISK
    """
    store = _store(data, database)
    name = comp_id or account.upper()
    known = {login for row in store.rows() for login in (*row.logins, *row.copies)}
    cancel_ns = None if cancel_after is None else duration_ns(cancel_after, "--cancel-after")
    number = store.add_account(account, owner or None)
    lines = [f"account {account} has number {number}"]
    for each in (name, *(copy_to or [])):
        if each not in known:
            password, generated = _password(password_file)
            store.add_login(each, password, cancel_ns if each == name else None)
            shown = f", password {password}" if generated else ""
            lines.append(f"CompID {each}{shown}")
    store.grant(name, account)
    for each in copy_to or []:
        store.grant(each, account, COPY_RIGHT)
    store.close()
    reload_rights(data)
    typer.echo("\n".join(lines))


@app.command("list")
def list_command(data: FloorDir = FLOOR_DIR, database: Database = "", as_json: AsJson = False) -> None:
    """List accounts with their logins.

    Examples:

    levelcast account list
    """
    rows = _store(data, database).rows()
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    columns = (">number", "account", ">owner", "CompIDs", "drop copies", "state")
    shown = [
        (row.number, row.name, row.owner, " ".join(row.logins), " ".join(row.copies), "locked" if row.locked else "")
        for row in rows
    ]
    Console().print(table(columns, shown))


@app.command()
def lock(
    account: Account,
    data: FloorDir = FLOOR_DIR,
    unlock: Annotated[bool, option("Unlock the account.", "--unlock")] = False,
    database: Database = "",
) -> None:
    """Lock an account: cancel its orders, refuse new ones, log out the sessions that trade for it alone.

    Examples:

    levelcast account lock ann

    levelcast account lock ann --unlock
    """
    store = _store(data, database)
    store.number_of(account)
    if not unlock:
        operate(data, "cancel", account=account)
    operate(data, "lock", account=account, locked=not unlock)
    store.lock(account, not unlock)
    store.close()
    reload_rights(data)
    typer.echo(f"{account} is {'unlocked' if unlock else 'locked'}")


@app.command()
def password(
    comp_id: Annotated[str, typer.Argument(metavar="COMPID", help="CompID of the login.")],
    data: FloorDir = FLOOR_DIR,
    password_file: PasswordFile = None,
    database: Database = "",
) -> None:
    """Set the password of a login; print it if it is generated.

    Examples:

    levelcast account password ANN
    """
    made, generated = _password(password_file)
    store = _store(data, database)
    store.set_password(comp_id, made)
    store.close()
    reload_rights(data)
    typer.echo(f"CompID {comp_id}{f', password {made}' if generated else ' has a new password'}")


Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="Amount of money, or number of shares.")]
Asset = Annotated[str, typer.Argument(metavar="ASSET", help="Currency such as USD, or the symbol of an instrument.")]


@app.command()
def deposit(account: Account, amount: Amount, asset: Asset, data: FloorDir = FLOOR_DIR) -> None:
    """Deposit money or shares.

    Examples:

    levelcast account deposit ann 1000000 USD

    levelcast account deposit bob 5000 IBM
    """
    operate(data, "deposit", account=account, amount=amount, asset=asset)
    typer.echo(f"{account}: {amount} {asset} deposited")


@app.command()
def withdraw(account: Account, amount: Amount, asset: Asset, data: FloorDir = FLOOR_DIR) -> None:
    """Withdraw money or shares that are not reserved by orders.

    Examples:

    levelcast account withdraw ann 1000 USD
    """
    operate(data, "withdraw", account=account, amount=amount, asset=asset)
    typer.echo(f"{account}: {amount} {asset} withdrawn")


@app.command()
def limits(
    account: Account,
    data: FloorDir = FLOOR_DIR,
    largest_order: Annotated[
        int | None, option("Largest quantity of an order; 0: none.", min=0, unset="as it is")
    ] = None,
    largest_open: Annotated[
        str | None, option("Largest value of all live orders.", metavar="AMOUNT", unset="as it is")
    ] = None,
    orders_per_second: Annotated[
        int | None, option("Most orders in a second; 0: no limit.", min=0, unset="as it is")
    ] = None,
    short: Annotated[int | None, option("Most shares sold short, of each --symbol.", min=0, unset="as it is")] = None,
    symbol: Annotated[list[str] | None, option("Instrument of --short (repeatable).", unset="none")] = None,
) -> None:
    """Set the limits of an account.

    Examples:

    levelcast account limits ann --orders-per-second 100

    levelcast account limits bob --short 5000 --symbol IBM
    """
    given = {
        "largest_order": largest_order,
        "largest_open": largest_open,
        "orders_per_second": orders_per_second,
        "short": short,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        raise UserError("no limit is given; pass for example --orders-per-second 100")
    operate(data, "limits", account=account, limits=found, symbols=symbol or [])
    typer.echo(f"{account}: limits set")
