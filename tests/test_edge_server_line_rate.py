"""A line of so many bytes a second gets no more of them, loses none that it can send in time, and keeps their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.line_rate import HEADERS, LEAST_BURST, MOST_BEHIND_S, LineRate

S = 1_000_000_000


@given(st.integers(500, 100_000), st.lists(st.tuples(st.integers(0, S), st.integers(20, 1_400)), max_size=60))
def test_never_more_than_the_rate_and_a_burst(rate: int, sends: list[tuple[int, int]]) -> None:
    line, now, sent = LineRate(rate, 0), 0, 0
    pushed: list[bytes] = []
    got: list[bytes] = []
    burst = max(LEAST_BURST, rate // 20)
    for number, (pause_ns, size) in enumerate(sends):
        now += pause_ns
        pushed.append(number.to_bytes(4, "big").ljust(size))
        line.push(pushed[-1:])
        some = line.due(now)
        got += some
        sent += sum(len(each) + HEADERS for each in some)
        assert sent <= burst + 1_400 + HEADERS + rate * now / 1e9
        assert (line.next_ns is None) == (len(got) + line.dropped == len(pushed))
    while line.next_ns is not None:
        assert line.next_ns > now, "who waits for it does not turn in a circle"
        now = line.next_ns
        some = line.due(now)
        assert some
        got += some
    assert len(got) + line.dropped == len(pushed)
    assert got == sorted(got), "in order"
    assert line.behind_ns == 0


def test_what_waits_too_long_is_dropped_oldest_first() -> None:
    line = LineRate(7_000, 0)
    line.push(number.to_bytes(4, "big").ljust(1_000 - HEADERS) for number in range(400))
    assert line.behind_ns <= MOST_BEHIND_S * S
    assert line.dropped == 400 - 210
    assert int.from_bytes(line.due(0)[0][:4], "big") == 190
