"""Options of many commands, and how an option is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def option(help: str, *names: str, unset: str | None = None, **settings: Any) -> Any:
    """Declare an option: its help, its names if they do not follow from the parameter, and typer's other settings.

    `unset` is the default as the help shows it, where the value itself does not say it.
    """
    return typer.Option(*names, help=help, show_default=unset or True, **settings)


AsJson = Annotated[bool, option("Print JSON and nothing else.", "--json")]
Data = Annotated[Path, option("Where each node has its directory.", "--data", metavar="DIR")]
Force = Annotated[bool, option("Replace the file if there is one.", "--force")]
Impair = Annotated[bool, option("Add the delay and loss of the file's links.", "--impair")]
Interface = Annotated[str, option("The address of the interface on which the core group is.", metavar="ADDRESS")]
JsonAtEnd = Annotated[bool, option("Print one JSON object at the end and nothing else.", "--json")]
LakeDir = Annotated[Path, option("The directory of the tables.", "--lake", metavar="DIR")]
Master = Annotated[
    str | None, option("Spark's cluster.", metavar="URL", unset="spark-submit's, or this machine's cores")
]
NetworkArgument = Annotated[Path, typer.Argument(metavar="NETWORK", help="The network file.")]
NetworkFile = Annotated[Path, option("The network file.", "--network", metavar="FILE")]
