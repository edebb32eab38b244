"""What an audit is about: the tapes of one network, who recorded each, and the release logs beside them.

Everything that would make an audit meaningless is refused here, in one sentence: tapes of different networks, a
receiver whose tape is missing, the same receiver twice for the same records, an empty tape. Damage is not: that is for
an audit to find, so a header that cannot be read is left to it.
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
    """What one receiver recorded of one stripe, perhaps in several directories, one behind the other."""

    receiver: str
    stripe: int
    directories: list[Path]
    segments: list[SegmentFile]
    region: str | None = None

    @property
    def logs(self) -> list[Path]:
        """The release logs beside the tapes."""
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
        """A source by its name, if the network file has one."""
        floors = self.network.floors if self.network is not None else ()
        return next((floor.name for floor in floors if floor.id == source), f"source {source}")


class Look(NamedTuple):
    """The beginning of a tape, as far as it can be read."""

    path: Path
    header: IndexHeader | None
    segments: list[SegmentFile]
    slots: dict[int, int]
    """The timestamps of its first slots."""


def gather(directories: Sequence[Path], network: Network | None = None, without: Sequence[str] = ()) -> Inputs:
    """The tapes in these directories; a TapeError where nothing can be said about them together."""
    looks: dict[Path, Look] = {}
    for directory in directories:
        for path in find_tapes(directory):
            looks.setdefault(path.resolve(), look_at(path))
        for empty in empty_tapes(directory):
            raise TapeError(f"{empty}: the tape is empty, nothing has been released to it: leave it out with --without")
    named = [(receiver_of(look.path), look) for look in looks.values()]
    tapes = _together([(name, look) for name, look in named if name not in without])
    if not tapes:
        raise TapeError("--without leaves out every tape that was named: name the directory of another receiver")
    stripes: dict[int, list[Recorded]] = {}
    for tape in tapes:
        stripes.setdefault(tape.stripe, []).append(tape)
    _one_network(named)
    inputs = Inputs({stripe: stripes[stripe] for stripe in sorted(stripes)}, network)
    if network is not None:
        _of_network(inputs, network, without)
    return inputs


def receiver_of(path: Path) -> str:
    """Who recorded a tape: the node whose directory it is in."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name == "tape" else resolved.name


def look_at(path: Path) -> Look:
    """Which segments a tape has, and how it begins."""
    found = segment_files(path)
    newest = max(found, default=0)
    segments = [
        SegmentFile(str(path), first, ACTIVE in suffixes)
        for first, suffixes in found.items()
        if suffixes != {INDEX} or first < newest
    ]
    if not segments:
        raise TapeError(f"{path}: the tape is empty, nothing has been released to it yet")
    header, slots = None, {}
    with suppress(TapeError, OSError):
        header, content = read_start(segments[0].index_path)
        slots = {line.slot: line.timestamp_ns for line in read_frames(content, header.size)}
    if len(segments) == 1 and header is not None and not slots:
        raise TapeError(f"{path}: the tape is empty, nothing has been released to it yet")
    return Look(path, header, segments, slots)


def _together(named: Sequence[tuple[str, Look]]) -> list[Recorded]:
    """The tapes by receiver and stripe: several directories of one receiver must follow one another."""
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
                    f"{stripe}: the days overlap, name only one of them"
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
    """Tapes of one stripe have the same configured receivers and the same instants for the same slots."""
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
    """The tapes against the network file: who is missing, and who is a stranger."""
    names = [receiver.name for receiver in network.receivers]
    secondaries = [secondary.name for secondary in network.secondaries]
    indexes = {stripe.index for stripe in network.stripes}
    for stripe, tapes in inputs.stripes.items():
        if stripe not in indexes:
            raise TapeError(
                f"{tapes[0].directories[0]}: is of stripe {stripe}, which {network.name} does not have: "
                "name its own network file"
            )
        have = {tape.receiver for tape in tapes}
        for name in names:
            if name not in have and name not in without:
                raise TapeError(
                    f'"{name}" is a receiver of {network.name} and no tape of stripe {stripe} is its: name its '
                    f"directory, or say --without {name}"
                )
        for tape in tapes:
            if tape.receiver not in names and tape.receiver not in secondaries:
                raise TapeError(
                    f'{tape.directories[0]}: no receiver of {network.name} is called "{tape.receiver}": name the '
                    "network file of these tapes"
                )
            tape.region = network.region_of(tape.receiver) or None
            _members_of(tape, network)
    if without:
        inputs.remarks.append(f"left out as asked: {', '.join(without)}")


def _members_of(tape: Recorded, network: Network) -> None:
    header = look_at(tape.directories[0]).header
    if header is None:
        return
    members = [each.member for each in header.tip.records[-1].membership.members] if header.tip.records else []
    ids = [receiver.id for receiver in network.receivers]
    if header.tip.next_sequence == 1 and members and sorted(members) != sorted(ids):
        raise TapeError(
            f"{tape.directories[0]}: was recorded in another network than {network.name}: its receivers are "
            f"{_listed(members)}, those of the file {_listed(ids)}"
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
