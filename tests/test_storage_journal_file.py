"""The journal on disk keeps what `commit` returned from, through kills at any moment, and invents nothing."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.protocol.effects import Checkpoint, JournalEntry, Promise, ServerCounter, SourceMark
from levelcast.protocol.journal_image import JournalImage
from levelcast.storage import append_file
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal import open_marker
from levelcast.storage.journal.entries import read_entries
from levelcast.storage.journal.file import JournalFile, JournalIdentity, identity_of, initialise
from levelcast.wire.codec import seal_message
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Data, Mark, Run, Token
from levelcast.wire.packets import join
from tests.ring_parts import make_data, make_ring, make_token
from tests.tape_parts import Killed, MortalOs, largest_file

HEADER_BYTES = 36

small = st.integers(0, 2**16 - 1)
large = st.integers(1, 2**63 - 1)
number = st.integers(1, 30)
packets = st.builds(
    lambda source, incarnation, first, payloads: join(
        make_data(source, n, incarnation=incarnation, payload=payload) for n, payload in enumerate(payloads, first)
    )[0],
    *(st.integers(201, 203), st.integers(1, 2), number),
    st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=3),
)
runs = st.builds(lambda a, b, n: Run(a, b, n, n + 3), small, large, number)
tokens = st.builds(
    Token, number, number, large, small, number, number, st.lists(runs, max_size=2).map(tuple),
    st.lists(st.builds(Mark, small, large, large), max_size=2).map(tuple), st.just(b""),
).map(lambda token: seal_message(token, 0))  # fmt: skip
entries = st.one_of(
    packets,
    packets,
    tokens,
    st.builds(Promise, large),
    st.builds(Checkpoint, large, st.binary(min_size=32, max_size=32)),
    st.builds(ServerCounter, large),
    st.builds(SourceMark, st.integers(1, 2), number),
    st.integers(1, 9).map(make_ring),
)


def image_of(listed: Iterable[JournalEntry], life: int = 1) -> dict[str, Any]:
    image = JournalImage(life)
    for entry in listed:
        image.apply(entry)
    return vars(image)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_device() -> Iterator[None]:
    """What is on the device, no test can see; whether it is asked for, `MortalOs` can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    initialise(tmp_path / "journal", life=1)
    return tmp_path / "journal"


def write(folder: Path, batches: Iterable[Sequence[JournalEntry]], **options: Any) -> None:
    journal, _ = JournalFile.open(folder, **options)
    for batch in batches:
        for entry in batch:
            journal.append(entry)
        journal.commit()
    journal.close()


def read(folder: Path) -> dict[str, Any]:
    journal, image = JournalFile.open(folder)
    journal.close()
    return vars(image)


def only_segment(folder: Path) -> Path:
    (path,) = folder.glob("*.journal")
    return path


