"""Whatever comes first from which session: what is handed on is in one order, each record once, and soon."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.subscriber.merge import Merged, Merger
from levelcast.records import RecordArray, RecordType, quotes, split, statuses, trades
from levelcast.wire.watermark import Watermark

TRADE, QUOTE, STATUS = (split(make(1).tobytes())[0].kind for make in (trades, quotes, statuses))


class Line(NamedTuple):
    """A record of the model."""

    time_ns: int
    stripe: int
    sequence: int
    kind: RecordType
    instrument: int
    number: int


def history(rng: Random, stripes: int, frames: int, start: int) -> list[Line]:
    """The tapes of some stripes; frames of several stripes may have the same time."""
    lines: list[Line] = []
    for stripe in range(stripes):
        sequence, time_ns = start, 1_000
        for _ in range(frames):
            time_ns += rng.choice((100, 100, 300))
            for _ in range(rng.randint(1, 6)):
                instrument, kind = rng.randint(0, 6), rng.choice((TRADE, TRADE, QUOTE, STATUS))
                lines.append(Line(time_ns, stripe, sequence, kind, instrument, len(lines)))
                sequence += 1
    return lines


def array_of(lines: list[Line]) -> RecordArray:
    kind = lines[0].kind
    batch = {TRADE: trades, QUOTE: quotes, STATUS: statuses}[kind](len(lines))
    batch["instrument_id"] = [line.instrument for line in lines]
    batch["ts_recv"] = [line.time_ns for line in lines]
    batch["ts_event"] = [line.number for line in lines]
    if kind.sequence_offset is not None:
        batch["sequence"] = [line.sequence % 2**32 for line in lines]
    return batch


def runs_of(lines: list[Line]) -> list[list[Line]]:
    runs: list[list[Line]] = []
    for line in lines:
        if runs and runs[-1][0].kind is line.kind:
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs


def numbers(merged: list[Merged]) -> list[int]:
    return [number for each in merged for number in each.records["ts_event"].tolist()]


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2**32 - 20, 2**40 + 2**31]))
def test_merged_against_a_model(seed: int, stripes: int, sessions: int, start: int) -> None:
    rng = Random(seed)
    lines = history(rng, stripes, rng.randint(1, 12), start)
    merger = Merger()
    queues: dict[bytes, list[list[Line]]] = {}
    for stripe in range(stripes):
        names = [f"1/{stripe}/{number}".encode().ljust(10) for number in range(sessions)]
        merger.follow(rng.sample(names, sessions), stripe)
        merger.near(stripe, start + 10)
        for number, name in enumerate(names):
            mine = [each for each in lines if each.stripe == stripe]
            queues[name] = runs_of(
                [each for each in mine if not each.instrument or each.instrument % sessions == number]
            )
    got: list[Merged] = []
    given_up_to = dict.fromkeys(queues, 0)
    waiting = {name: list(runs) for name, runs in queues.items()}
    while waiting:
        name = rng.choice(list(waiting))
        stripe = int(name.split(b"/")[1])
        if waiting[name] and rng.random() < 0.8:
            run = waiting[name].pop(0)
            merger.take(name, run[0].kind, array_of(run))
            given_up_to[name] = run[-1].time_ns - 1
        else:
            upto = waiting[name][0][0].time_ns - 1 if waiting[name] else 10**9
            merger.complete(name, Watermark(upto, start + 5, stripe))
            given_up_to[name] = max(given_up_to[name], upto)
            if not waiting[name]:
                if rng.random() < 0.5:
                    merger.end(name)
                del waiting[name]
        some = merger.ready()
        bound = min(given_up_to.values())
        assert all(time <= bound for each in some for time in each.records["ts_recv"].tolist())
        got += some
        assert len(numbers(got)) == sum(line.time_ns <= bound for line in lines), "nothing waits that need not"
    assert merger.waiting == 0
    by_number = {line.number: line for line in lines}
    found = [by_number[number] for number in numbers(got)]
    assert len(found) == len(lines), "each once"
    assert [line[:2] for line in found] == sorted(line[:2] for line in lines), "times and stripes in order"
    placed = [line for line in found if line.kind is not STATUS]
    assert placed == sorted(placed)
    for each in got:
        line = by_number[int(each.records["ts_event"][0])]
        assert (each.stripe, each.kind) == (line.stripe, line.kind)
        assert each.sequence == (None if each.kind is STATUS else line.sequence)
    leaders = {stripe: f"1/{stripe}/0".encode().ljust(10) for stripe in range(stripes)}
    for name, runs in queues.items():
        mine = [line for run in runs for line in run if line.instrument or leaders[line.stripe] == name]
        chosen = set(mine)
        assert [line for line in found if line in chosen] == mine, "a session keeps its order"


def test_a_silent_session_holds_up_until_its_watermark_and_an_ended_one_not_at_all() -> None:
    merger = Merger()
    merger.follow([b"a", b"b", b"c"], 0)
    batch = array_of([Line(50, 0, 1, TRADE, 1, 0)])
    merger.take(b"a", TRADE, batch)
    merger.complete(b"a", Watermark(100, 2, 0))
    merger.complete(b"c", Watermark(100, 2, 0))
    assert merger.ready() == []
    merger.complete(b"b", Watermark(49, 2, 0))
    assert merger.ready() == []
    merger.end(b"b")
    assert merger.complete_ns == 100
    assert numbers(merger.ready()) == [0]


def test_sessions_that_follow_others_are_complete_up_to_where_those_ended() -> None:
    merger = Merger()
    merger.follow([b"old"], 0)
    merger.take(b"old", TRADE, array_of([Line(50, 0, 1, TRADE, 1, 0)]))
    merger.follow([b"new-1", b"new-2"], 0, 60)
    merger.end(b"old")
    assert numbers(merger.ready()) == [0]
    merger.take(b"new-2", TRADE, array_of([Line(70, 0, 2, TRADE, 1, 1)]))
    assert merger.ready() == [], "the other one may have something before it"
    merger.complete(b"new-1", Watermark(70, 3, 0))
    merger.complete(b"new-2", Watermark(70, 3, 0))
    assert numbers(merger.ready()) == [1]


def test_records_with_longer_tails_are_merged_with_others() -> None:
    merger = Merger()
    merger.follow([b"a", b"b"], 0)
    plain = array_of([Line(50, 0, 1, TRADE, 1, 0)])
    longer = bytearray(array_of([Line(50, 0, 2, TRADE, 1, 1)]).tobytes() + bytes(8))
    longer[0] += 2
    merger.take(b"b", TRADE, split(bytes(longer))[0].records)
    merger.take(b"a", TRADE, plain)
    merger.end(b"a")
    merger.end(b"b")
    (merged,) = merger.ready()
    assert numbers([merged]) == [0, 1]
    assert merged.records.dtype == TRADE.dtype


def test_what_comes_of_a_session_that_is_not_followed_is_nobodys() -> None:
    merger = Merger()
    merger.take(b"x", TRADE, trades(1))
    merger.complete(b"x", Watermark(1, 1, 0))
    merger.end(b"x")
    assert (merger.ready(), merger.waiting) == ([], 0)


@pytest.mark.parametrize("count", [1, 1_000])
def test_one_session_passes_as_it_is(count: int) -> None:
    merger = Merger()
    merger.follow([b"a"], 3)
    batch = trades(count)
    batch["ts_recv"], batch["sequence"] = 7, np.arange(count)
    merger.take(b"a", TRADE, batch)
    merger.complete(b"a", Watermark(7, count, 3))
    (merged,) = merger.ready()
    assert (merged.stripe, merged.sequence, len(merged.records)) == (3, 0, count)
