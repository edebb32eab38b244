"""Rule 15: one order across stripes, (timestamp, stripe, sequence), and a silent stripe holds nobody up."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.ring.order import GENESIS, Frame, make_frame
from levelcast.ring.stripes import StripeMerger
from tests.ring_parts import START, make_data


def frame(slot: int, timestamp_ns: int) -> Frame:
    return make_frame(slot, timestamp_ns, slot, (make_data(201, slot),), GENESIS)


@st.composite
def stripes_of_frames(draw: st.DrawFn) -> dict[int, list[Frame]]:
    stripes = {}
    for stripe in draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)):
        gaps = draw(st.lists(st.integers(1, 5), max_size=8))
        times = [START + sum(gaps[: i + 1]) for i in range(len(gaps))]
        stripes[stripe] = [frame(slot, time) for slot, time in enumerate(times, start=1)]
    return stripes


@given(stripes_of_frames(), st.randoms(use_true_random=False))
def test_frames_come_out_by_timestamp_and_stripe_however_the_stripes_interleave(
    stripes: dict[int, list[Frame]], rng: Random
) -> None:
    merger = StripeMerger(stripes)
    coming = [(stripe, each) for stripe, frames in stripes.items() for each in frames]
    left = {stripe: list(frames) for stripe, frames in stripes.items()}
    rng.shuffle(coming)
    handed_on: list[tuple[int, Frame]] = []
    for stripe, _ in coming:  # a random interleaving that keeps each stripe's order
        merger.frame(stripe, left[stripe].pop(0))
        ready = list(merger.ready())
        assert all(each.timestamp_ns <= merger.complete_ns for _, each in ready)
        handed_on += ready
    for stripe in stripes:
        merger.watermark(stripe, START + 10_000)
    handed_on += merger.ready()
    assert handed_on == sorted(coming, key=lambda item: (item[1].timestamp_ns, item[0], item[1].slot))


def test_a_frame_waits_until_every_stripe_is_complete_up_to_it() -> None:
    merger = StripeMerger([1, 2])
    merger.frame(1, frame(1, START + 5))
    assert list(merger.ready()) == []
    merger.watermark(2, START + 4)
    assert list(merger.ready()) == []
    merger.watermark(2, START + 5)
    assert [stripe for stripe, _ in merger.ready()] == [1]
    assert list(merger.ready()) == []


def test_at_one_timestamp_the_lower_stripe_comes_first() -> None:
    merger = StripeMerger([2, 1])
    merger.frame(2, frame(1, START))
    merger.frame(1, frame(7, START))
    assert [stripe for stripe, _ in merger.ready()] == [1, 2]


def test_a_watermark_that_comes_late_takes_nothing_back() -> None:
    merger = StripeMerger([1])
    merger.watermark(1, START + 9)
    merger.watermark(1, START)
    assert merger.complete_ns == START + 9


def test_a_stripe_that_releases_out_of_slot_order_is_refused() -> None:
    merger = StripeMerger([1, 2])
    merger.frame(1, frame(2, START))
    with pytest.raises(AssertionError, match="slot order"):
        merger.frame(1, frame(2, START + 1))
