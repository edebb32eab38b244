"""`levelcast node`: run one node of a network over multicast."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Annotated, Any, cast

import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import NETWORK_FILE, Data, Impair, Interface, NetworkFile, option
from levelcast.network import load_network
from levelcast.network.placement import place_of
from levelcast.network.stripe_config import ring_config
from levelcast.node.node import FREQUENT, Node
from levelcast.node.options import NodeOptions
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import Event, event_fields
from levelcast.runtime.realtime import Realtime
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import create_data, initialise_disk


def node(
    name: Annotated[str, option("Node name in the network file.")],
    data: Data,
    network_file: NetworkFile = NETWORK_FILE,
    rate: Annotated[float, option("Synthetic records/s that a floor publishes.", min=0)] = 0.0,
    impair: Impair = False,
    publish: Annotated[
        str | None,
        option(
            "Run time; a floor continues until all its records are witnessed.",
            "--for",
            metavar="TIME",
            unset="until stopped",
        ),
    ] = None,
    as_json: Annotated[bool, option("Print JSON lines: status, events, final status.", "--json")] = False,
    seed: Annotated[int, option("Random seed for synthetic trades and injected loss.")] = 1,
    interface: Interface = LOOPBACK,
    realtime: Annotated[
        str, option("Use real-time priority for a receiver, to release on time.", metavar="auto|on|off")
    ] = "auto",
    status_port: Annotated[
        int | None, option("Serve status on this port; 0 disables it.", min=0, max=65535, unset="from the network file")
    ] = None,
    stripe: Annotated[
        str | None, option("Stripe of the node.", metavar="STRIPE", unset="the floor's, or the first")
    ] = None,
    initialise: Annotated[
        bool, option("Create the journal of a node that has never run, as levelcast disk init does.", "--init")
    ] = False,
) -> None:
    """Run one node of a network: a receiver, a secondary, a reformation server or a floor.

    With several stripes, a node runs one process per stripe. SIGTERM lets it leave the ring, ^C stops it at once.
    Restarted with the same data directory, it resumes.

    Examples:

    levelcast node --name tokyo-1 --data data

    levelcast node --name XTKS --data data --rate 1000 --for 20s
    """
    network = load_network(network_file)
    if realtime not in ("auto", "on", "off"):
        raise typer.BadParameter(f'"{realtime}" is not auto, on or off', param_hint="--realtime")
    run_ns = None if publish is None else duration_ns(publish)
    options = NodeOptions(rate, run_ns, impair, seed, interface, cast(Realtime, realtime), status_port)

    def say(words: dict[str, Any]) -> None:
        if not as_json:
            return
        try:
            print(json.dumps(words), flush=True)
        except BrokenPipeError:  # the process that started this node has exited
            running.stop()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def on_event(event: Event) -> None:
        if isinstance(event, FREQUENT):
            return
        if as_json:
            say({"event": event.KIND, "slot": event.slot, "detail": sentence(event), **event_fields(event)})
        else:
            typer.echo(f"{event.KIND} at slot {event.slot}: {sentence(event)}", err=True)

    if initialise:
        create_data(data)
        place = place_of(network, name, stripe)
        initialise_disk(data, place.part, ring_config(network, place.stripe).domain, network.tape.durable)
    running = Node(network, name, data, time.time_ns(), options, on_event, stripe)
    if running.warning is not None:
        typer.echo(f"levelcast: {running.warning}", err=True)
    last = running.run(say)
    if as_json:
        say({**last, "final": True})
    else:
        typer.echo(", ".join(f"{key} {value}" for key, value in last.items()))
