"""Judge the measurements of `levelcast doctor`: each function returns a verdict, the values, and what to do.

The limits are constants with their reasons, or values of the network file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from levelcast.errors import NetError
from levelcast.network.model import Durable
from levelcast.runtime.clock_sync import ChronyTracking, KernelClock
from levelcast.runtime.cpu_contention import PRESSURE_MATTERS, STOLEN_MATTERS, CpuContention
from levelcast.runtime.measurements import BufferSizes, WakeUps
from levelcast.runtime.realtime import PRIORITY, SPIN_NS
from levelcast.units import quantiles, show_ns

Value = float | int | str | bool | None

STOLEN_PROBLEM = 0.1
"""A tenth of all releases would be late."""
IDLE_PRESSURE = 0.1
"""Before a network runs, the cores should be free: its own processes need them."""
WAKE_WARNING_NS = SPIN_NS
"""A receiver wakes this long before a release and spins for the rest, so a later wake-up delays the release."""
WAKE_PROBLEM_NS = 1_000_000
"""A release with a longer scheduling delay counts as delayed."""
SPACE_WARNING_BYTES = 10 << 30
"""About a day's tape of 64-byte records at 2,000 records/s."""
SPACE_PROBLEM_BYTES = 1 << 30
"""About two hours of the same. A node whose disk is full exits."""
JAVA = 17
"""The minimum of Spark 4."""
_PERMIT_REALTIME = (
    f"run nodes as root or with CAP_SYS_NICE, or add a line such as `levelcast - rtprio {PRIORITY}` to "
    "/etc/security/limits.conf"
)
_FREE_CORES = "stop other programs, or use one core per receiver"


class CheckVerdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


OK, WARNING, PROBLEM = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.PROBLEM


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """The result of one check."""

    name: str
    verdict: CheckVerdict
    found: str
    """The result as text."""
    action: str = ""
    """What to do about it."""
    measured: Mapping[str, Value] = field(default_factory=dict)


def check_multicast(group: str, interface: str, delay_ns: int | NetError | None) -> MachineCheck:
    """Judge the delay of a datagram, None if none was received, or the error."""
    name, where = "multicast", {"group": group, "interface": interface}
    if isinstance(delay_ns, NetError):
        found, _, action = str(delay_ns).partition("; ")
        return MachineCheck(name, PROBLEM, found, action, where)
    if delay_ns is None:
        found = f"a datagram to {group} over {interface} was not received on this machine"
        action = "check the firewall, and that the interface is up and has multicast (ip link)"
        return MachineCheck(name, PROBLEM, found, action, where)
    found = f"a datagram to {group} over {interface} was received on this machine after {show_ns(delay_ns)}"
    return MachineCheck(name, OK, found, measured=where | {"delay_ns": delay_ns})


def check_buffers(granted: BufferSizes, wanted: BufferSizes) -> MachineCheck:
    measured = {**granted._asdict(), **{f"requested_{key}": value for key, value in wanted._asdict().items()}}
    receive, send = (f"{each >> 10} KiB" for each in granted)
    settings = [
        f"net.core.{name}={asked}"
        for name, got, asked in zip(("rmem_max", "wmem_max"), granted, wanted, strict=True)
        if got < asked
    ]
    found = f"receive {receive}, send {send}"
    if not settings:
        return MachineCheck("socket buffers", OK, found, measured=measured)
    sizes = f"{wanted.receive_bytes >> 10} KiB and {wanted.send_bytes >> 10} KiB"
    found = f"{found} instead of {sizes}, so bursts will be lost and repaired"
    return MachineCheck("socket buffers", WARNING, found, f"sysctl -w {' '.join(settings)}", measured)


def check_realtime(*, permitted: bool) -> MachineCheck:
    name, measured = "real-time priority", {"permitted": permitted}
    if permitted:
        return MachineCheck(name, OK, f"permitted (SCHED_FIFO {PRIORITY})", measured=measured)
    found = "not permitted, so a busy machine delays releases"
    return MachineCheck(name, WARNING, found, _PERMIT_REALTIME, measured)


