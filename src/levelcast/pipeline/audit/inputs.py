"""Input of an audit: the tapes of one network, their receivers, and the release logs next to the tapes.

`gather` rejects input that would make an audit meaningless, with one message: tapes of different networks, a missing
tape of a receiver, the same receiver twice for the same records, an empty tape. It accepts damaged tapes, including
unreadable headers: the audit reports those.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from levelcast.network import Network
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import ACTIVE, INDEX, SegmentFile, empty_tapes, find_tapes, segment_files
from levelcast.storage.tape.index import IndexHeader, read_frames, read_index, read_start


@dataclass(slots=True)
class Recorded:
    """Tapes that one receiver recorded for one stripe, possibly in several consecutive directories."""

    receiver: str
    stripe: int
    directories: list[Path]
    segments: list[SegmentFile]
    region: str | None = None

    @property
    def logs(self) -> list[Path]:
        """Return the release logs next to the tapes."""
        return [path for each in self.directories if (path := each.parent / "releases").is_dir()]


@dataclass(slots=True)
class Inputs:
    """All tapes, by stripe."""

    stripes: dict[int, list[Recorded]]
    network: Network | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def receivers(self) -> list[str]:
        return sorted({each.receiver for tapes in self.stripes.values() for each in tapes})

    def floor_name(self, source: int) -> str:
        """Return the name of a source, if the network file has one."""
        known = self.network.sources if self.network is not None else ()
        return next((each.name for each in known if each.id == source), f"source {source}")


class Look(NamedTuple):
    """The start of a tape, as far as it is readable."""

    path: Path
    header: IndexHeader | None
    segments: list[SegmentFile]
    slots: dict[int, int]
    """Timestamps of the tape's first slots."""


def gather(directories: Sequence[Path], network: Network | None = None, without: Sequence[str] = ()) -> Inputs:
    """Return the tapes in these directories; raise TapeError if they cannot be audited together."""
    looks: dict[Path, Look] = {}
    for directory in directories:
        for path in find_tapes(directory):
            # Absolute: the tasks of a cluster run in other directories.
            looks.setdefault(path.resolve(), look_at(path.absolute()))
        for empty in empty_tapes(directory):
            raise TapeError(f"{empty}: the tape is empty (nothing released); exclude it with --without")
    named = [(receiver_of(look.path), look) for look in looks.values()]
    tapes = _together([(name, look) for name, look in named if name not in without])
    if not tapes:
        raise TapeError("--without excludes every tape; pass the directory of another receiver")
    stripes: dict[int, list[Recorded]] = {}
    for tape in tapes:
        stripes.setdefault(tape.stripe, []).append(tape)
    _one_network(named)
    inputs = Inputs({stripe: stripes[stripe] for stripe in sorted(stripes)}, network)
    if network is not None:
        _of_network(inputs, network, without)
    return inputs


