"""A line of so many bytes a second gets no more of them, loses none that it can send in time, and keeps their order."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.line_budget import (
    BURST_NS,
    FRESH_NS,
    MOST_AHEAD_NS,
    PACE,
    WINDOW_NS,
    LineBudget,
    state_words,
)
from levelcast.edge.server.line_rate import LEAST_RESENT, MOST_BEHIND_S, LineRate
from levelcast.node.line_budget_file import SharedLineBudget
from levelcast.units import PACKET_HEADERS

S = 1_000_000_000
MS = 1_000_000


def max_of_a_second(sent: list[tuple[int, int]]) -> int:
    """Return the maximum number of bytes in any window of a second."""
    sent = sorted(sent)
    first, size, found = 0, 0, 0
    for at_ns, added in sent:
        size += added
        while sent[first][0] <= at_ns - S:
            size -= sent[first][1]
            first += 1
        found = max(found, size)
    return found


@given(st.integers(1_500, 100_000), st.lists(st.tuples(st.integers(0, S), st.integers(20, 1_400)), max_size=60))
def test_never_more_than_the_rate_and_a_burst(rate: int, sends: list[tuple[int, int]]) -> None:
    line, now, sent = LineRate(LineBudget(rate)), 0, 0
    pushed: list[bytes] = []
    got: list[bytes] = []
    times: list[tuple[int, int]] = []
    burst = rate * BURST_NS / 1e9
    for number, (pause_ns, size) in enumerate(sends):
        now += pause_ns
        pushed.append(number.to_bytes(4, "big").ljust(size))
        line.push(pushed[-1:], now)
        some = line.due(now)
        got += [each.datagram for each in some]
        times += [(now, each.size) for each in some]
        sent += sum(each.size for each in some)
        assert sent <= burst + 1_400 + PACKET_HEADERS + rate * now / 1e9
        assert (line.next_ns is None) == (len(got) + line.dropped == len(pushed))
    while line.next_ns is not None:
        assert line.next_ns > now, "who waits for it does not turn in a circle"
        now = line.next_ns
        some = line.due(now)
        assert some
        got += [each.datagram for each in some]
        times += [(now, each.size) for each in some]
    assert len(got) + line.dropped == len(pushed)
    assert got == sorted(got), "in order"
    assert line.behind_ns == 0
    assert max_of_a_second(times) <= 1.05 * rate


@given(
    st.integers(1_500, 60_000),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(20, 1_400)), min_size=40, max_size=120),
    st.lists(st.tuples(st.integers(0, 100 * MS), st.integers(0, WINDOW_NS - S)), min_size=1, max_size=20),
)
def test_four_stripes_and_their_retransmissions_share_one_rate(
    rate: int, sends: list[tuple[int, bool, int]], delays: list[tuple[int, int]]
) -> None:
    """A process may wake late, and may send later than it has decided."""
    words = [0] * state_words(4)
    lines = [LineRate(LineBudget(rate, words, sender)) for sender in range(4)]
    for number, (stripe, again, size) in enumerate(sends):
        datagram = number.to_bytes(20, "big").ljust(size)
        if again:
            lines[stripe].push_again([datagram], "somebody", 0)
        else:
            lines[stripe].push([datagram], 0)
    delay, now, sent = cycle(delays), 0, []
    while any(line.next_ns is not None for line in lines):
        line = min((line for line in lines if line.next_ns is not None), key=lambda line: line.next_ns or 0)
        wake_ns, send_ns = next(delay)
        now = max(now, line.next_ns or 0) + wake_ns
        sent += [(now + send_ns, each.size) for each in line.due(now)]
    assert max_of_a_second(sent) <= 1.05 * rate
    assert len(sent) + sum(line.dropped for line in lines) == len(sends)
    assert not any(line.due(now) or line.behind_ns for line in lines)


@pytest.mark.parametrize("rate", [7_000, 187_500])
def test_stripes_that_overload_a_line_share_it_through_one_file(tmp_path: Path, rate: int) -> None:
    """Four processes that always have releases use the line equally, and then the retransmissions have it."""
    paths = [tmp_path / "lines" / "slow"] * 4
    lines = [LineRate(SharedLineBudget(path, rate, sender, 4)) for sender, path in enumerate(paths)]
    begin = now = 1_000 * S
    for number, line in enumerate(lines):
        line.push([bytes(100)] * (rate // 100), now)
        line.push_again([bytes([number]) * 1_000], "somebody", now)
    sent: list[tuple[int, int]] = []
    stripes: Counter[int] = Counter()
    while any(line.next_ns is not None for line in lines):
        number = min(range(4), key=lambda each: lines[each].next_ns or 2**63)
        now = max(now, lines[number].next_ns or 0) + 500_000
        found = lines[number].due(now)
        sent += [(now, each.size) for each in found]
        if len(sent) < rate // 50:  # half of the releases
            stripes[number] += len(found)
    for line in lines:
        line.close()
    total = sum(size for _, size in sent)
    assert total == 4 * (rate // 100 * 128 + 1_028)
    assert [size for _, size in sent][-4:] == [1_028] * 4, "retransmissions are last"
    assert max_of_a_second(sent) <= 1.05 * rate
    assert total / (now - begin) * S >= 0.9 * rate, "the line is used"
    assert min(stripes.values()) >= 0.5 * max(stripes.values()) > 0, "none starves"


def test_a_stripe_alone_has_the_whole_rate_and_every_stripe_sees_the_backlog_of_all() -> None:
    words = [0] * state_words(4)
    busy, idle = (LineRate(LineBudget(7_000, words, sender)) for sender in (1, 3))
    busy.push([bytes(100)] * 1_000, 0)
    now, sent = 0, 0
    while now < 10 * S:
        sent += sum(each.size for each in busy.due(now))
        now += 5 * MS
    assert 0.95 * 70_000 <= sent <= PACE * 70_000 + 2 * 128
    assert idle.due(now) == []
    assert idle.behind_ns == busy.behind_ns > 5 * S


def test_releases_of_another_stripe_precede_retransmissions_until_its_process_is_gone() -> None:
    words = [0] * state_words(2)
    other, line = (LineRate(LineBudget(7_000, words, sender)) for sender in (0, 1))
    other.push([bytes(1_000)] * 50, 0)
    other.due(0)
    line.push_again([bytes(100)], "somebody", 0)
    assert line.due(FRESH_NS - 1) == []
    assert line.next_ns is not None
    assert line.due(FRESH_NS + 2 * S) != []


def test_a_retransmission_that_waits_is_not_queued_again_and_the_queue_has_a_limit() -> None:
    line = LineRate(LineBudget(1_500))
    for number in range(3):
        line.push_again([number.to_bytes(20, "big").ljust(1_000)] * 5, "somebody", 0)
    assert line.behind_ns == 3 * (1_000 + PACKET_HEADERS) * S // 1_500
    line.push_again([number.to_bytes(20, "big").ljust(1_000) for number in range(40)], "another", 0)
    assert line.behind_ns <= LEAST_RESENT * S // 1_500
    assert line.dropped == 43 - LEAST_RESENT // (1_000 + PACKET_HEADERS)


def test_a_clock_that_is_set_back_does_not_stop_the_line() -> None:
    line, later = LineRate(LineBudget(7_000)), 1_000 * S
    line.push([bytes(1_000)] * 3, later)
    assert len(line.due(later)) == 1
    now = later - MOST_AHEAD_NS - S
    assert len(line.due(now)) == 1
    assert line.next_ns is not None
    assert line.next_ns < now + S


def test_processes_that_start_with_another_rate_keep_what_was_sent() -> None:
    words = [0] * state_words(2)
    old, new = (LineBudget(rate, words, sender) for sender, rate in enumerate((7_000, 14_000)))
    sent = [(now, 500) for now in range(0, 3 * S, MS) for each in (old, new) if each.claim(500, now) == now]
    assert 0.9 * 14_000 <= max_of_a_second(sent) <= 1.05 * 14_000


def test_what_waits_too_long_is_dropped_oldest_first() -> None:
    line = LineRate(LineBudget(7_000))
    line.push((number.to_bytes(4, "big").ljust(1_000 - PACKET_HEADERS) for number in range(400)), 0)
    assert line.behind_ns <= MOST_BEHIND_S * S
    assert line.dropped == 400 - 210
    assert int.from_bytes(line.due(0)[0].datagram[:4], "big") == 190
