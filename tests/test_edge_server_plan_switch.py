"""Which plan is in force: a function of the records, from any saved state; and what is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.edge.server.packetizer import SessionMap
from levelcast.edge.server.plan_switch import (
    Happened,
    PlanLimits,
    PlanRefusal,
    Plans,
    Ready,
    Swapped,
    defined_ids,
    plan_fault,
    session_plan,
    standing_rate,
)
from levelcast.records import instruments, trades
from levelcast.wire.channel_plan import (
    ChannelPlan,
    Kind,
    PlanRecord,
    build_channel_plan,
    decode_record,
    part_records,
    session_of,
    symbols_crc,
)
from levelcast.wire.header import Malformed

SYMBOLS = {1: "IBM", 2: "KO", 3: "VOD"}
CRC = symbols_crc(SYMBOLS.items())
LIMITS = PlanLimits(SYMBOLS, 4)


def a_plan(
    number: int,
    sessions: Iterable[int] = (0, 1, 0),
    groups: Iterable[int] = (0, 1),
    symbols: int = CRC,
    rates: Iterable[int] = (),
) -> ChannelPlan:
    return build_channel_plan(number, zip(SYMBOLS, sessions, strict=False), groups, symbols=symbols, rates=rates)


def of_symbols(*ids: int) -> ChannelPlan:
    return build_channel_plan(
        1, [(each, 0) for each in ids], [0], symbols=symbols_crc((each, SYMBOLS[each]) for each in ids)
    )


def parts_of(plan: ChannelPlan, stripe: int = 0) -> list[PlanRecord]:
    return [found for record in part_records(plan, stripe) if (found := decode_record(record)) is not None]


def swap_to(plan: ChannelPlan) -> PlanRecord:
    return PlanRecord(Kind.SWAP, plan.number, len(parts_of(plan)), plan.digest)


def large(number: int) -> ChannelPlan:
    """One of several parts."""
    return build_channel_plan(number, [(each, pow(3, each, 65_537) % 900) for each in range(1, 2_000)], [0] * 900)


def definitions_of(ids: Iterable[int]) -> bytes:
    batch = instruments(len(numbers := list(ids)))
    batch["instrument_id"] = numbers
    return batch.tobytes()


def feed(plans: Plans, records: Iterable[PlanRecord], defined: Iterable[int] = SYMBOLS) -> list[Happened]:
    plans.define(definitions_of(defined))
    taken = (plans.take(record) for record in records)
    return [each for each in taken if each is not None]


def test_a_plan_becomes_ready_and_takes_effect() -> None:
    plans, plan = Plans(LIMITS), a_plan(1)
    assert feed(plans, parts_of(plan)) == [Ready(plan)]
    assert (plans.number, plans.ready) == (0, plan)
    assert feed(plans, [swap_to(plan)]) == [Swapped(plan)]
    assert (plans.number, plans.current, plans.ready) == (1, plan, None)


def test_parts_of_an_operator_that_gave_up_are_forgotten() -> None:
    first, second = large(1), build_channel_plan(1, [(1, 0)], [0])
    assert len(parts_of(first)) > 2
    plans = Plans()
    assert feed(plans, parts_of(first)[:2], ()) == []
    assert feed(plans, parts_of(second), ()) == [Ready(second)]
    assert feed(plans, parts_of(first)[2:], ()) == [], "parts without their beginning"
    assert feed(plans, [swap_to(first)], ()) == [
        PlanRefusal(1, "it was to take effect before it was ready", first.digest)
    ]
    assert feed(plans, [swap_to(second)], ()) == [Swapped(second)]


def test_records_of_another_stripe_are_nothing() -> None:
    assert feed(Plans(LIMITS), parts_of(a_plan(1), stripe=1)) == []


def test_only_the_next_number_counts() -> None:
    plans = Plans(LIMITS)
    (refused,) = feed(plans, parts_of(a_plan(2)))
    assert refused == PlanRefusal(2, "plan 0 is active; the next plan has number 1", a_plan(2).digest)
    assert (plans.number, plans.ready, plans.refused) == (0, None, refused)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (of_symbols(1, 3), "misses 1 of the directory's symbols: KO"),
        (of_symbols(1), "misses 2 of the directory's symbols: KO, VOD"),
        (a_plan(1, groups=(0, 4)), "it has group 4, and the smallest [[edge.group]] block of the network file has 4"),
        (a_plan(1, symbols=1), "it is for another directory, in which instruments have other symbols"),
        (
            build_channel_plan(1, [(1, 0), (2, 0), (3, 0), (9, 0)], [0]),
            "it is for another directory, which has instrument 9",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_is_refused_with_the_reason(plan: ChannelPlan, reason: str) -> None:
    plans = Plans(LIMITS)
    good = a_plan(1)
    feed(plans, parts_of(good))
    (refused,) = feed(plans, parts_of(plan))
    assert isinstance(refused, PlanRefusal)
    assert reason in refused.reason
    assert (plans.number, plans.ready) == (0, good), "what was there stays"
    assert feed(plans, [swap_to(plan)]) == [PlanRefusal(1, "it was to take effect before it was ready", plan.digest)]
    assert feed(plans, [swap_to(good)]) == [Swapped(good)]


def test_a_symbol_that_was_listed_after_the_plan_does_not_refuse_it() -> None:
    wider = PlanLimits({**SYMBOLS, 4: "NEW"}, 4)
    plan = a_plan(1)
    assert feed(Plans(wider), parts_of(plan)) == [Ready(plan)]
    assert plan_fault(plan, wider, 0, wider.symbols) == "it misses 1 of the directory's symbols: NEW"


def test_a_plan_fits_its_line_or_is_refused_with_group_and_figures() -> None:
    line = 7_000  # bytes a second: 56 kbit/s
    limits = PlanLimits(SYMBOLS, 4, line, 1_000_000_000)
    assert (
        standing_rate(1_000_000_000) == 348 + 2 + 48
    )  # a watermark a second, its length and the headers of its packet
    assert plan_fault(a_plan(1, rates=(6_500, 3_000)), limits, 0) is None
    assert plan_fault(a_plan(1, groups=(1, 1), rates=(4_000, 3_000)), limits, 0) == (
        "group 1 is expected to have 62.4 kbit/s, 6.4 kbit/s of it watermarks of 2 sessions, "
        "and its line carries 56.0 kbit/s"
    )
    assert "does not specify the expected rate" in str(plan_fault(a_plan(1), limits, 0))
    often = PlanLimits(SYMBOLS, 4, line, 10_000_000)
    assert "of it watermarks of 1 session," in str(plan_fault(a_plan(1, rates=(1, 1)), often, 0))


def test_a_number_that_fits_no_name_is_refused() -> None:
    assert plan_fault(a_plan(36**6), LIMITS, 0) == f"number {36**6} is too large for the names of its sessions"


def stories() -> st.SearchStrategy[list[PlanRecord]]:
    """Parts and swaps, mostly sensible, cut and repeated anyhow."""
    pieces = [
        piece
        for number in (1, 2, 3)
        for plan in (a_plan(number), a_plan(number, groups=(1, 9)), large(number))
        for piece in (parts_of(plan), parts_of(plan)[:1], parts_of(plan)[1:], [swap_to(plan)])
    ]
    return st.lists(st.sampled_from(range(len(pieces))), max_size=12).map(
        lambda chosen: [record for number in chosen for record in pieces[number]]
    )


@given(stories(), st.data())
def test_a_state_saved_anywhere_goes_on_alike(records: list[PlanRecord], data: st.DataObject) -> None:
    saved = data.draw(st.integers(0, len(records)))
    limits = PlanLimits(groups=4)
    steady, first, second = Plans(limits), Plans(limits), Plans(limits)
    wanted = feed(steady, records, ())
    before = feed(first, records[:saved], ())
    second.restore(first.state())
    assert second.state() == first.state()
    assert before + feed(second, records[saved:], ()) == wanted
    assert second.state() == steady.state()


@given(st.data())
def test_a_damaged_state_is_malformed_or_another(data: st.DataObject) -> None:
    plans = Plans(LIMITS)
    feed(plans, [*parts_of(a_plan(1)), swap_to(a_plan(1)), *parts_of(large(2))[:2]])
    content = bytearray(plans.state())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(content), bytes(content[: data.draw(st.integers(0, len(content) - 1))])):
        try:
            Plans(LIMITS).restore(bad)
        except Malformed:
            continue


def test_definitions_are_found_among_other_records() -> None:
    definitions = definitions_of([7, 9])
    assert defined_ids(definitions) == [7, 9]
    assert defined_ids(trades(3).tobytes() + definitions + trades(1).tobytes()) == [7, 9]
    assert defined_ids(trades(3).tobytes()) == []
    assert defined_ids(instruments(1).tobytes()) == [], "of no instrument"


@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_session_plan_of_arrays_is_that_of_a_table(seed: int, stripe: int) -> None:
    rng = Random(seed)
    sessions = rng.randint(1, 50)
    top = rng.choice((60, 2**32 - 1))
    pairs = [(each, rng.randrange(sessions)) for each in rng.sample(range(1, top), 40)]
    plan = build_channel_plan(1, pairs, [0] * sessions, default=rng.randrange(sessions))
    made = session_plan(plan, stripe)
    names = {number: session_of(1, stripe, index) for number, index in pairs}
    slow = SessionMap(names, session_of(1, stripe, plan.default))
    assert made.sessions == slow.sessions
    asked = np.array([0, 1, 2, top, *names], np.uint32)
    assert made.indices(asked).tolist() == slow.indices(asked).tolist()
    assert not made.takes_everything
