"""Define options of several commands, and a function that declares an option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def option(help: str, *names: str, unset: str | None = None, **settings: Any) -> Any:
    """Declare an option: its help, its names if they do not follow from the parameter, and typer's other settings.

    `unset` is the default that the help shows, where the value itself does not explain it.
    """
    return typer.Option(*names, help=help, show_default=unset or True, **settings)


def interface_option(help: str) -> Any:
    """Declare an option for the address of a network interface."""
    return option(help, "--interface", metavar="ADDRESS", callback=_checked_address)


def _checked_address(text: str) -> str:
    from ipaddress import AddressValueError, IPv4Address

    try:
        return str(IPv4Address(text))
    except AddressValueError:
        message = f'"{text}" is not an IPv4 address; `ip -4 address` lists those of this machine'
        raise typer.BadParameter(message) from None


AsJson = Annotated[bool, option("Print only JSON.", "--json")]
Data = Annotated[Path, option("Data directory, with one subdirectory per node.", "--data", metavar="DIR")]
Force = Annotated[bool, option("Replace the file if it exists.", "--force")]
Impair = Annotated[bool, option("Inject the delay and loss of the network file's links.", "--impair")]
Interface = Annotated[str, interface_option("IP address of the network interface for the core group.")]
JsonAtEnd = Annotated[bool, option("Print only one JSON object, at the end.", "--json")]
LakeDir = Annotated[Path, option("Directory of the lake.", "--lake", metavar="DIR")]
Master = Annotated[str | None, option("Spark master.", metavar="URL", unset="spark-submit's, or all local cores")]
NetworkFile = Annotated[Path, option("Network file.", "--network", metavar="FILE")]
NETWORK_FILE = Path("network.toml")
"""Network file of a command that is given none."""
Unsound = Annotated[bool, option("Read the tape even if it is not valid.", "--unsound")]