def check_timers(wakes: WakeUps) -> MachineCheck:
    p50_ns, p99_ns, max_ns = quantiles(wakes.errors_ns, (0.5, 0.99, 1.0))
    measured = {"wakeups": len(wakes.errors_ns), "p50_ns": p50_ns, "p99_ns": p99_ns, "max_ns": max_ns}
    found = f"wake-ups are {_three([p50_ns, p99_ns, max_ns], 1e3)} µs late (p50 / p99 / max)"
    verdict = PROBLEM if p99_ns > WAKE_PROBLEM_NS else WARNING if p99_ns > WAKE_WARNING_NS else OK
    action = "" if verdict is OK else _FREE_CORES if wakes.realtime else "permit real-time priority"
    return MachineCheck("timer precision", verdict, found, action, measured)


def check_clock(
    kernel: KernelClock | None,
    programs: Sequence[str],
    chrony: ChronyTracking | None,
    clock_error_ns: int,
    *,
    one_machine: bool,
) -> MachineCheck:
    """Compare the estimated error with the `clock_error` of the network file.

    The nodes of one machine share its clock, so there an error only affects the times on the tape.
    """
    source = f"chronyd, {chrony.source}, stratum {chrony.stratum}" if chrony is not None else ", ".join(programs)
    measured: dict[str, Value] = {"source": source or None, "clock_error_ns": clock_error_ns}
    wrong = WARNING if one_machine else PROBLEM
    start = "install and start chronyd, or ptp4l and phc2sys"
    if kernel is None:
        return MachineCheck("clock", WARNING, "the kernel does not report its state", start, measured)
    measured |= kernel._asdict()
    if not kernel.synchronised:
        found = f"not synchronised{f', although {source} runs' if source else ''}"
        found += ", which only matters for several machines" if one_machine else ""
        return MachineCheck("clock", wrong, found, "check its time source" if source else start, measured)
    bound_ns = chrony.max_error_ns if chrony is not None else kernel.max_error_ns
    measured["bound_ns"] = bound_ns
    found = f"synchronised by {source or 'a program that is not visible here'}, error at most {show_ns(bound_ns)}"
    if bound_ns <= clock_error_ns:
        return MachineCheck("clock", OK, found, measured=measured)
    found = f"{found}, which is above clock_error = {show_ns(clock_error_ns)}"
    action = "increase clock_error in [timing] of the network file, or use a nearer time source"
    verdict = wrong if kernel.estimated_error_ns > clock_error_ns else WARNING
    return MachineCheck("clock", verdict, found, action, measured)


def check_cpu(contention: CpuContention, cores: int, load: float, *, realtime: bool) -> MachineCheck:
    """Judge a machine before a network runs on it. With real-time priority, receivers run before what waits."""
    stolen, pressure = contention.stolen_ratio, contention.pressure_ratio
    measured: dict[str, Value] = {"cores": cores, "load": load, "seconds": contention.seconds}
    measured |= {"stolen_ratio": stolen, "pressure_ratio": pressure}
    found = (
        f"{cores} core{'s' if cores > 1 else ''}, {_percent(stolen)} of the CPU time stolen by the hypervisor; "
        f"processes waited for a core {_percent(pressure)} of the time"
    )
    if stolen is not None and stolen > STOLEN_MATTERS:
        verdict = PROBLEM if stolen > STOLEN_PROBLEM else WARNING
        return MachineCheck("CPU time", verdict, found, "use a machine with dedicated cores", measured)
    if pressure is not None and pressure > IDLE_PRESSURE:
        verdict = PROBLEM if pressure > PRESSURE_MATTERS and not realtime else WARNING
        return MachineCheck("CPU time", verdict, found, _FREE_CORES, measured)
    return MachineCheck("CPU time", OK, found, measured=measured)


