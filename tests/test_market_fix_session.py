"""A session answers every message as its module head states: by state, by number, by type and by time.

`tests/test_market_fix_mutations.py` removes clauses of the session and expects that these tests find it.
"""

from __future__ import annotations

import pytest

from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import GapFound, Ignored, LoggedOn, LoggedOut, PeerReject, SendBytes
from levelcast.market.fix.journal import Expecting, Numbered, Received, Reset, Sent, SessionImage
from levelcast.market.fix.schedule import SessionSchedule
from levelcast.market.fix.session import FixSession, SessionState
from levelcast.market.fix.values import time_text
from tests.fix_parts import START, Peer, S, shown_message, whole
from tests.fuzz.targets import TARGETS

ORDER = "11=A1|21=1|38=100|40=1|54=1|55=IBM|60=20260105-12:00:00"
REPORT = b"6=0\x0111=A1\x0114=0\x0117=E1\x0137=R1\x0139=0\x0154=1\x0155=IBM\x01150=0\x01151=100\x01"
HOUR = 3_600 * S


def server(**options: object) -> FixSession:
    return FixSession(SessionConfig(sender=b"ISLD", target=b"TW44", **options))  # type: ignore[arg-type]


def client(**options: object) -> FixSession:
    return FixSession(SessionConfig(sender=b"ISLD", target=b"TW44", initiator=True, **options))  # type: ignore[arg-type]


def test_logon_is_answered_and_recorded_before() -> None:
    peer = Peer(logon=False)
    peer.connect()
    effects = peer.session.receive(whole(peer.text("A", "98=0|108=7", 1)), peer.now)
    assert [type(effect).__name__ for effect in effects] == ["PersistEntry", "PersistEntry", "SendBytes", "LoggedOn"]
    peer.perform(effects)
    assert peer.journal == [Expecting(2), Numbered(1)]
    assert peer.session.state is SessionState.ESTABLISHED
    assert peer.session.heartbeat_ns == 7 * S


@pytest.mark.parametrize(
    "text",
    [
        "8=FIX.4.4|35=0|34=1|49=TW44|52=TIME|56=ISLD|",
        "8=FIX.4.4|35=A|34=1|49=WT|52=TIME|56=ISLD|98=0|108=30|",
        "8=FIX.4.4|35=A|34=1|49=TW44|52=TIME|56=DLSI|98=0|108=30|",
        "8=FIX.4.4|35=A|34=1|49=TW44|52=20250105-12:00:00|56=ISLD|98=0|108=30|",
        "8=FIX.4.2|35=A|34=1|49=TW44|52=TIME|56=ISLD|98=0|108=30|",
        "8=FIX.4.4|35=A|49=TW44|52=TIME|56=ISLD|98=0|108=30|",
        "8=FIX.4.4|9=12|35=A|34=1|49=TW44|52=TIME|56=ISLD|98=0|108=30|",
        "GET / HTTP/1.1",
    ],
)
def test_what_is_not_a_logon_of_the_session_gets_no_answer(text: str) -> None:
    peer = Peer(logon=False)
    peer.connect()
    data = whole(text.replace("TIME", time_text(peer.now).decode())) if text.startswith("8=") else text.encode()
    assert peer.raw(data) == []
    assert peer.closed
    assert peer.journal == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("98=0", "Required tag missing (tag 108)"),
        ("98=0|108=x", "Incorrect data format for value (tag 108)"),
        ("98=1|108=30", "EncryptMethod is not supported, use 0"),
        ("98=0|108=-1", "HeartBtInt must be 0 to 3600 s"),
        ("98=0|108=30|5001=x", "Invalid tag number (tag 5001)"),
    ],
)
def test_logon_with_a_fault_is_refused_with_its_reason(body: str, text: str) -> None:
    peer = Peer(logon=False)
    peer.connect()
    assert peer.say("A", body) == [f"35=5|34=1|58={text}"]
    assert peer.closed == text
    assert peer.journal == [Numbered(1)]


