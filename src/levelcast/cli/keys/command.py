"""`levelcast keys`: the keys of a network and its nodes (rules K1 to K3)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from levelcast.cli.keys.create import create_keys, require_free, write_public
from levelcast.cli.keys.places import (
    VALID,
    KeyPlaces,
    age_s,
    check_names,
    holder_of,
    new_identity,
    places_of,
)
from levelcast.cli.keys.report import describe, find_problems, problems_of_running
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import NETWORK_FILE, AsJson, NetworkFile, option
from levelcast.cli.output import print_json, table
from levelcast.keys.authority import DEFAULT_GRACE_S, LEAST_AHEAD_S, admit, revoke, rotate
from levelcast.keys.files import create_directory
from levelcast.keys.identity import Identity, read_public
from levelcast.keys.process import protect_process
from levelcast.keys.statement import NS_PER_S, KeyStatement
from levelcast.network import Network
from levelcast.node.status_client import Answer, ask_all

app = typer.Typer(help=COMMANDS["keys"].help, no_args_is_help=True)

Name = Annotated[str | None, option('Node name in the network file, or "operator".', "--name")]
Valid = Annotated[str, option("Time until the statement expires.", metavar="AGE")]


@app.command()
def init(
    network_file: NetworkFile = NETWORK_FILE,
    every: Annotated[
        bool, option("Also create the keys of every node: all nodes run on this machine.", "--all")
    ] = False,
    valid: Valid = VALID,
) -> None:
    """Create the authority and the operator of a network, and its first statement of keys.

    Adds the table [keys] to the network file. Private keys are written to the directory keys beside it, or to
    LEVELCAST_KEYS; LEVELCAST_PASSPHRASE, if set, encrypts them. Keep the authority's two files offline: they are
    needed only to admit nodes, rotate and revoke.

    Examples:

    levelcast keys init --all

    LEVELCAST_KEYS=/media/authority levelcast keys init
    """
    protect_process()
    where, names = create_keys(network_file, age_s(valid, "--valid"), every=every)
    found = places_of(network_file)
    statement = found.read(None)
    typer.echo(f"{network_file}: added [keys] with the authority {found.authority}")
    typer.echo(f"{where.directory}: created the keys of {', '.join(names)}")
    typer.echo(f"{where.statement}: statement 1, epoch 1, for {_count(found.network, statement)}")
    if not every:
        typer.echo("Now run `levelcast keys node --name NAME` on the machine of each node.")


@app.command()
def node(
    network_file: NetworkFile = NETWORK_FILE,
    name: Name = None,
    public: Annotated[
        Path | None, option("Admit the node whose public keys this file has.", "--admit", metavar="FILE")
    ] = None,
    valid: Valid = VALID,
) -> None:
    """Create the private keys of a node on its machine, or admit a node on the authority's machine.

    Only the file of public keys leaves the machine. Where the authority's keys are in the same directory, the node is
    admitted immediately.

    Examples:

    levelcast keys node --name tokyo-1

    levelcast keys node --admit keys/tokyo-1.public.json
    """
    protect_process()
    where = places_of(network_file)
    if (name is None) is (public is None):
        raise typer.BadParameter("pass either --name or --admit", param_hint="--name")
    valid_s = age_s(valid, "--valid")
    if public is not None:
        keys = read_public(public.read_text(encoding="utf-8", errors="replace"), str(public))
        holder = holder_of(where.network, keys)
        _renew(where, lambda authority, before, now: admit(authority, before, holder, now, valid_s))
        typer.echo(f"{keys.name}: admitted as {holder.role}")
        return
    assert name is not None
    check_names(where.network)
    made = Identity.new(name)
    holder = holder_of(where.network, made.public)
    create_directory(where.directory)
    require_free(where, (name,))
    has_authority = where.has_authority()
    if has_authority:  # before anything is written
        admit(where.load_authority(), where.read(None), holder, time.time_ns(), valid_s)
    made = new_identity(where.directory, name)
    path = write_public(where, made)
    typer.echo(f"{where.directory}: created the keys of {name}")
    if has_authority:
        holder = replace(holder, keys=made.public)
        _renew(where, lambda authority, before, now: admit(authority, before, holder, now, valid_s))
        typer.echo(f"{name}: admitted as {holder.role}")
    else:
        typer.echo(f"Copy {path} to the authority's machine and run there: levelcast keys node --admit {path.name}")


@app.command("rotate")
def rotate_command(
    network_file: NetworkFile = NETWORK_FILE,
    ahead: Annotated[
        str, option("Time until the epoch begins; every node must have the statement before.", "--in", metavar="AGE")
    ] = f"{LEAST_AHEAD_S // 3600}h",
    valid: Valid = VALID,
) -> None:
    """Begin a new epoch with random keys, and renew the statement.

    Examples:

    levelcast keys rotate

    levelcast keys rotate --in 10s
    """
    protect_process()
    ahead_s, valid_s = age_s(ahead, "--in"), age_s(valid, "--valid")
    where = places_of(network_file)
    statement = _renew(where, lambda _, before, now: rotate(before, now, ahead_s, valid_s))
    newest = max(statement.epochs, key=lambda each: each.number)
    typer.echo(f"Epoch {newest.number} begins in {(newest.from_ns - time.time_ns()) / NS_PER_S:,.0f} s.")
    typer.echo(f"Copy {where.statement} to every node before that.")


@app.command("revoke")
def revoke_command(
    name: Annotated[str, option("Node name in the statement.", "--name")],
    network_file: NetworkFile = NETWORK_FILE,
    grace: Annotated[
        str, option("Time for which packets of earlier epochs are accepted if a receiver is revoked.", metavar="AGE")
    ] = f"{DEFAULT_GRACE_S}s",
    valid: Valid = VALID,
) -> None:
    """Remove a node from the statement, and begin an epoch without it now.

    Nodes refuse its messages as soon as they have the new statement.

    Example:

    levelcast keys revoke --name sydney-1
    """
    protect_process()
    grace_s, valid_s = age_s(grace, "--grace"), age_s(valid, "--valid")
    where = places_of(network_file)
    statement = _renew(where, lambda _, before, now: revoke(before, name, now, grace_s, valid_s))
    epoch = max(statement.epochs, key=lambda each: each.number)
    typer.echo(f"{name}: revoked; epoch {epoch.number} has begun without it")
    typer.echo(f"Copy {where.statement} to every node now.")


@app.command("list")
def list_command(network_file: NetworkFile = NETWORK_FILE, as_json: AsJson = False) -> None:
    """List the nodes and epochs of the statement. Prints public keys only.

    Example:

    levelcast keys list
    """
    where = places_of(network_file)
    now_ns = time.time_ns()
    found = describe(where.read(None), where.directory, now_ns)
    if as_json:
        print_json(found)
        return
    console = Console()
    typer.echo(f"Statement {found['number']} of network {found['network']}, expires {found['expires']}")
    nodes = [(each["name"], each["role"], each["id"], each["sign"], _yes(each["private"])) for each in found["nodes"]]
    console.print(table(("name", "role", ">id", "public key", "private key here"), nodes))
    epochs = [(each["epoch"], each["from"], each["state"], each["holders"]) for each in found["epochs"]]
    console.print(table((">epoch", "from", "state", ">holders"), epochs))
    for each in found["revoked"]:
        typer.echo(f"Revoked: {each['name']}, {each['role']} {each['id']}")


@app.command()
def check(network_file: NetworkFile = NETWORK_FILE, as_json: AsJson = False) -> None:
    """Check statement, network file, private keys on this machine and running nodes. Exit code 1 if something is wrong.

    Lists running nodes that have not loaded the newest statement, and those that run without keys.

    Example:

    levelcast keys check
    """
    protect_process()
    where = places_of(network_file)
    now_ns = time.time_ns()
    statement = where.read(now_ns)
    statement.epoch_at(now_ns)
    answers = ask_all(where.network) if where.network.status is not None else []
    running = [each for each in answers if each.ok and each.status.get("network") == f"{where.network.id:016x}"]
    problems = [*find_problems(where, statement, now_ns), *problems_of_running(running, statement)]
    if as_json:
        print_json({"statement": statement.number, "running": len(running), "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        if not problems:
            typer.echo(f"Statement {statement.number} and the keys on this machine are valid.{_use(running)}")
    if problems:
        raise typer.Exit(1)


def _renew(where: KeyPlaces, change: Any) -> KeyStatement:
    """Read the statement, write the next one that `change` makes of it, and return that."""
    authority = where.load_authority()
    statement: KeyStatement = change(authority, where.read(None), time.time_ns())
    where.write(statement, authority)
    typer.echo(f"{where.statement}: statement {statement.number}")
    return statement


def _count(network: Network, statement: KeyStatement) -> str:
    nodes = sum(each.name in network.node_names for each in statement.holders)
    return f"{nodes} of {len(network.node_names)} nodes"


def _use(running: Sequence[Answer]) -> str:
    return f" {len(running)} running nodes use it." if running else ""


def _yes(found: bool) -> str:
    return "yes" if found else ""
