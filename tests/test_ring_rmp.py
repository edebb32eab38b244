"""The original event-driven RMP (MS §2.1), line by line, and the comparison with the timed token."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from levelcast.protocol.effects import GROUP, Effect, Release, Send
from levelcast.ring.rmp import RmpReceiver, RmpSource
from levelcast.sim import compare_protocols
from levelcast.sim.compare_protocols import CONTROL, ProtocolFigures, run_steady, time_to_fault_ns
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import Data, GroupToken, Repair, Request, Run, Token
from tests.ring_parts import MS, PIPELINED, START, make_config, make_data, released, reports, sent

CONFIG = make_config(3)
TAU_R = PIPELINED.request_ns
CONFIRM = TAU_R - 2 * PIPELINED.late_ns
AT_ONCE = replace(CONFIG, timing=replace(PIPELINED, hold_ns=0))


def receiver(member: int, idle_ns: int | None = None) -> RmpReceiver:
    """Member 1 begins with the token."""
    return RmpReceiver(AT_ONCE, member, START, idle_ns)


def ack(slot: int, source: int = 0, number: int = 0) -> Token:
    """Acknowledgement `slot` in its turn; a null one without a source."""
    runs = (Run(source, 1, number, number),) if source else ()
    return seal_message(Token(1, slot, START, (slot - 1) % 3 + 1, slot, CONFIG.credit, runs, ()), 0)


def sends(effects: list[Effect]) -> list[tuple[int, str]]:
    return [(effect.to, type(effect.message).__name__) for effect in effects if isinstance(effect, Send)]


# -- the three functions of an acknowledgement -------------------------------------------------------------


def test_the_site_with_the_token_acknowledges_one_message_and_gives_the_token_up() -> None:
    site = receiver(1)
    effects = site.step([make_data(201, 1)], START)
    assert sent(effects, Token) == [ack(1, 201, 1)]
    assert sends(effects) == [(GROUP, "Token")]
    assert [frame.frame.slot for frame in released(effects)] == [1]
    assert sends(site.step([make_data(202, 1)], START + 1)) == [], "it has no right to acknowledge a second one"


def test_the_next_site_takes_the_token_and_acknowledges_what_waits() -> None:
    site = receiver(2)
    assert sends(site.step([make_data(201, 1), make_data(202, 1)], START)) == []
    effects = site.step([ack(1, 201, 1)], START + MS)
    (token,) = sent(effects, Token)
    assert (token.slot, token.owner, token.runs) == (2, 2, (Run(202, 1, 1, 1),))


def test_a_site_that_misses_a_message_does_not_take_the_token_until_it_has_it() -> None:
    site = receiver(2)
    effects = site.step([make_data(202, 1), ack(1, 201, 1)], START)
    assert sent(effects, Token) == []
    (request,) = sent(effects, Request)
    assert request.packets == (Run(201, 1, 1, 1),)
    effects = site.step([Repair(1, (make_data(201, 1),))], START + MS)
    assert [token.slot for token in sent(effects, Token)] == [2]


def test_other_sites_do_not_take_the_token() -> None:
    other = receiver(3)
    assert sent(other.step([make_data(201, 1), make_data(202, 1), ack(1, 201, 1)], START), Token) == []


def test_an_acknowledgement_is_repeated_until_the_next_one_or_a_confirm_is_heard() -> None:
    for heard in (ack(2, 202, 1), GroupToken(2, 1, 0, 1, 1)):
        site = receiver(1)
        site.step([make_data(201, 1)], START)
        assert site.wake_ns == START + TAU_R
        again = site.step([], START + TAU_R)
        assert sent(again, Token) == [ack(1, 201, 1)]
        site.step([make_data(202, 1), heard], START + TAU_R + MS)
        assert site.step([], START + 5 * TAU_R) == []


def test_without_an_answer_a_fault_is_reported_after_k_r_attempts_and_repeating_goes_on() -> None:
    site = receiver(1)
    site.step([make_data(201, 1)], START)
    steps = [site.step([], START + attempt * TAU_R) for attempt in range(1, PIPELINED.attempts + 2)]
    assert [bool(reports(effects, "fault")) for effects in steps] == [False] * PIPELINED.attempts + [True]
    assert all(sent(effects, Token) for effects in steps)


# -- when there is nothing to acknowledge ------------------------------------------------------------------


def test_a_site_with_nothing_to_acknowledge_confirms_that_it_took_the_token() -> None:
    site = receiver(2)
    site.step([make_data(201, 1), ack(1, 201, 1)], START)
    assert site.wake_ns == START + CONFIRM
    effects = site.step([], START + CONFIRM)
    assert sends(effects) == [(1, "GroupToken")]
    assert site.wake_ns is None, "and waits for a message for ever"
    assert sends(site.step([ack(1, 201, 1)], START + TAU_R)) == [(1, "GroupToken")], "the confirm was lost"


def test_the_token_goes_on_without_a_message_where_idle_passes_are_wanted() -> None:
    site = receiver(1, idle_ns=50 * MS)
    assert site.step([], START) == []
    assert site.wake_ns == START + 50 * MS
    (token,) = sent(site.step([], START + 50 * MS), Token)
    assert (token.slot, token.runs) == (1, ())


# -- finding and repairing losses --------------------------------------------------------------------------


def test_an_acknowledgement_above_the_expected_one_makes_it_ask_for_those_between() -> None:
    other = receiver(3)
    effects = other.step([make_data(201, 1), make_data(202, 1), ack(2, 202, 1)], START)
    (request,) = sent(effects, Request)
    assert request.slots == (1,)
    assert sends(effects) == [(GROUP, "Request")]
    assert [again.slots for again in sent(other.step([], START + TAU_R), Request)] == [(1,)]
    effects = other.step([Repair(2, (ack(1, 201, 1),))], START + TAU_R + MS)
    assert [release.frame.slot for release in released(effects)] == [1, 2]


def test_a_message_above_the_expected_one_shows_a_missed_acknowledgement() -> None:
    other = receiver(3)
    other.step([make_data(201, 1)], START)
    effects = other.step([make_data(201, 2)], START + MS)
    assert [request.slots for request in sent(effects, Request)] == [(1,)]


def test_only_the_site_with_the_token_and_the_one_before_it_answer() -> None:
    request = Request(3, 1, 0, (1,), (Run(201, 1, 1, 1),))
    first, second, third = receiver(1), receiver(2), receiver(3)
    first.step([make_data(201, 1)], START)
    for each in (second, third):
        each.step([make_data(201, 1), ack(1, 201, 1)], START)
    for each, answers in ((first, True), (second, True), (third, False)):
        assert sends(each.step([request], START + 1)) == ([(3, "Repair")] if answers else [])
    first.step([GroupToken(2, 1, 0, 1, 1)], START + 2)
    assert sends(first.step([request], START + 3)) == [], "the token was taken: it is relieved"


def test_who_repeats_what_is_acknowledged_is_sent_the_acknowledgement() -> None:
    site = receiver(2)
    site.step([make_data(201, 1), make_data(202, 1), ack(1, 201, 1)], START)
    effects = site.step([make_data(201, 1)], START + MS)
    passed_on = Repair(2, (ack(1, 201, 1),))
    assert [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)] == [(201, passed_on)]
    effects = site.step([ack(1, 201, 1)], START + 2 * MS)
    assert [(to, kind) for to, kind in sends(effects)] == [(1, "Token")]
    assert [token.slot for token in sent(effects, Token)] == [2]


def test_with_a_hold_time_delivery_waits_for_the_timestamp_and_the_hold_time() -> None:
    site = RmpReceiver(CONFIG, 1, START)
    assert released(site.step([make_data(201, 1)], START)) == []
    hold_ns = CONFIG.timing.hold_ns
    assert released(site.step([], START + hold_ns - 1)) == []
    (release,) = [e for e in site.step([], START + hold_ns) if isinstance(e, Release)]
    assert not release.late


# -- a source ----------------------------------------------------------------------------------------------


def test_a_source_sends_one_message_at_a_time_and_again_until_it_is_acknowledged() -> None:
    source = RmpSource(AT_ONCE, 201)
    first = sent(source.submit(b"one", 1, START), Data)
    assert [data.first for data in first] == [1]
    assert source.submit(b"two", 1, START + 1) == []
    assert source.waiting == 2
    again_ns = 3 * PIPELINED.late_ns + TAU_R
    assert source.wake_ns == START + again_ns
    assert sent(source.step([], START + again_ns), Data) == first
    effects = source.step([ack(1, 201, 1)], START + again_ns + 1)
    assert [data.first for data in sent(effects, Data)] == [2]
    source.step([ack(2, 201, 2)], START + again_ns + 2)
    assert (source.waiting, source.acknowledged) == (0, 2)
    assert source.step([], START + 10 * again_ns) == []


def test_a_source_that_is_not_answered_reports_a_fault() -> None:
    source = RmpSource(AT_ONCE, 201)
    source.submit(b"one", 1, START)
    faults = []
    for _ in range(PIPELINED.attempts):
        assert source.wake_ns is not None
        faults += reports(source.step([], source.wake_ns), "fault")
    assert len(faults) == 1


# -- whole runs, checked as every history is ---------------------------------------------------------------


@pytest.mark.parametrize("idle_ms", [None, 50])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_every_receiver_gets_every_message_in_one_order(loss: float, idle_ms: int | None) -> None:
    idle_ns = idle_ms * MS if idle_ms is not None else None
    for seed in (1, 2, 3):
        measured = run_steady(
            "rmp", members=4, loss=loss, load=30, lasting_ns=2_000 * MS, sources=3, seed=seed, idle_ns=idle_ns
        )
        assert measured.packets > 30
        assert len(measured.ready_ns) == measured.packets
        assert measured.faults == 0


def test_without_loss_it_needs_one_acknowledgement_a_message_and_at_most_one_confirm() -> None:
    measured = run_steady("rmp", members=4, loss=0.0, load=60, lasting_ns=3_000 * MS)
    assert measured.sent["token"] == measured.acknowledged
    assert set(measured.sent) <= {"token", "confirm"}
    assert 1.0 <= measured.control_per_packet <= 2.0


def test_a_timed_token_costs_by_the_clock_and_finds_a_lost_token_within_delta_n() -> None:
    busy = run_steady("timed", members=4, loss=0.02, load=100, lasting_ns=3_000 * MS)
    assert busy.sent["token"] == pytest.approx(150, abs=1)
    assert busy.control_per_packet < 1
    clock_error_ns = MS
    assert busy.detect_token_ns
    assert max(busy.detect_token_ns) <= busy.timing.late_ns + clock_error_ns


def test_an_event_driven_token_finds_a_lost_one_only_with_the_next_message() -> None:
    calm = run_steady("rmp", members=4, loss=0.05, load=4, lasting_ns=30_000 * MS)
    assert max(calm.detect_token_ns) > 10 * calm.timing.late_ns


def test_a_hold_time_of_r_is_fair_with_a_timed_token_and_not_with_an_event_driven_one() -> None:
    timed = run_steady("timed", members=4, loss=0.05, load=4, lasting_ns=30_000 * MS)
    rmp = run_steady("rmp", members=4, loss=0.05, load=4, lasting_ns=30_000 * MS)
    hold_ns = timed.timing.recovery_ns
    assert timed.late_share(hold_ns) == 0.0
    assert timed.spreads_ns(hold_ns)[-1] == 0
    assert timed.spreads_ns(0)[-1] > 0
    assert rmp.late_share(hold_ns) > 0.0
    assert rmp.spreads_ns(hold_ns)[-1] > 0


def test_a_dead_member_is_reported_sooner_by_the_clock_than_by_the_next_messages() -> None:
    by_clock = [time_to_fault_ns("timed", members=4, load=1, seed=seed) for seed in range(3)]
    by_event = [time_to_fault_ns("rmp", members=4, load=1, seed=seed) for seed in range(3)]
    assert max(each or 0 for each in by_clock) < min(each or 10**12 for each in by_event)


def test_runs_add_up() -> None:
    one, two = (run_steady("timed", members=3, loss=0.0, load=50, lasting_ns=500 * MS, seed=seed) for seed in (1, 2))
    tokens, packets = one.sent["token"] + two.sent["token"], one.packets + two.packets
    total = ProtocolFigures(one.protocol, one.members, one.loss, one.load, one.timing)
    total.add(one)
    total.add(two)
    assert total.sent["token"] == total.control == tokens
    assert total.packets == packets
    assert len(total.wait_ns) == packets
    assert "token" in CONTROL


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(compare_protocols)
    assert result.attempted > 0
    assert result.failed == 0