def check_sync(directory: Path, times_ns: Sequence[int] | OSError, process_ns: int, durable: Durable) -> MachineCheck:
    """Judge the durations of syncs: with `durable = "power"` the `process` of the network file must cover them."""
    name = "disk writes"
    if isinstance(times_ns, OSError):
        found = f"{directory}: cannot be written ({times_ns.strerror})"
        return MachineCheck(name, PROBLEM, found, "change its owner or permissions, or pass another --data")
    p50_ns, p99_ns, max_ns = quantiles(times_ns, (0.5, 0.99, 1.0))
    measured = {"syncs": len(times_ns), "p50_ns": p50_ns, "p99_ns": p99_ns, "max_ns": max_ns, "process_ns": process_ns}
    found = f"{directory}: an fsync needs {_three([p50_ns, p99_ns, max_ns], 1e6)} ms (p50 / p99 / max)"
    if p99_ns <= process_ns:
        return MachineCheck(name, OK, found, measured=measured)
    limit = f"process = {show_ns(process_ns)}"
    if durable == "power":
        action = f"increase {limit} in [timing] of the network file, or use a faster disk"
        return MachineCheck(name, PROBLEM, found, action, measured)
    action = f'do not set durable = "power" in [tape] with {limit} in [timing]'
    return MachineCheck(name, WARNING, found, action, measured)


def check_space(directory: Path, free_bytes: int, keep_bytes: int | None) -> MachineCheck:
    """Judge the free space, against the tape's limit in the network file if it has one."""
    wanted = SPACE_WARNING_BYTES if keep_bytes is None else max(keep_bytes, SPACE_PROBLEM_BYTES)
    verdict = PROBLEM if free_bytes < SPACE_PROBLEM_BYTES else WARNING if free_bytes < wanted else OK
    found = f"{directory}: {free_bytes / 2**30:,.1f} GiB free"
    action = "free disk space, or limit the tape with keep_bytes in [tape]"
    measured = {"free_bytes": free_bytes, "wanted_bytes": wanted}
    return MachineCheck("disk space", verdict, found, "" if verdict is OK else action, measured)


def check_java(version: int | None, *, spark: bool) -> MachineCheck:
    """Judge the version of Java, which only Spark needs."""
    found = "not found, or it does not start" if version is None else f"version {version}"
    measured = {"version": version}
    if version is not None and version >= JAVA:
        return MachineCheck("Java", OK, found, measured=measured)
    action = f"install Java {JAVA} or newer for the pipeline"
    return MachineCheck("Java", WARNING if spark else OK, found, action, measured)


def check_extras(versions: Mapping[str, str | None], extra_of: Mapping[str, str], *, compiled: bool) -> MachineCheck:
    """List the optional packages. Only a missing compiled module is a warning, because it slows every node down."""
    present = [f"{package} {version}" for package, version in versions.items() if version is not None]
    missing = [package for package, version in versions.items() if version is None]
    found = f"compiled modules {'installed' if compiled else 'not installed'}"
    found += f"; {', '.join(present)}" if present else ""
    found += f"; not installed: {', '.join(missing)}" if missing else ""
    actions = [] if compiled else ["install a C compiler and install levelcast again"]
    if missing:
        actions.append(f"pip install 'levelcast[{','.join(sorted({extra_of[package] for package in missing}))}]'")
    measured: dict[str, Value] = {"compiled": compiled, **versions}
    return MachineCheck("extras", OK if compiled else WARNING, found, "; ".join(actions), measured)


def _three(values: Sequence[int], unit: float) -> str:
    return " / ".join(f"{value / unit:,.{0 if unit < 1e6 else 2}f}" for value in values)


def _percent(ratio: float | None) -> str:
    return "an unknown part" if ratio is None else f"{100 * ratio:.1f} %"
