"""`python -m levelcast.cli.live.fork_server FD`: start nodes by fork (`levelcast.node.fork_server`).

`levelcast up` and `levelcast demo` start it; do not run it by hand.
"""

from __future__ import annotations

import gc
import socket
import sys

from levelcast.cli.main import load_command, run
from levelcast.node.fork_server import serve

EXAMPLE = ["--network", "FILE", "--name", "NAME", "--data", "DIR", "--seed", "1", "--rate", "1", "--json"]
"""Arguments of a node, to be parsed and not run: Typer imports 0.3 s of modules with the first option that it reads."""


def _levelcast(arguments: list[str]) -> None:
    sys.argv[1:] = arguments
    run()


if __name__ == "__main__":
    load_command("node").make_context("node", EXAMPLE)  # imports all that a node needs, and all that parsing needs
    gc.freeze()  # a node's garbage collector does not write to the shared pages
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel, _levelcast)
