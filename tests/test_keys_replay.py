"""Each stamp of a sender is accepted once, in any order of arrival (K12)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from levelcast.keys.replay import FRESH_NS, MOST_STAMPS, ReplayWindows, SenderWindow
from levelcast.wire.header import Reason

START = 10**18
S = 1_000_000_000


def offer(window: SenderWindow, sent_ns: int, now_ns: int) -> Reason | None:
    reason = window.refusal(sent_ns, now_ns)
    if reason is None:
        window.add(sent_ns, now_ns)
    return reason


def test_out_of_order_is_not_a_replay_and_a_repetition_is_one() -> None:
    window = SenderWindow(START)
    assert offer(window, START + 20, START + 30) is None
    assert offer(window, START + 10, START + 30) is None
    assert offer(window, START + 20, START + 30) is Reason.REPLAYED
    assert offer(window, START + 10, START + 30) is Reason.REPLAYED


def test_stamps_far_from_the_clock_or_from_before_the_start_are_stale() -> None:
    window = SenderWindow(START)
    assert offer(window, START, START) is Reason.STALE
    assert offer(window, START - S, START) is Reason.STALE
    assert offer(window, START + FRESH_NS + 1, START) is Reason.STALE
    assert offer(window, START + FRESH_NS, START) is None
    assert offer(window, START + 1, START + FRESH_NS + 2) is Reason.STALE


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60))
def test_no_stamp_is_ever_accepted_twice(arrivals: list[tuple[int, int]]) -> None:
    """However the clock moves, back too."""
    window, accepted = SenderWindow(START), []
    for sent_s, now_s in arrivals:
        if offer(window, START + sent_s * S, START + now_s * S) is None:
            accepted.append(sent_s)
    assert len(accepted) == len(set(accepted))


def test_the_memory_of_a_sender_is_bounded() -> None:
    window, accepted = SenderWindow(START), 0
    stamps = [START + 1 + each for each in range(3 * MOST_STAMPS)]
    for sent_ns in stamps:
        accepted += offer(window, sent_ns, START) is None
    assert accepted == len(stamps)
    assert len(window._seen) <= MOST_STAMPS
    Random(1).shuffle(stamps)
    assert all(offer(window, sent_ns, START) is not None for sent_ns in stamps)


def test_senders_have_windows_of_their_own() -> None:
    windows = ReplayWindows(START)
    assert offer(windows.of(1), START + 5, START) is None
    assert offer(windows.of(2), START + 5, START) is None
    assert offer(windows.of(1), START + 5, START) is Reason.REPLAYED
