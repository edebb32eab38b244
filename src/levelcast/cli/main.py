"""The `levelcast` command: a table of its commands, each imported when it runs or when its own help is printed."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from levelcast.cli.errors import one_sentence
from levelcast.version import __version__


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line in `levelcast --help`."""

    target: str
    """MODULE:NAME of a function, or of a Typer application with commands of its own."""
    help: str
    """The first paragraph of its docstring; a test compares the two."""


COMMANDS = {
    "init": CommandEntry(
        "network_file.init_timing:init", "Write a commented network file to start from: five cities around the world."
    ),
    "timing": CommandEntry(
        "network_file.init_timing:timing",
        "Explain every timing number of a network file by its rule, and the time in which it recovers.",
    ),
    "regions": CommandEntry(
        "network_file.regions:regions",
        "Choose where receivers stand and which customers each serves, from measured delay and loss.",
    ),
    "demo": CommandEntry(
        "demo.simulated:demo",
        "Let five cities trade, lose packets, lose a site and get it back; then compare the tapes.",
    ),
    "sim": CommandEntry("sim.histories:sim", "Run random fault histories and check every promise of the ring in each."),
    "sweep": CommandEntry(
        "sim.sweep:sweep_command",
        "Run every combination of parameter values with every seed, on Spark, one row a history.",
    ),
    "world": CommandEntry(
        "sim.world:world",
        "Simulate a world in bulk: receivers in two layers, regions of two lines, a million customers.",
    ),
    "node": CommandEntry(
        "live.node:node", "Run one node of a network: a receiver, a secondary, a reformation server or a floor."
    ),
    "up": CommandEntry(
        "live.up:up",
        "Run a whole network on this machine, each node a process, over multicast on loopback; then compare the tapes.",
    ),
    "publish": CommandEntry(
        "live.publish:publish",
        "Publish the trades of files, each by its floor, and wait until the ring has witnessed them all.",
    ),
    "status": CommandEntry("live.status:status", "Ask the running nodes of a network what they do."),
    "watch": CommandEntry(
        "live.watch:watch", "Print the trades that a region's customers receive: a table on a terminal, CSV elsewhere."
    ),
    "certify": CommandEntry(
        "tape.certify:certify_command",
        "Certify tapes, or check them against a certificate: offline, with nothing but the files.",
    ),
    "audit": CommandEntry(
        "tape.audit:audit",
        "Ask the recorded tapes: is it one order, was everybody treated alike, were the floors in time?",
    ),
    "report": CommandEntry(
        "lake.report:report",
        "Write one self-contained HTML page: prices, volume, rates, venue shares, release spread, late releases.",
    ),
    "matrix": CommandEntry(
        "lake.matrix:matrix",
        "Delay and loss between sites by the hour, the timing that follows, and the best helper of each site.",
    ),
    "tape": CommandEntry("tape.tape:app", "Look at recorded tapes, check and compare them, export them."),
    "disk": CommandEntry(
        "live.disk:app",
        "A node's journal: made once for its first start, and anew, as another life, when its disk is lost.",
    ),
    "plan": CommandEntry(
        "plan.make:app",
        "Plan which symbols share a session and which sessions a multicast group, so that customers filter little.",
    ),
    "pipeline": CommandEntry(
        "lake.pipeline:app",
        "Tapes and captures into tables that Spark, DuckDB and pandas read; bars, best quotes and rates from them.",
    ),
    "probe": CommandEntry(
        "live.probe:app", "Measure delay and loss between sites: from a running network, or from published figures."
    ),
}

_EXAMPLES = """
**Examples**

levelcast demo — five cities on this machine, one of them killed, and their tapes compared

levelcast init — write a commented network.toml to start from

levelcast timing network.toml — explain every number that follows from it

levelcast sim --seeds 0..999 — try to break the ring in a thousand random histories
"""

_MARKUP: Any = "markdown"


class _Unloaded(TyperCommand):
    """A command whose module is imported when its arguments are parsed."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        return load_command(self.name).make_context(info_name, args, parent, **extra)


class _LazyGroup(TyperGroup):
    """The commands of `COMMANDS`, of which none is imported to list them.

    A `UserError` of any of them is one sentence on stderr and exit code 2.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.add_command(_Unloaded(name, help=entry.help, rich_markup_mode=_MARKUP))

    def invoke(self, ctx: Any) -> Any:
        with one_sentence():
            return super().invoke(ctx)


def load_command(name: str) -> Any:
    """Import a command's module and return the command as Typer builds it."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(import_module(f"levelcast.cli.{module}"), attribute)
    one = typer.Typer(rich_markup_mode=_MARKUP)
    if isinstance(target, typer.Typer):
        one.add_typer(target, name=name)
    else:
        one.command(name)(target)
    return get_group(one).commands[name]


app = typer.Typer(
    name="levelcast",
    cls=_LazyGroup,
    help="One market tape, in one order, released at one instant, everywhere.",
    epilog=_EXAMPLES,
    rich_markup_mode=_MARKUP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"levelcast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


def run() -> None:
    """The entry point. An error of the system, and ^C, are one sentence on stderr too."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Greek shows "?" for τ, not a traceback
    try:
        app(prog_name="levelcast")
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does: nobody is left to tell. Python flushes stdout once
        # more when it ends, so it gets somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"levelcast: {where}{_lower(error.strerror or str(error))}", 2)
    except KeyboardInterrupt:
        _fail("levelcast: stopped", 130)
    except SystemExit as end:
        if end.code == 130:  # typer's own answer to ^C, without a word
            _fail("levelcast: stopped", 130)
        raise


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _fail(sentence: str, code: int) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    run()
