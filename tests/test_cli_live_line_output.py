"""Lines into a pipe: none is lost or cut, and a reader that is slow does not block the writer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from levelcast.cli.live import line_output
from levelcast.cli.live.line_output import LineOutput


class Pipe:
    """A pipe of two pages, and the output that writes to it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 8192)
        self.closed = 0
        self.output = LineOutput(self.writer, self._on_closed, "lost {}".format)

    def _on_closed(self) -> None:
        self.closed += 1

    def read(self) -> list[str]:
        """What is in the pipe, and what follows as it is emptied."""
        content = b""
        os.set_blocking(self.reader, False)
        while True:
            try:
                content += os.read(self.reader, 65536)
            except BlockingIOError:
                self.output.flush()
                try:
                    content += os.read(self.reader, 65536)
                except BlockingIOError:
                    return content.decode().splitlines()

    def end(self) -> None:
        for descriptor in (self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.end()


def test_a_line_is_in_the_pipe_at_once(pipe: Pipe) -> None:
    pipe.output.write("one")
    pipe.output.write_status("two")
    assert os.read(pipe.reader, 100) == b"one\ntwo\n"


def test_lines_that_a_reader_has_no_room_for_follow_in_order(pipe: Pipe) -> None:
    wanted = [f"{number} {'x' * 100}" for number in range(1000)]
    for line in wanted:
        pipe.output.write(line)
    assert pipe.read() == wanted


def test_of_status_lines_that_wait_only_the_last_is_written_after_all_events(pipe: Pipe) -> None:
    events = [f"{number} {'x' * 100}" for number in range(100)]
    for number, line in enumerate(events):
        pipe.output.write(line)
        pipe.output.write_status(f"status {number}")
    found = pipe.read()
    assert [line for line in found if not line.startswith("status")] == events
    assert found[-1] == "status 99"
    assert len(found) < 150


def test_lines_beyond_the_limit_are_counted_and_reported_in_order(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_output, "WAITING_BYTES", 10_000)
    wanted = [f"{number} {'x' * 90}" for number in range(500)]
    for line in wanted:
        pipe.output.write(line)
    first = pipe.read()
    pipe.output.write("after")
    lost = 500 - len(first)
    assert first == wanted[: len(first)]
    assert lost > 0
    assert pipe.read() == [f"lost {lost}", "after"]


def test_the_end_waits_for_the_reader(pipe: Pipe) -> None:
    wanted = [f"{number} {'x' * 100}" for number in range(1000)]
    for line in wanted:
        pipe.output.write(line)
    found: list[bytes] = []
    size = sum(len(line) + 1 for line in wanted)

    def read() -> None:
        while sum(map(len, found)) < size:
            found.append(os.read(pipe.reader, 500))

    reader = Thread(target=read)
    reader.start()
    assert pipe.output.close()
    reader.join()
    assert b"".join(found).decode().splitlines() == wanted


def test_the_end_does_not_wait_for_ever(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_output, "CLOSING_S", 0.01)
    pipe.output.write("x" * 100_000)
    assert not pipe.output.close()


def test_a_reader_that_has_gone_is_reported_once(pipe: Pipe) -> None:
    os.close(pipe.reader)
    pipe.reader = -1
    for _ in range(3):
        pipe.output.write("one")
    assert pipe.closed == 1
    assert pipe.output.close()


def test_a_full_disk_does_not_stop_a_node() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        output = LineOutput(file.fileno(), lambda: None, "lost {}".format)
        output.write("one")
        output.write("two")
        assert not output.close()
