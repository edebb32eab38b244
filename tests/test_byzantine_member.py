"""A member refuses what it receives with one reason each, and nothing else happens."""

from __future__ import annotations

import pytest

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.digests import Author
from levelcast.byzantine.ed25519 import Ed25519Signer, Ed25519Verifier
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier, RecentVerifier, Verifier
from levelcast.byzantine.turns import BySlot
from levelcast.protocol.effects import ChainDeliver, Send
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.wire.chain_codec import pack_content
from levelcast.wire.chain_messages import (
    ChainContent,
    ChainEvidence,
    ChainMessage,
    ChainRequest,
    Citation,
    DeliveredRow,
)
from levelcast.wire.messages import Message, Repair

MEMBERS = (1, 2, 3, 4)
CONFIG = ChainConfig(MEMBERS)
ME = 1


def member(verifier: Verifier | None = None) -> ChainMember:
    verifier = verifier or KeyedHashVerifier(MEMBERS)
    return ChainMember(
        CONFIG, ME, KeyedHash(ME), verifier, ChainImage(), 0,
        lambda after: BySlot(CONFIG, ME, 0, start_ns=10**9, slot_ns=10**9, after_slot=after),
    )  # fmt: skip


def content(*, delivered: tuple[int, ...] = (0, 0, 0, 0), convicted: tuple[int, ...] = ()) -> bytes:
    return pack_content(ChainContent(delivered, convicted, (b"packet",)))


def signed(sender: int = 2, seq: int = 1, slot: int = 2, epoch: int = 1, key: int | None = None,
           body: bytes | None = None, acks: tuple[Citation, ...] = ()) -> ChainMessage:  # fmt: skip
    author = Author(sender, CONFIG.domain, epoch, KeyedHash(key or sender))
    return author.message(seq, slot, content() if body is None else body, acks)


GOOD = signed()
OTHER = signed(body=content(convicted=(3,)))
REQUEST = ChainRequest(2, 1, (0, 0, 0, 0), (), (), True)
STATEMENT = Author(2, 0, 1, KeyedHash(2)).statement([DeliveredRow(3, 1, bytes(32), bytes(32))])

REFUSED: dict[str, tuple[Message, ChainRefusal]] = {
    "epoch": (signed(epoch=2), ChainRefusal.EPOCH),
    "stranger": (signed(sender=9), ChainRefusal.STRANGER),
    "acknowledges a stranger": (signed(acks=(Citation(9, 1, bytes(32)),)), ChainRefusal.STRANGER),
    "own": (signed(sender=ME, slot=1), ChainRefusal.OWN),
    "slot": (signed(slot=3), ChainRefusal.SLOT),
    "ahead": (signed(seq=CONFIG.window + 1), ChainRefusal.AHEAD),
    "other content": (GOOD._replace(content=content(convicted=(3,)), sealed=b""), ChainRefusal.DIGEST),
    "no content": (signed(body=b"x"), ChainRefusal.CONTENT),
    "vector": (signed(body=content(delivered=(0, 0))), ChainRefusal.CONTENT),
    "convicts a stranger": (signed(body=content(convicted=(9,))), ChainRefusal.CONTENT),
    "signature": (signed(key=3), ChainRefusal.SIGNATURE),
    "request of another epoch": (REQUEST._replace(epoch=2), ChainRefusal.EPOCH),
    "request of a stranger": (REQUEST._replace(sender=9), ChainRefusal.STRANGER),
    "request with a short vector": (REQUEST._replace(delivered=(0,)), ChainRefusal.VECTOR),
    "evidence of one header": (ChainEvidence(2, 1, GOOD.header, GOOD.header), ChainRefusal.EVIDENCE),
    "evidence of two places": (ChainEvidence(2, 1, GOOD.header, signed(seq=2).header), ChainRefusal.EVIDENCE),
    "evidence of another epoch": (ChainEvidence(2, 2, GOOD.header, OTHER.header), ChainRefusal.EPOCH),
    "evidence against a stranger": (ChainEvidence(2, 1, signed(9).header, signed(9).header), ChainRefusal.STRANGER),
    "forged evidence": (
        ChainEvidence(2, 1, GOOD.header, OTHER.header._replace(signature=bytes(64))),
        ChainRefusal.SIGNATURE,
    ),
    "statement of another epoch": (STATEMENT._replace(epoch=2), ChainRefusal.EPOCH),
    "statement of a stranger": (STATEMENT._replace(sender=9), ChainRefusal.STRANGER),
    "forged statement": (STATEMENT._replace(signature=bytes(64)), ChainRefusal.SIGNATURE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_one_reason(name: str) -> None:
    message, reason = REFUSED[name]
    receiver = member()
    effects = receiver.step((message,), 0)
    assert len(effects) == (reason is ChainRefusal.AHEAD)  # only then a request: this member may lag (C-4.2)
    assert dict(receiver.refused) == {reason: 1}
    assert not receiver.chain.graph.nodes
    assert not receiver.chain.convictions.members


def test_a_repeated_message_is_refused_before_its_signature_is_checked() -> None:
    asked = []

    class Counting:
        def holds(self, member: int, content: bytes, signature: bytes) -> bool:
            asked.append(member)
            return True

    receiver = member(Counting())
    receiver.step((GOOD, GOOD, Repair(3, (GOOD,))), 0)
    assert asked == [2]
    assert receiver.refused[ChainRefusal.KNOWN] == 2


def test_evidence_convicts_and_is_passed_on_once() -> None:
    receiver = member()
    evidence = ChainEvidence(3, 1, GOOD.header, OTHER.header)
    (send,) = receiver.step((evidence, evidence), 0)
    assert isinstance(send, Send)
    assert receiver.chain.convictions.members == (2,)
    assert receiver.refused == {ChainRefusal.KNOWN: 1}


@pytest.mark.parametrize(
    ("clause", "name"),
    [
        ("signature-unchecked", "signature"),
        ("content-unsigned", "other content"),
        ("statement-unchecked", "forged statement"),
    ],
)
def test_without_the_check_it_is_accepted(clause: str, name: str) -> None:
    with CHAIN_MUTATIONS[clause].applied():
        receiver = member()
        receiver.step((REFUSED[name][0],), 0)
    assert not receiver.refused


def test_a_group_with_real_signatures_delivers() -> None:
    signers = {each: Ed25519Signer(bytes([each]) * 32) for each in MEMBERS}
    verifier = RecentVerifier(Ed25519Verifier({each: signer.public for each, signer in signers.items()}))
    group = {
        each: ChainMember(
            CONFIG, each, signers[each], verifier, ChainImage(), 0,
            lambda after, each=each: BySlot(CONFIG, each, 0, start_ns=0, slot_ns=10, after_slot=after),  # type: ignore[misc]
        )
        for each in MEMBERS
    }  # fmt: skip
    group[2].submit([b"one", b"two"])
    delivered: dict[int, list[bytes]] = {each: [] for each in MEMBERS}
    inbox: list[Message] = []
    for now in range(0, 300, 5):
        batch, inbox = inbox, []
        for each, receiver in group.items():
            for effect in receiver.step(batch, now):
                if isinstance(effect, Send):
                    inbox.append(effect.message)
                elif isinstance(effect, ChainDeliver):
                    delivered[each] += effect.packets
    assert all(packets == [b"one", b"two"] for packets in delivered.values())


@pytest.mark.parametrize(
    ("keys", "says"),
    [({1: bytes(31)}, "31 bytes"), ({1: bytes(32), 2: bytes(32)}, "same key")],
)
def test_wrong_keys_are_refused(keys: dict[int, bytes], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Ed25519Verifier(keys)
