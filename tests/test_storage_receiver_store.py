"""A receiver that restarts from files behaves as one that restarts from the simulator's disk, in whole histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.protocol.effects import Checkpoint, Release, ServeTape
from levelcast.sim.engine.disk import SimTape
from levelcast.storage import append_file
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.file import initialise
from levelcast.storage.receiver_store import ReceiverStore, serve
from levelcast.storage.release_log import read_releases
from levelcast.storage.tape.compare import verify
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire.messages import CatchUp
from tests.ring_parts import make_config, make_data
from tests.tape_parts import FIRST, FileHistory, MortalOs, TradeHistory, make_frames, tip_after

FRAMES = make_frames(120, records=2)


@pytest.mark.parametrize("seed", [0, 1, 6, 13, 29])
def test_a_history_on_files_is_the_history_on_the_simulators_disk(seed: int, tmp_path: Path) -> None:
    """Same seed, same crashes and lost disks; torn writes and small segments besides. The outcome is the same to
    the last event, and the tapes on disk are those of the simulator."""
    simulated = TradeHistory(seed)
    expected = simulated.run()
    on_files = FileHistory(seed, tmp_path)
    try:
        outcome = on_files.run()
        assert outcome.broken is None
        assert outcome == expected
        for ours, theirs in zip(on_files.receivers, simulated.receivers, strict=True):
            assert ours.disk.tape.frames == theirs.disk.tape.frames
            assert ours.disk.tape.tip.chain == theirs.disk.tape.tip.chain
        assert expected.crashes, "a history without a restart shows nothing"
    finally:
        on_files.close()
    longest: dict[str, bytes] = {}
    for receiver in on_files.receivers:
        folder = tmp_path / f"{receiver.id}-{receiver.disk.journal.life}" / "tape"
        assert verify(folder, dbn=False).fault is None
        for path in sorted(folder.glob("*.dbn")):
            assert longest.setdefault(path.name, path.read_bytes()) == path.read_bytes()
    assert len(longest) > 2


@pytest.fixture
def store(tmp_path: Path) -> ReceiverStore:
    initialise(tmp_path / "journal", life=4)
    return ReceiverStore.open(tmp_path, FIRST, records_per_segment=50)


def test_a_release_goes_to_the_tape_and_to_the_log(store: ReceiverStore, tmp_path: Path) -> None:
    for frame in FRAMES[:5]:
        release = Release(frame, frame.timestamp_ns + 7, late=frame is FRAMES[3])
        store.release(release, store.content(frame), 9, frame.timestamp_ns + 8)
    store.close()
    assert TapeReader(tmp_path / "tape").tip() == tip_after(FRAMES[:5])
    log = read_releases(tmp_path / "releases")
    assert log["slot"].tolist() == [frame.slot for frame in FRAMES[:5]]
    assert (log["released_ns"] - log["scheduled_ns"]).tolist() == [1] * 5
    assert log["flags"].tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("after", [0, 1, 40, 100])
def test_it_serves_what_the_simulators_tape_serves(store: ReceiverStore, after: int) -> None:
    tape = SimTape(make_config())
    for frame in FRAMES:
        tape.append(frame)
        store.tape.append(frame)
    after_slot = FRAMES[after - 1].slot if after else 0
    for upto_slot in (after_slot + 1, FRAMES[-1].slot, FRAMES[-1].slot + 3):
        for credit in (3, 1000):
            request = ServeTape(2, after_slot, upto_slot)
            assert store.serve(1, request, credit) == tape.serve(1, request, credit)
    store.close()


def test_what_retention_took_is_not_served(store: ReceiverStore, tmp_path: Path) -> None:
    store.tape.extend(FRAMES)
    store.releases.retain(store.tape.retain(0, max_bytes=20_000))
    reader = TapeReader(tmp_path / "tape")
    begins = reader.before.slot
    assert begins > 0
    assert serve(reader, 1, ServeTape(2, 0, FRAMES[-1].slot), 100) == []
    settled = serve(reader, 1, ServeTape(2, begins, FRAMES[-1].slot), 100)[0]
    assert isinstance(settled, CatchUp)
    assert settled.chain_before == reader.before.chain
    store.close()


def test_a_damaged_frame_is_not_served_and_reported(store: ReceiverStore, tmp_path: Path) -> None:
    store.tape.extend(FRAMES)
    found: list[str] = []
    store.on_damage = found.append
    reader = TapeReader(tmp_path / "tape")
    path, at = reader.segments[1].data_path, reader.segments[1].lines[0].at
    content = bytearray(path.read_bytes())
    content[at + 20] ^= 1
    path.write_bytes(content)
    assert store.serve(1, ServeTape(2, 0, FRAMES[-1].slot), 1000) == []
    (text,) = found
    assert text.startswith(f"{path}: frame of slot")
    assert f"`levelcast tape repair {tmp_path} --from OTHER`" in text
    begins = reader.segments[2].header.tip.slot
    assert store.serve(1, ServeTape(2, begins, FRAMES[-1].slot), 1000)
    assert len(found) == 1
    store.close()


def test_an_orderly_close_is_recorded_with_the_end_of_the_release_log(store: ReceiverStore, tmp_path: Path) -> None:
    for frame in FRAMES[:5]:
        store.release(Release(frame, frame.timestamp_ns, False), store.content(frame), 1, frame.timestamp_ns)
    store.close()
    (path,) = (tmp_path / "releases").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-48])
    for _ in range(2):
        with pytest.raises(TapeError, match=rf"{path}: damaged at byte 240: it had 288 bytes when it was closed"):
            ReceiverStore.open(tmp_path, FIRST, records_per_segment=50)
    path.write_bytes(content)
    ReceiverStore.open(tmp_path, FIRST, records_per_segment=50).close()


def test_an_orderly_close_waits_for_the_tape_and_the_log(store: ReceiverStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.tape.append(FRAMES[0])
    monkeypatch.setattr(append_file, "os", counting := MortalOs(lives=10**6))
    store.close()
    # index and data of the tape, the release log, the journal; then the marker and its directory
    assert counting.calls == ["fdatasync"] * 4 + ["open", "pwritev", "fdatasync", "rename", "open", "fsync"]


def test_with_power_durability_the_tape_is_on_the_device_before_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialise(tmp_path / "journal", life=1)
    store = ReceiverStore.open(tmp_path, FIRST, durable="power")
    store.tape.append(FRAMES[0])
    monkeypatch.setattr(append_file, "os", counting := MortalOs(lives=10**6))
    store.persist(make_data(201, 9))
    store.commit()
    assert counting.calls == ["pwritev", "fdatasync"]
    counting.calls.clear()
    store.persist(Checkpoint(FRAMES[0].slot, FRAMES[0].chain))
    store.commit()
    assert counting.calls == ["fdatasync", "fdatasync", "pwritev", "fdatasync"]
    store.close()


def test_a_journal_without_its_tape_is_refused(store: ReceiverStore, tmp_path: Path) -> None:
    store.tape.extend(FRAMES)
    store.persist(Checkpoint(FRAMES[-1].slot, FRAMES[-1].chain))
    store.close()
    for path in (tmp_path / "tape").iterdir():
        path.unlink()
    with pytest.raises(TapeError, match="the journal needs a tape up to slot"):
        ReceiverStore.open(tmp_path, FIRST)
    with pytest.raises(TapeError, match="the journal needs a tape up to slot"):
        ReceiverStore.open(tmp_path, FIRST)
