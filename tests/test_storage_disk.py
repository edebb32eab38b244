"""The first journal of a node, and a new one when its disk is lost: never by accident (rule 12)."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.protocol.effects import Promise
from levelcast.storage.advice import MARKER
from levelcast.storage.append_file import TapeError
from levelcast.storage.disk import declare_lost, initialise_disk, is_empty, known_life, lives, require_journal
from levelcast.storage.journal.file import JournalFile, initialise, life_of
from levelcast.wire.header import domain_of


def test_a_first_start_is_life_1_and_happens_once(tmp_path: Path) -> None:
    assert initialise_disk(tmp_path, "tokyo-1")
    assert not initialise_disk(tmp_path, "tokyo-1")
    require_journal(tmp_path, "tokyo-1", 0)
    assert life_of(tmp_path / "tokyo-1" / "journal") == 1
    assert lives(tmp_path) == {"tokyo-1": 1}


def test_without_a_journal_both_commands_are_named(tmp_path: Path) -> None:
    with pytest.raises(NetError, match=r"journal not found.*`levelcast disk init`.*`levelcast disk lost`"):
        require_journal(tmp_path, "tokyo-1", 0)
    assert not (tmp_path / "tokyo-1").exists()


def test_a_directory_that_vanishes_is_noticed(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "tokyo-1")
    shutil.rmtree(tmp_path / "tokyo-1")
    with pytest.raises(NetError, match=r"is missing.*levelcast disk lost --name tokyo-1"):
        require_journal(tmp_path, "tokyo-1", 0)
    with pytest.raises(NetError, match=r"is missing.*not a first start"):
        initialise_disk(tmp_path, "tokyo-1")
    assert not (tmp_path / "tokyo-1").exists()


def test_files_without_a_journal_are_no_first_start(tmp_path: Path) -> None:
    (tmp_path / "tokyo-1" / "tape").mkdir(parents=True)
    (tmp_path / "tokyo-1" / "tape" / "0000000000000001.idx").write_bytes(b"something")
    with pytest.raises(NetError, match="files but no journal found, so it is not a first start"):
        initialise_disk(tmp_path, "tokyo-1")


def test_a_first_start_that_was_cut_short_is_still_one(tmp_path: Path) -> None:
    journal = tmp_path / "tokyo-1" / "journal"
    journal.mkdir(parents=True)
    (journal / "0000000000000001.journal.new").write_bytes(b"LV")
    assert is_empty(tmp_path / "tokyo-1")
    assert initialise_disk(tmp_path, "tokyo-1")


def test_a_journal_older_than_the_marker_is_taken_over(tmp_path: Path) -> None:
    initialise(tmp_path / "tokyo-1" / "journal", 3)
    require_journal(tmp_path, "tokyo-1", 0)
    assert lives(tmp_path) == {"tokyo-1": 3}


def test_nodes_that_start_together_all_stand_in_the_marker(tmp_path: Path) -> None:
    names = [f"node-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: initialise_disk(tmp_path, name), names))
    assert lives(tmp_path) == dict.fromkeys(names, 1)


def test_a_lost_disk_gets_a_higher_life_and_the_rest_is_put_aside(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "tokyo-1")
    assert declare_lost(tmp_path, "tokyo-1", 2) == tmp_path / "tokyo-1.lost-1"
    assert declare_lost(tmp_path, "tokyo-1", 5) == tmp_path / "tokyo-1.lost-2"
    assert life_of(tmp_path / "tokyo-1" / "journal") == 5
    assert known_life(tmp_path, "tokyo-1") == 5
    require_journal(tmp_path, "tokyo-1", 0)
    shutil.rmtree(tmp_path / "tokyo-1")
    assert declare_lost(tmp_path, "tokyo-1", 6) is None
    with pytest.raises(NetError, match="has had life 6 here; the new life must be higher, not 6"):
        declare_lost(tmp_path, "tokyo-1", 6)


def test_a_disk_that_a_process_writes_is_not_lost(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "tokyo-1")
    journal, _ = JournalFile.open(tmp_path / "tokyo-1" / "journal")
    journal.append(Promise(7))
    with pytest.raises(TapeError, match="another process is writing this journal"):
        declare_lost(tmp_path, "tokyo-1", 2)
    journal.close()
    assert JournalFile.open(tmp_path / "tokyo-1" / "journal")[1].promised == 7


def test_a_damaged_journal_can_be_declared_lost(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "tokyo-1")
    (path,) = (tmp_path / "tokyo-1" / "journal").glob("*.journal")
    path.write_bytes(b"garbage")
    assert known_life(tmp_path, "tokyo-1") == 1
    declare_lost(tmp_path, "tokyo-1", 2)
    assert (tmp_path / "tokyo-1.lost-1" / "journal" / path.name).read_bytes() == b"garbage"


@pytest.mark.parametrize("content", ["", "[]", '{"lives": 3}', '{"lives": {"tokyo-1": "x"}}'])
def test_a_damaged_marker_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(NetError, match=r"network\.json: not readable"):
        initialise_disk(tmp_path, "tokyo-1")


def test_the_marker_is_for_people_too(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "b")
    assert json.loads((tmp_path / MARKER).read_text()) == {"lives": {"b": 1}}


def test_a_journal_of_another_network_is_refused_with_the_line_to_add(tmp_path: Path) -> None:
    initialise_disk(tmp_path, "tokyo-1", domain_of(0xABC, 0))
    line = r'belongs to the network 0000000000000abc.*describes 0000000000000001.*write id = "0000000000000abc" below'
    for refuse in (require_journal, initialise_disk):
        with pytest.raises(NetError, match=line):
            refuse(tmp_path, "tokyo-1", domain_of(1, 0))
    with pytest.raises(NetError, match="belongs to stripe 0 of the network, not to stripe 2"):
        require_journal(tmp_path, "tokyo-1", domain_of(0xABC, 2))
    require_journal(tmp_path, "tokyo-1", domain_of(0xABC, 0))
