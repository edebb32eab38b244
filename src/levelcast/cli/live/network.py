"""`levelcast network`: show the delay and loss that the running nodes measure on all paths between them."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from levelcast.cli.network_file.hold import missing_holds
from levelcast.cli.network_file.init_timing import write_new
from levelcast.cli.options import NETWORK_FILE, AsJson, Force, NetworkFile, option
from levelcast.cli.output import print_json, table
from levelcast.errors import NetError
from levelcast.network import Network, load_network
from levelcast.network.measured.file import measured_file
from levelcast.network.measured.timing import MatrixResult, all_helpers, measured_network, timings
from levelcast.node.path_report import LIVE_QUANTILES, LiveMatrix, LivePath
from levelcast.node.status_client import ask_all

_EVERY_S = 1.0
_FEW = 7
"""Maximum number of nodes that are shown as a matrix in 80 columns."""
_FEW_MESSAGES = 1_000


def network(
    network_file: NetworkFile = NETWORK_FILE,
    pairs: Annotated[bool, option("Print one line per direction, with all values.", "--pairs")] = False,
    watch: Annotated[bool, option("Refresh every second until ^C.", "--watch")] = False,
    out: Annotated[
        Path | None, option("Write the links as a file to include.", "--out", "-o", metavar="FILE.toml")
    ] = None,
    quantile: Annotated[float, option("Quantile of delay + jitter in that file: 0.5, 0.99 or 0.999.")] = 0.99,
    stripe: Annotated[str | None, option("Stripe whose nodes are asked.", metavar="NAME", unset="the first")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the delay and loss between the running nodes, as they measure it from their own messages.

    Receivers number their beats, so every beat that arrives or is lost measures a path in one direction; no probes are
    needed. Nodes that send no beats are measured if the network file has [probe]. Delays are those of two clocks.

    The file of -o has the format of levelcast matrix. To use it, add to the network file: include = ["measured.toml"].

    Examples:

    levelcast network --watch

    levelcast network -o measured.toml --quantile 0.999
    """
    known = load_network(network_file)
    if out is not None and out.exists() and not force:
        raise FileExistsError(0, "already exists; use --force to replace it", str(out))
    if quantile not in LIVE_QUANTILES:
        allowed = ", ".join(f"{each:g}" for each in LIVE_QUANTILES)
        raise typer.BadParameter(f"{quantile:g} is not measured; use one of {allowed}", param_hint="--quantile")
    chosen = known.stripe(stripe).name if stripe is not None else known.stripes[0].name
    matrix = _ask(known, chosen)
    if watch and not as_json:
        with suppress(KeyboardInterrupt), Live(_page(matrix, pairs=pairs), transient=True, auto_refresh=False) as live:
            while True:
                time.sleep(_EVERY_S)
                matrix = _ask(known, chosen)
                live.update(_page(matrix, pairs=pairs), refresh=True)
    if as_json:
        print_json(_as_json(matrix))
    else:
        Console(highlight=False).print(_page(matrix, pairs=pairs))
    if out is not None:
        _write(known, matrix, quantile, out, force=force, quiet=as_json)


def _ask(network: Network, stripe: str) -> LiveMatrix:
    """Ask all nodes for the rows that they know. One that replies is enough, because every node knows all rows."""
    answers = ask_all(network, page="/paths")
    pages = [answer.status for answer in answers if answer.ok and _stripe_of(network, answer.name) == stripe]
    if not pages:
        raise NetError(f"no node replied; {answers[0].name}: {answers[0].problem}")
    matrix = LiveMatrix(pages)
    if not matrix.paths:
        raise NetError(
            "the nodes have not measured a path yet; wait a few seconds after the start. In lockstep mode there are no "
            'beats: set [probe] every = "1s" in the network file and restart the nodes'
        )
    return matrix


def _stripe_of(network: Network, part: str) -> str:
    first, slash, _ = part.partition("/")
    return first if slash else network.stripes[0].name


