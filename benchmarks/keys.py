"""Measure the cost of keys: sealed packets, signed control messages, and beats of rings with 5 and 21 members.

    python -m benchmarks keys

CPU time of this thread for one operation, minimum of several rounds: other programs on the machine only add to it. Each
operation is the complete call that a node makes, with its Python. Packets are measured with both implementations, beats
with three ways to authenticate them:

| way           | proves the sender to | sender                        | receiver            |
|---------------|----------------------|-------------------------------|---------------------|
| signature     | everybody            | one signature                 | one check           |
| MAC per pair  | each receiver        | one MAC for each receiver     | one MAC             |
| control key   | nobody               | one MAC of all nodes' key     | the same            |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import count
from types import ModuleType

from benchmarks.report import Figure, Options, Result, Table
from levelcast import records
from levelcast.keys.authority import first_statement
from levelcast.keys.beat_macs import BeatSender, BeatVerifier
from levelcast.keys.control import ControlSeal, ControlVerifier, Verified
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import Keyring, open_keyring
from levelcast.keys.statement import RECEIVER, Holder
from levelcast.native import pure_seal, seal
from levelcast.wire.codec import encode
from levelcast.wire.header import domain_of
from levelcast.wire.messages import Beat, Claim, Data, Mark, Run, Token

NETWORK = 0x0123456789ABCDEF
DOMAIN = domain_of(NETWORK, 0)
MEMBERS = (5, 21)
BEATS_MS = (50, 25, 10)
SIZES, QUICK_SIZES = (1_412, 8_900, 60_000), (1_412,)
ROUNDS, CALLS = 20, 500
LIMIT = 3.0
"""Percent of a core for the authentication of beats."""
TRAIN_BYTES = 60_000


def run(options: Options) -> Result:
    """Measure packets, control messages and beats."""
    result = Result("keys")
    rounds, calls = (2, 20) if options.quick else (ROUNDS, CALLS)
    result.notes.append(f"packets by {seal.IMPLEMENTATION}")
    _packets(result, options, rounds)
    _control(result, rounds, calls)
    _beats(result, rounds, calls)
    return result


def cpu_us(call: Callable[[], object], rounds: int, calls: int) -> float:
    """Return the least CPU time of one call in µs."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.thread_time_ns() - began) / calls / 1e3)
    return best


# -- packets ---------------------------------------------------------------------------------------------


def _implementations() -> Iterator[tuple[str, ModuleType]]:
    if seal.COMPILED:
        from levelcast.native import _seal  # type: ignore[attr-defined]

        yield "C", _seal
    yield "Python", pure_seal


def _packets(result: Result, options: Options, rounds: int) -> None:
    rows: list[tuple[str | int | float, ...]] = []
    for size in QUICK_SIZES if options.quick else SIZES:
        costs = {name: _packet_costs(module, size, rounds) for name, module in _implementations()}
        for name, (sealing, checking, ordering) in costs.items():
            rows.append((f"{size} bytes, {name}", round(sealing, 2), round(checking, 2), round(ordering, 2)))
        first, last = next(iter(costs.values())), costs["Python"]
        name = f"seal and check a packet of {size} bytes, {seal.IMPLEMENTATION.split(',')[0]}"
        result.figures.append(Figure(name, sum(first[:2]), "µs", "Python", sum(last[:2])))
    columns = ("packet", "seal, µs", "check, µs", "open into a frame, µs")
    result.tables.append(Table("CPU per packet, in trains", columns, rows))