def test_logon_with_a_number_too_low_is_refused() -> None:
    peer = Peer(FixSession(SessionConfig(sender=b"ISLD", target=b"TW44"), SessionImage([Expecting(5)])), logon=False)
    peer.connect()
    assert peer.say("A", "98=0|108=30", seq=3) == ["35=5|34=1|58=MsgSeqNum too low, expecting 5 but received 3"]
    assert peer.closed


def test_logon_with_a_number_too_high_is_answered_and_the_gap_requested() -> None:
    peer = Peer(logon=False)
    peer.connect()
    assert peer.say("A", "98=0|108=30", seq=4) == ["35=A|34=1|98=0|108=30", "35=2|34=2|7=1|16=0"]
    assert peer.events == [LoggedOn(), GapFound(1, 4)]
    assert peer.say("4", "36=5|123=Y", seq=1, head="43=Y") == []
    assert peer.say("1", "112=T", seq=5) == ["35=0|34=3|112=T"]


def test_logon_can_reset_the_numbers() -> None:
    session = FixSession(SessionConfig(sender=b"ISLD", target=b"TW44"), SessionImage([Expecting(5), Numbered(8)]))
    peer = Peer(session, logon=False)
    peer.connect()
    assert peer.say("A", "98=0|108=30|141=Y", seq=1) == ["35=A|34=1|98=0|108=30|141=Y"]
    assert peer.journal == [Reset(peer.now), Expecting(2), Numbered(1)]


def test_logon_that_resets_needs_number_one() -> None:
    peer = Peer(logon=False)
    peer.connect()
    assert peer.say("A", "98=0|108=30|141=Y", seq=2) == ["35=5|34=1|58=a Logon with ResetSeqNumFlag has MsgSeqNum 1"]


def test_logon_of_an_established_session_can_reset_the_numbers() -> None:
    peer = Peer()
    peer.say("0")
    peer.perform(peer.session.send(b"8", REPORT, peer.now))
    assert peer.say("A", "98=0|108=9|141=Y", seq=1) == ["35=A|34=1|98=0|108=9|141=Y"]
    assert peer.say("1", "112=T", seq=2) == ["35=0|34=2|112=T"]
    assert peer.say("2", "7=1|16=0", seq=3) == ["35=4|34=1|43=Y|36=3|123=Y"]


def test_second_logon_is_rejected() -> None:
    peer = Peer()
    assert peer.say("A", "98=0|108=30") == ["35=3|34=2|45=2|58=Logon of an established session|372=A|373=99"]
    assert peer.say("1", "112=T") == ["35=0|34=3|112=T"]


def test_application_message_is_recorded_before_it_is_delivered() -> None:
    peer = Peer()
    data = whole(peer.text("D", ORDER, 2))
    effects = peer.session.receive(data, peer.now)
    assert [type(effect).__name__ for effect in effects] == ["PersistEntry", "DeliverMessage"]
    peer.perform(effects)
    assert peer.journal[-1] == Received(2, data)
    assert [message.get(11) for message in peer.delivered] == [b"A1"]


def test_sent_message_is_recorded_before_it_is_sent() -> None:
    peer = Peer()
    effects = peer.session.send(b"8", REPORT, peer.now, cause=7)
    assert [type(effect).__name__ for effect in effects] == ["PersistEntry", "SendBytes"]
    assert peer.perform(effects) == ["35=8|34=2|" + REPORT.decode().replace("\x01", "|")[:-1]]
    assert peer.journal[-1] == Sent(2, b"8", REPORT, peer.now, 7)
    assert peer.session.image.cause == 7


def test_message_with_a_fault_is_rejected_and_counts() -> None:
    peer = Peer()
    rejected = peer.say("D", ORDER.replace("54=1", "54=x"))
    assert rejected == ["35=3|34=2|45=2|58=Value is incorrect (out of range) for this tag|371=54|372=D|373=5"]
    assert not peer.delivered
    assert peer.say("1", "112=T") == ["35=0|34=3|112=T"]


