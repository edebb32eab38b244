"""Rule 10: a source keeps a packet until a token marks it as witnessed, and resends it until then."""

from __future__ import annotations

import pytest

from levelcast.protocol.effects import GROUP, Effect, Persist, Send, SourceMark
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.source import Source
from levelcast.wire.messages import Data, Mark, Packet, Run
from levelcast.wire.packets import seal
from tests.ring_parts import MS, PIPELINED, START, kept, make_config, make_ring, make_token, reports, sent

ME = 201
RESEND = PIPELINED.resend_ns
RING = make_ring()


class Floor:
    """A source with its journal."""

    def __init__(
        self, incarnation: int = 1, journal: JournalImage | None = None, credit: int = 8, at: int = START
    ) -> None:
        self.config = make_config(credit=credit)
        self.journal = journal if journal is not None else JournalImage()
        self.source = Source(self.config, ME, incarnation, self.journal, at)

    def _keep(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal.apply(effect.entry)
        return effects

    def submit(self, count: int = 1, at: int = START) -> list[Effect]:
        return self._keep([effect for _ in range(count) for effect in self.source.submit(b"trade", 1, at)])

    def hear(
        self, slot: int, at: int, runs: tuple[Run, ...] = (), marks: tuple[Mark, ...] = (), credit: int = 8
    ) -> list[Effect]:
        return self._keep(self.source.step([make_token(RING, slot, runs=runs, marks=marks, credit=credit)], at))

    def wait(self, at: int) -> list[int]:
        """The numbers of the packets that are sent again at `at`."""
        return [
            number
            for data in sent(self._keep(self.source.step((), at)), Data)
            for number in range(data.first, data.last + 1)
        ]


def named(first: int, last: int, incarnation: int = 1) -> tuple[Run, ...]:
    return (Run(ME, incarnation, first, last),)


def marked(number: int, incarnation: int = 1) -> tuple[Mark, ...]:
    return (Mark(ME, incarnation, number),)


def test_packets_are_numbered_from_one_and_journaled_before_they_are_sent() -> None:
    floor = Floor()
    first, second = (seal(Packet(ME, 1, number, 1, b"trade"), 0) for number in (1, 2))
    assert floor.submit(2) == [Persist(first), Send(GROUP, first), Persist(second), Send(GROUP, second)]


def test_a_packet_that_nobody_acknowledges_is_sent_again_every_resend_interval() -> None:
    floor = Floor()
    floor.submit()
    assert floor.source.wake_ns == START + RESEND
    assert floor.wait(START + RESEND - 1) == []
    for again in range(1, 5):
        assert floor.wait(START + again * RESEND) == [1]
        assert floor.source.wake_ns == START + (again + 1) * RESEND


def test_an_acknowledgement_gives_the_witness_its_time_and_then_the_packet_is_sent_again() -> None:
    floor = Floor()
    floor.submit(3)
    floor.hear(1, START + MS, named(1, 2))
    patience = START + MS + PIPELINED.hold_ns + RESEND
    assert floor.wait(START + RESEND) == [3]
    floor.hear(2, START + RESEND, marks=marked(0))
    assert floor.source.unwitnessed == 3
    for again in range(2, 7):
        assert floor.wait(START + again * RESEND) == [3]
    assert floor.wait(patience) == [1, 2, 3]


def test_a_mark_drops_everything_up_to_it_from_memory_and_journal() -> None:
    floor = Floor()
    floor.submit(3)
    effects = floor.hear(1, START + MS, marks=marked(2))
    assert kept(effects, SourceMark) == [SourceMark(1, 2)]
    assert [packet.first for packet in floor.journal.packets.values()] == [3]
    assert (floor.source.witnessed, floor.source.unwitnessed) == (2, 1)
    assert floor.wait(START + RESEND) == [3]
    floor.hear(2, START + RESEND, marks=marked(3))
    assert floor.source.wake_ns is None


def test_a_mark_that_says_nothing_new_or_is_not_ours_changes_nothing() -> None:
    floor = Floor()
    floor.submit(3)
    floor.hear(1, START, marks=marked(2))
    for other in (marked(2), marked(1), marked(3, incarnation=2), (Mark(ME + 1, 1, 3),)):
        assert floor.hear(2, START, marks=other) == []
    assert floor.source.witnessed == 2


@pytest.mark.asserts
def test_credit_bounds_what_is_unwitnessed_and_an_acknowledgement_alone_frees_nothing() -> None:
    floor = Floor(credit=2)
    assert floor.source.room == 2
    floor.submit(2)
    assert floor.source.room == 0
    with pytest.raises(AssertionError, match="no credit"):
        floor.submit()
    floor.hear(1, START, named(1, 2), credit=2)
    assert floor.source.room == 0
    floor.hear(2, START, marks=marked(1), credit=2)
    assert floor.source.room == 1


def test_credit_comes_with_the_tokens() -> None:
    floor = Floor(credit=8)
    floor.submit(3)
    floor.hear(1, START, credit=2)
    assert floor.source.room == 0
    floor.hear(2, START, credit=5)
    assert floor.source.room == 2


def test_a_source_with_its_journal_goes_on_in_the_same_incarnation_and_sends_again_at_once() -> None:
    floor = Floor()
    floor.submit(4)
    floor.hear(1, START, marks=marked(2))
    again = Floor(journal=floor.journal, at=START + 500 * MS)
    assert (again.source.witnessed, again.source.unwitnessed) == (2, 2)
    assert again.source.wake_ns == START + 500 * MS
    assert again.wait(START + 500 * MS) == [3, 4]
    assert sent(again.submit(at=START + 501 * MS), Data) == [seal(Packet(ME, 1, 5, 1, b"trade"), 0)]


def test_a_restart_does_not_reuse_a_number_even_if_everything_was_witnessed() -> None:
    floor = Floor()
    floor.submit(3)
    floor.hear(1, START, marks=marked(3))
    again = Floor(journal=floor.journal)
    assert again.source.wake_ns is None
    assert [packet.first for packet in sent(again.submit(), Data)] == [4]


def test_a_source_without_its_journal_takes_a_higher_incarnation_and_resends_nothing() -> None:
    again = Floor(incarnation=2)
    assert again.wait(START + RESEND) == []
    assert sent(again.submit(), Data) == [seal(Packet(ME, 2, 1, 1, b"trade"), 0)]


def test_packets_of_another_incarnation_in_the_journal_are_left_alone() -> None:
    old = Floor()
    old.submit(2)
    old.hear(1, START, marks=marked(1))
    again = Floor(incarnation=2, journal=old.journal)
    assert (again.source.witnessed, again.source.unwitnessed) == (0, 0)
    assert [packet.first for packet in sent(again.submit(), Data)] == [1]


def test_a_source_that_sees_a_newer_incarnation_of_itself_falls_silent() -> None:
    floor = Floor()
    floor.submit()
    effects = floor.hear(1, START, named(1, 1, incarnation=2))
    assert len(reports(effects, "superseded")) == 1
    assert floor.source.room == 0
    assert floor.wait(START + 10 * RESEND) == []
    assert reports(floor.hear(2, START, named(2, 2, incarnation=2)), "superseded") == []


def test_an_older_incarnation_in_a_token_is_no_acknowledgement() -> None:
    floor = Floor(incarnation=2)
    floor.submit()
    floor.hear(1, START, named(1, 9, incarnation=1))
    assert not floor.source.superseded
    assert floor.wait(START + RESEND) == [1]
