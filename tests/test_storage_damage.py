"""A campaign of damage to the files of stopped receivers: a start ends in the right bytes, or in a refusal.

The command of a refusal makes the node start again. Nothing that was intact is lost, and every tape is restored byte by
byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.history import first_tip
from levelcast.ring.member import Member
from levelcast.storage.append_file import TapeError
from levelcast.storage.disk import declare_lost
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.journal.open_marker import NAME as SESSION
from levelcast.storage.journal.open_marker import mark_session
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.storage.release_log import Released, ReleaseLog, read_releases
from levelcast.storage.tape.compare import verify
from tests.tape_parts import FileHistory

PARTS = ("journal", "tape", "index", "releases")
KINDS = ("flip", "torn write", "swap", "truncate", "zero", "delete")
PATTERNS = {
    "journal": "journal/*.journal",
    "tape": "tape/*.dbn*",
    "index": "tape/*.idx",
    "releases": "releases/*.releases",
}


@dataclass(frozen=True)
class Stopped:
    """The directory of a receiver that was stopped in order, and of another with the same tape."""

    config: StripeConfig
    id: int
    now: int
    directory: Path
    other: Path
    records: int

    def open(self, directory: Path) -> ReceiverStore:
        return ReceiverStore.open(directory, first_tip(self.config), records_per_segment=self.records)


@pytest.fixture(scope="module", autouse=True)
def _no_waiting_for_the_device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        yield


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> list[Stopped]:
    """Receivers of rings with crashes, lost disks and torn writes; small and large segments."""
    found = []
    for seed, records in ((0, 7), (1, 7), (6, 40), (13, 60)):
        history = FileHistory(seed, tmp_path_factory.mktemp(f"history-{seed}"), records_per_segment=records)
        history.run()
        history.close()
        longest = max(node.disk.tape.tip.slot for node in history.receivers)
        nodes = [node for node in history.receivers if node.disk.tape.tip.slot == longest]
        for node, other in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            directory, helper = (node.disk.directory, other.disk.directory)  # type: ignore[attr-defined]
            split_log(directory)
            found.append(Stopped(history.config, node.id, node.local_ns, directory, helper, records))
    return found


def split_log(directory: Path) -> None:
    """Write the release log again in several files, and remove the torn tails of the history."""
    for path in directory.rglob("*.torn-at-*"):
        path.unlink()
    entries = read_releases(directory / "releases")
    shutil.rmtree(directory / "releases")
    log = ReleaseLog(directory / "releases", entries_per_file=12)
    for slot, generation, scheduled_ns, released_ns, ready_ns, records, flags in entries.tolist():
        log.append([Released(slot, generation, scheduled_ns, released_ns, records, bool(flags), ready_ns)])
    journal, _ = JournalFile.open(directory / "journal")
    journal.log_end = log.end
    journal.close()
    log.close()


def files(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != SESSION
    }


# -- damage -----------------------------------------------------------------------------------------------


def damage(directory: Path, part: str, kind: str, rng: Random) -> list[Path]:
    """Damage one or two files; return them. Nothing, if this part has not enough of them."""
    paths = sorted(directory.glob(PATTERNS[part]))
    if kind == "torn write":
        newest = max(paths, key=lambda path: path.name)
        tail = newest.read_bytes()[-200:]
        with newest.open("ab") as file:
            file.write(tail[: rng.randint(1, min(len(tail), 39))])
        mark_session(directory / "journal", "process")  # an interrupted write is that of a process that was killed
        return [newest]
    if kind == "swap":
        if len(paths) < 2:
            return []
        one, two = rng.sample(paths, 2)
        one.rename(spare := one.with_name("spare"))
        two.rename(one)
        spare.rename(two)
        return [one, two]
    if part == "journal" and rng.random() < 0.1:
        paths = [directory / "journal" / SESSION]
    path = rng.choice(paths)
    content = bytearray(path.read_bytes())
    if kind == "delete":
        path.unlink()
        return [path]
    at = rng.randrange(len(content))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 3))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del content[at:]
    else:
        page = at - at % 512
        content[page : page + 512] = bytes(len(content[page : page + 512]))
    path.write_bytes(content)
    return [path]


# -- what a start may do ----------------------------------------------------------------------------------


def check_start(node: Stopped, work: Path, part: str, kind: str, rng: Random) -> str:
    """Damage a copy of a node, start it as a node does, follow the command of a refusal, and start it again."""
    directory = work / "data" / node.directory.name
    shutil.copytree(node.directory, directory)
    original = files(directory)
    changed = damage(directory, part, kind, rng)
    before = files(directory)
    if not changed or (before == original and SESSION not in [path.name for path in changed]):
        return "nothing"
    try:
        store = node.open(directory)
    except TapeError as error:
        check_nothing_is_lost(directory, before)
        follow(node, directory, part, changed, str(error), before)
        return "refused"
    store.close()
    check_nothing_is_lost(directory, before)
    check_right(node, directory, original, changed)
    return "right"


def check_nothing_is_lost(directory: Path, before: dict[Path, bytes]) -> None:
    """Every byte that was there is still there: in its place, or in a file beside it that says so."""
    after = files(directory)
    for name, content in before.items():
        kept = [after[other] for other in after if other.name.startswith(f"{name.name}.torn-at-")]
        assert name in after, name
        if content in kept:
            continue  # damaged from its first byte on, and made again
        assert content.startswith(after[name]), name
        assert after[name] == content or content[len(after[name]) :] in kept, name


def check_right(node: Stopped, directory: Path, original: dict[Path, bytes], changed: list[Path]) -> None:
    """With the frames that the journal supplies again, all files are what they were."""
    store = node.open(directory)
    want = node.open(node.directory)
    try:
        assert vars(store.image) == vars(want.image)
        member = Member(node.config, node.id, store.image, store.tape.tip, node.now)
        for slot in range(store.tape.tip.slot + 1, want.tape.tip.slot + 1):
            ordered = member.history.get(slot)
            if ordered is not None and ordered.frame is not None:
                store.tape.append(ordered.frame)
        assert store.tape.tip == want.tape.tip
    finally:
        store.close()
        want.close()
    after = files(directory)
    for name, content in original.items():
        if name.parts[0] == "releases" and directory / name in changed:
            continue  # what a torn or deleted log had cannot be known; `check_nothing_is_lost` has the rest
        assert after[name] == content, name


def follow(
    node: Stopped, directory: Path, part: str, changed: list[Path], says: str, before: dict[Path, bytes]
) -> None:
    """The refusal names the file and a command; after the command the node starts, and the tape is what it was."""
    # Of a directory whose only file is gone, the directory is named.
    named = [path if path.exists() or [*path.parent.glob(f"*{path.suffix}")] else path.parent for path in changed]
    assert any(str(path) in says for path in named), says
    commands = says.split("`")[1::2]
    if commands[0].startswith("levelcast tape repair"):
        assert part in ("tape", "index")
        args = commands[0].replace("OTHER", str(node.other)).split()[1:]
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output
        kept = files(directory).values()
        assert all(content in kept for content in before.values())
        assert verify(directory).fault is None
        check_right(node, directory, files(node.directory), [])
    elif commands[0].startswith(("mv ", "touch ")):
        assert part == "releases"
        subprocess.run(commands[0].split(), check=True)
        if len(changed) > 1:  # swapped files are put aside one by one
            with pytest.raises(TapeError) as second:
                node.open(directory)
            subprocess.run(str(second.value).split("`")[1].split(), check=True)
        check_right(
            node, directory, {name: content for name, content in before.items() if name.parts[0] != "releases"}, []
        )
    elif commands[0].startswith("rm "):
        assert changed[0].name == SESSION
        subprocess.run(commands[0].split(), check=True)
        check_right(node, directory, before, [])
    else:
        assert part == "journal"
        assert commands[0] == f"levelcast disk lost --name {directory.name} --data {directory.parent}"
        assert "promises" in says
        aside = declare_lost(directory.parent, directory.name, 99)
        assert aside is not None
        assert files(aside) == before
        node.open(directory).close()


def run_campaign(stopped: list[Stopped], work: Path, cases: int, seed: int) -> Counter[Any]:
    rng, counts = Random(seed), Counter[Any]()
    while counts["cases"] < cases:
        part, kind = rng.choice(PARTS), rng.choice(KINDS)
        place = work / "case"
        outcome = check_start(rng.choice(stopped), place, part, kind, rng)
        shutil.rmtree(place)
        if outcome != "nothing":
            counts.update(["cases", outcome, (part, kind), (part, outcome)])
    return counts


def test_a_start_on_damaged_files_is_right_or_refused(stopped: list[Stopped], tmp_path: Path) -> None:
    counts = run_campaign(stopped, tmp_path, cases=40, seed=1)
    assert counts["right"] > 0
    assert counts["refused"] > 10


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [2, 3])
def test_200_starts_on_damaged_files_are_right_or_refused(stopped: list[Stopped], tmp_path: Path, seed: int) -> None:
    counts = run_campaign(stopped, tmp_path, cases=200, seed=seed)
    print(dict(counts))
    assert all(counts[part, kind] for part in PARTS for kind in KINDS), "every kind in every part"
    assert all(counts[part, "refused"] for part in PARTS)
