"""A certificate is made of equal, sound tapes only; a stranger finds with it every tape that is another one."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.protocol.history import Frame
from levelcast.records import TRADE
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.file import initialise
from levelcast.storage.release_log import Released, ReleaseLog
from levelcast.storage.tape.certificate import (
    MOST_MARKS,
    NotCertified,
    certify,
    check,
    check_all,
    hash_of,
    read_certificate,
    write_certificate,
)
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, SLOT_NS, make_frames
from tests.test_storage_tape_compare import other_price, rechained, swapped

FRAMES = make_frames(60)
HOLD_NS = 20_000_000
RUN = CliRunner()


def receiver(
    folder: Path,
    frames: Sequence[Frame] = FRAMES,
    *,
    behind_ns: Callable[[int], int] = lambda slot: 1_000,
    stripe: int = 0,
    life: int = 1,
) -> Path:
    """A receiver's directory: journal, tape and release log."""
    initialise(folder / "journal", life, stripe)
    writer = TapeWriter.open(folder / "tape", FIRST, stripe=stripe, records_per_segment=40)
    writer.extend(frames)
    writer.close()
    log = ReleaseLog(folder / "releases")
    for frame in frames:
        due = frame.timestamp_ns + HOLD_NS
        at = due + behind_ns(frame.slot)
        log.append([Released(frame.slot, 1, due, at, frame.records, at > due + SLOT_NS)])
    log.close()
    return folder


def of_trades(frame: Frame) -> bool:
    return all(len(packet.payload) == TRADE.itemsize * packet.records for packet in frame.packets)


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [receiver(tmp_path / name, behind_ns=lambda _, n=n: 1_000 * n) for n, name in enumerate("abc", 1)]  # type: ignore[misc]


def test_it_says_what_the_tapes_and_logs_say(three: list[Path]) -> None:
    statement = certify(three)["statement"]
    assert (statement["frames"], statement["records"]) == (60, FRAMES[-1].first_sequence + FRAMES[-1].records - 1)
    assert statement["first"] == {"sequence": 1, "slot": FRAMES[0].slot, "timestamp_ns": FRAMES[0].timestamp_ns}
    assert statement["marks"][-1]["chain"] == FRAMES[-1].chain.hex()
    assert statement["spread"] == {
        "receivers": 3,
        "slots": 60,
        "late_slots": 0,
        "spread_ns": {"p50": 2_000, "p99": 2_000, "max": 2_000},
    }
    assert [each["name"] for each in statement["receivers"]] == ["a", "b", "c"]
    assert statement["receivers"][2]["lateness_ns"] == {"p50": 3_000, "p99": 3_000, "max": 3_000}
    assert {each["late"] for each in statement["receivers"]} == {0}
    assert {each["life"] for each in statement["receivers"]} == {1}


def test_late_and_early_releases_are_counted(tmp_path: Path) -> None:
    slots = [frame.slot for frame in FRAMES]
    late, early = set(slots[5:8]), set(slots[20:22])
    made = receiver(tmp_path / "a", behind_ns=lambda s: 10**8 if s in late else -2_000_000 if s in early else 500)
    (told,) = certify([made])["statement"]["receivers"]
    assert (told["late"], told["early"], told["lateness_ns"]["max"]) == (3, 2, 10**8)


def test_the_spread_is_that_of_slots_which_nobody_released_late(tmp_path: Path) -> None:
    late = {frame.slot for frame in FRAMES[5:8]}
    made = [
        receiver(tmp_path / "a", behind_ns=lambda slot: 10**8 if slot in late else 700),
        receiver(tmp_path / "b", behind_ns=lambda _: 200),
    ]
    spread = certify(made)["statement"]["spread"]
    assert (spread["slots"], spread["late_slots"], spread["spread_ns"]["max"]) == (60, 3, 500)


def test_the_same_tapes_give_the_same_file(three: list[Path]) -> None:
    text = write_certificate(certify(three))
    assert write_certificate(certify(list(reversed(three)))) == text
    assert read_certificate(text, "there") == certify(three)


def test_many_frames_have_few_marks(tmp_path: Path) -> None:
    frames = make_frames(MOST_MARKS * 3 + 5, records=2)
    statement = certify([receiver(tmp_path / "a", frames)])["statement"]
    assert len(statement["marks"]) == MOST_MARKS
    assert statement["marks"][-1]["slot"] == frames[-1].slot