def _write(network: Network, matrix: LiveMatrix, quantile: float, out: Path, *, force: bool, quiet: bool) -> None:
    hour = matrix.hour(quantile)
    times = timings(network, hour)
    name = f"{datetime.fromtimestamp(matrix.at_ns // 10**9, UTC):%Y-%m-%dT%H:%M}"
    found = MatrixResult(hour, name, times, all_helpers(network, hour, times), (), 1)
    hold_ns = None
    if len(network.stripes) == 1 and all(each.timing is not None for each in times):
        holds = missing_holds(measured_network(network, hour)[0], quiet=quiet)
        hold_ns = next(iter(holds.values()), None)
    write_new(out, measured_file(found, network, "levelcast network", hold_ns=hold_ns), force=force)
    few = [path for path in matrix.paths if path.heard < _FEW_MESSAGES]
    if few:
        typer.echo(
            f"levelcast: {len(few)} of {len(matrix.paths)} paths have fewer than {_FEW_MESSAGES:,} messages; "
            "measure for a minute or more",
            err=True,
        )
    if not quiet:
        typer.echo(f'Wrote {out}. To use it, add to the network file: include = ["{out.name}"]')


def _as_json(matrix: LiveMatrix) -> dict[str, Any]:
    return {
        "at_ns": matrix.at_ns,
        "window_s": matrix.window_s,
        "paths": [
            {
                "from": path.sender,
                "to": path.receiver,
                "from_site": path.from_site,
                "to_site": path.to_site,
                "heard": path.heard,
                "lost": path.lost,
                "loss_ratio": path.loss_ratio,
                "loss_limits": path.loss_limits,
                "bursts": path.bursts,
                "least_ns": path.least_ns,
                "p50_ns": path.p50_ns,
                "p99_ns": path.p99_ns,
                "p999_ns": path.p999_ns,
            }
            for path in matrix.paths
        ],
        "shared": matrix.shared,
    }


# -- terminal output --------------------------------------------------------------------------------------


def _page(matrix: LiveMatrix, *, pairs: bool) -> RenderableType:
    minutes = matrix.window_s // 60
    about = Text(f"Measured from the beats and probes of the last {minutes} minutes; delays are those of two clocks.")
    if pairs or len(matrix.nodes) > _FEW:
        title = "Delay in ms, loss with its 95 % interval, mean number of messages lost together"
        return Group(Text(title), _pairs(matrix), about)
    return Group(Text("Median delay in ms and loss in %, from (row) to (column)"), _square(matrix), about)


def _square(matrix: LiveMatrix) -> Table:
    """One row per sender, one column per receiver."""
    by = {(path.sender, path.receiver): path for path in matrix.paths}
    receivers = sorted({path.receiver for path in matrix.paths})
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.add_column("")
    for name in receivers:
        made.add_column(name, justify="right")
    worst = max(path.p50_ns for path in matrix.paths)
    for sender in sorted({path.sender for path in matrix.paths}):
        made.add_row(sender, *(_cell(by.get((sender, receiver)), worst) for receiver in receivers))
    return made


def _cell(path: LivePath | None, worst_ns: int) -> Text:
    if path is None:
        return Text("")
    share = path.p50_ns / worst_ns if worst_ns > 0 else 0.0
    style = "green" if share < 1 / 3 else "yellow" if share < 2 / 3 else "red"
    return Text.assemble((f"{path.p50_ns / 1e6:.1f}", style), (f" {path.loss_ratio:.1%}".rstrip("%"), "dim"))


def _pairs(matrix: LiveMatrix) -> Table:
    rows = []
    for path in matrix.paths:
        low, high = (f"{100 * share:.2f}" for share in path.loss_limits)
        delays = (f"{ns / 1e6:.1f}" for ns in (path.least_ns, path.p50_ns, path.p99_ns, path.p999_ns))
        burst = f"{path.lost / path.bursts:.1f}" if path.bursts else None
        rows.append((path.sender, path.receiver, *delays, f"{100 * path.loss_ratio:.2f} ({low}-{high})", burst))
    columns = ("from", "to", ">least", ">p50", ">p99", ">p999", ">loss, %", ">burst")
    return table(columns, rows, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), no_wrap=True)