def test_reject_reverses_the_route() -> None:
    peer = Peer()
    (reject,) = peer.say("D", ORDER.replace("54=1", "54=x"), head="115=FIRM|116=DESK")
    assert reject.startswith("35=3|34=2|128=FIRM|129=DESK|45=2|")


def test_type_without_a_layout_is_refused_by_a_business_reject() -> None:
    peer = Peer()
    assert peer.say("E", "66=L1") == ["35=j|34=2|45=2|58=Unsupported Message Type|372=E|380=3"]
    assert peer.say("1", "112=T") == ["35=0|34=3|112=T"]


def test_unknown_type_is_rejected() -> None:
    peer = Peer()
    assert peer.say("*") == ["35=3|34=2|45=2|58=Invalid MsgType|372=*|373=11"]


def test_gap_is_requested_once_and_later_messages_wait_for_it() -> None:
    peer = Peer()
    assert peer.say("1", "112=third", seq=4) == ["35=2|34=2|7=2|16=0"]
    assert peer.say("1", "112=fourth", seq=5) == []
    assert peer.say("1", "112=first", seq=2) == ["35=0|34=3|112=first"]
    assert peer.say("1", "112=second", seq=3) == [
        f"35=0|34={n}|112={t}" for n, t in ((4, "second"), (5, "third"), (6, "fourth"))
    ]
    assert peer.session.image.next_in == 6


def test_gap_that_does_not_shrink_is_requested_again() -> None:
    peer = Peer(server(resend_timeout_ns=10 * S))
    assert peer.say("0", seq=4) == ["35=2|34=2|7=2|16=0"]
    assert peer.wait(9) == []
    assert peer.say("0", seq=5) == []
    assert peer.wait(2) == ["35=2|34=3|7=2|16=0"]


def test_messages_beyond_the_limit_are_not_kept_but_requested() -> None:
    peer = Peer(server(max_held=1))
    assert peer.say("1", "112=third", seq=4) == ["35=2|34=2|7=2|16=0"]
    assert peer.say("1", "112=fourth", seq=5) == []
    assert peer.say("0", seq=2) == []
    assert peer.say("0", seq=3) == ["35=0|34=3|112=third", "35=2|34=4|7=5|16=0"]


def test_kept_messages_are_limited_by_bytes() -> None:
    peer = Peer(server(max_held_bytes=100))
    assert peer.say("1", "112=third" + "x" * 100, seq=4) == ["35=2|34=2|7=2|16=0"]
    assert peer.say("0", seq=2) == []
    assert peer.say("0", seq=3) == ["35=2|34=3|7=4|16=0"]


def test_duplicate_is_ignored() -> None:
    peer = Peer()
    peer.say("D", ORDER)
    assert peer.say("D", ORDER, seq=2, head="43=Y|122=20260105-12:00:00") == []
    assert len(peer.delivered) == 1
    assert Ignored("duplicate of message 2") in peer.events


def test_duplicate_that_is_not_one_is_accepted() -> None:
    peer = Peer()
    assert peer.say("D", ORDER, head="43=Y|122=20260105-12:00:00") == []
    assert len(peer.delivered) == 1


def test_low_number_without_the_flag_ends_the_session() -> None:
    peer = Peer()
    peer.say("0")
    assert peer.say("0", seq=2) == ["35=5|34=2|58=MsgSeqNum too low, expecting 3 but received 2"]
    assert peer.closed
    assert isinstance(peer.events[-1], LoggedOut)


def test_duplicate_needs_its_first_time() -> None:
    peer = Peer()
    peer.say("D", ORDER)
    reject = "35=3|34=2|45=2|58=Required tag missing|371=122|372=D|373=1"
    assert peer.say("D", ORDER, seq=2, head="43=Y") == [reject]
    assert peer.session.state is SessionState.ESTABLISHED


