"""The image of a journal is what its entries add up to, and what leaves it is what nobody needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.effects import Checkpoint, JournalEntry, Promise, ServerCounter, SourceMark
from levelcast.protocol.journal_image import JournalImage
from tests.ring_parts import make_data, make_ring, make_token

RING = make_ring()


def journal_of(*entries: JournalEntry) -> JournalImage:
    journal = JournalImage()
    for entry in entries:
        journal.apply(entry)
    return journal


def test_an_empty_journal_has_promised_nothing() -> None:
    journal = JournalImage(life=3)
    assert (journal.life, journal.promised, journal.counter) == (3, 0, 0)
    assert (journal.ring, journal.checkpoint, journal.mark) == (None, None, None)
    assert not journal.tokens
    assert not journal.packets


def test_the_last_promise_ring_checkpoint_and_counter_count() -> None:
    other = make_ring(2, start_slot=9)
    journal = journal_of(
        Promise(1),
        RING,
        Checkpoint(4, b"a"),
        ServerCounter(5),
        Promise(2),
        other,
        Checkpoint(8, b"b"),
        ServerCounter(6),
    )
    assert (journal.promised, journal.ring, journal.counter) == (2, other, 6)
    assert journal.checkpoint == Checkpoint(8, b"b")


def test_tokens_of_two_generations_for_one_slot_are_both_kept() -> None:
    other = make_ring(2, start_slot=3)
    one, two = make_token(RING, 3), make_token(other, 3)
    assert journal_of(one, two).tokens == {(1, 3): one, (2, 3): two}


def test_packets_of_two_incarnations_with_one_number_are_both_kept() -> None:
    old, new = make_data(201, 1), make_data(201, 1, incarnation=2)
    assert list(journal_of(old, new).packets.values()) == [old, new]


def test_writing_an_entry_twice_changes_nothing() -> None:
    entries = (make_token(RING, 1), make_data(201, 1), Promise(1))
    assert vars(journal_of(*entries)) == vars(journal_of(*entries, *entries))


@given(st.sets(st.tuples(st.integers(1, 3), st.integers(1, 9))), st.integers(1, 3), st.integers(1, 9))
def test_a_sources_mark_drops_what_is_witnessed_and_nothing_else(
    numbers: set[tuple[int, int]], incarnation: int, number: int
) -> None:
    packets = [make_data(201, n, incarnation=i) for i, n in sorted(numbers)]
    journal = journal_of(*packets, SourceMark(incarnation, number))
    assert journal.mark == SourceMark(incarnation, number)
    assert {key[1:] for key in journal.packets} == {key for key in numbers if key > (incarnation, number)}


@given(st.sets(st.tuples(st.sampled_from((201, 202)), st.integers(1, 3), st.integers(1, 6))), st.integers(0, 8))
def test_forgetting_drops_tokens_up_to_the_slot_and_packets_that_are_ordered(
    keys: set[tuple[int, int, int]], slot: int
) -> None:
    tokens = [make_token(RING, number) for number in range(1, 8)]
    packets = [make_data(source, number, incarnation=i) for source, i, number in sorted(keys)]
    journal = journal_of(*tokens, *packets)
    journal.forget(slot, {201: (2, 4)})
    assert {key[1] for key in journal.tokens} == set(range(slot + 1, 8))
    assert set(journal.packets) == {key for key in keys if key[0] == 202 or key[1:] >= (2, 4)}
