"""`levelcast disk`: a node's journal before its first start, and after its disk was lost (rule 12)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from levelcast.cli.common import duration_ns, one_sentence
from levelcast.cli.node import Data
from levelcast.net.ask import Answer, ask_all
from levelcast.net.disk import MAX_LIFE, declare_lost, has_journal, initialise_disk, known_life
from levelcast.net.node import Place, place_of
from levelcast.net.operator import membership_to_change, newest_membership, next_incarnation, publish, replaced
from levelcast.net.sockets import LOOPBACK, NetError
from levelcast.network import Network, load_network
from levelcast.tape.journal import life_of
from levelcast.wire.messages import MemberLife

app = typer.Typer(
    help="A node's journal: made once for its first start, and anew, as another life, when its disk is lost.",
    no_args_is_help=True,
)

File = Annotated[Path, typer.Option("--network", metavar="FILE", help="The network file.")]
Name = Annotated[str, typer.Option("--name", help="The node's name in that file.")]
_ASK_S = 1.0


@app.command()
def init(
    network_file: File,
    data: Data,
    name: Annotated[str | None, typer.Option("--name", help="The node's name in that file.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every node of the file.")] = False,
) -> None:
    """Make the empty journal of a node that has never run: its first life.

    Only on the machine where the node will run, and only once. A node that has run before and has no journal any more
    has lost its disk: see `levelcast disk lost`.

    Examples:

    levelcast disk init --network network.toml --name tokyo-1 --data data

    levelcast disk init --network network.toml --all --data data
    """
    network = load_network(network_file)
    if (name is None) is not every:
        raise typer.BadParameter("give one of --name and --all", param_hint="--name")
    with one_sentence():
        names = network.node_names if name is None else (name,)
        places = [place_of(network, each) for each in names]
        data.mkdir(parents=True, exist_ok=True)
        for place in places:
            made = initialise_disk(data, place.name, _index(network, place), network.tape.durable)
            typer.echo(f"{data / place.name}: {'an empty journal, life 1' if made else 'has a journal already'}")


@app.command()
def lost(
    network_file: File,
    name: Name,
    data: Data,
    life: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_LIFE, help="The new life.", show_default="one more than is known"),
    ] = None,
) -> None:
    """Declare a node's disk lost: an empty journal of a new life, so that the ring does not take it for the old one.

    What is left in the node's directory is put aside. A receiver of a new life counts in no majority until
    `levelcast disk replace` has put the new life into the configured set (rule 12).

    Examples:

    levelcast disk lost --network network.toml --name tokyo-1 --data data

    levelcast disk lost --network network.toml --name tokyo-1 --data data --life 3
    """
    network = load_network(network_file)
    with one_sentence():
        place = place_of(network, name)
        if network.status is not None and ask_all(network, [name], _ASK_S)[0].ok:
            raise NetError(f"{name} is running, so its disk is not lost to it: end it first")
        chosen = life if life is not None else _next_life(network, place, data)
        data.mkdir(parents=True, exist_ok=True)
        aside = declare_lost(data, name, chosen, _index(network, place), network.tape.durable)
    if aside is not None:
        typer.echo(f"What was left is in {aside}: remove it when nobody needs it.")
    typer.echo(f"{data / name}: an empty journal, life {chosen}")
    start = f"levelcast node --network {network_file} --name {name} --data {data}"
    typer.echo(f"Now start it: {start}")
    if place.role == "receiver":
        typer.echo(
            f"And let it count again: levelcast disk replace --network {network_file} --name {name} --data {data}"
        )


def _next_life(network: Network, place: Place, data: Path) -> int:
    """One more than every life that the directory and the running receivers know of."""
    known = [life for life in (known_life(data, place.name), _life_in_ring(network, place)) if life is not None]
    if known:
        return max(known) + 1
    raise NetError(
        f"nobody here knows which lives {place.name} has had: no receiver answers, and {data} says nothing of it; give "
        "--life, a number higher than every life before (2 if its disk was never lost)"
    )


def _life_in_ring(network: Network, place: Place) -> int | None:
    """The life of a receiver in the configured set, or the incarnation of a floor, as running receivers know it."""
    if network.status is None or place.role == "reformation":
        return None
    found = []
    for answer in _receivers(network):
        lives = {each["id"]: each["life"] for each in answer.status["membership"]["members"]}
        source = answer.status["sources"].get(str(place.id), {})
        found += [lives.get(place.id) if place.role == "receiver" else source.get("incarnation")]
    return max((life for life in found if life is not None), default=None)


@app.command()
def replace(
    network_file: File,
    name: Name,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the node has its directory, if it is here.")
    ] = None,
    life: Annotated[
        int | None, typer.Option(min=1, max=MAX_LIFE, help="The new life.", show_default="as the node says")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long it may take.")] = "30s",
    interface: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address of the interface on which the core group is.")
    ] = LOOPBACK,
) -> None:
    """Put a receiver's new life into the configured set, by a record in the sequence of the running ring.

    The version comes from the running receivers, the life from the node itself, from its directory, or from --life. The
    record is sent until it is witnessed, which needs a majority without this receiver.

    Example:

    levelcast disk replace --network network.toml --name tokyo-1 --data data
    """
    network = load_network(network_file)
    timeout_s = duration_ns(timeout, "--timeout") / 1e9
    with one_sentence():
        place = place_of(network, name)
        if place.role != "receiver":
            raise NetError(f"{name} is no receiver: only receivers are in the configured set, so it needs nothing more")
        answers = _receivers(network)
        chosen = _life_of(place, data, life, answers)
        wanted = replaced(membership_to_change(answers), place.id, chosen)
        if wanted is None:
            typer.echo(f"{name} has life {chosen} in the configured set already.")
            return
        publish(network, place.stripe, wanted, next_incarnation(answers, time.time_ns()), timeout_s, interface)
        if MemberLife(place.id, chosen) not in newest_membership(_receivers(network))[0].members:
            raise NetError("another change of the configured set came first: look at it, and try again")
    typer.echo(f"Version {wanted.version} of the configured set is witnessed: {name} has life {chosen} in it.")


def _life_of(place: Place, data: Path | None, given: int | None, answers: list[Answer]) -> int:
    """The new life: as the node itself says, as is given, or as its directory says."""
    for answer in answers:
        if answer.name == place.name:
            runs = int(answer.status["life"])
            if given not in (None, runs):
                raise NetError(f"{place.name} runs in life {runs}, and --life says {given}")
            return runs
    if given is not None:
        return given
    if data is not None and has_journal(data / place.name):
        return life_of(data / place.name / "journal")
    raise NetError(f"{place.name} does not answer: start it, or give --data or --life, so that its new life is known")


def _receivers(network: Network) -> list[Answer]:
    """Those that answer."""
    return [answer for answer in ask_all(network, [each.name for each in network.receivers], _ASK_S) if answer.ok]


def _index(network: Network, place: Place) -> int:
    return network.stripe(place.stripe).index