def test_duplicate_sent_before_its_first_time_ends_the_session() -> None:
    peer = Peer()
    later = time_text(peer.now + 10 * S).decode()
    answers = peer.say("D", ORDER, head=f"43=Y|122={later}")
    assert answers == ["35=3|34=2|45=2|58=SendingTime accuracy problem|372=D|373=10", "35=5|34=3"]
    assert not peer.delivered


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"sender": "WT"}, "CompID problem", 9),
        ({"target": "WT"}, "CompID problem", 9),
        ({"time": time_text(START - 121 * S).decode()}, "SendingTime accuracy problem", 10),
        ({"time": time_text(START + 121 * S).decode()}, "SendingTime accuracy problem", 10),
    ],
)
def test_wrong_identity_or_time_ends_the_session(fields: dict[str, str], text: str, reason: int) -> None:
    peer = Peer()
    answers = peer.raw(whole(peer.text("D", ORDER, 2, **fields)))
    assert answers == [f"35=3|34=2|45=2|58={text}|372=D|373={reason}", "35=5|34=3"]
    assert peer.session.state is SessionState.FAILED
    assert not peer.delivered
    assert peer.say("5") == []
    assert peer.closed == "Logout"


def test_time_at_the_tolerance_is_accepted() -> None:
    peer = Peer()
    assert peer.say("D", ORDER, time=time_text(START - 120 * S).decode()) == []
    assert len(peer.delivered) == 1


def test_failed_session_accepts_nothing_but_serves_resends() -> None:
    peer = Peer()
    peer.perform(peer.session.send(b"8", REPORT, peer.now))
    peer.say("0", begin="FIX.4.2", seq=2)
    assert peer.session.state is SessionState.FAILED
    assert peer.say("D", ORDER, seq=2) == []
    assert not peer.delivered
    assert peer.session.image.next_in == 2
    assert peer.say("2", "7=2|16=2", seq=3)[0].startswith("35=8|34=2|43=Y|")
    assert peer.wait(5) == []
    assert peer.closed


def test_other_version_ends_the_session() -> None:
    peer = Peer()
    assert peer.say("0", begin="FIX.4.2") == ["35=5|34=2|58=Incorrect BeginString"]


def test_message_without_a_number_ends_the_session() -> None:
    peer = Peer()
    text = peer.text("0", "", 2).replace("34=2|", "")
    assert peer.raw(whole(text)) == ["35=5|34=2|58=MsgSeqNum is missing or not a number"]
    assert peer.closed


def test_oversized_message_ends_the_session() -> None:
    peer = Peer(server(max_message=300))
    text = peer.text("0", "112=" + "x" * 300, 2)
    answers = peer.raw(whole(text))
    assert len(answers) == 1
    assert answers[0].startswith("35=5|34=2|58=message of 3")
    assert answers[0].endswith("bytes exceeds the limit of 300")
    assert peer.closed


def test_garbled_message_is_ignored() -> None:
    peer = Peer()
    assert peer.raw(b"8=FIX.4.4\x019=5\x0135=0\x0110=000\x01") == []
    assert peer.events[-1] == Ignored("wrong CheckSum")
    assert peer.say("1", "112=T") == ["35=0|34=2|112=T"]


def test_resend_has_messages_and_gap_fills() -> None:
    peer = Peer()
    peer.say("1", "112=T")
    peer.perform(peer.session.send(b"8", REPORT, peer.now))
    peer.perform(peer.session.send(b"8", REPORT, peer.now, head=((97, b"Y"),)))
    peer.say("1", "112=T")
    body = REPORT.decode().replace("\x01", "|")[:-1]
    messages = [
        "35=4|34=1|43=Y|36=3|123=Y",
        f"35=8|34=3|43=Y|{body}",
        f"35=8|34=4|43=Y|97=Y|{body}",
        "35=4|34=5|43=Y|36=6|123=Y",
    ]
    assert peer.say("2", "7=1|16=0") == messages
    assert peer.say("2", "7=1|16=3") == messages[:2]
    assert peer.say("2", "7=3|16=3") == messages[1:2]
    assert peer.session.image.next_out == 6


