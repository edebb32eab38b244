"""A bucket never gives more than its burst and its rate, exactly, whatever the clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.rate import RateLimit

S = 1_000_000_000


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**5),
    st.lists(st.tuples(st.integers(-S, S), st.integers(1, 10**5)), max_size=50),
)
def test_taken_is_never_more_than_burst_and_rate(rate: int, burst: int, takes: list[tuple[int, int]]) -> None:
    limit, now, forward, taken = RateLimit(rate, burst, 0), 0, 0, 0
    for pause_ns, amount in takes:
        now += pause_ns
        forward += max(0, pause_ns)
        if limit.take(amount, now):
            taken += amount
        assert taken * S <= burst * S + rate * forward


def test_a_rate_that_does_not_divide_a_second_loses_nothing() -> None:
    limit = RateLimit(3, 1, 0)
    assert limit.take(1, 0)
    assert not limit.take(1, S // 3)
    assert limit.take(1, S // 3 + 1)


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 10**5))
def test_what_was_spent_too_much_is_owed_until_it_is_open_again(rate: int, burst: int, amount: int) -> None:
    limit = RateLimit(rate, burst, 7)
    assert limit.is_open(7)
    limit.spend(amount)
    opens = limit.open_ns
    if amount > burst:
        assert not limit.is_open(opens - 1)
    assert limit.is_open(opens)


def test_a_clock_that_is_set_back_adds_nothing_and_the_bucket_goes_on_from_there() -> None:
    limit = RateLimit(10, 10, 100 * S)
    assert limit.take(10, 100 * S)
    assert not limit.take(1, 50 * S)
    assert limit.take(10, 51 * S)
