"""`levelcast node`: run one node of a network over multicast."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Annotated, Any, cast

import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import Data, Impair, Interface, NetworkFile, option
from levelcast.network import load_network
from levelcast.network.placement import place_of
from levelcast.node.node import FREQUENT, Node
from levelcast.node.options import NodeOptions
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import Event, event_fields
from levelcast.runtime.realtime import Realtime
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import initialise_disk


def node(
    network_file: NetworkFile,
    name: Annotated[str, option("The node's name in that file.")],
    data: Data,
    rate: Annotated[float, option("Records a second that a floor makes up and publishes.", min=0)] = 0.0,
    impair: Impair = False,
    publish: Annotated[
        str | None, option("How long it runs; a floor stays until all is witnessed.", "--for", metavar="TIME")
    ] = None,
    as_json: Annotated[bool, option("Print JSON lines: status, events, a last status.", "--json")] = False,
    seed: Annotated[int, option("Of made-up trades, and of added loss.")] = 1,
    interface: Interface = LOOPBACK,
    realtime: Annotated[
        str, option("Real-time priority for a receiver, so that it is punctual.", metavar="auto|on|off")
    ] = "auto",
    status_port: Annotated[
        int | None, option("Tell the status on this port, 0: not at all.", min=0, max=65535, unset="by the file")
    ] = None,
    stripe: Annotated[
        str | None, option("Which stripe it runs.", metavar="STRIPE", unset="the floor's, or the first")
    ] = None,
    initialise: Annotated[
        bool, option("This node has never run: make its journal (levelcast disk init).", "--init")
    ] = False,
) -> None:
    """Run one node of a network: a receiver, a secondary, a reformation server or a floor.

    Where there are several stripes a node is a process in each. It ends on SIGTERM or ^C; started again on the same
    directory, it goes on where it was.

    Examples:

    levelcast node --network network.toml --name tokyo-1 --data data

    levelcast node --network network.toml --name XTKS --data data --rate 1000 --for 20s
    """
    network = load_network(network_file)
    if realtime not in ("auto", "on", "off"):
        raise typer.BadParameter(f'"{realtime}" is none of auto, on and off', param_hint="--realtime")
    run_ns = None if publish is None else duration_ns(publish)
    options = NodeOptions(rate, run_ns, impair, seed, interface, cast(Realtime, realtime), status_port)

    def say(words: dict[str, Any]) -> None:
        if not as_json:
            return
        try:
            print(json.dumps(words), flush=True)
        except BrokenPipeError:  # who started this node has gone
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
        place = place_of(network, name, stripe)
        initialise_disk(data, place.part, network.stripe(place.stripe).index, network.tape.durable)
    running = Node(network, name, data, time.time_ns(), options, on_event, stripe)
    if running.warning is not None:
        typer.echo(f"levelcast: {running.warning}", err=True)
    last = running.run(say)
    if as_json:
        say({**last, "final": True})
    else:
        typer.echo(", ".join(f"{key} {value}" for key, value in last.items()))
