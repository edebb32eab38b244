"""`levelcast doctor`: check a machine before nodes run on it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from levelcast import native
from levelcast.cli.live.machine_checks import (
    OK,
    PROBLEM,
    WARNING,
    MachineCheck,
    check_buffers,
    check_clock,
    check_cpu,
    check_extras,
    check_java,
    check_multicast,
    check_realtime,
    check_space,
    check_sync,
    check_timers,
)
from levelcast.cli.options import AsJson, Interface, option
from levelcast.cli.output import print_json
from levelcast.errors import NetError
from levelcast.extras import EXTRA_OF_PACKAGE, java_version, package_version
from levelcast.network import Network, five_cities, load_network, parse_network
from levelcast.node.edge_service import SEND_BUFFER
from levelcast.runtime.clock_sync import chrony_tracking, clock_programs, kernel_clock
from levelcast.runtime.cpu_contention import ContentionMeter
from levelcast.runtime.measurements import (
    BufferSizes,
    free_group,
    granted_buffers,
    multicast_delay_ns,
    sync_times_ns,
    wake_errors,
)
from levelcast.runtime.sockets import LOOPBACK, RECEIVE_BUFFER

CPU_S = 2.5
"""Stolen time counts in steps of 10 ms, which is 0.2 % of this on two cores."""
WAKE_S = 2.0
WAKE_SLEEP_NS = 4_700_000
"""Some 400 wake-ups, so p99 is not the maximum; not a multiple of the kernel's tick."""
MULTICAST_S = 0.5
"""A datagram needs less than 1 ms on the same machine."""
SYNCS, SYNC_S = 50, 1.0
_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}
_NAME_WIDTH = len("real-time priority")


def doctor(
    network_file: Annotated[
        Path | None,
        option("Network file, for its core group and limits.", "--network", metavar="FILE", unset="five cities"),
    ] = None,
    interface: Interface = LOOPBACK,
    data: Annotated[Path, option("Data directory, or the place for it.", "--data", metavar="DIR")] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Check a machine before it is used: multicast, buffers, priority, timers, clock, CPU time, disk, software.

    Prints one line per check, with what to do. It needs at most 6 s and no root, and leaves nothing behind.

    Exit code 0: no problem (warnings may exist); 1: a problem; 2: bad input.

    Examples:

    levelcast doctor

    levelcast doctor --network network.toml --interface 10.0.0.5 --data data --json
    """
    network = parse_network(five_cities(), "five cities") if network_file is None else load_network(network_file)
    address, directory = _address(interface), _existing(data)
    console = Console(stderr=as_json, highlight=False)
    # Without a thread that refreshes the screen: it would disturb the measured wake-ups.
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    found = []
    with live or nullcontext():

        def progress(text: str) -> None:
            if live is not None:
                live.update(Text(f"{text} …", "dim"), refresh=True)

        for check in examine(network, address, directory, progress):
            found.append(check)
            if not as_json:
                _print_check(console, check)
    problems, warnings = (sum(check.verdict is verdict for check in found) for verdict in (PROBLEM, WARNING))
    if as_json:
        print_json({"problems": problems, "warnings": warnings, "checks": [asdict(check) for check in found]})
    else:
        console.print(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}.")
    raise typer.Exit(1 if problems else 0)


def examine(
    network: Network, interface: str, directory: Path, progress: Callable[[str], None]
) -> Iterator[MachineCheck]:
    """Measure and judge one thing after the other; `progress` gets the name of the next one."""
    meter, began_s = ContentionMeter(), time.monotonic()
    rules = [stripe.rules for stripe in network.stripes]

    progress("testing multicast")
    yield _multicast(free_group(network.core.address), interface)
    wanted = BufferSizes(RECEIVE_BUFFER, SEND_BUFFER)
    yield check_buffers(granted_buffers(wanted), wanted)

    progress("measuring wake-ups of timers")
    wakes = wake_errors(WAKE_S, WAKE_SLEEP_NS)
    yield check_realtime(permitted=wakes.realtime)
    yield check_timers(wakes)

    progress("measuring CPU time")
    time.sleep(max(0.0, began_s + CPU_S - time.monotonic()))
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    yield check_cpu(meter.measure(), cores, load, realtime=wakes.realtime)

    progress("reading the clock's state")
    clock_error_ns = min(each.clock_error_ns for each in rules)
    one_machine = IPv4Address(interface).is_loopback
    state = kernel_clock(), clock_programs(), chrony_tracking()
    yield check_clock(*state, clock_error_ns, one_machine=one_machine)

    progress("measuring writes to the disk")
    yield check_sync(directory, _syncs(directory), min(each.process_ns for each in rules), network.tape.durable)
    yield check_space(directory, shutil.disk_usage(directory).free, network.tape.keep_bytes)

    progress("looking for Java and extras")
    versions = {package: package_version(package) for package in EXTRA_OF_PACKAGE}
    yield check_java(java_version(), spark=versions["pyspark"] is not None)
    yield check_extras(versions, EXTRA_OF_PACKAGE, compiled=native.COMPILED)


def _multicast(group: str, interface: str) -> MachineCheck:
    try:
        return check_multicast(group, interface, multicast_delay_ns(group, interface, MULTICAST_S))
    except NetError as error:
        return check_multicast(group, interface, error)


def _syncs(directory: Path) -> list[int] | OSError:
    try:
        return sync_times_ns(directory, SYNCS, SYNC_S)
    except OSError as error:
        return error


def _address(interface: str) -> str:
    try:
        return str(IPv4Address(interface))
    except AddressValueError:
        why = f'"{interface}" is not an IPv4 address such as 10.0.0.5; list those of this machine with `ip address`'
        raise typer.BadParameter(why, param_hint="--interface") from None


def _existing(data: Path) -> Path:
    """Return the directory, or the existing one in which it would be created."""
    found = next(path for path in (data, *data.absolute().parents) if path.exists())
    if not found.is_dir():
        raise typer.BadParameter(f"{found}: not a directory", param_hint="--data")
    return found


def _print_check(console: Console, check: MachineCheck) -> None:
    """Print one line; on a terminal, a long one continues below its own text."""
    verdict, name = Text(f"{check.verdict:<7}", _STYLES[check.verdict]), f"{check.name:<{_NAME_WIDTH}}"
    text = f"{check.found}{'; ' if check.action else ''}{check.action}"
    if not console.is_terminal:
        console.print(Text.assemble(verdict, "  ", name, "  ", text), soft_wrap=True)
        return
    line = Table.grid(Column(no_wrap=True), Column(no_wrap=True), "", padding=(0, 2))
    line.add_row(verdict, Text(name), Text(text))
    console.print(line)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
