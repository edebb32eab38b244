"""`levelcast multicast`: run a group in which fewer than a third may lie, or one member of it."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Annotated, Any

import typer
from blake3 import blake3
from rich.console import Console

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.epochs import EpochMachine
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.outside import OutsideSender
from levelcast.byzantine.signatures import Signer
from levelcast.cli.errors import duration_ns
from levelcast.cli.options import Data, Impair, Interface, option
from levelcast.cli.output import print_json
from levelcast.errors import UserError, describe
from levelcast.network import load_network
from levelcast.node.multicast_group import END_S, MulticastProcesses, compare
from levelcast.runtime.multicast_loop import GroupDelivery
from levelcast.runtime.multicast_node import GroupNode, MulticastOptions, group_record, names_of, read_keys
from levelcast.runtime.realtime import calm_garbage_collection
from levelcast.runtime.sockets import LOOPBACK
from levelcast.sim.chain.liars import STYLES

DRAIN_S = 3.0
"""Time in seconds after the last packet in which members deliver what is under way."""
STARTUP_S = 1.5


def multicast(
    network_file: Annotated[Path, typer.Argument(help="Network file.", metavar="[FILE]")] = Path("network.toml"),
    name: Annotated[
        str | None,
        option("Run only this receiver or floor; lines of standard input are sent.", unset="all, as processes"),
    ] = None,
    data: Data = Path("data"),
    publish: Annotated[str | None, option("Run time.", "--for", metavar="TIME", unset="until ^C")] = None,
    rate: Annotated[float, option("Synthetic packets/s of every member.", min=0)] = 0.0,
    size: Annotated[int, option("Size of a synthetic packet in bytes.", min=8, max=30_000)] = 1_000,
    by_turn: Annotated[
        bool, option("Take turns by number (MR §5) instead of slots by the clock.", "--by-turn")
    ] = False,
    slot: Annotated[str | None, option("Length of a slot.", metavar="TIME", unset="that of the network file")] = None,
    impair: Impair = False,
    interface: Interface = LOOPBACK,
    liar: Annotated[
        str | None, option(f"Lie in this way, for tests: {', '.join(STYLES)}.", metavar="STYLE", unset="honest")
    ] = None,
    group: Annotated[
        Path | None, option("File group.json of a member, to join after the first epoch.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, option("Print JSON lines: events, final state.", "--json")] = False,
    demo: Annotated[bool, option("Run four members, one of which lies, and narrate what happens.", "--demo")] = False,
) -> None:
    """Run a group in which fewer than a third may lie: reliable multicast among the receivers of a network.

    Without --name, all members run as processes on this machine, and what they have delivered is compared. Exit code 0:
    it is identical; 1: it is not. SIGHUP makes a member sign the receivers of the network file, read again, as the next
    epoch of the group, which begins when enough members have signed.

    Examples:

    levelcast multicast --demo

    levelcast multicast network.toml --for 10s --rate 50

    levelcast multicast network.toml --name tokyo-1 --data data
    """
    if liar is not None and liar not in STYLES:
        raise typer.BadParameter(f'"{liar}" is not one of {", ".join(STYLES)}', param_hint="--liar")
    if demo:
        from levelcast.cli.demo.multicast import run_demo

        raise typer.Exit(run_demo(as_json=as_json))
    run_s = None if publish is None else duration_ns(publish) / 1e9
    if name is None:
        common = ["--rate", str(rate or 10.0), "--size", str(size), "--interface", interface]
        common += ["--for", publish or "3600s", *(["--by-turn"] if by_turn else []), *(["--impair"] if impair else [])]
        common += ["--slot", slot] if slot is not None else []
        raise typer.Exit(_run_all(network_file, data, common, run_s or 3600.0, as_json=as_json))
    slot_ns = None if slot is None else duration_ns(slot, "--slot", 1)
    options = MulticastOptions(by_turn, slot_ns, interface, impair, group=group)
    member = MemberProcess(network_file, name, data, options, liar, as_json=as_json)
    member.run(run_s, rate, size)


class MemberProcess:
    """One member as a process: standard input or synthetic packets in, deliveries and events out."""

    def __init__(
        self, file: Path, name: str, data: Path, options: MulticastOptions, liar: str | None, *, as_json: bool
    ) -> None:
        network = load_network(file)
        identity, statement = read_keys(file, network, name)
        record = group_record(network, statement)
        self._json = as_json
        self._packets: dict[str, tuple[int, bytes]] = {}
        """Per sender, number and running hash of the packets delivered in this run."""
        self._known: dict[str, Any] = {}
        self._told_ns = 0
        self._ended = Event()
        self._file, self._name = file, name
        replace = None if liar is None else lying(liar, identity)
        self._node = GroupNode(
            network, name, record, identity, data, self._on_delivery, options, self._on_turn, replace
        )
        for notice in self._node.loop.store.notices:
            typer.echo(f"levelcast: {notice}", err=True)

    def run(self, run_s: float | None, rate: float, size: int) -> None:
        """Run until the time is over, or a signal; print the final state."""
        node = self._node
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: node.loop.stop())
        signal.signal(signal.SIGHUP, self._propose)
        calm_garbage_collection()
        feeder = Thread(target=self._feed, args=(run_s, rate, size), daemon=True)
        feeder.start()
        try:
            node.run()
        finally:
            self._ended.set()
        packets = {sender: (count, digest.hex()) for sender, (count, digest) in self._packets.items()}
        self._tell({"event": "end", "packets": packets, **node.status()})

    def _propose(self, *signals: object) -> None:
        """Propose the receivers of the network file, read again, as the next epoch: the handler of SIGHUP."""
        try:
            network = load_network(self._file)
            statement = read_keys(self._file, network, self._name)[1]
            record = group_record(network, statement)
        except (UserError, OSError) as error:
            typer.echo(f"levelcast: the next epoch is not proposed: {describe(error)}", err=True)
            return
        self._node.names |= names_of(network)
        self._node.propose(record)

    def _feed(self, run_s: float | None, rate: float, size: int) -> None:
        loop, began = self._node.loop, time.monotonic()
        sent = 0
        if rate <= 0 and run_s is None:
            for line in sys.stdin:
                while not loop.room and not self._ended.wait(0.01):
                    pass
                loop.submit([line.rstrip("\n").encode()])
            return
        while not self._ended.wait(0.01):
            elapsed = time.monotonic() - began - STARTUP_S
            if run_s is not None and elapsed >= run_s:
                break
            while rate > 0 and sent < elapsed * rate and loop.room:
                sent += 1
                loop.submit([sent.to_bytes(8, "little") + bytes(size - 8)])
        if run_s is not None and not self._ended.wait(DRAIN_S):
            loop.stop()

    def _on_delivery(self, delivery: GroupDelivery) -> None:
        node = self._node
        sender = node.names.get(delivery.sender, str(delivery.sender))
        count, digest = self._packets.get(sender, (0, b""))
        for packet in delivery.packets:
            count, digest = count + 1, blake3(digest + packet).digest()
            if not self._json:
                typer.echo(f"{sender}: {packet.decode(errors='replace')}")
        self._packets[sender] = count, digest

    def _on_turn(self) -> None:
        now = time.monotonic_ns()
        if now - self._told_ns < 100_000_000:
            return
        self._told_ns = now
        member = self._node.loop.machine.member
        if isinstance(member, OutsideSender):
            if self._known.get("sent") != member.confirmed:
                self._known = {"sent": member.confirmed}
                self._tell({"event": "change", **self._known})
            return
        if not isinstance(member, ChainMember):
            return
        chain, names = member.chain, self._node.names
        state: dict[str, Any] = {
            "epoch": member.config.epoch,
            "delivering": bool(chain.counts.delivered),
            "conflicts": chain.counts.shadows,
            "convicted": [names.get(each, str(each)) for each in chain.convictions.members],
            "sent_again": chain.counts.resent,
            "fetched": chain.counts.fetched,
        }
        changed = {key: value for key, value in state.items() if self._known.get(key, type(value)()) != value}
        if changed:
            self._tell({"event": "change", **changed})
        self._known = state

    def _tell(self, what: dict[str, Any]) -> None:
        if self._json:
            with suppress(BrokenPipeError):
                print(json.dumps(what), flush=True)


def lying(style: str, signer: Signer) -> Callable[[ChainConfig, int, Callable[[], ChainMember]], EpochMachine]:
    """Return what replaces an honest member by one that lies with its real key."""

    def replace(config: ChainConfig, me: int, honest: Callable[[], ChainMember]) -> EpochMachine:
        return STYLES[style](config, me, honest, Random(me), signer)

    return replace


def _run_all(file: Path, data: Path, common: list[str], run_s: float, *, as_json: bool) -> int:
    names = [receiver.name for receiver in load_network(file).receivers]
    read_keys(file, load_network(file), names[0])
    console = Console(stderr=as_json, quiet=as_json, highlight=False)
    processes = MulticastProcesses(file, data, names, common)
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    try:
        for name in names:
            processes.start(name)
        for event in processes.events(run_s + STARTUP_S + DRAIN_S + END_S):
            if event.what["event"] == "change":
                changes = ", ".join(f"{key} {value}" for key, value in event.what.items() if key != "event")
                console.print(f"{event.at_s:6.1f} s  {event.name}: {changes}", soft_wrap=True, markup=False)
            if interrupted:
                break
    finally:
        processes.close()
    verdict = compare(processes.final, names)
    if as_json:
        print_json({"delivered": verdict.delivered, "differences": verdict.differences, "members": processes.final})
    else:
        total = sum(verdict.delivered.values())
        for difference in verdict.differences:
            console.print(difference, soft_wrap=True, markup=False)
        if verdict.identical:
            console.print(
                f"All {len(names)} members have delivered the same {total:,} packets, in one order per sender."
            )
    return 0 if verdict.identical else 1