def test_resent_message_has_its_first_time() -> None:
    peer = Peer()
    first = time_text(peer.now)
    peer.perform(peer.session.send(b"8", REPORT, peer.now))
    peer.now += 5 * S
    effects = peer.session.receive(whole(peer.text("2", "7=2|16=0", 2)), peer.now)
    (data,) = [effect.data for effect in effects if isinstance(effect, SendBytes)]
    assert b"\x0152=%b\x01" % time_text(peer.now) in data
    assert b"\x01122=%b\x01" % first in data


def test_reject_is_resent() -> None:
    peer = Peer()
    (reject,) = peer.say("*")
    assert peer.say("2", "7=2|16=0") == [reject.replace("34=2|", "34=2|43=Y|")]


def test_resend_advances_by_a_batch_a_step() -> None:
    peer = Peer(server(resend_batch=2))
    for _ in range(3):
        peer.perform(peer.session.send(b"8", REPORT, peer.now))
    assert [text[:9] for text in peer.say("2", "7=1|16=0")] == ["35=4|34=1", "35=8|34=2"]
    assert [text[:9] for text in peer.wait(0)] == ["35=8|34=3", "35=8|34=4"]
    assert peer.wait(1) == []


@pytest.mark.parametrize(("body", "tag"), [("7=0|16=0", 7), ("7=9|16=0", 7), ("7=2|16=1", 16)])
def test_resend_request_for_no_range_is_rejected(body: str, tag: int) -> None:
    peer = Peer()
    peer.say("1", "112=T")
    text = "Value is incorrect (out of range) for this tag"
    assert peer.say("2", body) == [f"35=3|34=3|45=3|58={text}|371={tag}|372=2|373=5"]


def test_resend_request_behind_a_gap_is_served_at_once() -> None:
    peer = Peer()
    assert peer.say("2", "7=1|16=0", seq=5) == ["35=4|34=1|43=Y|36=2|123=Y", "35=2|34=2|7=2|16=0"]
    assert peer.say("4", "36=5|123=Y", seq=2, head="43=Y") == []
    assert peer.session.image.next_in == 6


def test_gap_fill_advances_and_must_be_higher() -> None:
    peer = Peer()
    assert peer.say("4", "36=9|123=Y") == []
    assert peer.session.image.next_in == 9
    text = "Value is incorrect (out of range) for this tag"
    assert peer.say("4", "36=9|123=Y", seq=9) == [f"35=3|34=2|45=9|58={text}|372=4|373=5"]
    assert peer.session.image.next_in == 10


def test_sequence_reset_has_any_number_and_never_lowers() -> None:
    peer = Peer()
    assert peer.say("4", "36=20", seq=99) == []
    assert peer.session.image.next_in == 20
    text = "Value is incorrect (out of range) for this tag"
    assert peer.say("4", "36=19|123=N", seq=0) == [f"35=3|34=2|45=0|58={text}|372=4|373=5"]
    assert peer.session.image.next_in == 20


def test_test_request_is_answered() -> None:
    assert Peer().say("1", "112=HELLO") == ["35=0|34=2|112=HELLO"]


def test_reject_of_the_peer_is_reported() -> None:
    peer = Peer()
    assert peer.say("3", "45=1") == []
    assert isinstance(peer.events[-1], PeerReject)


def test_logout_is_answered_and_ends_the_connection() -> None:
    peer = Peer()
    assert peer.say("5") == ["35=5|34=2"]
    assert peer.closed == "Logout"
    assert peer.session.state is SessionState.CLOSED
    assert peer.raw(whole(peer.text("D", ORDER, 3))) == []
    assert not peer.delivered


