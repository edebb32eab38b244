"""Define the `levelcast` command: a table of its commands, each imported when it runs or when its help is printed."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_group

from levelcast.cli.errors import one_sentence
from levelcast.cli.help import HelpCommand, HelpGroup
from levelcast.cli.old_spellings import current_spelling
from levelcast.version import __version__


class CommandEntry(NamedTuple):
    """Import target of a command, and its line in `levelcast --help`."""

    target: str
    """MODULE:NAME of a function, or of a Typer application with commands of its own."""
    help: str
    """The first paragraph of its docstring; a test compares the two."""

    @property
    def panel(self) -> str:
        """Heading of the command in `levelcast --help`: the subject of the package that it is in."""
        return _PANELS.get(self.target.partition(".")[0], "Commands")


_PANELS = {
    "demo": "Demo",
    "network_file": "Network file",
    "live": "Running network",
    "floor": "Trading floor",
    "keys": "Keys",
    "tape": "Tapes",
    "book": "Order books",
    "lake": "Tables and reports",
    "plan": "Multicast groups",
    "sim": "Simulation",
}


COMMANDS = {
    "demo": CommandEntry(
        "demo.command:demo",
        "Run five sites with packet loss and one site failure, then compare the tapes.",
    ),
    "init": CommandEntry(
        "network_file.init_timing:init", "Write a commented network file to start from: five cities around the world."
    ),
    "timing": CommandEntry(
        "network_file.init_timing:timing",
        "Explain each timing value of a network file by its rule, and the bound on the recovery time.",
    ),
    "regions": CommandEntry(
        "network_file.regions:regions",
        "Choose receiver sites and assign subscribers to them, from measured delay and loss.",
    ),
    "doctor": CommandEntry(
        "live.doctor:doctor",
        "Check a machine before it is used: multicast, buffers, priority, timers, clock, CPU time, disk, software.",
    ),
    "up": CommandEntry(
        "live.up:up",
        "Run all nodes of a network as processes on this machine over loopback, then compare the tapes.",
    ),
    "node": CommandEntry(
        "live.node:node", "Run one node of a network: a receiver, a secondary, a reformation server or a floor."
    ),
    "publish": CommandEntry(
        "live.publish:publish",
        "Publish the trades of files, each through its floor, and wait until the ring has witnessed all of them.",
    ),
    "multicast": CommandEntry(
        "live.multicast:multicast",
        "Run a group in which fewer than a third may lie: reliable multicast among the receivers of a network.",
    ),
    "status": CommandEntry("live.status:status", "Show the status of the running nodes of a network."),
    "network": CommandEntry(
        "live.network:network",
        "Show the delay and loss between the running nodes, as they measure it from their own messages.",
    ),
    "watch": CommandEntry(
        "live.watch:watch", "Print the trades of a region's edge: a table on a terminal, CSV otherwise."
    ),
    "disk": CommandEntry(
        "live.disk:app",
        "Create a node's journal before its first start, and replace it with a new life after its disk is lost.",
    ),
    "probe": CommandEntry(
        "live.probe:app", "Measure delay and loss between sites, from a running network or from published measurements."
    ),
    "group": CommandEntry(
        "live.group:group",
        "Send messages to all receivers without multicast, with the protocols of wide-area groups.",
    ),
    "floor": CommandEntry(
        "floor.floor:app", "Run a trading floor with FIX order entry and a matching engine, and operate it."
    ),
    "account": CommandEntry("floor.account:app", "Manage the accounts of a floor: logins, passwords, money, limits."),
    "trade": CommandEntry(
        "floor.trade:trade",
        "Trade on a floor: place, cancel and replace orders; watch orders and positions.",
    ),
    "keys": CommandEntry(
        "keys.command:app",
        "Create, renew, revoke and check the keys of a network and its nodes.",
    ),
    "tape": CommandEntry("tape.tape:app", "Show, verify, compare, repair and export recorded tapes."),
    "certify": CommandEntry(
        "tape.certify:certify_command",
        "Certify tapes, check tapes against a certificate, or sign one; works offline, with only the files.",
    ),
    "audit": CommandEntry(
        "tape.audit:audit",
        "Audit recorded tapes for identical order, fair release, timely floors and fair order entry.",
    ),
    "book": CommandEntry(
        "book.book:app", "Run the matching engine on order flow, tapes or generated orders; show and serve order books."
    ),
    "pipeline": CommandEntry(
        "lake.pipeline:app",
        "Load tapes and captures into tables for Spark, DuckDB and pandas; derive bars, best quotes and rates.",
    ),
    "report": CommandEntry(
        "lake.report:report",
        "Write one self-contained HTML page: prices, volume by venue, rates, release spread, late releases.",
    ),
    "matrix": CommandEntry(
        "lake.matrix:matrix",
        "Compute hourly delay and loss between sites, the resulting timing, and the best helper of each site.",
    ),
    "plan": CommandEntry(
        "plan.make:app",
        "Assign symbols to sessions and sessions to multicast groups, so that subscribers filter little.",
    ),
    "sim": CommandEntry("sim.histories:sim", "Run random fault histories and check every guarantee."),
    "sweep": CommandEntry(
        "sim.sweep:sweep_command",
        "Run every combination of parameter values with every seed on Spark, one row per history.",
    ),
    "world": CommandEntry(
        "sim.world:world",
        "Simulate a large network in bulk: receivers in layers, regions of two lines, a million subscribers.",
    ),
}

_EXAMPLES = """
Examples:

levelcast demo — run five cities on this machine, kill one site, compare the tapes

levelcast init — write a commented network.toml to start from

levelcast timing — explain the timing values of network.toml

levelcast up --for 20s — run the nodes of network.toml on this machine

levelcast sim --seeds 0..999 — check the ring in a thousand random fault histories
"""


class _Unloaded(HelpCommand):
    """A command that is imported when its arguments are parsed."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        command = load_command(self.name)
        return command.make_context(info_name, current_spelling(command, self.name, args), parent, **extra)


class _LazyGroup(HelpGroup):
    """Group of the commands in `COMMANDS`; listing them imports none.

    A `UserError` of any command, and an error in its options, becomes one line on stderr and exit code 2.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.add_command(_Unloaded(name, help=entry.help, rich_help_panel=entry.panel))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with one_sentence():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with one_sentence():
            return super().invoke(ctx)


def load_command(name: str) -> Any:
    """Import a command's module and return the command as Typer builds it."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(import_module(f"levelcast.cli.{module}"), attribute)
    one = typer.Typer()
    if isinstance(target, typer.Typer):
        for below in target.registered_commands:
            below.cls = HelpCommand
        one.add_typer(target, name=name, cls=HelpGroup)
    else:
        one.command(name, cls=HelpCommand)(target)
    return get_group(one).commands[name]


app = typer.Typer(
    name="levelcast",
    cls=_LazyGroup,
    help="One market tape in one order, released everywhere at the same time.",
    epilog=_EXAMPLES,
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
    """Run the command line. ^C also becomes one line on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Greek shows "?" for τ, not a traceback
    try:
        app(prog_name="levelcast")
    except BrokenPipeError:
        # The reader of our output has exited, as `head` does. Python flushes stdout again at exit, so stdout is
        # redirected.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        _fail("levelcast: stopped", 130)
    except SystemExit as end:
        if end.code == 130:  # typer's own exit code for ^C, without a message
            _fail("levelcast: stopped", 130)
        raise


def _fail(sentence: str, code: int) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    run()
