"""Every clause of the session is needed: without it, a test of the session or of two joined sessions fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from levelcast.market.fix import journal, session
from levelcast.market.fix.gap import Gap
from levelcast.market.fix.journal import SessionImage
from levelcast.market.fix.outbox import Outbox
from levelcast.market.fix.session import FixSession
from tests import test_market_fix_journal as journal_tests
from tests import test_market_fix_session as tests
from tests.fix_link import LinkHistory


class Mutation(NamedTuple):
    name: str
    owner: Any
    attribute: str
    without: Any
    found_by: Callable[[], object]


def nothing(*args: object, **options: object) -> None:
    """Do nothing instead of the clause."""


def linked() -> None:
    """Run histories of two sessions until one shows a fault."""
    for seed in range(40):
        LinkHistory(seed).run()


def no_fault(*args: object) -> tuple[None, bool]:
    return None, False


def sent_first(outbox: Outbox, entry: object, effects: list[object]) -> None:
    """Apply an entry without recording it."""
    outbox.image.apply(entry)  # type: ignore[arg-type]


def deliver_any_number(self: FixSession, message: Any, seq: int, now: int, effects: Any) -> None:
    self._in_turn(message, seq, now, effects)


def accept_high_number(self: FixSession, seq: int, message: Any, now: int, effects: Any) -> None:
    self._in_turn(message, seq, now, effects)


def forget_sent(self: SessionImage, entry: object) -> None:
    """Apply an entry, but never keep what was sent."""
    original_apply(self, entry)  # type: ignore[arg-type]
    self.sent.clear()


original_apply = SessionImage.apply

MUTATIONS = [
    Mutation("CompIDs are compared", FixSession, "_comp_ids_match", lambda *_: True, tests.test_failed_by_comp_id),
    Mutation("SendingTime is near", FixSession, "_time_is_near", lambda *_: True, tests.test_failed_by_time),
    Mutation(
        "OrigSendingTime is required",
        FixSession,
        "_duplicate_fault",
        no_fault,
        tests.test_duplicate_needs_its_first_time,
    ),
    Mutation(
        "a low number ends the session",
        FixSession,
        "_on_low_number",
        nothing,
        tests.test_low_number_without_the_flag_ends_the_session,
    ),
    Mutation(
        "a low number is not delivered",
        FixSession,
        "_on_low_number",
        deliver_any_number,
        tests.test_duplicate_is_ignored,
    ),
    Mutation(
        "a high number waits",
        FixSession,
        "_hold",
        accept_high_number,
        tests.test_gap_is_requested_once_and_later_messages_wait_for_it,
    ),
    Mutation(
        "a gap is requested again",
        FixSession,
        "_repeat_request",
        nothing,
        tests.test_gap_that_does_not_shrink_is_requested_again,
    ),
    Mutation(
        "kept messages follow the gap",
        FixSession,
        "_drain",
        nothing,
        tests.test_gap_is_requested_once_and_later_messages_wait_for_it,
    ),
    Mutation(
        "kept messages have a limit",
        Gap,
        "hold",
        lambda self, seq, message: self._held.update({seq: message}),
        tests.test_kept_messages_are_limited_by_bytes,
    ),
    Mutation(
        "kept messages that were resent are dropped",
        Gap,
        "advance",
        lambda self, *_: setattr(self, "upto", 0),
        tests.test_kept_messages_are_dropped_when_they_are_resent,
    ),
    Mutation(
        "a fault in a Logon refuses it",
        FixSession,
        "_logon_fault",
        lambda *_: b"",
        tests.test_logon_that_resets_needs_number_one,
    ),
    Mutation(
        "numbers roll with the period",
        FixSession,
        "_roll",
        lambda *_: True,
        tests.test_numbers_start_again_in_a_new_period,
    ),
    Mutation(
        "silence ends the connection",
        FixSession,
        "_watch_silence",
        nothing,
        tests.test_heartbeat_after_an_interval_without_sending,
    ),
    Mutation(
        "kept messages are sent with the Logon's answer",
        Outbox,
        "send_kept",
        nothing,
        tests.test_message_kept_after_the_logon_is_sent_with_its_answer,
    ),
    Mutation(
        "numbers without messages are filled", Outbox, "_fill", nothing, tests.test_resend_has_messages_and_gap_fills
    ),
    Mutation(
        "a gap fill must be higher", session, "int", lambda text: 10**6, tests.test_gap_fill_advances_and_must_be_higher
    ),
    Mutation("entries are recorded", Outbox, "persist", sent_first, linked),
    Mutation("messages are kept for resends", SessionImage, "apply", forget_sent, linked),
    Mutation(
        "a number is not used again",
        journal,
        "max",
        lambda first, second: second,
        journal_tests.test_entries_of_numbers_may_be_recorded_in_another_order,
    ),
    Mutation(
        "what was not kept is requested",
        Gap,
        "seen",
        property(lambda self: 0, nothing),
        tests.test_messages_beyond_the_limit_are_not_kept_but_requested,
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_removal_of_a_clause_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation.owner, mutation.attribute, mutation.without, raising=False)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        mutation.found_by()
