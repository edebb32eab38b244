"""A machine refuses an older statement than it has accepted, and a second one with the same number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.keys.secret import KeysError
from levelcast.keys.seen import accept, newest_number
from tests.keys_parts import KeyedNetwork

ONE = KeyedNetwork().statement


def test_an_older_statement_is_refused(tmp_path: Path) -> None:
    assert newest_number(tmp_path, "tokyo-1") == 0
    accept(tmp_path, "tokyo-1", replace(ONE, number=2), b"two")
    accept(tmp_path, "tokyo-1", replace(ONE, number=2), b"two")
    assert newest_number(tmp_path, "tokyo-1") == 2
    with pytest.raises(KeysError, match="statement 1 is older than 2, which tokyo-1 has accepted"):
        accept(tmp_path, "tokyo-1", ONE, b"one")
    accept(tmp_path, "london-1", ONE, b"one")
    accept(tmp_path, "tokyo-1", replace(ONE, number=3), b"three")
    assert newest_number(tmp_path, "tokyo-1") == 3


def test_two_statements_with_one_number_are_refused(tmp_path: Path) -> None:
    accept(tmp_path, "tokyo-1", ONE, b"one")
    with pytest.raises(KeysError, match="the authority signed two"):
        accept(tmp_path, "tokyo-1", ONE, b"another one")


def test_a_damaged_file_is_not_read_as_none(tmp_path: Path) -> None:
    (tmp_path / "tokyo-1.seen").write_text("{", encoding="utf-8")
    with pytest.raises(KeysError, match=r"tokyo-1\.seen: damaged"):
        accept(tmp_path, "tokyo-1", ONE, b"one")
