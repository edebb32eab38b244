"""An acceptor gives each connection to the session that its Logon names, and closes the others without an answer."""

from __future__ import annotations

import pytest

from levelcast.market.fix.acceptor import Acceptor, LogonRequested, Output
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import Close, DeliverMessage, SendBytes
from levelcast.market.fix.session import FixSession, SessionState
from levelcast.market.fix.values import time_text
from tests.fix_parts import START, S, shown_message, whole

ORDER = "11=A1|21=1|38=100|40=1|54=1|55=IBM|60=20260105-12:00:00|"


def session(name: bytes, **options: object) -> FixSession:
    return FixSession(SessionConfig(sender=b"ISLD", target=name, **options))  # type: ignore[arg-type]


def text(kind: str, body: str = "", seq: int = 1, sender: str = "ANN", now: int = START) -> bytes:
    return whole(f"8=FIX.4.4|35={kind}|34={seq}|49={sender}|52={time_text(now).decode()}|56=ISLD|{body}")


def sent(outputs: list[Output]) -> list[str]:
    return [shown_message(output.effect.data) for output in outputs if isinstance(output.effect, SendBytes)]


def reasons(outputs: list[Output]) -> list[str]:
    return [output.effect.reason for output in outputs if isinstance(output.effect, Close)]


def test_connections_find_their_sessions() -> None:
    ann, bob = session(b"ANN"), session(b"BOB")
    acceptor = Acceptor([ann, bob])
    for name in ("ANN", "BOB"):
        acceptor.connect(name, START)
        assert sent(acceptor.receive(name, text("A", "98=0|108=30|", sender=name), START)) == ["35=A|34=1|98=0|108=30"]
    assert (acceptor.session_of("ANN"), acceptor.session_of("BOB"), acceptor.pending) == (ann, bob, 0)
    outputs = acceptor.receive("ANN", text("D", ORDER, 2), START)
    assert [(output.connection, output.session) for output in outputs if isinstance(output.effect, DeliverMessage)] == [
        ("ANN", ann)
    ]


def test_bytes_after_the_logon_are_handled_with_it() -> None:
    acceptor = Acceptor([session(b"ANN")])
    acceptor.connect(1, START)
    data = text("A", "98=0|108=30|") + text("1", "112=T|", 2) + text("1", "112=U|", 3)
    assert acceptor.receive(1, data[:20], START) == []
    assert sent(acceptor.receive(1, data[20:-9], START)) == ["35=A|34=1|98=0|108=30", "35=0|34=2|112=T"]
    assert sent(acceptor.receive(1, data[-9:], START)) == ["35=0|34=3|112=U"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (text("0"), "the first message is not a Logon of this version"),
        (text("A", "98=0|108=30|").replace(b"FIX.4.4", b"FIX.4.2"), "no Logon, but wrong CheckSum"),
        (text("A", "98=0|108=30|", sender="EVE"), "no session has these CompIDs"),
        (b"\x16\x03\x01", "no Logon, but bytes before BeginString"),
        (b"8=FIX.4.4\x019=999999\x01", "no Logon, but an oversized message"),
    ],
)
def test_other_connection_is_closed_without_an_answer(data: bytes, reason: str) -> None:
    acceptor = Acceptor([session(b"ANN")])
    acceptor.connect(1, START)
    outputs = acceptor.receive(1, data, START)
    assert outputs == [Output(1, None, Close(reason))]
    assert acceptor.pending == 0
    assert acceptor.receive(1, text("A", "98=0|108=30|"), START) == []
    assert acceptor.wake_ns is None


def test_second_connection_of_a_session_is_closed() -> None:
    acceptor = Acceptor([session(b"ANN")])
    acceptor.connect(1, START)
    acceptor.receive(1, text("A", "98=0|108=30|"), START)
    acceptor.connect(2, START)
    assert reasons(acceptor.receive(2, text("A", "98=0|108=30|"), START)) == ["the session has a connection"]
    assert sent(acceptor.receive(1, text("1", "112=T|", 2), START)) == ["35=0|34=2|112=T"]
    assert acceptor.disconnected(1, START)
    acceptor.connect(3, START)
    assert sent(acceptor.receive(3, text("A", "98=0|108=30|", 3), START)) == ["35=A|34=3|98=0|108=30"]


