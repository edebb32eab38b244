"""Packets are opened only as their source sealed them, and no (key, nonce) pair is ever used twice (K4 to K10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast import records
from levelcast.keys import packets as keys_packets
from levelcast.keys.authority import revoke, rotate
from levelcast.keys.derive import packet_key
from levelcast.keys.packets import MOST_DERIVED, MOST_SALTS, SealedPackets, SealedSource
from levelcast.keys.process import new_salt
from levelcast.keys.secret import KeysError, Secret
from levelcast.native.pure_seal import OVERHEAD
from levelcast.native.seal import Sealer
from levelcast.protocol.effects import Persist
from levelcast.protocol.journal_image import JournalImage
from levelcast.ring.source import Source
from levelcast.wire.header import Malformed, Reason, domain_of
from levelcast.wire.messages import Data, Packet
from levelcast.wire.packets import seal
from tests.keys_parts import NETWORK, NOW, KeyedNetwork, S
from tests.ring_parts import make_config, sent

DOMAIN = domain_of(NETWORK, 0)
CONFIG = make_config(credit=1_000)
KEYED = KeyedNetwork()
TRADES = records.trades(50).tobytes()


def train(source: SealedSource, first: int = 1, incarnation: int = 1) -> Data:
    data, _, _ = source.seal_all(TRADES, 1_400, 99, 1, incarnation, first)
    assert data is not None
    return data


@pytest.fixture
def floor() -> SealedSource:
    return SealedSource(KEYED.keyring("XTKS"), DOMAIN, 5, 1)


@pytest.fixture
def receiver() -> SealedPackets:
    return SealedPackets(KEYED.keyring("tokyo-1"), DOMAIN)


def test_every_receiver_opens_what_a_floor_sealed(floor: SealedSource) -> None:
    data = train(floor)
    for name in ("tokyo-1", "london-1", "osaka-1"):
        reads = SealedPackets(KEYED.keyring(name), DOMAIN)
        assert reads.check(data.sealed, NOW) == data
        assert reads.assemble([data])[1] == TRADES
    assert len(data.sealed) == len(TRADES) + OVERHEAD * (data.last - data.first + 1)


@pytest.mark.parametrize("name", ["XLON", "XTKS", "reform", "operator"])
def test_nobody_else_opens_it(floor: SealedSource, name: str) -> None:
    found = SealedPackets(KEYED.keyring(name), DOMAIN).check(train(floor).sealed, NOW)
    assert found == Reason.UNKNOWN_KEY or name == "XTKS"


def test_the_clear_text_is_not_in_a_sealed_packet(floor: SealedSource) -> None:
    sealed = train(floor).sealed
    assert not any(TRADES[at : at + 16] in sealed for at in range(0, len(TRADES), 16))


def test_another_floor_cannot_send_as_this_one(receiver: SealedPackets) -> None:
    other = SealedSource(KEYED.keyring("XLON"), DOMAIN, 5, 1)
    with pytest.raises(KeysError, match="XLON: it has no key of source 1 in epoch 1"):
        train(other)
    data, _, _ = other.seal_all(TRADES, 1_400, 99, 2, 1, 1)
    assert data is not None
    assert receiver.check(data.sealed, NOW) == data
    spoofed = data.sealed[:6] + (1).to_bytes(2, "little") + data.sealed[8:]
    assert receiver.check(spoofed[: len(data.sealed)], NOW) is Reason.BROKEN_SEAL


def test_packets_of_unknown_sources_epochs_and_seals_are_refused(floor: SealedSource, receiver: SealedPackets) -> None:
    sealed = bytearray(train(floor).sealed)
    for at in (6, 22):
        changed = bytearray(sealed)
        changed[at] ^= 0xF0
        assert receiver.check(bytes(changed), NOW) is Reason.UNKNOWN_KEY
    plain = seal(Packet(1, 1, 1, 1, TRADES[:64]), DOMAIN)
    assert receiver.check(plain.sealed, NOW) is Reason.UNKNOWN_SEAL
    assert receiver.check(b"", NOW) is Reason.UNKNOWN_SEAL


def test_a_source_without_a_key_cannot_begin() -> None:
    with pytest.raises(KeysError, match="tokyo-1: it has no key of a source in epoch 9"):
        SealedSource(KEYED.keyring("tokyo-1"), DOMAIN, 5, 9)
    with pytest.raises(KeysError, match="reform: it has no key of a source"):
        SealedSource(KEYED.keyring("reform"), DOMAIN, 5, 1)


def test_a_packet_that_no_receiver_would_accept_is_not_sealed(floor: SealedSource) -> None:
    with pytest.raises(Malformed):
        floor.seal(Packet(1, 1, 0, 1, TRADES[:64]))


def test_a_rotation_and_revocations() -> None:
    keyed = KeyedNetwork()
    keyed.statement = rotate(keyed.statement, NOW, 10)
    floor = SealedSource(keyed.keyring("XTKS"), DOMAIN, 5, 1)
    receiver = SealedPackets(keyed.keyring("tokyo-1"), DOMAIN)
    old = train(floor)
    floor.use_epoch(keyed.keyring("XTKS"), 2)
    new = train(floor, old.last + 1)
    assert receiver.check(old.sealed, NOW) == old
    assert receiver.check(new.sealed, NOW) == new
    assert receiver.assemble([old, new])[1] == TRADES * 2
    late = NOW + 10 * S + 3_600 * S
    assert receiver.check(old.sealed, late) is Reason.UNKNOWN_KEY
    assert receiver.check(old.sealed, late, named=True) == old
    with pytest.raises(KeysError, match="epoch 1 is earlier than 2, which is in use"):
        floor.use_epoch(keyed.keyring("XTKS"), 1)

    keyed.statement = revoke(keyed.statement, "XTKS", NOW)
    receiver.use(keyed.keyring("tokyo-1"))
    assert receiver.check(old.sealed, NOW) is Reason.UNKNOWN_KEY
    assert receiver.check(old.sealed, NOW, named=True) == old
    assert receiver.assemble([old])[1] == TRADES


def test_a_revoked_receiver_cannot_forge_a_floor_after_the_grace() -> None:
    keyed = KeyedNetwork()
    core = keyed.keyring("oslo-1")
    forged = SealedSource(keyed.keyring("XTKS"), DOMAIN, 66, 1)  # what oslo-1 can compute from its core secret
    assert core.source_key(1, 1) == keyed.keyring("XTKS").source_key(1, 1)
    keyed.statement = revoke(keyed.statement, "oslo-1", NOW, grace_s=5)
    receiver = SealedPackets(keyed.keyring("tokyo-1"), DOMAIN)
    sealed = train(forged).sealed
    assert receiver.check(sealed, NOW + 5 * S) is Reason.UNKNOWN_KEY


def test_only_the_newest_salts_are_kept_and_older_ones_are_derived_again(receiver: SealedPackets) -> None:
    trains = [train(SealedSource(KEYED.keyring("XTKS"), DOMAIN, salt, 1)) for salt in range(3 * MOST_SALTS)]
    for data in trains:
        assert receiver.check(data.sealed, NOW) == data
    assert [len(kept) for kept in receiver._kept.values()] == [MOST_SALTS]
    assert receiver.assemble(trains)[1] == TRADES * len(trains)
    assert [len(kept) for kept in receiver._kept.values()] == [MOST_SALTS]


def test_random_salts_of_a_stranger_are_bounded_and_keep_no_key(floor: SealedSource, receiver: SealedPackets) -> None:
    data = train(floor)
    sealed = data.sealed
    found: Counter[Any] = Counter()
    for salt in range(1_000, 1_000 + 2 * MOST_DERIVED):
        found[receiver.check(sealed[:8] + salt.to_bytes(8, "little") + sealed[16:], NOW)] += 1
    assert found == {Reason.BROKEN_SEAL: MOST_DERIVED, Reason.UNKNOWN_KEY: MOST_DERIVED}
    assert not receiver._kept
    assert receiver.check(sealed, NOW) is Reason.UNKNOWN_KEY, "its key is not known, and this second is over budget"
    assert receiver.check(sealed, NOW + S) == data
    for salt in range(MOST_DERIVED):
        receiver.check(sealed[:8] + salt.to_bytes(8, "little") + sealed[16:], NOW + 2 * S)
    assert receiver.check(sealed, NOW + 2 * S) == data, "a known key is not in the budget"


def test_a_lost_key_of_a_held_packet_is_an_error_with_its_source(floor: SealedSource) -> None:
    with pytest.raises(KeysError, match="the key of a held packet of source 1 is missing"):
        SealedPackets(KEYED.keyring("reform"), DOMAIN).assemble([train(floor)])


# -- no nonce twice (K5) ---------------------------------------------------------------------------------


class Pairs:
    """Record every key and nonce that are used, as the derivation and the cipher get them."""

    def __init__(self) -> None:
        self.used: Counter[tuple[bytes, int]] = Counter()

    def sealer(self, key: bytes, *head: int) -> Any:
        real, used = Sealer(key, *head), self.used

        class Recording:
            def seal(self, number: int, count: int, payload: bytes) -> bytes:
                used[key, number] += 1
                return bytes(real.seal(number, count, payload))

            def seal_packets(self, payload: bytes, packet_bytes: int, most: int, number: int) -> Any:
                found = real.seal_packets(payload, packet_bytes, most, number)
                used.update((key, number + each) for each in range(found[1]))
                return found

        return Recording()


@contextmanager
def recorded() -> Iterator[Pairs]:
    pairs = Pairs()
    with patch.object(keys_packets, "Sealer", pairs.sealer):
        yield pairs


class Machines:
    """Processes of one floor: any number at once, on its disk, on a copy of it, or on none."""

    def __init__(self) -> None:
        self.keyed = KEYED
        self.statement = KEYED.statement
        self.disk = JournalImage()
        self.copy = JournalImage()
        self.incarnation = 1
        self.running: list[tuple[Source, SealedSource, JournalImage]] = []

    def start(self, disk: JournalImage) -> None:
        keyring = self.keyed.keyring("XTKS")
        sealer = SealedSource(keyring, DOMAIN, new_salt(), keyring.current(NOW).number)
        self.running.append((Source(CONFIG, 1, self.incarnation, disk, NOW, sealer), sealer, disk))

    def publish(self, which: int, count: int) -> None:
        if not self.running:
            return
        source, _, disk = self.running[which % len(self.running)]
        if source.room:
            for effect in source.submit_all(records.trades(count).tobytes(), 400, NOW).effects:
                if isinstance(effect, Persist):
                    disk.apply(effect.entry)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.just(0), st.just(0)),
        st.tuples(st.just("start without a journal"), st.just(0), st.just(0)),
        st.tuples(st.just("start on a copy"), st.just(0), st.just(0)),
        st.tuples(st.just("copy the disk"), st.just(0), st.just(0)),
        st.tuples(st.just("next epoch"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("publish"), st.integers(0, 3), st.integers(1, 12)),
    ),
    min_size=2,
    max_size=25,
)


def play(steps: list[tuple[str, int, int]]) -> Counter[tuple[bytes, int]]:
    with recorded() as pairs:
        machines, keyed = Machines(), KeyedNetwork()
        machines.keyed = keyed
        machines.start(machines.disk)
        for step, which, count in steps:
            if step == "start":
                machines.start(machines.disk)
            elif step == "start without a journal":
                machines.start(JournalImage())  # in the same incarnation, as an operator's mistake would
            elif step == "copy the disk":
                machines.copy = JournalImage()
                for data in machines.disk.packets.values():
                    machines.copy.apply(data)
            elif step == "start on a copy":
                machines.start(machines.copy)
            elif step == "next epoch":
                keyed.statement = rotate(keyed.statement, NOW, 0)
                keyring = keyed.keyring("XTKS")
                machines.running[which % len(machines.running)][1].use_epoch(keyring, max(keyring.epochs))
            else:
                machines.publish(which, count)
        return pairs.used


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_key_and_nonce_are_used_twice(steps: list[tuple[str, int, int]]) -> None:
    assert max(play(steps).values(), default=1) == 1


def test_without_the_salt_in_the_key_a_second_process_repeats_one() -> None:
    steps = [("publish", 0, 5), ("start without a journal", 0, 0), ("publish", 1, 5)]
    assert max(play(steps).values()) == 1

    def unsalted(source: Secret, stripe: int, incarnation: int, salt: int) -> Secret:
        return packet_key(source, stripe, incarnation, 0)

    with patch.object(keys_packets, "packet_key", unsalted):
        assert max(play(steps).values()) == 2


def test_without_the_incarnation_in_the_key_a_process_that_continues_could_repeat_one() -> None:
    with recorded() as pairs:
        floor = SealedSource(KEYED.keyring("XTKS"), DOMAIN, 5, 1)
        train(floor, incarnation=1)
        train(floor, incarnation=2)
    assert max(pairs.used.values()) == 1


def test_a_source_with_a_sealer_sends_sealed_packets_and_forgets_them_as_before(receiver: SealedPackets) -> None:
    floor = SealedSource(KEYED.keyring("XTKS"), DOMAIN, 5, 1)
    source = Source(CONFIG, 1, 1, JournalImage(), NOW, floor)
    submitted = source.submit_all(TRADES, 1_400, NOW)
    (data,) = [each.entry for each in submitted.effects if isinstance(each, Persist)]
    assert isinstance(data, Data)
    assert receiver.check(data.sealed, NOW) == data
    resent = source.step([], NOW + 10 * S)
    assert [each.sealed for each in sent(resent, Data)] == [data.sealed]