# -- what goes in comes out -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.lists(entries, max_size=5), max_size=8), st.integers(1, 2**32 - 1))
def test_the_image_is_what_the_entries_add_up_to(batches: list[list[JournalEntry]], life: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        initialise(name, life)
        write(Path(name), batches)
        assert read(Path(name)) == image_of((entry for batch in batches for entry in batch), life)


@settings(max_examples=40)
@given(st.lists(st.lists(entries, max_size=5), max_size=12))
def test_small_segments_come_to_the_same_image(batches: list[list[JournalEntry]]) -> None:
    plausible = as_a_node_would(entry for batch in batches for entry in batch)
    with tempfile.TemporaryDirectory() as name:
        initialise(name, 1)
        write(Path(name), [[entry] for entry in plausible], segment_bytes=200)
        assert read(Path(name)) == image_of(plausible)


def as_a_node_would(listed: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Marks only rise, and no packet comes that is marked already."""
    out, mark = list[JournalEntry](), (0, 0)
    for entry in listed:
        if isinstance(entry, SourceMark):
            mark = max(mark, (entry.incarnation, entry.number))
            out.append(SourceMark(*mark))
        elif not isinstance(entry, Data) or entry[1:3] > mark:
            out.append(entry)
    return out


def test_a_message_is_kept_as_it_was_sealed(folder: Path) -> None:
    packet, ring = make_data(201, 1), make_ring(1)
    token = make_token(ring, 1)
    write(folder, [[packet, ring, token]])
    content = only_segment(folder).read_bytes()
    assert all(message.sealed in content for message in (packet, ring, token))
    image = read(folder)
    assert image["packets"] == {(201, 1, 1): packet}
    assert (image["ring"].sealed, image["tokens"][1, 1].sealed) == (ring.sealed, token.sealed)


def test_one_commit_is_one_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = JournalFile.open(folder)
    counting = MortalOs(lives=10**6)
    monkeypatch.setattr(append_file, "os", counting)
    for n in range(1, 50):
        journal.append(make_data(201, n))
    journal.commit()
    journal.commit()
    assert counting.calls == ["pwritev"]
    journal.close()


def test_power_durability_syncs_before_commit_returns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = JournalFile.open(folder, durable="power")
    counting = MortalOs(lives=10**6)
    monkeypatch.setattr(append_file, "os", counting)
    journal.append(Promise(7))
    journal.commit()
    assert counting.calls == ["pwritev", "fdatasync"]
    journal.close()


# -- torn, killed, damaged --------------------------------------------------------------------------------

SOME: list[list[JournalEntry]] = [
    [make_data(201, 1), make_data(202, 1)],
    [Promise(3), make_ring(3)],
    [make_data(201, 2), Checkpoint(4, bytes(range(32))), ServerCounter(5)],
    [SourceMark(1, 1)],
]


def test_a_cut_at_any_byte_leaves_a_clean_prefix(folder: Path, tmp_path: Path) -> None:
    flat = [entry for batch in SOME for entry in batch]
    ends = [HEADER_BYTES]
    journal, _ = JournalFile.open(folder)
    for batch in SOME:
        for entry in batch:
            journal.append(entry)
            ends.append(ends[0] + sum(map(len, journal._pending)) + journal._segments[1].size - HEADER_BYTES)
        journal.commit()
    abandon(journal)
    content = only_segment(folder).read_bytes()
    assert ends[-1] == len(content)
    for cut in range(HEADER_BYTES, len(content)):
        other = tmp_path / "cut"
        shutil.copytree(folder, other)
        only_segment(other).write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends) - 1
        journal, image = JournalFile.open(other)
        assert vars(image) == image_of(flat[:whole])
        assert only_segment(other).stat().st_size == ends[whole]
        kept = [path.read_bytes() for path in other.glob("*.torn-at-*")]
        assert kept == ([content[ends[whole] : cut]] if cut > ends[whole] else [])
        assert [f"from {ends[whole]:,} on" in text for text in journal.notices] == [True] * len(kept)
        journal.append(Promise(99))  # and it goes on from there
        journal.close()
        assert read(other) == image_of([*flat[:whole], Promise(99)])
        shutil.rmtree(other)


@settings(max_examples=150)
@given(st.data())
def test_a_changed_byte_is_cut_off_or_refused_but_never_believed(data: st.DataObject) -> None:
    flat = [entry for batch in SOME for entry in batch]
    with tempfile.TemporaryDirectory() as name:
        initialise(name, 1)
        write(Path(name), SOME)
        path = only_segment(Path(name))
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        try:
            found = read(Path(name))
        except TapeError:
            return
        assert found in [image_of(flat[:n]) for n in range(len(flat))]


def test_damage_before_a_later_write_is_refused(folder: Path) -> None:
    write(folder, SOME)
    path = only_segment(folder)
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(TapeError, match=r"damaged at byte 36, before entries that were written later"):
        JournalFile.open(folder)
    assert path.read_bytes() == content, "nothing may be cut off then"


def test_damage_within_the_last_write_is_a_torn_tail(folder: Path) -> None:
    """A device may keep the second half of a write that a power loss interrupted, and not the first."""
    write(folder, [[Promise(1)], [make_data(201, 1), make_data(201, 2)]])
    path = only_segment(folder)
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 20 + 30] ^= 1
    path.write_bytes(content)
    refused(folder, f"{path}: damaged at byte 56, though it was closed in order")
    open_marker.mark_session(folder, "process")  # as if the process had been killed
    assert read(folder) == image_of([Promise(1)])
    assert (folder / f"{path.name}.torn-at-56").read_bytes() == content[56:]


def refused(folder: Path, says: str) -> None:
    """A start is refused with these words, the next command and what it loses; and it changes nothing."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(2):
        with pytest.raises(TapeError, match=says) as caught:
            JournalFile.open(folder)
        assert f"`levelcast disk lost --name {folder.parent.name} --data {folder.parent.parent}`" in str(caught.value)
        assert "promises" in str(caught.value)
        assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_command_names_the_part_of_a_stripe(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "equities" / "tokyo-1" / "journal"
    initialise(folder, 1)
    (tmp_path / "data" / "network.json").write_text("{}")
    only_segment(folder).write_bytes(b"")
    with pytest.raises(TapeError, match=rf"disk lost --name equities/tokyo-1 --data {tmp_path}/data`"):
        JournalFile.open(folder)


def test_a_journal_that_was_closed_has_all_of_its_files_and_bytes(folder: Path, tmp_path: Path) -> None:
    """Each entry of a shortened journal is intact, so only the record of its close shows what is missing."""
    write(folder, [[make_data(201, n, payload=bytes(500))] for n in range(1, 60)], segment_bytes=5_000)
    paths = sorted(folder.glob("*.journal"))
    assert len(paths) > 3
    entry = 12 + len(make_data(201, 1, payload=bytes(500)).sealed)
    for path in (paths[0], paths[2], paths[-1]):
        content = path.read_bytes()
        path.write_bytes(content[:-entry])
        refused(folder, f"{path}: damaged at byte {len(content) - entry}: it had {len(content)} bytes")
        path.unlink()
        refused(folder, f"{path}: this segment of the journal is missing")
        path.write_bytes(content)
    assert len(read(folder)["packets"]) == 59
    one, two = (path.read_bytes() for path in paths[:2])
    paths[0].write_bytes(two)
    paths[1].write_bytes(one)
    refused(folder, "damaged at byte|has the header of segment")


def test_a_segment_under_another_name_is_refused_after_a_kill_too(folder: Path) -> None:
    write(folder, [[make_data(201, n, payload=bytes(500))] for n in range(1, 30)], segment_bytes=5_000)
    open_marker.mark_session(folder, "process")
    one, two = sorted(folder.glob("*.journal"))[:2]
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    refused(folder, f"{one}: has the header of segment 2, which does not match its file name")


def test_a_damaged_marker_is_refused_and_an_older_one_is_read(folder: Path, boot: Path) -> None:
    write(folder, [[Promise(3)]])
    marker = folder / open_marker.NAME
    content = marker.read_bytes()
    for changed in (b"", content[:-3], content.replace(b"closed", b"closec"), content.replace(b"one", b"ona")):
        marker.write_bytes(changed)
        refused(folder, rf"{marker}: damaged, so it is unknown .* if it did not, `rm {marker}`; if it did, no other")
    marker.unlink()
    assert read(folder)["promised"] == 3
    marker.write_text("levelcast session 1: closed process before\n")
    assert read(folder)["promised"] == 3
    marker.write_text("levelcast session 1: open process before\n")
    refused(folder, "the machine restarted while this journal was open")


def life_of_a_node() -> Iterator[tuple[list[JournalEntry], int | None]]:
    """Batches, and the slot to forget up to after each."""
    yield [Promise(1), make_ring(1)], None
    yield [make_data(203, 1, payload=b"never ordered")], None
    for slot in range(1, 25):
        token = seal_message(Token(1, slot, 10**18 + slot, 1, slot, 8, (Run(201, 1, slot, slot),), ()), 0)
        yield [make_data(201, slot, payload=bytes(60)), token], None
        if slot % 4 == 0:
            yield [Checkpoint(slot - 2, bytes([slot]) * 32)], slot - 2
        if slot == 13:
            yield [Promise(2), make_ring(2)], None


def test_killed_at_any_system_call_nothing_committed_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = 0
    while True:
        folder = tmp_path / f"{lives}"
        initialise(folder, 1)
        monkeypatch.setattr(append_file, "os", mortal := MortalOs(lives))
        committed, in_flight, everything = JournalImage(1), list[JournalEntry](), JournalImage(1)
        journal: JournalFile | None = None
        try:
            journal, _ = JournalFile.open(folder, segment_bytes=500)
            for batch, forget in life_of_a_node():
                in_flight = batch
                for entry in batch:
                    everything.apply(entry)
                    journal.append(entry)
                journal.commit()
                for entry in batch:
                    committed.apply(entry)
                in_flight = []
                if forget is not None:
                    committed.forget(forget, {201: (1, forget + 1)})
                    journal.forget(forget, {201: (1, forget + 1)})
        except Killed:
            pass
        dead = len(mortal.calls) > lives
        monkeypatch.setattr(append_file, "os", os)
        if journal is not None:
            abandon(journal)
        check_remembered(folder, committed, in_flight, everything)
        shutil.rmtree(folder)
        if not dead:
            break
        lives += 1
    assert lives > 40, "the journal should have rolled several times"


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A boot id that the test can change: another one is a machine that went down and up again."""
    path = tmp_path / "boot_id"
    path.write_text("one\n")
    monkeypatch.setattr(open_marker, "_BOOT_ID", path)
    return path


def test_a_restart_of_the_machine_under_an_open_journal_is_a_lost_disk(folder: Path, boot: Path) -> None:
    journal, _ = JournalFile.open(folder)
    journal.append(Promise(3))
    journal.commit()
    abandon(journal)
    read(folder)  # the process died, the machine did not
    journal, _ = JournalFile.open(folder)
    abandon(journal)
    boot.write_text("two\n")
    for _ in range(2):
        with pytest.raises(TapeError, match="the machine restarted while this journal was open"):
            JournalFile.open(folder)
    journal, image = JournalFile.open(folder, accept_restart=True)
    journal.close()
    assert image.promised == 3


def test_a_restart_after_a_clean_end_or_with_power_durability_is_none(folder: Path, boot: Path) -> None:
    write(folder, [[Promise(3)]])
    boot.write_text("two\n")
    journal, _ = JournalFile.open(folder, durable="power")
    abandon(journal)
    boot.write_text("three\n")
    assert read(folder)["promised"] == 3


def abandon(journal: JournalFile) -> None:
    """What the kernel does with the descriptors of a dead process."""
    journal._pending.clear()
    journal._is_open = False
    journal.close()


def check_remembered(
    folder: Path, committed: JournalImage, in_flight: list[JournalEntry], everything: JournalImage
) -> None:
    journal, image = JournalFile.open(folder)
    journal.close()
    started = JournalImage(1)
    vars(started).update({name: getattr(committed, name) for name in vars(committed)})
    possible = [(committed.promised, committed.ring, committed.checkpoint)]
    for entry in in_flight:
        started.apply(entry)
        possible.append((started.promised, started.ring, started.checkpoint))
    assert (image.promised, image.ring, image.checkpoint) in possible
    for name in ("tokens", "packets"):
        kept, remembered, written = (getattr(each, name).items() for each in (committed, image, everything))
        assert kept <= remembered | {(k, v) for k, v in started.__dict__[name].items() if v in in_flight}
        assert remembered <= written, "nothing invented"


# -- rotation ---------------------------------------------------------------------------------------------


def test_what_is_forgotten_frees_the_disk_and_what_is_not_stays(folder: Path) -> None:
    journal, _ = JournalFile.open(folder, segment_bytes=10_000)
    straggler = make_data(203, 7, payload=b"never ordered")
    journal.append(Promise(5))
    journal.append(straggler)
    most = 0
    for n in range(1, 2001):
        journal.append(make_data(201, n, payload=bytes(500)))
        journal.commit()
        if n % 10 == 0:
            journal.forget(n, {201: (1, n - 4)})
            most = max(most, sum(path.stat().st_size for path in folder.iterdir()))
    journal.close()
    assert most < 40_000, f"of {2000 * 560} bytes written"
    found = read(folder)
    assert found["promised"] == 5
    assert found["packets"][203, 1, 7] == straggler
    assert {key[2] for key in found["packets"] if key[0] == 201} >= {1996, 1997, 1998, 1999, 2000}
    assert len(list(folder.glob("*.journal"))) <= 3


def test_a_segment_is_written_over_and_what_it_had_before_never_comes_back(folder: Path, tmp_path: Path) -> None:
    """The process is killed after every write: what an earlier use left behind the end is no entry of this one."""
    journal, _ = JournalFile.open(folder, segment_bytes=3_000)
    inodes = set()
    for n in range(1, 121):
        journal.append(make_data(201, n, payload=bytes([n]) * (100 + 37 * n % 400)))
        journal.commit()
        if n % 5 == 0:
            journal.forget(n, {201: (1, n - 2)})
        inodes |= {path.stat().st_ino for path in folder.glob("*.journal*")}
        left = tmp_path / f"killed at {n}"
        shutil.copytree(folder, left)
        numbers = sorted(key[2] for key in read(left)["packets"])
        assert numbers == list(range(numbers[0], n + 1)), "no gap, and nothing old behind the last one"
        shutil.rmtree(left)
    assert not list(left.glob("*"))
    journal.close()
    assert len(inodes) < 12, "segments are used again"
    assert not list(folder.glob("*.new"))


def test_a_ring_that_stands_still_keeps_everything(folder: Path) -> None:
    write(folder, [[make_data(201, n, payload=bytes(500))] for n in range(1, 200)], segment_bytes=5_000)
    assert len(read(folder)["packets"]) == 199


def test_a_sources_journal_forgets_what_is_witnessed(folder: Path) -> None:
    journal, _ = JournalFile.open(folder, segment_bytes=5_000)
    for n in range(1, 500):
        journal.append(make_data(201, n, payload=bytes(500)))
        if n > 8:
            journal.append(SourceMark(1, n - 8))
        journal.commit()
    assert journal.size_bytes < 20_000
    journal.close()
    assert sorted(key[2] for key in read(folder)["packets"]) == list(range(492, 500))


# -- errors, one sentence each ----------------------------------------------------------------------------


def test_a_missing_journal_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match=r"journal not found; if this node has never run, initialise one; if it"):
        JournalFile.open(tmp_path)


def test_a_journal_is_initialised_once(folder: Path) -> None:
    with pytest.raises(TapeError, match="journal already exists"):
        initialise(folder, life=2)
    assert read(folder)["life"] == 1


def test_a_journal_has_one_writer(folder: Path) -> None:
    journal, _ = JournalFile.open(folder)
    with pytest.raises(TapeError, match="another process is writing this journal"):
        JournalFile.open(folder)
    journal.close()
    read(folder)


def of_version(content: bytes, version: int) -> bytes:
    size = 24 if version <= 3 else HEADER_BYTES - 4
    head = content[:8] + version.to_bytes(2, "little") + content[10:size]
    return head + crc32(head).to_bytes(4, "little") + content[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: b"GIF89a" + content[6:], "not a Levelcast journal"),
        (lambda content: content[:20], "not a Levelcast journal"),
        (lambda content: of_version(content, 5), "version 5, but this Levelcast reads version 4"),
        (lambda content: of_version(content, 2), "levelcast disk init --network FILE --all"),
        (lambda content: content[:8] + b"\x02\x00" + content[10:], "its header is damaged"),
        (lambda content: content[:12] + b"\x09" + content[13:], "its header is damaged"),
    ],
)
def test_a_foreign_or_damaged_file_is_named(folder: Path, change: Any, says: str) -> None:
    path = only_segment(folder)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(TapeError, match=says):
        JournalFile.open(folder)


def test_a_missing_segment_is_noticed(folder: Path) -> None:
    batches = [[make_data(201, n, payload=bytes(500))] for n in range(1, 60)]
    write(folder, batches, segment_bytes=5_000)
    middle = sorted(folder.glob("*.journal"))[1]
    middle.unlink()
    open_marker.mark_session(folder, "process")  # as if the process had been killed
    with pytest.raises(TapeError, match="a segment of this journal is missing"):
        JournalFile.open(folder)


def test_a_full_disk_writes_nothing_and_the_same_commit_can_be_tried_again(folder: Path) -> None:
    journal, _ = JournalFile.open(folder)
    journal.append(Promise(1))
    journal.commit()
    before = only_segment(folder).read_bytes()
    journal.append(make_data(201, 1, payload=bytes(5000)))
    with largest_file(2000), pytest.raises(TapeError, match="nothing of this write is in the file"):
        journal.commit()
    assert only_segment(folder).read_bytes() == before
    journal.commit()
    journal.close()
    assert read(folder) == image_of([Promise(1), make_data(201, 1, payload=bytes(5000))])


def test_a_full_disk_is_called_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = JournalFile.open(folder)
    journal.append(Promise(1))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(TapeError, match="the disk is full, nothing of this"):
            journal.commit()
    journal.close()


def test_a_disk_too_full_for_a_new_segment_goes_on_with_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = JournalFile.open(folder, segment_bytes=300)

    def full(*_: Any) -> Any:
        raise TapeError("full")

    with monkeypatch.context() as patch:
        patch.setattr(append_file.AppendFile, "create", full)
        for n in range(1, 20):
            journal.append(make_data(201, n))
            journal.commit()
    journal.append(make_data(201, 20))
    journal.commit()
    journal.close()
    assert len(read(folder)["packets"]) == 20
    assert len(list(folder.glob("*.journal"))) == 2


def test_a_journal_of_version_3_is_read_as_one_without_a_network_identifier(folder: Path) -> None:
    write(folder, SOME)
    path = only_segment(folder)
    content = path.read_bytes()
    head = content[:8] + (3).to_bytes(2, "little") + content[10:24]
    path.write_bytes(head + crc32(head).to_bytes(4, "little") + content[HEADER_BYTES:])
    open_marker.mark_session(folder, "process")  # the size that the close recorded is that of version 4
    assert identity_of(folder) == JournalIdentity(0, 1)
    assert read(folder) == image_of([entry for batch in SOME for entry in batch])


def test_a_journal_keeps_its_network_and_reads_only_its_datagrams(tmp_path: Path) -> None:
    domain = domain_of(7, 2)
    initialise(tmp_path, 1, domain)
    token = seal_message(make_token(make_ring(3), 1, runs=[])._replace(sealed=b""), domain)
    write(tmp_path, [[Promise(1)], [token]])
    assert identity_of(tmp_path) == JournalIdentity(domain, 1)
    path = only_segment(tmp_path)
    assert [found.entry for found in read_entries(path.read_bytes(), HEADER_BYTES, domain, 1)] == [Promise(1), token]
    assert [found.entry for found in read_entries(path.read_bytes(), HEADER_BYTES, 2, 1)] == [Promise(1)]
