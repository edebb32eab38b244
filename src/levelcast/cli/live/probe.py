"""`levelcast probe`: measure delay and loss between running nodes, or convert published measurements to probes."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from levelcast.cli.errors import duration_ns, on_interrupt
from levelcast.cli.main import COMMANDS
from levelcast.cli.network_file.init_timing import write_new
from levelcast.cli.options import NETWORK_FILE, Force, NetworkFile, option
from levelcast.cli.output import csv_text
from levelcast.errors import NetError
from levelcast.network import load_network
from levelcast.network.regions.published import MatrixUnit, published_probes
from levelcast.node.probe_report import COLUMNS, Gathered
from levelcast.node.status_client import ask_all

app = typer.Typer(help=COMMANDS["probe"].help, no_args_is_help=True)

Out = Annotated[Path, option("Output file.", "--out", "-o", metavar="FILE.csv")]
ASK_EVERY_S = 1.0
PATIENCE_NS = 4_000_000_000
"""A loss is certain when the peer replies again, after the 3 s that a reply may need."""


@app.command()
def gather(
    network_file: NetworkFile = NETWORK_FILE,
    run: Annotated[str, option("Measurement time.", "--for", metavar="TIME")] = "60s",
    out: Out = Path("probes.csv"),
    force: Force = False,
) -> None:
    """Collect the probes between running nodes; ^C stops early and writes the results so far.

    The nodes probe each other if the network file enables it: [probe] every = "1s". If the delay and loss of the file's
    links are injected (levelcast up), the probes measure these.

    Examples:

    levelcast probe gather --for 60s -o probes.csv

    levelcast pipeline load probes probes.csv --lake lake && levelcast matrix --lake lake -o measured.toml
    """
    network = load_network(network_file)
    run_ns = duration_ns(run)
    if out.exists() and not force:
        raise FileExistsError(0, "already exists; use --force to replace it", str(out))
    gathered, stopping = Gathered(), threading.Event()
    on_interrupt(stopping.set)
    if network.probe_ns is None:
        raise NetError(f'{network_file}: no [probe] table; add it with every = "1s" and restart the nodes')
    began_ns = time.time_ns()
    until = time.monotonic_ns() + run_ns + PATIENCE_NS
    asked = 0
    while True:
        answers = ask_all(network, page="/probes")
        for answer in answers:
            if answer.ok:
                gathered.take(answer.name, answer.status, first=asked == 0)
        if asked == 0 and not any(answer.ok for answer in answers):
            raise NetError(f"no node replied; {answers[0].name}: {answers[0].problem}")
        asked += 1
        if stopping.is_set() or time.monotonic_ns() >= until:
            break
        stopping.wait(ASK_EVERY_S)
    asked_for = [row for row in gathered.rows if began_ns <= row[2] < began_ns + run_ns]
    rows = sorted(asked_for, key=lambda row: (*row[:3], *row[6:]))
    if gathered.overwritten:
        typer.echo(f"levelcast: nodes discarded {gathered.overwritten:,} samples before they were collected", err=True)
    write_new(out, csv_text([COLUMNS, *rows]), force=force)
    lost = sum(row[4] for row in rows)
    pairs = len({row[:2] for row in rows})
    typer.echo(f"{out}: {len(rows):,} probes of {pairs} directions between sites, {lost:,} of them lost")


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="Published round-trip times: CSV of pairs, or a matrix; plain or .gz.")],
    out: Out = Path("probes.csv"),
    at: Annotated[
        str | None, option('Measurement time in UTC, such as "2023-03-01T00", if not in the file.', metavar="TIME")
    ] = None,
    unit: Annotated[MatrixUnit, option("Unit of the matrix values.")] = MatrixUnit.MS,
    force: Force = False,
) -> None:
    """Convert published measurements to probes, to compute the matrix of a real network.

    A CSV with from_city, to_city, min_ms, avg_ms and max_ms (WonderNetwork) gives three probes per line, none of them
    lost. A square matrix (AWS regions, with names; PlanetLab and Seattle, without) gives one probe per pair.

    Examples:

    levelcast probe convert pings.csv.gz -o probes.csv

    levelcast probe convert SeattleData_1.tsv.gz --unit s --at 2014-01-01T00 -o probes.csv
    """
    when = None if at is None else _time_ns(at)
    rows = published_probes(file, when, unit)
    write_new(out, csv_text([COLUMNS[:5], *rows]), force=force)
    typer.echo(f"{out}: {len(rows):,} probes between {len({row[0] for row in rows})} sites")


def _time_ns(text: str) -> int:
    try:
        found = datetime.fromisoformat(text if "T" not in text or ":" in text else f"{text}:00")
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a time such as 2023-03-01T00', param_hint="--at") from None
    return int(found.replace(tzinfo=UTC).timestamp()) * 1_000_000_000
