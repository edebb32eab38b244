"""`levelcast node`: run one node of a network over multicast."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.live.line_output import LineOutput
from levelcast.cli.options import NETWORK_FILE, Data, Impair, Interface, NetworkFile, option
from levelcast.errors import describe
from levelcast.network import Network, load_network
from levelcast.network.addresses import on_loopback
from levelcast.network.hold_input import follows_from_pairs
from levelcast.network.placement import Placement, place_of, places
from levelcast.network.stripe_config import ring_config
from levelcast.node.node import FREQUENT, Node
from levelcast.node.options import NodeOptions
from levelcast.protocol.events import Event, LinesLost, NodeStop, SetupWarning
from levelcast.runtime.event_log import NodeLog, json_object, text_line
from levelcast.runtime.realtime import Realtime
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import create_data, initialise_disk
from levelcast.units import show_ns

_STDOUT, _STDERR = 1, 2


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
    hold: Annotated[
        str | None, option("Hold time, if the network file has none.", metavar="TIME", unset="a bound from the links")
    ] = None,
    loopback: Annotated[
        int | None,
        option(
            "Without multicast, use loopback with all nodes' ports from this one on.",
            min=1,
            max=65535,
            metavar="PORT",
            unset="the addresses of the network file",
        ),
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

    def load() -> Network:
        network = load_network(network_file)
        return network if loopback is None else on_loopback(network, loopback)

    network = load()
    if realtime not in ("auto", "on", "off"):
        raise typer.BadParameter(f'"{realtime}" is not auto, on or off', param_hint="--realtime")
    run_ns = None if publish is None else duration_ns(publish)
    options = NodeOptions(rate, run_ns, impair, seed, interface, cast(Realtime, realtime), status_port)

    place = place_of(network, name, stripe)
    if hold is not None and network.stripe(place.stripe).rules.hold_ns is None:
        network = network.with_holds({place.stripe: duration_ns(hold, "--hold", 1)})
    if initialise:
        create_data(data)
        initialise_disk(data, place.part, ring_config(network, place.stripe).domain, network.tape.durable)
    outputs = _Outputs(network, place, data, as_json=as_json)
    try:
        running = Node(network, name, data, time.time_ns(), options, outputs.add, stripe, load)
    except Exception as error:
        outputs.log_failed_start(error)
        raise
    outputs.on_closed = partial(running.stop, reason="its output was closed")
    for warning in filter(None, (running.warning, _bound_in_use(network, place))):
        outputs.add(SetupWarning(0, warning))
        if as_json:
            typer.echo(f"levelcast: {warning}", err=True)
    try:
        last = running.run(outputs.status)
        if as_json:
            outputs.lines.write(json.dumps({**last, "final": True}))
    finally:
        outputs.close()
    if not as_json:
        typer.echo(", ".join(f"{key} {value}" for key, value in last.items()))


def _bound_in_use(network: Network, place: Placement) -> str | None:
    """Return a sentence if the hold time is only a bound."""
    if network.stripe(place.stripe).rules.hold_ns is not None or not follows_from_pairs(network, place.stripe):
        return None
    bound = show_ns(network.timing(place.stripe).hold_ns)
    if network.stripe(place.stripe).rules.hold_auto:
        return (
            f'hold = "auto" starts with a bound of {bound}; levelcast up, or --hold, starts with the derived hold time'
        )
    return f"the network file has no hold time, so a bound of {bound} is used; levelcast timing --write stores one"


class _Outputs:
    """Outputs of a running node: its log, and JSON lines on stdout or the lines of the log on stderr."""

    def __init__(self, network: Network, place: Placement, data: Path, *, as_json: bool) -> None:
        self.on_closed: Callable[[], None] | None = None
        self._node = place.part
        self._names = {each.id: each.name for each in places(network, place.stripe)}
        self._json = as_json
        self.lines = LineOutput(_STDOUT if as_json else _STDERR, self._reader_gone, self._lost_line)
        echo = None if as_json else self.lines.write
        self._directory = data / place.part
        self.log = NodeLog(self._directory, self._node, self._names, network.log, self._problem, echo)

    def add(self, event: Event) -> None:
        """Handle an event of the node."""
        self.log.add(event)
        if self._json and not isinstance(event, FREQUENT):
            self.lines.write(self._json_line(event))

    def status(self, status: dict[str, Any]) -> None:
        """Handle the status of the node, which it reports a few times per second."""
        self.log.tick()
        if self._json:
            self.lines.write_status(json.dumps(status))
        else:
            self.lines.flush()

    def log_failed_start(self, error: Exception) -> None:
        """Write an error to the log of a node that has a directory; the command prints it."""
        if self._directory.is_dir():
            self.log.echo = None
            self.log.add(NodeStop(0, "error", describe(error)))
        self.log.close()

    def close(self) -> None:
        self.log.close()
        if not self.lines.close():
            typer.echo("levelcast: the reader of the output was too slow; the last lines are in the log only", err=True)

    def _json_line(self, event: Event) -> str:
        return json.dumps(json_object(event, self._node, self._names, time.time_ns()))

    def _lost_line(self, count: int) -> str:
        event = LinesLost(0, "stdout" if self._json else "stderr", count)
        self.log.add(event)
        return self._json_line(event) if self._json else text_line(event, self._node, self._names, time.time_ns())

    def _reader_gone(self) -> None:
        """Stop a node whose JSON lines nobody reads any more: the process that started it has exited."""
        if self._json and self.on_closed is not None:
            self.on_closed()

    @staticmethod
    def _problem(text: str) -> None:
        typer.echo(f"levelcast: {text}", err=True)
