"""`levelcast disk`: create a node's journal before its first start, and after its disk was lost (rule 12)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import NETWORK_FILE, Data, Interface, NetworkFile, option
from levelcast.errors import NetError
from levelcast.network import Network, load_network
from levelcast.network.placement import Placement, all_places, place_of, places
from levelcast.network.stripe_config import ring_config
from levelcast.node.operate.control_source import (
    membership_to_change,
    newest_membership,
    next_incarnation,
    publish,
    replaced,
)
from levelcast.node.status_client import Answer, ask_all
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import MAX_LIFE, create_data, declare_lost, has_journal, initialise_disk, known_life
from levelcast.storage.journal.file import life_of
from levelcast.wire.messages import MemberLife

app = typer.Typer(help=COMMANDS["disk"].help, no_args_is_help=True)

Name = Annotated[str, option("Node name in the network file.", "--name")]
Stripe = Annotated[
    str | None, option("Stripe of the node.", "--stripe", metavar="STRIPE", unset="the floor's, or the first")
]
_ASK_S = 1.0


@app.command()
def init(
    data: Data,
    network_file: NetworkFile = NETWORK_FILE,
    name: Annotated[str | None, option("Node name in the network file.", "--name")] = None,
    every: Annotated[bool, option("Initialise every node of the file, in every stripe.", "--all")] = False,
    stripe: Stripe = None,
) -> None:
    """Create the empty journal of a node that has never run: its first life.

    Run this once, on the machine where the node will run. A node that has run before and no longer has a journal has
    lost its disk: see `levelcast disk lost`.

    Examples:

    levelcast disk init --name tokyo-1 --data data

    levelcast disk init --all --data data
    """
    network = load_network(network_file)
    if (name is None) is not every:
        raise typer.BadParameter("pass either --name or --all", param_hint="--name")
    chosen = all_places(network) if name is None else [place_of(network, name, stripe)]
    create_data(data)
    for place in chosen:
        made = initialise_disk(data, place.part, ring_config(network, place.stripe).domain, network.tape.durable)
        typer.echo(f"{data / place.part}: {'created an empty journal, life 1' if made else 'already has a journal'}")


@app.command()
def lost(
    name: Name,
    data: Data,
    network_file: NetworkFile = NETWORK_FILE,
    life: Annotated[int | None, option("New life number.", min=1, max=MAX_LIFE, unset="highest known + 1")] = None,
    stripe: Stripe = None,
) -> None:
    """Declare a node's disk lost: create an empty journal of a new life, which the ring does not confuse with the old.

    The remaining files of the node are moved aside. A receiver of a new life counts in no majority until
    `levelcast disk replace` has added the new life to the configured set (rule 12).

    Examples:

    levelcast disk lost --name tokyo-1 --data data

    levelcast disk lost --name tokyo-1 --data data --life 3
    """
    network = load_network(network_file)
    place = place_of(network, name, stripe)
    if network.status is not None and ask_all(network, [place.part], _ASK_S)[0].ok:
        raise NetError(f"{place.part}: still running, so its disk is not lost; stop it first")
    chosen = life if life is not None else _next_life(network, place, data)
    create_data(data)
    aside = declare_lost(data, place.part, chosen, ring_config(network, place.stripe).domain, network.tape.durable)
    if aside is not None:
        typer.echo(f"The remaining files are in {aside}; remove them when they are no longer needed.")
    typer.echo(f"{data / place.part}: created an empty journal, life {chosen}")
    same = f"--network {network_file} --name {place.part} --data {data}"
    typer.echo(f"Now start it: levelcast node {same}")
    if place.role.in_ring:
        typer.echo(f"To make it count in majorities again: levelcast disk replace {same}")


def _next_life(network: Network, place: Placement, data: Path) -> int:
    """Return one more than the highest life that the directory and the running receivers know."""
    known = [life for life in (known_life(data, place.part), _life_in_ring(network, place)) if life is not None]
    if known:
        return max(known) + 1
    raise NetError(
        f"{place.part}: earlier lives are unknown, since no receiver replied and {data} has no record; pass --life "
        "with a number higher than every earlier life (2 if its disk was never lost)"
    )


def _life_in_ring(network: Network, place: Placement) -> int | None:
    """Return a receiver's life in the configured set, or a floor's incarnation, as running receivers report it.

    No node stores the life of a server or of a secondary.
    """
    if network.status is None or not (place.role.in_ring or place.role.publishes):
        return None
    found = []
    for answer in _receivers(network, place.stripe):
        lives = {each["id"]: each["life"] for each in answer.status["membership"]["members"]}
        source = answer.status["sources"].get(str(place.id), {})
        found += [lives.get(place.id) if place.role.in_ring else source.get("incarnation")]
    return max((life for life in found if life is not None), default=None)


@app.command()
def replace(
    name: Name,
    network_file: NetworkFile = NETWORK_FILE,
    data: Annotated[
        Path | None, option("Data directory of the node, if it is on this machine.", "--data", metavar="DIR")
    ] = None,
    life: Annotated[int | None, option("New life number.", min=1, max=MAX_LIFE, unset="as the node reports")] = None,
    timeout: Annotated[str, option("Time limit.", metavar="TIME")] = "30s",
    interface: Interface = LOOPBACK,
    stripe: Stripe = None,
) -> None:
    """Add a receiver's new life to the configured set, by a record in the sequence of the running ring.

    The running receivers supply the version. The life is read from the node itself, from its directory, or from --life.
    The record is sent until it is witnessed, which needs a majority without this receiver.

    Example:

    levelcast disk replace --name tokyo-1 --data data
    """
    network = load_network(network_file)
    timeout_s = duration_ns(timeout, "--timeout") / 1e9
    place = place_of(network, name, stripe)
    if not place.role.in_ring:
        raise NetError(f"{name} is not a primary receiver; only those are in the configured set, so this is not needed")
    answers = _receivers(network, place.stripe)
    chosen = _life_of(place, data, life, answers)
    wanted = replaced(membership_to_change(answers), place.id, chosen)
    if wanted is None:
        typer.echo(f"{name} already has life {chosen} in the configured set.")
        return
    publish(network, place.stripe, wanted, next_incarnation(answers, time.time_ns()), timeout_s, interface)
    if MemberLife(place.id, chosen) not in newest_membership(_receivers(network, place.stripe))[0].members:
        raise NetError("another change of the configured set was witnessed first; check it and try again")
    typer.echo(f"Version {wanted.version} of the configured set is witnessed: {name} has life {chosen} in it.")


def _life_of(place: Placement, data: Path | None, given: int | None, answers: list[Answer]) -> int:
    """Return the new life: from the node itself, from --life, or from its directory."""
    for answer in answers:
        if answer.name == place.part:
            runs = int(answer.status["life"])
            if given not in (None, runs):
                raise NetError(f"{place.part} runs in life {runs}, but --life is {given}")
            return runs
    if given is not None:
        return given
    if data is not None and has_journal(data / place.part):
        return life_of(data / place.part / "journal")
    raise NetError(f"{place.part}: no reply, so its new life is unknown; start it, or pass --data or --life")


def _receivers(network: Network, stripe: str) -> list[Answer]:
    """Return the status of the primaries of a stripe that reply."""
    parts = [place.part for place in places(network, stripe) if place.role.in_ring]
    return [answer for answer in ask_all(network, parts, _ASK_S) if answer.ok]
