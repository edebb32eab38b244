"""`levelcast demo`: run five cities as processes (`cli.demo.processes`), or in virtual time (`cli.demo.simulated`).

This module imports little, so that the server that forks the nodes starts first: imports are most of the time until the
floors open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelcast.cli.errors import duration_ns, loss_ratio
from levelcast.cli.options import option
from levelcast.node.fork_server import ForkServer
from levelcast.timing.rules import LOSS_LIMIT

RATE = 2_000.0
LONGEST_MIN = 10


def demo(
    simulated: Annotated[bool, option("Run on a simulated network in virtual time.", "--simulated")] = False,
    publish: Annotated[
        str | None,
        option(f"Trading time up to {LONGEST_MIN}min.", "--for", metavar="TIME", unset="12s; simulated: 25s"),
    ] = None,
    loss: Annotated[
        str | None, option(f"Loss between two sites, 0 to {LOSS_LIMIT:.0%}.", metavar="RATIO", unset="the network's")
    ] = None,
    kill: Annotated[
        list[str] | None,
        option(
            'Kill this node (kill -9) at this time and restart it later, or "none" (repeatable). Simulated: a site.',
            metavar="NAME@TIME",
            unset="tokyo-1; simulated: the next slot owner",
        ),
    ] = None,
    rate: Annotated[float | None, option("Trades/s of all floors together.", min=1, unset=f"{RATE:g}")] = None,
    trades: Annotated[
        list[Path] | None, option("Replay trades of this file (repeatable).", metavar="FILE", unset="synthetic")
    ] = None,
    floor: Annotated[str | None, option("Floor of --trades, if the files do not specify it.", metavar="CODE")] = None,
    day: Annotated[str | None, option("Day of --trades in LEAN format.", "--date", metavar="YYYY-MM-DD")] = None,
    keep: Annotated[
        Path | None, option("Keep network file, tapes and journals in DIR.", metavar="DIR", unset="nothing")
    ] = None,
    pipeline: Annotated[
        bool, option("Create tables from the tapes at the end with Spark; needs Java.", "--pipeline")
    ] = False,
    network_file: Annotated[
        Path | None, option("Simulated: network file.", "--network", metavar="FILE", unset="five cities")
    ] = None,
    seed: Annotated[int, option("Random seed for trades and loss; simulated: the same seed repeats the run.")] = 1,
    as_json: Annotated[bool, option("Print only one JSON object.", "--json")] = False,
    quiet: Annotated[bool, option("Print only the results, no events.", "--quiet", "-q")] = False,
    keys: Annotated[bool, option("Create keys: nodes seal packets and sign messages.", "--keys")] = False,
) -> None:
    """Run five sites with packet loss and one site failure, then compare the tapes.

    Every site is a process on this machine and sends UDP multicast over loopback in real time. With --simulated, the
    demo runs in virtual time and needs no network.

    Exit code 0: all tapes are identical and complete; 1: they are not; 2: the demo could not run.

    Examples:

    levelcast demo

    levelcast demo --kill london-1@3s --kill reform-london@3s --loss 3%

    levelcast demo --trades trades.csv --rate 5000 --keep kept

    levelcast demo --simulated --kill tokyo --loss 5%

    levelcast demo --simulated --network network.toml --seed 7 --json
    """
    if simulated:
        real: dict[str, object] = {"--rate": rate, "--trades": trades, "--floor": floor, "--date": day, "--keep": keep}
        real |= {"--pipeline": pipeline or None, "--keys": keys or None}
        for option, value in real.items():
            if value is not None:
                raise typer.BadParameter("not supported with --simulated", param_hint=option)
        from levelcast.cli.demo.simulated import simulate

        publish_ns = duration_ns(publish or "25s", longest_min=LONGEST_MIN)
        simulate(network_file, publish_ns, loss, kill or [], seed, as_json=as_json, quiet=quiet)
        return
    if network_file is not None:
        raise typer.BadParameter(
            "needs --simulated; to run your own network, use levelcast up --network FILE --data DIR",
            param_hint="--network",
        )
    run_ns = duration_ns(publish or "12s", longest_min=LONGEST_MIN)
    ratio = None if loss is None else loss_ratio(loss)
    with ForkServer() as server:  # it imports the modules of the nodes while this process imports its own
        from levelcast.cli.demo.processes import DemoOptions, check_trades, perform

        wishes = DemoOptions(
            run_ns=run_ns,
            rate=RATE if rate is None else rate,
            loss_ratio=ratio,
            kill=kill,
            seed=seed,
            trades=trades or (),
            floor=floor,
            day=check_trades(trades or (), day),
            keep=keep,
            as_json=as_json,
            quiet=quiet,
            keys=keys,
            pipeline=pipeline,
        )
        raise typer.Exit(perform(wishes, server))