def test_own_logout_awaits_the_answer_and_accepts_until_then() -> None:
    peer = Peer()
    assert peer.perform(peer.session.logout(peer.now, b"bye")) == ["35=5|34=2|58=bye"]
    assert peer.say("D", ORDER) == []
    assert len(peer.delivered) == 1
    assert peer.say("5") == []
    assert peer.closed == "Logout"


def test_own_logout_ends_after_a_time_without_an_answer() -> None:
    peer = Peer(server(logout_timeout_ns=3 * S))
    peer.perform(peer.session.logout(peer.now))
    assert peer.wait(2.9) == []
    assert peer.closed is None
    assert peer.wait(0.2) == []
    assert peer.closed == "no Logout of the peer"


def test_connection_without_a_logon_ends() -> None:
    peer = Peer(logon=False)
    peer.connect()
    peer.wait(9.9)
    assert peer.closed is None
    peer.wait(0.2)
    assert peer.closed == "no Logon of the peer"


def test_heartbeat_after_an_interval_without_sending() -> None:
    peer = Peer()
    assert peer.wait(29.9) == []
    peer.say("0")
    assert peer.wait(0.2) == ["35=0|34=2"]


def test_silent_peer_is_tested_then_disconnected() -> None:
    peer = Peer()
    assert peer.wait(37) == ["35=0|34=2", "35=1|34=3|112=TEST"]
    assert peer.wait(22) == []
    assert peer.closed is None
    assert peer.wait(2) == []
    assert peer.closed == "no message for 60 s"


def test_any_message_ends_the_silence() -> None:
    peer = Peer()
    peer.wait(37)
    peer.say("0", "112=TEST")
    assert peer.wait(36) == ["35=0|34=4", "35=1|34=5|112=TEST"]


def test_heartbeat_interval_zero_has_no_timers() -> None:
    peer = Peer(logon=False)
    peer.connect()
    peer.say("A", "98=0|108=0")
    assert peer.session.wake_ns is None
    assert peer.session.step(peer.now + HOUR) == []


def test_restarted_session_continues_its_numbers() -> None:
    peer = Peer()
    peer.say("D", ORDER)
    peer.perform(peer.session.send(b"8", REPORT, peer.now, cause=4))
    again = peer.restarted()
    assert again.session.image.cause == 4
    again.connect()
    assert again.say("A", "98=0|108=30") == ["35=A|34=3|98=0|108=30"]
    assert again.say("2", "7=2|16=0")[0].startswith("35=8|34=2|43=Y|")


def test_message_kept_without_a_connection_is_sent_on_request() -> None:
    peer = Peer(logon=False)
    assert peer.perform(peer.session.send(b"8", REPORT, peer.now)) == []
    peer.connect()
    assert peer.say("A", "98=0|108=30") == ["35=A|34=2|98=0|108=30"]
    assert peer.say("2", "7=1|16=1")[0].startswith("35=8|34=1|43=Y|")


def test_initiator_sends_its_logon_and_accepts_the_answer() -> None:
    peer = Peer(client(username=b"ann", password=b"secret"), logon=False)
    assert peer.connect() == ["35=A|34=1|98=0|108=30|553=ann|554=secret"]
    assert peer.session.state is SessionState.LOGON_SENT
    assert peer.say("A", "98=0|108=30") == []
    assert peer.events == [LoggedOn()]


def test_initiator_resets_the_numbers_if_configured() -> None:
    peer = Peer(client(reset_on_logon=True), logon=False)
    assert peer.connect() == ["35=A|34=1|98=0|108=30|141=Y"]
    assert peer.journal[0] == Reset(peer.now)


def test_initiator_reports_why_it_is_refused() -> None:
    peer = Peer(client(), logon=False)
    peer.connect()
    assert peer.say("5", "58=wrong password") == []
    assert peer.closed == "the peer refuses the Logon: wrong password"
    assert peer.session.image.next_in == 2


