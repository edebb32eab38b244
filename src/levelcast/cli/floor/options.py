"""Options of the commands of a floor, and requests to a running one."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from levelcast.cli.options import option
from levelcast.errors import NetError
from levelcast.node.floor.control import SOCKET_FILE, ask_floor

FLOOR_DIR = Path("floor")
FloorDir = Annotated[Path, option("Directory of the floor.", "--data", metavar="DIR")]
Symbols = Annotated[list[str] | None, typer.Argument(metavar="[SYMBOL]...", help="Instruments; default: all.")]
DATABASE_VARIABLE = "LEVELCAST_ACCOUNTS"
Database = Annotated[
    str,
    option(
        "URL of the PostgreSQL database of accounts.",
        "--database",
        metavar="URL",
        unset=f"${DATABASE_VARIABLE}, or SQLite in the directory of the floor",
    ),
]


def database_of(url: str) -> str:
    return url or os.environ.get(DATABASE_VARIABLE, "")


def operate(data: Path, op: str, **request: Any) -> dict[str, Any]:
    """Send an operator's command to the running floor."""
    try:
        who = getpass.getuser()
    except (KeyError, OSError):
        who = str(os.getuid())
    return ask_floor(data, {"op": op, "by": who, **request})


def reload_rights(data: Path) -> bool:
    """Make the running floor read its accounts again; return whether one runs."""
    if not (data / SOCKET_FILE).exists():
        return False
    try:
        operate(data, "rights")
    except NetError:
        return False
    return True
