"""The `levelcast` command: each command is a function of a module beside this, registered by one line."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from levelcast.cli.demo import simulated
from levelcast.cli.lake import matrix, pipeline, report
from levelcast.cli.live import disk as live_disk
from levelcast.cli.live import node, probe, publish, status, watch
from levelcast.cli.network_file import init_timing, regions
from levelcast.cli.plan import make as plan_make
from levelcast.cli.sim import histories, sweep, world
from levelcast.cli.tape import audit, certify, tape
from levelcast.network import NetworkError
from levelcast.version import __version__

_EXAMPLES = """
**Examples**

levelcast demo — five cities on this machine, one of them killed, and their tapes compared

levelcast init — write a commented network.toml to start from

levelcast timing network.toml — explain every number that follows from it

levelcast sim --seeds 0..999 — try to break the ring in a thousand random histories
"""

app = typer.Typer(
    name="levelcast",
    help="One market tape, in one order, released at one instant, everywhere.",
    epilog=_EXAMPLES,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(init_timing.init)
app.command()(init_timing.timing)
app.command()(regions.regions)
app.command()(simulated.demo)
app.command()(histories.sim)
app.command("sweep")(sweep.sweep_command)
app.command()(world.world)
app.command()(node.node)
app.command()(node.up)
app.command()(publish.publish)
app.command()(status.status)
app.command()(watch.watch)
app.command("certify")(certify.certify_command)
app.command()(audit.audit)
app.command()(report.report)
app.command()(matrix.matrix)
app.add_typer(tape.app, name="tape")
app.add_typer(live_disk.app, name="disk")
app.add_typer(plan_make.app, name="plan")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(probe.app, name="probe")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"levelcast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del version


def run() -> None:
    """The entry point. What a person can mend is one clear sentence on stderr and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Greek shows "?" for τ, not a traceback
    try:
        app(prog_name="levelcast")
    except NetworkError as error:
        _fail(str(error), 2)
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