def test_message_kept_after_the_logon_is_sent_with_its_answer() -> None:
    peer = Peer(client(), logon=False)
    peer.connect()
    assert peer.perform(peer.session.send(b"D", b"11=A1\x01", peer.now)) == []
    assert peer.say("A", "98=0|108=0") == ["35=D|34=2|11=A1"]
    assert peer.perform(peer.session.send(b"D", b"11=A2\x01", peer.now)) == ["35=D|34=3|11=A2"]


def test_loss_of_the_connection_ends_no_session() -> None:
    peer = Peer()
    assert peer.perform(peer.session.disconnected(peer.now)) == []
    assert peer.events[-1] == LoggedOut("connection lost")
    assert peer.session.state is SessionState.CLOSED
    assert peer.session.disconnected(peer.now) == []
    peer.connect()
    assert peer.say("A", "98=0|108=30") == ["35=A|34=2|98=0|108=30"]


def test_refused_logon_has_the_reason() -> None:
    peer = Peer(logon=False)
    peer.connect()
    assert peer.perform(peer.session.refuse(b"wrong password", peer.now)) == ["35=5|34=1|58=wrong password"]
    assert peer.closed == "wrong password"


def scheduled(now: int, image: SessionImage | None = None) -> Peer:
    """A session that is open from 8:00 to 17:00."""
    config = SessionConfig(sender=b"ISLD", target=b"TW44", schedule=SessionSchedule(8 * HOUR, 17 * HOUR))
    return Peer(FixSession(config, image), now=now, logon=False)


def test_session_refuses_logons_outside_its_schedule() -> None:
    peer = scheduled(START + 6 * HOUR)
    peer.connect()
    assert peer.say("A", "98=0|108=30") == ["35=5|34=1|58=the session is closed at this time"]
    assert peer.closed


def test_session_ends_with_its_period() -> None:
    peer = scheduled(START + 5 * HOUR - 20 * S)
    peer.connect()
    peer.say("A", "98=0|108=30")
    assert peer.wait(19) == []
    assert peer.wait(2) == ["35=5|34=2|58=end of the session's period"]


def test_numbers_start_again_in_a_new_period() -> None:
    image = SessionImage([Reset(START - 28 * HOUR), Expecting(9), Numbered(7)])
    peer = scheduled(START, image)
    peer.seq = 1
    peer.connect()
    assert peer.say("A", "98=0|108=30") == ["35=A|34=1|98=0|108=30"]
    assert peer.journal[0] == Reset(START - 4 * HOUR)


def test_numbers_continue_within_a_period() -> None:
    image = SessionImage([Reset(START - 4 * HOUR), Expecting(9), Numbered(7)])
    peer = scheduled(START, image)
    peer.connect()
    assert peer.say("A", "98=0|108=30") == ["35=A|34=8|98=0|108=30"]


def test_shown_message_leaves_out_what_every_message_has() -> None:
    assert shown_message(whole("8=FIX.4.4|35=0|34=2|49=A|52=x|56=B|112=T|")) == "35=0|34=2|112=T"


def test_failed_by_comp_id() -> None:
    peer = Peer()
    peer.say("D", ORDER, sender="WT")
    assert peer.session.state is SessionState.FAILED


def test_failed_by_time() -> None:
    peer = Peer()
    peer.say("D", ORDER, time="20250105-12:00:00")
    assert peer.session.state is SessionState.FAILED


def test_kept_messages_are_dropped_when_they_are_resent() -> None:
    peer = Peer(server(max_held=1))
    peer.say("1", "112=third", seq=4)
    assert peer.say("4", "36=9|123=Y", seq=2, head="43=Y") == []
    assert peer.say("1", "112=twelfth", seq=12) == ["35=2|34=3|7=9|16=0"]
    assert peer.say("4", "36=12|123=Y", seq=9, head="43=Y") == ["35=0|34=4|112=twelfth"]


def test_the_fuzzer_starts_with_valid_messages() -> None:
    check, seeds = TARGETS["fix"].prepare()
    assert len(seeds) > 5
    for seed in seeds:
        check(seed)
