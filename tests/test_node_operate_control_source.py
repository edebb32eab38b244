"""The operator's change of the configured set: which record, and that it is sent until it is witnessed."""

from __future__ import annotations

import pytest

from levelcast.errors import NetError
from levelcast.network import parse_network
from levelcast.node.operate import control_source
from levelcast.node.operate.control_source import newest_membership, next_incarnation, publish, replaced
from levelcast.node.status_client import Answer
from levelcast.runtime.sockets import Address, Arrival
from levelcast.storage.node_store import NodeStore
from levelcast.storage.tape.stamps import packet_fault
from levelcast.wire.codec import decode, encode
from levelcast.wire.membership import decode_membership
from levelcast.wire.messages import CONTROL_SOURCE, Data, Mark, MemberLife, Membership, Run, Token
from levelcast.wire.packets import open_packets
from tests.test_network import SMALL

NETWORK = parse_network(SMALL)
SET = Membership(3, (MemberLife(1, 1), MemberLife(2, 4), MemberLife(3, 1)))
INCARNATION = 77


class Group:
    """Sockets of a core group in which a ring answers with tokens, as `answers` says for each packet that it hears."""

    sent: list[Data]
    answers: list[Token]

    def __init__(self, *_: object, hears_data: bool = True) -> None:
        assert not hears_data
        self._inbox: list[Arrival] = []

    def wait(self, timeout_s: float, others: object = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return bool(self._inbox), []

    def drain(self, domain: int | None = None) -> list[Arrival]:
        inbox, self._inbox = self._inbox, []
        return inbox

    def learn(self, node: int, address: Address) -> None:
        pass

    def send(self, to: int, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            domain, message = decode(datagram)
            assert isinstance(message, Data)
            self.sent.append(message)
            if self.answers:
                self._inbox.append((encode(self.answers.pop(0), domain), ("127.0.0.1", 4000), 0))

    def close(self) -> None:
        pass


def token(slot: int, *marks: Mark, runs: tuple[Run, ...] = ()) -> Token:
    return Token(1, slot, 10**18 + slot, 1, slot, 64, runs, marks)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> type[Group]:
    monkeypatch.setattr(control_source, "open_core", Group)
    Group.sent, Group.answers = [], []
    return Group


def test_a_member_gets_its_new_life_and_keeps_its_place() -> None:
    assert replaced(SET, 2, 5) == Membership(4, (MemberLife(1, 1), MemberLife(2, 5), MemberLife(3, 1)))
    assert replaced(SET, 2, 4) is None
    with pytest.raises(NetError, match="life 3 is older"):
        replaced(SET, 2, 3)
    with pytest.raises(NetError, match="node 9 is not in version 3"):
        replaced(SET, 9, 2)


def test_the_newest_set_counts_and_one_who_knows_it_to_stand_is_enough() -> None:
    def answer(version: int, stands: bool) -> Answer:
        members = [{"id": each.member, "life": each.life} for each in SET.members]
        return Answer("x", {"membership": {"version": version, "stands": stands, "members": members}})

    answers = [answer(2, True), answer(3, False), answer(3, True), Answer("floor", {})]
    assert newest_membership(answers) == (SET, True)
    assert newest_membership(answers[:2]) == (SET, False)


def test_an_incarnation_is_never_used_twice() -> None:
    answers = [Answer("a", {"sources": {"0": {"incarnation": 500}}}), Answer("b", {"sources": {}}), Answer("c", {})]
    assert next_incarnation(answers, 1000) == 1000
    assert next_incarnation(answers, 400) == 501
    assert next_incarnation([], 3) == 3


def test_the_record_is_sent_until_it_is_witnessed(group: type[Group]) -> None:
    acknowledged = token(1, runs=(Run(CONTROL_SOURCE, INCARNATION, 1, 1),))
    group.answers = [token(2, Mark(CONTROL_SOURCE, INCARNATION - 1, 1)), acknowledged]
    resent = len(group.answers)
    group.answers.append(token(3, Mark(CONTROL_SOURCE, INCARNATION, 1)))
    publish(NETWORK, "main", SET, INCARNATION, 20.0)
    assert len(group.sent) == resent + 1
    (packet,) = open_packets(*set(group.sent))
    assert (packet.source, packet.incarnation, packet.number, packet.records) == (CONTROL_SOURCE, INCARNATION, 1, 1)
    assert decode_membership(packet.payload) == SET
    assert packet_fault(packet) is None


def test_a_ring_that_does_not_witness_it_is_one_sentence(group: type[Group]) -> None:
    with pytest.raises(NetError, match=r"version 3 .* not witnessed within 0\.3 s.*nothing was received"):
        publish(NETWORK, "main", SET, INCARNATION, 0.3)


def test_a_later_operator_wins(group: type[Group]) -> None:
    group.answers = [token(1, runs=(Run(CONTROL_SOURCE, INCARNATION + 1, 1, 1),))]
    with pytest.raises(NetError, match="another operator has published a later change"):
        publish(NETWORK, "main", SET, INCARNATION, 20.0)


def test_an_operator_has_nothing_to_keep() -> None:
    keeper = NodeStore()
    keeper.commit()
    keeper.forget(1, {})
    keeper.close()
