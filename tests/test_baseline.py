"""Fixed histories stay the same, and files that an earlier version wrote stay readable."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.release_log import read_releases
from tests.baseline.history_hashes import RECORDED, SEEDS, history_hash, recorded

FILES = RECORDED.with_name("files_of_header_1.zip")
RECEIVERS = ("london", "new-york", "tokyo")
SOME = [(scenario, seed) for scenario, seeds in SEEDS.items() for seed in list(seeds)[:: max(1, len(seeds) // 8)]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Tapes and release logs of three receivers, their certificate, and a journal with a ring in it."""
    with zipfile.ZipFile(FILES) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("scenario", "seed"), SOME)
def test_a_history_is_the_recorded_one(scenario: str, seed: int) -> None:
    """`python -m tests.baseline.history_hashes` compares all of them."""
    assert history_hash(scenario, seed) == recorded()[scenario][str(seed)]


def test_old_tapes_are_verified(files: Path) -> None:
    result = CliRunner().invoke(app, ["tape", "verify", *(str(files / name) for name in RECEIVERS)])
    assert result.exit_code == 0, result.output
    assert "identical" in result.output


def test_an_old_certificate_is_checked_against_old_tapes(files: Path) -> None:
    tapes = [str(files / name) for name in RECEIVERS]
    result = CliRunner().invoke(app, ["certify", "--check", str(files / "certificate.json"), *tapes])
    assert result.exit_code == 0, result.output


def test_an_old_journal_is_refused_with_the_next_command_and_not_changed(files: Path) -> None:
    """Its messages have header version 1, which no node accepts any more."""
    for journal in (files / "journal", *(files / name / "journal" for name in RECEIVERS)):
        (journal / "0000000000000099.journal.new").write_bytes(b"unfinished")
        before = {path: path.read_bytes() for path in journal.iterdir()}
        with pytest.raises(TapeError, match=r"header version 1.*`levelcast disk init --network FILE --all --data DIR`"):
            JournalFile.open(journal)
        assert {path: path.read_bytes() for path in journal.iterdir()} == before


def test_an_old_release_log_is_read(files: Path) -> None:
    for name in RECEIVERS:
        assert len(read_releases(files / name / "releases")) > 0
