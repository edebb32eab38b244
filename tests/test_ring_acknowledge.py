"""Rule 2: a token names what its site holds, contiguous from the first packet not known to be acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.history import SourcePosition
from levelcast.protocol.holdings import Holdings
from levelcast.ring.acknowledge import runs_for
from levelcast.wire.messages import Run
from levelcast.wire.parts import MAX_RUNS
from tests.ring_parts import make_data, make_ring, make_token

RING = make_ring()


def holding(numbers: dict[tuple[int, int], set[int]], tokens: dict[int, list[Run]] | None = None) -> Holdings:
    held = Holdings()
    for (source, incarnation), of_source in numbers.items():
        for number in of_source:
            held.add(make_data(source, number, incarnation=incarnation))
    for slot, runs in (tokens or {}).items():
        held.tokens[slot] = make_token(RING, slot, 0, runs)
    return held


runs_of_one_source = st.tuples(st.integers(1, 8), st.integers(0, 3)).map(lambda at: Run(201, 1, at[0], at[0] + at[1]))


@given(
    st.integers(1, 12),
    st.integers(0, 11),
    st.integers(1, 6),
    st.sets(st.integers(1, 12)),
    st.dictionaries(st.integers(1, 15), st.lists(runs_of_one_source, max_size=2)),
)
def test_a_run_is_all_that_is_held_from_the_first_packet_that_no_lower_token_names(
    slot: int, have: int, next_number: int, numbers: set[int], tokens: dict[int, list[Run]]
) -> None:
    known = set(range(1, next_number))
    for other, named in tokens.items():
        if have < other < slot:
            for run in named:
                known |= set(range(run.first, run.last + 1))
    first = next(number for number in range(1, 40) if number not in known)
    expected: list[int] = []
    while first + len(expected) in numbers:
        expected.append(first + len(expected))
    runs = runs_for(slot, have, {201: SourcePosition(1, next_number)}, holding({(201, 1): numbers}, tokens))
    assert runs == ((Run(201, 1, expected[0], expected[-1]),) if expected else ())


def test_a_token_of_a_later_slot_does_not_make_its_packets_known() -> None:
    """History F8: skipping what a fast clock's later token names would put packet 2 before packet 1."""
    held = holding({(201, 1): {1, 2}}, {5: [Run(201, 1, 1, 1)]})
    assert runs_for(1, 0, {}, held) == (Run(201, 1, 1, 2),)
    assert runs_for(6, 0, {}, held) == (Run(201, 1, 2, 2),)


def test_nor_does_a_token_of_the_same_slot() -> None:
    held = holding({(201, 1): {1}}, {5: [Run(201, 1, 1, 1)]})
    assert runs_for(5, 0, {}, held) == (Run(201, 1, 1, 1),)


def test_nothing_behind_a_gap_is_named() -> None:
    assert runs_for(3, 2, {}, holding({(201, 1): {2, 3}})) == ()
    assert runs_for(3, 2, {}, holding({(201, 1): {1, 3}})) == (Run(201, 1, 1, 1),)
    assert runs_for(3, 2, {201: SourcePosition(1, 4)}, holding({(201, 1): {3, 5}})) == ()


def test_each_incarnation_is_numbered_from_one_and_lower_ones_than_ordered_are_left_out() -> None:
    held = holding({(201, 1): {4, 5}, (201, 2): {3}, (201, 3): {1, 2}})
    assert runs_for(9, 8, {201: SourcePosition(2, 3)}, held) == (Run(201, 2, 3, 3), Run(201, 3, 1, 2))


def test_sources_are_named_in_one_order_whatever_order_they_were_heard_in() -> None:
    numbers = {(203, 1): {1}, (201, 1): {1}, (202, 1): {1}}
    forward = runs_for(1, 0, {}, holding(numbers))
    backward = runs_for(1, 0, {}, holding(dict(reversed(numbers.items()))))
    assert forward == backward
    assert [run.source for run in forward] == [201, 202, 203]


def test_more_sources_than_a_token_can_name_have_their_turn_in_the_next_one() -> None:
    sources = range(1, MAX_RUNS + 500)
    held = holding({(source, 1): {1} for source in sources})
    for slot in (1, 7, 8):
        runs, after = runs_for(slot, slot - 1, {}, held), runs_for(slot + 1, slot, {}, held)
        assert len(runs) == len(after) == MAX_RUNS
        assert {run.source for run in (*runs, *after)} == set(sources)


def test_only_sources_of_the_network_file_are_acknowledged() -> None:
    held = holding({(201, 1): {1, 2}, (299, 1): {1}})
    assert runs_for(1, 0, {}, held, {201}) == (Run(201, 1, 1, 2),)
    assert runs_for(1, 0, {}, held, None) == (Run(201, 1, 1, 2), Run(299, 1, 1, 1))