def test_password_is_checked_outside() -> None:
    ann = session(b"ANN")
    acceptor = Acceptor([ann], checks_passwords=True)
    logon = text("A", "98=0|108=30|553=ann|554=secret|")
    acceptor.connect(1, START)
    assert acceptor.receive(1, logon, START) == [Output(1, ann, LogonRequested(ann, b"ann", b"secret"))]
    assert acceptor.receive(1, text("1", "112=T|", 2), START) == []
    assert sent(acceptor.admit(1, START)) == ["35=A|34=1|98=0|108=30", "35=0|34=2|112=T"]
    assert acceptor.admit(1, START) == []


def test_wrong_password_is_answered() -> None:
    acceptor = Acceptor([session(b"ANN")], checks_passwords=True)
    acceptor.connect(1, START)
    acceptor.receive(1, text("A", "98=0|108=30|"), START)
    outputs = acceptor.refuse(1, b"wrong password", START)
    assert sent(outputs) == ["35=5|34=1|58=wrong password"]
    assert reasons(outputs) == ["wrong password"]
    assert acceptor.session_of(1) is None
    assert acceptor.refuse(1, b"wrong password", START) == []


def test_two_waiting_logons_of_a_session_are_not_both_admitted() -> None:
    acceptor = Acceptor([session(b"ANN")], checks_passwords=True)
    for connection in (1, 2):
        acceptor.connect(connection, START)
        acceptor.receive(connection, text("A", "98=0|108=30|"), START)
    assert sent(acceptor.admit(1, START))
    assert reasons(acceptor.admit(2, START)) == ["the session has a connection"]
    assert acceptor.refuse(2, b"wrong password", START) == []


def test_waiting_connection_may_send_little() -> None:
    acceptor = Acceptor([session(b"ANN")], checks_passwords=True, max_message=500)
    acceptor.connect(1, START)
    acceptor.receive(1, text("A", "98=0|108=30|"), START)
    assert acceptor.receive(1, b"x" * 400, START) == []
    assert reasons(acceptor.receive(1, b"x" * 400, START)) == ["too many bytes before the answer to the Logon"]


def test_connection_without_a_logon_is_closed_in_time() -> None:
    acceptor = Acceptor([session(b"ANN")], logon_timeout_ns=3 * S)
    acceptor.connect(1, START)
    assert acceptor.wake_ns == START + 3 * S
    assert acceptor.step(START + 3 * S - 1) == []
    assert reasons(acceptor.step(START + 3 * S)) == ["no Logon of the peer"]
    assert acceptor.wake_ns is None


def test_sessions_are_stepped_when_they_are_due() -> None:
    sessions = [session(b"S%d" % number) for number in range(5)]
    acceptor = Acceptor(sessions)
    for number in range(5):
        acceptor.connect(number, START + number * S)
        acceptor.receive(
            number, text("A", "98=0|108=10|", sender=f"S{number}", now=START + number * S), START + number * S
        )
    beats = []
    while (now := acceptor.wake_ns) is not None and now < START + 12 * S:
        beats += [(output.connection, now) for output in acceptor.step(now) if isinstance(output.effect, SendBytes)]
    assert beats == [(0, START + 10 * S), (1, START + 11 * S)]


def test_logout_by_the_operator_is_due_in_time() -> None:
    ann = session(b"ANN")
    acceptor = Acceptor([ann])
    acceptor.connect(1, START)
    acceptor.receive(1, text("A", "98=0|108=30|"), START)
    assert ann.logout(START)
    acceptor.schedule(1)
    assert acceptor.wake_ns == START + ann.config.logout_timeout_ns
    assert reasons(acceptor.step(START + ann.config.logout_timeout_ns)) == ["no Logout of the peer"]
    assert ann.state is SessionState.CLOSED
    assert acceptor.session_of(1) is None


def test_initiator_is_not_accepted() -> None:
    with pytest.raises(ValueError, match="initiator"):
        Acceptor([session(b"ANN", initiator=True)])