def _packet_costs(module: ModuleType, size: int, rounds: int) -> tuple[float, float, float]:
    key, head = bytes(range(32)), (DOMAIN, 1, 1, 1, 7)
    payload = records.trades(TRAIN_BYTES // 64).tobytes()
    numbers = count(1, 1_000)
    sealer, opener = module.Sealer(key, *head), module.Opener()
    opener.add(1, 1, 1, 7, key)
    sealed, packets, _, _ = module.Sealer(key, *head).seal_packets(payload, size, 1_000, 1)
    data = Data(1, 1, 1, packets, sealed)
    assert opener.open(sealed, DOMAIN, Data) == data
    calls = (
        lambda: sealer.seal_packets(payload, size, 1_000, next(numbers)),
        lambda: opener.open(sealed, DOMAIN, Data),
        lambda: opener.assemble([data]),
    )
    one, two, three = (cpu_us(call, rounds, 20) / packets for call in calls)
    return one, two, three


# -- control messages ------------------------------------------------------------------------------------


def _members(number: int) -> list[Keyring]:
    authority = Identity.new("authority")
    identities = [Identity.new(f"r{each}") for each in range(number)]
    holders = [Holder(101 + place, RECEIVER, each.public) for place, each in enumerate(identities)]
    statement = first_statement(authority, NETWORK, holders, time.time_ns())
    return [open_keyring(each, statement) for each in identities]


def _control(result: Result, rounds: int, calls: int) -> None:
    one, two = _members(2)
    runs = tuple(Run(source, 1, 1, 9) for source in range(1, 6))
    marks = tuple(Mark(source, 1, 9) for source in range(1, 6))
    token = encode(Token(1, 5, time.time_ns(), 101, 4, 64, runs, marks), DOMAIN)
    now = time.time_ns() + 1_000_000
    sealing = ControlSeal(one.identity, one.current(now))
    datagrams = [sealing.sign(token, now) for _ in range(calls)]
    forged = datagrams[0][:-1] + bytes((datagrams[0][-1] ^ 1,))
    verifier = ControlVerifier(two, now - 1_000)

    def verify_all() -> None:
        verifier.use(two)  # forgets the known ones
        for each in datagrams:
            verifier.begin_turn()
            assert isinstance(verifier.check(each, now), Verified)

    verifying = cpu_us(verify_all, max(2, rounds // 4), 1) / calls
    rows = [
        ("sign", round(cpu_us(lambda: sealing.sign(token, now), rounds, calls), 2)),
        ("verify", round(verifying, 2)),
        ("verify a repeated one", round(cpu_us(lambda: verifier.check(datagrams[0], now), rounds, calls), 2)),
        ("refuse a wrong MAC", round(cpu_us(lambda: verifier.check(forged, now), rounds, calls), 2)),
    ]
    result.tables.append(Table(f"CPU per token of {len(datagrams[0])} bytes", ("operation", "µs"), list(rows)))
    result.figures.append(Figure("verify a token", verifying, "µs", "refuse a wrong MAC", float(rows[-1][1])))


# -- beats -----------------------------------------------------------------------------------------------


def _beats(result: Result, rounds: int, calls: int) -> None:
    rows: list[tuple[str | int | float, ...]] = []
    for number in MEMBERS:
        costs = _beat_costs(number, rounds, calls)
        for way, (sending, receiving, size) in costs.items():
            shares = [percent_of_core(sending, receiving, number, beat_ms) for beat_ms in BEATS_MS]
            rows.append((f"{number} members, {way}", round(sending, 2), round(receiving, 2), size, *shares))
        sending, receiving, _ = costs["MAC per pair"]
        name = f"authenticate beats, {number} members, β = {BEATS_MS[-1]} ms"
        result.figures.append(
            Figure(name, percent_of_core(sending, receiving, number, BEATS_MS[-1]), "% of a core", "limit", LIMIT)
        )
    columns = ("ring, way", "send, µs", "receive, µs", "bytes", *(f"β = {each} ms, % of a core" for each in BEATS_MS))
    result.tables.append(Table("authentication of beats at a member", columns, rows))


def percent_of_core(sending_us: float, receiving_us: float, members: int, beat_ms: int) -> float:
    """Return the share of a core at a member: it sends one beat and receives one of every other member in each β."""
    return round((sending_us + (members - 1) * receiving_us) / (beat_ms * 1e3) * 100, 2)


def _beat_costs(members: int, rounds: int, calls: int) -> dict[str, tuple[float, float, int]]:
    one, two, *_ = rings = _members(members)
    assert len(rings) == members
    now = time.time_ns() + 1_000_000
    claims = tuple(Claim(250 * each, each) for each in range(5))
    beat = encode(Beat(101, 1, claims, 7, now), DOMAIN)
    beats, signing = BeatSender(one, one.current(now)), ControlSeal(one.identity, one.current(now))
    mac_key = one.current(now).control.reveal()
    (of_pair,), signed = beats.seal(beat, now), signing.sign(beat, now)
    return {
        "signature": (
            cpu_us(lambda: signing.sign(beat, now), rounds, calls),
            _receiving([signing.sign(beat, now) for _ in range(calls)], _signature_check(two, now), rounds),
            len(signed) - len(beat),
        ),
        "MAC per pair": (
            cpu_us(lambda: beats.seal(beat, now), rounds, calls),
            _receiving([beats.seal(beat, now)[0] for _ in range(calls)], _pair_check(two, now), rounds),
            len(of_pair) - len(beat),
        ),
        "control key": (
            cpu_us(lambda: beat + blake2b(beat, key=mac_key, digest_size=16).digest(), rounds, calls),
            cpu_us(lambda: blake2b(beat[:-16], key=mac_key, digest_size=16).digest() == beat[-16:], rounds, calls),
            16,
        ),
    }


def _signature_check(keyring: Keyring, now: int) -> Callable[[], Callable[[bytes], object]]:
    def begin() -> Callable[[bytes], object]:
        verifier = ControlVerifier(keyring, now - 1_000)

        def check(datagram: bytes) -> object:
            verifier.begin_turn()
            return verifier.check(datagram, now)

        return check

    return begin


def _pair_check(keyring: Keyring, now: int) -> Callable[[], Callable[[bytes], object]]:
    def begin() -> Callable[[bytes], object]:
        verifier = BeatVerifier(keyring, now - 1_000)
        return lambda datagram: verifier.check(datagram, now)

    return begin


def _receiving(datagrams: list[bytes], begin: Callable[[], Callable[[bytes], object]], rounds: int) -> float:
    """Return the least CPU time of one check; each round begins with new windows, so that nothing is a replay."""
    best = float("inf")
    for _ in range(max(2, rounds // 4)):
        check = begin()
        began = time.thread_time_ns()
        found = [check(each) for each in datagrams]
        best = min(best, (time.thread_time_ns() - began) / len(datagrams) / 1e3)
        assert all(isinstance(each, Verified | Holder) for each in found)
    return best
