"""The limit of the same processes: a bare relay in C, without a protocol (see `relay.c`).

One source, three receivers that send everything on, three customers, all on loopback multicast. Bare, it has no disk;
`keep=True` makes it one whose receivers write everything twice and read it once, as ours do for journal, chain and
tape. Whatever Levelcast costs beyond that is order, repair and Python.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.machine import (
    KSOFTIRQD,
    RECORD_BYTES,
    Failed,
    Load,
    Missing,
    PeerResult,
    compiled,
    load_beside,
    records_in,
    started,
)
from levelcast.wire.header import MAX_DATAGRAM
from levelcast.wire.mold import DEFAULT_PACKET_BYTES

SOURCE = Path(__file__).with_name("relay.c")
SITES = 3
WINDOW_BYTES = 2_000_000
"""In flight between the source and the slowest customer; a socket holds more, so nothing is lost."""
TRAIN = 44
"""Segments in a train of 1,400 bytes each."""
_LONGEST_S = 600.0
_GRACE_S = 40.0
_NOT_IN_KERNEL = 3


@dataclass(frozen=True, slots=True)
class Mode:
    """How datagrams travel."""

    name: str
    packet_bytes: int
    train: int = 1


MODES = {
    mode.name: mode
    for mode in (
        Mode("plain", DEFAULT_PACKET_BYTES),
        Mode("trains", DEFAULT_PACKET_BYTES, TRAIN),
        Mode("large", MAX_DATAGRAM),
    )
}


def build() -> AbstractContextManager[Path]:
    """A context with the compiled relay, for those who run it more than once."""
    return compiled(SOURCE)


def run(
    mode: str,
    seconds: float = 2.0,
    *,
    total_bytes: int = 0,
    packet_bytes: int | None = None,
    train: int | None = None,
    window_bytes: int = WINDOW_BYTES,
    record_bytes: int = RECORD_BYTES,
    program: Path | None = None,
    keep: bool = False,
) -> PeerResult:
    """Run one mode for `seconds` or `total_bytes`, whichever is reached first. `program` comes from `build`."""
    chosen = MODES[mode]
    packet_bytes = packet_bytes or chosen.packet_bytes
    train = train or chosen.train
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(f"a run takes more than 0 and at most {_LONGEST_S:.0f} seconds, not {seconds}")
    records = records_in(packet_bytes, record_bytes)
    numbers = [packet_bytes, train, window_bytes, seconds, total_bytes]
    with (
        nullcontext(program) if program else build() as built,
        tempfile.TemporaryDirectory(prefix="levelcast-relay-") if keep else nullcontext() as folder,
        load_beside() as load,
        started([built, mode, *map(str, numbers), *([folder] if folder else [])]) as process,
    ):
        try:
            out, errors = process.communicate(timeout=seconds + _GRACE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the relay ({mode}) did not end within {seconds + _GRACE_S:.0f} s") from None
    if process.returncode == _NOT_IN_KERNEL:
        raise Missing(f"this kernel has no segmentation offload for UDP ({errors.strip()}), which trains need")
    if process.returncode:
        raise Failed(f"the relay ({mode}) failed: {errors.strip() or process.returncode}")
    return result_of(out, f"{mode}, kept" if keep else mode, records, load)


def run_all(seconds: float = 2.0) -> list[PeerResult]:
    """All modes one after the other, each bare and keeping."""
    with build() as program:
        return [run(mode, seconds, program=program, keep=keep) for mode in MODES for keep in (False, True)]


def result_of(line: str, mode: str, records_per_datagram: int, load: Load) -> PeerResult:
    """The result that the relay's line of JSON tells."""
    told = json.loads(line)
    source, *others = told["processes"]
    customers = others[SITES:]
    roles = ["source", *(f"{part} {i}" for part in ("receiver", "customer") for i in range(1, SITES + 1))]
    cpu = {role: each["user_s"] + each["system_s"] for role, each in zip(roles, told["processes"], strict=True)}
    notes = []
    if told["stalls"]:
        notes.append(f"the source gave up waiting for an acknowledgement {told['stalls']} times")
    if gaps := sum(each["gaps"] for each in customers):
        notes.append(f"customers saw {gaps} gaps")
    delivered = tuple(each["packets"] for each in customers)
    return PeerResult(
        name="relay in C",
        case=mode,
        seconds=told["seconds"],
        datagrams=source["packets"],
        delivered=delivered,
        records=min(delivered) * records_per_datagram,
        bytes=min(each["bytes"] for each in customers),
        cpu_seconds={**cpu, KSOFTIRQD: load.ksoftirqd_s},
        other_load=load.other_load,
        stolen_load=load.stolen_load,
        notes=tuple(notes),
    )