def test_every_tape_it_was_made_of_is_certified(three: list[Path]) -> None:
    certificate = certify(three)
    for each in three:
        checked = check(certificate, each / "tape")
        assert (checked.frames, checked.from_sequence, checked.beyond) == (60, 1, 0)


def test_a_tape_that_went_on_is_certified_up_to_the_last_mark(tmp_path: Path) -> None:
    certificate = certify([receiver(tmp_path / "a", FRAMES[:40])])
    checked = check(certificate, receiver(tmp_path / "b"))
    assert (checked.frames, checked.beyond) == (40, 20)
    assert checked.to_sequence == FRAMES[40].first_sequence - 1


def test_a_tape_that_lost_its_beginning_is_certified_from_there(three: list[Path]) -> None:
    certificate = certify(three)
    oldest = sorted((three[1] / "tape").iterdir())[:4]
    for path in oldest:
        path.unlink()
    checked = check(certificate, three[1])
    assert checked.from_sequence > 40
    assert checked.to_sequence == FRAMES[-1].first_sequence + FRAMES[-1].records - 1


def test_only_what_all_receivers_have_is_certified(tmp_path: Path) -> None:
    made = certify([receiver(tmp_path / "a"), receiver(tmp_path / "b", FRAMES[:30])])["statement"]
    assert made["frames"] == 30
    assert made["last"]["slot"] == FRAMES[29].slot


@pytest.mark.parametrize("change", [other_price, swapped])
def test_a_changed_tape_is_found_by_certify_and_by_check(
    tmp_path: Path, three: list[Path], change: Callable[[Frame], Frame]
) -> None:
    certificate = certify(three)
    at = next(i for i in range(25, 60) if of_trades(FRAMES[i]) and change(FRAMES[i]).chain != FRAMES[i].chain)
    forged = receiver(tmp_path / "forged", rechained(FRAMES, at, change))
    with pytest.raises(NotCertified, match=rf"forged differs from .* at slot {FRAMES[at].slot}, sequence"):
        certify([three[0], forged])
    with pytest.raises(NotCertified, match="differs from the certificate in sequences"):
        check(certificate, forged)


def test_a_missing_frame_is_found(tmp_path: Path, three: list[Path]) -> None:
    certificate = certify(three)
    without = rechained([*FRAMES[:30], *FRAMES[31:]], 30, lambda frame: frame)
    with pytest.raises(NotCertified, match="in sequences"):
        check(certificate, receiver(tmp_path / "short", without))