def receiver_of(path: Path) -> str:
    """Return the receiver that recorded a tape: the node that owns its directory."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name == "tape" else resolved.name


def look_at(path: Path) -> Look:
    """Return the segments of a tape and its start."""
    found = segment_files(path)
    newest = max(found, default=0)
    segments = [
        SegmentFile(str(path), first, ACTIVE in suffixes)
        for first, suffixes in found.items()
        if suffixes != {INDEX} or first < newest
    ]
    if not segments:
        raise TapeError(f"{path}: the tape is empty; nothing has been released yet")
    header, slots = None, {}
    with suppress(TapeError, OSError):
        header, content = read_start(segments[0].index_path)
        slots = {line.slot: line.timestamp_ns for line in read_frames(content, header.size)}
    if len(segments) == 1 and header is not None and not slots:
        raise TapeError(f"{path}: the tape is empty; nothing has been released yet")
    return Look(path, header, segments, slots)


def _together(named: Sequence[tuple[str, Look]]) -> list[Recorded]:
    """Return the tapes by receiver and stripe: several directories of one receiver must be consecutive."""
    found: dict[tuple[str, int], list[Look]] = {}
    known = [look.header.stripe for _, look in named if look.header is not None]
    for name, look in named:
        stripe = look.header.stripe if look.header is not None else min(known, default=0)
        found.setdefault((name, stripe), []).append(look)
    tapes = []
    for (name, stripe), looks in sorted(found.items()):
        looks.sort(key=lambda look: look.segments[0].first)
        for one, other in pairwise(looks):
            if other.segments[0].first <= one.segments[-1].first or _end_of(one) > other.segments[0].first:
                first = other.segments[0].first
                raise TapeError(
                    f"{one.path} and {other.path} are both of {name} and both have sequence {first:,} of stripe "
                    f"{stripe}; the days overlap, pass only one of them"
                )
        segments = [segment for look in looks for segment in look.segments]
        tapes.append(Recorded(name, stripe, [look.path for look in looks], segments))
    return tapes


def _end_of(look: Look) -> int:
    """Return the next sequence after a tape, by its last index."""
    last = look.segments[-1]
    try:
        return read_index(last.index_path).next_sequence
    except (TapeError, OSError):
        return last.first


def _one_network(named: Sequence[tuple[str, Look]]) -> None:
    """Check that tapes of one stripe have the same configured receivers and the same times for the same slots."""
    for (_, one), (_, other) in combinations(named, 2):
        if one.header is None or other.header is None or one.header.stripe != other.header.stripe:
            continue
        a, b = one.header.tip, other.header.tip
        if a.next_sequence == b.next_sequence:
            ours, theirs = ([m.member for m in tip.records[-1].membership.members] for tip in (a, b))
            if sorted(ours) != sorted(theirs):
                raise TapeError(
                    f"{one.path} and {other.path} are of different networks: one has the receivers "
                    f"{_listed(ours)}, the other {_listed(theirs)}"
                )
        common = one.slots.keys() & other.slots.keys()
        if common and not any(one.slots[slot] == other.slots[slot] for slot in common):
            slot = min(common)
            raise TapeError(
                f"{one.path} and {other.path} are of different networks: slot {slot} is at {one.slots[slot]} ns on "
                f"one and at {other.slots[slot]} ns on the other"
            )


def _of_network(inputs: Inputs, network: Network, without: Sequence[str]) -> None:
    """Compare the tapes with the network file: report missing and unknown receivers."""
    names = [receiver.name for receiver in network.receivers]
    secondaries = [secondary.name for secondary in network.secondaries]
    indexes = {stripe.index for stripe in network.stripes}
    for stripe, tapes in inputs.stripes.items():
        if stripe not in indexes:
            raise TapeError(
                f"{tapes[0].directories[0]}: belongs to stripe {stripe}, which {network.name} does not have; "
                "pass the network file of these tapes"
            )
        have = {tape.receiver for tape in tapes}
        for name in names:
            if name not in have and name not in without:
                raise TapeError(
                    f'"{name}" is a receiver of {network.name}, but its tape of stripe {stripe} is missing; pass its '
                    f"directory, or --without {name}"
                )
        for tape in tapes:
            if tape.receiver not in names and tape.receiver not in secondaries:
                raise TapeError(
                    f'{tape.directories[0]}: {network.name} has no receiver "{tape.receiver}"; pass the '
                    "network file of these tapes"
                )
            tape.region = network.region_of(tape.receiver) or None
            _members_of(tape, network)
    if without:
        inputs.remarks.append(f"excluded by option: {', '.join(without)}")


def _members_of(tape: Recorded, network: Network) -> None:
    header = look_at(tape.directories[0]).header
    if header is None:
        return
    members = [each.member for each in header.tip.records[-1].membership.members] if header.tip.records else []
    ids = [receiver.id for receiver in network.receivers]
    if header.tip.next_sequence == 1 and members and sorted(members) != sorted(ids):
        raise TapeError(
            f"{tape.directories[0]}: recorded in another network than {network.name}: its receivers are "
            f"{_listed(members)}, those of the file {_listed(ids)}"
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
