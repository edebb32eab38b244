"""A line of so many bytes a second gets no more of them, loses none that it can send in time, and keeps their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.line_budget import FRESH_NS, LEAST_BURST, MOST_AHEAD_NS, LineBudget, state_words
from levelcast.edge.server.line_rate import HEADERS, LATE_NS, LEAST_RESENT, MOST_BEHIND_S, LineRate

S = 1_000_000_000
MS = 1_000_000


def most_of_a_second(sent: list[tuple[int, int]]) -> int:
    """The most bytes in any window of a second."""
    ends = [(at_ns, sum(size for other_ns, size in sent if at_ns - S < other_ns <= at_ns)) for at_ns, _ in sent]
    return max((size for _, size in ends), default=0)


@given(st.integers(1_500, 100_000), st.lists(st.tuples(st.integers(0, S), st.integers(20, 1_400)), max_size=60))
def test_never_more_than_the_rate_and_a_burst(rate: int, sends: list[tuple[int, int]]) -> None:
    line, now, sent = LineRate(LineBudget(rate)), 0, 0
    pushed: list[bytes] = []
    got: list[bytes] = []
    times: list[tuple[int, int]] = []
    burst = max(LEAST_BURST, rate // 20)
    for number, (pause_ns, size) in enumerate(sends):
        now += pause_ns
        pushed.append(number.to_bytes(4, "big").ljust(size))
        line.push(pushed[-1:], now)
        some = line.due(now)
        got += [each.datagram for each in some]
        times += [(now, each.size) for each in some]
        sent += sum(each.size for each in some)
        assert sent <= burst + 1_400 + HEADERS + rate * now / 1e9
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
    assert most_of_a_second(times) <= 1.05 * rate


@given(
    st.integers(1_500, 60_000),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(20, 1_400)), min_size=40, max_size=120),
    st.integers(0, LATE_NS),
)
def test_four_stripes_and_their_retransmissions_share_one_rate(
    rate: int, sends: list[tuple[int, bool, int]], late_ns: int
) -> None:
    words = [0] * state_words(4)
    lines = [LineRate(LineBudget(rate, words, sender)) for sender in range(4)]
    for number, (stripe, again, size) in enumerate(sends):
        datagram = number.to_bytes(20, "big").ljust(size)
        if again:
            lines[stripe].push_again([datagram], "somebody", 0)
        else:
            lines[stripe].push([datagram], 0)
    now, sent = 0, []
    while any(line.next_ns is not None for line in lines):
        now = max(now, min(line.next_ns for line in lines if line.next_ns is not None))
        for line in lines:
            sent += [(now + late_ns, each.size) for each in line.due(now)]
    assert most_of_a_second(sent) <= 1.05 * rate
    assert len(sent) + sum(line.dropped for line in lines) == len(sends)
    full = sum(size for at_ns, size in sent if at_ns <= sent[-1][0])
    assert now / 1e9 <= full / (rate * 0.6) + 2.2, "the line is used"
    assert not any(line.due(now) or line.behind_ns for line in lines)


def test_a_stripe_alone_has_the_whole_rate_and_every_stripe_sees_the_backlog_of_all() -> None:
    words = [0] * state_words(4)
    busy, idle = (LineRate(LineBudget(7_000, words, sender)) for sender in (1, 3))
    busy.push([bytes(100)] * 1_000, 0)
    now, sent = 0, 0
    while now < 10 * S:
        sent += sum(each.size for each in busy.due(now))
        now += 5 * MS
    assert 0.95 * 70_000 <= sent <= 70_000 + LEAST_BURST + 128
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
    assert line.behind_ns == 3 * (1_000 + HEADERS) * S // 1_500
    line.push_again([number.to_bytes(20, "big").ljust(1_000) for number in range(40)], "another", 0)
    assert line.behind_ns <= LEAST_RESENT * S // 1_500
    assert line.dropped == 43 - LEAST_RESENT // (1_000 + HEADERS)


def test_a_clock_that_is_set_back_does_not_stop_the_line() -> None:
    budget = LineBudget(7_000)
    assert budget.reserve(1_000, 1_000 * S) == 1_000 * S
    assert budget.reserve(1_000, 1_000 * S - MOST_AHEAD_NS - 1) == 1_000 * S - MOST_AHEAD_NS - 1


def test_what_waits_too_long_is_dropped_oldest_first() -> None:
    line = LineRate(LineBudget(7_000))
    line.push((number.to_bytes(4, "big").ljust(1_000 - HEADERS) for number in range(400)), 0)
    assert line.behind_ns <= MOST_BEHIND_S * S
    assert line.dropped == 400 - 210
    assert int.from_bytes(line.due(0)[0].datagram[:4], "big") == 190
