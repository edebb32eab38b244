"""Signatures verified on other threads, and their results in the protocol's verifier."""

from __future__ import annotations

import select

from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier, RecentVerifier
from levelcast.runtime.verify_pool import ToVerify, VerifiedBatch, VerifyPool
from levelcast.wire.messages import Probe


class CountingVerifier:
    """Counts verifications."""

    def __init__(self) -> None:
        self.calls = 0
        self._inner = KeyedHashVerifier((1, 2))

    def holds(self, member: int, content: bytes, signature: bytes) -> bool:
        self.calls += 1
        return self._inner.holds(member, content, signature)


def taken(pool: VerifyPool, count: int) -> list[VerifiedBatch]:
    found: list[VerifiedBatch] = []
    while len(found) < count:
        assert select.select([pool.fileno], [], [], 20)[0], "the pool does not wake the loop"
        found += pool.take()
    return found


def test_results_are_known_to_the_protocol_without_another_verification() -> None:
    counting = CountingVerifier()
    recent = RecentVerifier(counting)
    good = ToVerify(recent, 1, b"content", KeyedHash(1).sign(b"content"))
    bad = good._replace(signature=bytes(64))
    pool = VerifyPool(2)
    message = Probe(1, 2, 3)
    pool.put([message], [good, bad])
    pool.put([message], [])
    batches = taken(pool, 2)
    assert {tuple(holds for _, holds in batch.results) for batch in batches} == {(True, False), ()}
    assert all(list(batch.messages) == [message] for batch in batches)
    calls = counting.calls
    assert recent.holds(1, b"content", good.signature)
    assert not recent.holds(1, b"content", bytes(64))
    assert counting.calls == calls == 2
    pool.close()


def test_any_thread_can_wake_the_loop() -> None:
    pool = VerifyPool(1)
    for _ in range(3):
        pool.wake()
    assert select.select([pool.fileno], [], [], 1)[0]
    assert list(pool.take()) == []
    assert not select.select([pool.fileno], [], [], 0)[0]
    pool.close()
    pool.wake()  # after the end: nothing happens