def test_a_changed_byte_is_found(three: list[Path]) -> None:
    certificate = certify(three)
    path = sorted((three[0] / "tape").glob("*.dbn"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(NotCertified, match="is not valid"):
        check(certificate, three[0])
    with pytest.raises(NotCertified, match="is not valid"):
        certify(three)


def test_tapes_that_do_not_belong_together_are_refused(tmp_path: Path, three: list[Path]) -> None:
    other = receiver(tmp_path / "other", stripe=1)
    with pytest.raises(NotCertified, match="one stripe, but these tapes are of several"):
        certify([three[0], other])
    with pytest.raises(NotCertified, match="is of stripe 1"):
        check(certify(three), other)
    foreign = receiver(tmp_path / "foreign", make_frames(60, seed=9))
    with pytest.raises(NotCertified, match="differs from"):
        certify([three[0], foreign])
    with pytest.raises(NotCertified, match="differs from the certificate"):
        check(certify(three), foreign)


def test_a_tape_before_the_first_mark_is_not_certified(tmp_path: Path) -> None:
    frames = make_frames(MOST_MARKS * 4, records=2)
    certificate = certify([receiver(tmp_path / "a", frames)])
    with pytest.raises(NotCertified, match="proves nothing"):
        check(certificate, receiver(tmp_path / "b", frames[:2]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ("[]", "not a Levelcast certificate"),
        ('{"kind": "levelcast certificate", "version": 9}', "version 9 is not supported, only 1 and 2"),
        ('{"kind": "levelcast certificate", "version": 1, "statement": {"stripe": 0}}', "damaged"),
        ('{"kind": "levelcast certificate", "version": 2, "statement": [], "hash": ""}', "damaged"),
    ],
)
def test_a_bad_certificate_is_refused(text: str, says: str) -> None:
    with pytest.raises(TapeError, match=says):
        read_certificate(text, "file")


def test_the_command_makes_and_checks(three: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "day.certificate"
    paths = [str(each) for each in three]
    made = RUN.invoke(app, ["certify", *paths, "-o", str(file)])
    assert made.exit_code == 0, made.output
    assert "3 tapes are valid and identical in 60 frames" in made.output
    assert "0 of 60 slots were late" in made.output
    assert "3 receivers released within p50 2 µs" in made.output
    assert RUN.invoke(app, ["certify", *paths, "-o", str(file)]).exit_code == 2
    moved = tmp_path / "elsewhere"
    shutil.copytree(three[1] / "tape", moved)
    checked = RUN.invoke(app, ["certify", "--check", str(file), str(moved)])
    assert checked.exit_code == 0, checked.output
    assert "CERTIFIED in 60 frames" in checked.output
    assert "Not checked: release times: elsewhere is not a receiver of the certificate" in checked.output
    assert (
        "Not checked: spread and late slots of all receivers: the release log of a, b, c is missing" in checked.output
    )
    assert "no signature" in checked.output
    complete = RUN.invoke(app, ["certify", "--check", str(file), *paths])
    assert complete.exit_code == 0
    assert complete.output.count("Its release log has the release figures of") == 3
    assert "Not checked" not in complete.output


def edited(certificate: dict[str, Any], path: Sequence[str | int], value: object, *, sealed: bool) -> dict[str, Any]:
    """A certificate with another value, and with the hash that goes with it if `sealed`."""
    made = copy.deepcopy(certificate)
    place = made["statement"]
    for step in path[:-1]:
        place = place[step]
    assert place[path[-1]] != value
    place[path[-1]] = value
    return made | {"hash": hash_of(made)} if sealed else made


def figures(found: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every figure of a statement, with its place."""
    if isinstance(found, dict | list):
        for key, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from figures(value, (*path, key))
    else:
        yield path, found


def test_every_figure_that_was_edited_is_found_with_and_without_its_hash(tmp_path: Path) -> None:
    two = [receiver(tmp_path / name, FRAMES[:8], behind_ns=lambda slot: 900 + slot) for name in "ab"]
    certificate = certify(two)
    chosen = [
        (path, value) for path, value in figures(certificate["statement"]) if path[0] != "marks" or path[1] in (0, 3, 7)
    ]
    assert len(chosen) > 40
    unknown = set()
    for path, value in chosen:
        other = value + 1 if isinstance(value, int) else value.replace(value[0], "e" if value[0] != "e" else "d", 1)
        with pytest.raises(NotCertified, match="was changed after it was made: its hash does not match"):
            read_certificate(json.dumps(edited(certificate, path, other, sealed=False)), "file")
        forged = edited(certificate, path, other, sealed=True)
        old = {**forged, "version": 1}
        del old["hash"]
        for each in (forged, old):
            try:
                checked, missing = check_all(read_certificate(json.dumps(each), "file"), two)
            except NotCertified:
                continue
            assert missing or any(one.not_checked for one in checked), path
            unknown.add(path[-1])
    assert unknown == {"name", "last_sequence"}, "another receiver, or a tape that was longer: listed as not checked"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("frames",), 61, "states 61 as number of frames, but .*/a has 60"),
        (("receivers", 1, "late"), 4, "states 4 as late of b, but its release log has 0"),
        (("receivers", 1, "releases"), 59, "states 59 as releases of b, but its release log has 60"),
        (("receivers", 0, "life"), 7, "states 7 as life of a, but .*/a has 1"),
        (("spread", "late_slots"), 2, "states 2 as late_slots of the spread, but the release logs has 0"),
        (("records",), 3, "contradicts itself: it states 3 records"),
        (("first", "timestamp_ns"), 5, "as timestamp_ns of the first frame"),
    ],
)
def test_the_figure_is_named(three: list[Path], path: tuple[str | int, ...], value: int, says: str) -> None:
    forged = edited(certify(three), path, value, sealed=True)
    with pytest.raises(NotCertified, match=says):
        check_all(read_certificate(json.dumps(forged), "file"), three)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({("spread", "receivers"): 4}, "the spread of 4 receivers, but lists 3"),
        ({("receivers",): [], ("spread", "receivers"): 0}, "lists 0"),
        ({("first", "sequence"): 2, ("records",): -1}, "not the latest beginning of its receivers"),
        ({("receivers", 1, "last_sequence"): 7}, "not the earliest end of its receivers"),
        ({("marks",): [{"slot": 1, "sequence": 1, "chain": "00"}]}, "its last mark is not its last frame"),
    ],
)
def test_a_certificate_that_contradicts_itself_needs_no_tape(
    three: list[Path], edits: dict[tuple[str | int, ...], Any], says: str
) -> None:
    forged = certify(three)
    for path, value in edits.items():
        other = forged["statement"]["records"] + value if path == ("records",) else value
        forged = edited(forged, path, other, sealed=True)
    with pytest.raises(NotCertified, match=f"contradicts itself: .*{says}"):
        read_certificate(json.dumps(forged), "file")


def test_the_range_of_one_receiver_is_checked_against_its_own_tape(tmp_path: Path) -> None:
    longer, shorter = receiver(tmp_path / "a"), receiver(tmp_path / "b", FRAMES[:50])
    for path in sorted((shorter / "tape").iterdir())[:4]:
        path.unlink()
    certificate = certify([longer, shorter])
    assert check_all(certificate, [longer, shorter])[1] == []
    last = certificate["statement"]["receivers"][0]["last_sequence"]
    for name, value, says in (
        ("first_sequence", 2, "began at sequence 2, where no segment begins"),
        ("last_sequence", last - 1, "as end of .*; no frame ends there"),
    ):
        forged = edited(certificate, ("receivers", 0, name), value, sealed=True)
        with pytest.raises(NotCertified, match=says):
            check_all(read_certificate(json.dumps(forged), "file"), [longer, shorter])


def test_an_older_certificate_is_read_and_said_to_have_no_hash(three: list[Path], tmp_path: Path) -> None:
    old = certify(three) | {"version": 1}
    del old["hash"]
    file = tmp_path / "old.certificate"
    file.write_text(write_certificate(old))
    checked = RUN.invoke(app, ["certify", "--check", str(file), *map(str, three)])
    assert checked.exit_code == 0, checked.output
    assert "of version 1, which carries no hash of itself" in checked.output
    file.write_text(write_certificate({**old, "version": 2}))
    checked = RUN.invoke(app, ["certify", "--check", str(file), *map(str, three)])
    assert checked.exit_code == 2
    assert "damaged certificate (KeyError: 'hash')" in checked.output


def test_what_cannot_be_checked_is_listed(three: list[Path], tmp_path: Path) -> None:
    certificate = certify(three)
    shutil.rmtree(three[0] / "releases")
    shutil.rmtree(three[1] / "journal")
    for path in sorted((three[1] / "tape").iterdir())[:4]:
        path.unlink()
    checked, missing = check_all(certificate, three)
    assert [each.receiver for each in checked] == [None, "b", "c"]
    assert any("late and early ones, and lateness of a: " in what for what in checked[0].not_checked)
    told = " ".join(checked[1].not_checked)
    for what in ("the first frame", "the number of frames", "first sequence of b", "life of b"):
        assert what in told
    assert checked[2].not_checked == ()
    assert missing == ["spread and late slots of all receivers: the release log of a is missing"]
    shorter = receiver(tmp_path / "shorter" / "c", FRAMES[:40])
    assert any("last sequence of c" in what for what in check(certificate, shorter).not_checked)


def test_a_damaged_release_log_is_not_evidence(three: list[Path]) -> None:
    certificate = certify(three)
    path = next((three[0] / "releases").iterdir())
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    (told,) = check(certificate, three[0]).not_checked
    assert "wrong checksum" in told
    with pytest.raises(TapeError, match="wrong checksum"):
        certify(three)


def test_the_command_fails_in_one_sentence(three: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "day.certificate"
    forged = receiver(tmp_path / "forged", rechained(FRAMES, 40, other_price))
    made = RUN.invoke(app, ["certify", str(three[0]), str(forged), "-o", str(file)])
    assert made.exit_code == 1
    assert made.output.count("\n") == 1
    assert "NOT CERTIFIED" in made.output
    assert not file.exists()
    assert RUN.invoke(app, ["certify", str(three[0])]).exit_code == 2
    assert RUN.invoke(app, ["certify", str(tmp_path / "nothing"), "-o", str(file)]).exit_code == 2
    for content in (None, b"\xff\xfe", b"[" * 100_000):
        if content is not None:
            file.write_bytes(content)
        checked = RUN.invoke(app, ["certify", "--check", str(file), str(three[0])])
        assert checked.exit_code == 2
        assert checked.output.count("\n") == 1


def test_a_certificate_is_json_that_others_read(three: list[Path]) -> None:
    found: dict[str, Any] = json.loads(write_certificate(certify(three)))
    assert sorted(found) == ["hash", "kind", "signatures", "statement", "version"]
    assert found["signatures"] == []
