"""What the ring's tests build with: a timing in round numbers, rings, tokens, packets, and a receiver with a disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from levelcast.protocol.config import StripeConfig, Witnesses
from levelcast.protocol.effects import Effect, Forget, Persist, Release, Send
from levelcast.protocol.events import Event
from levelcast.protocol.history import Frame
from levelcast.ring.member import Member
from levelcast.ring.schedule import Schedule
from levelcast.sim.engine.disk import Disk
from levelcast.timing.rules import Mode, Timing
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import (
    Data,
    Era,
    Invite,
    Join,
    Mark,
    MemberLife,
    Membership,
    Message,
    Packet,
    Ring,
    Run,
    Token,
)
from levelcast.wire.packets import seal

MS = 1_000_000
START = 1_700_000_000_000 * MS
"""T_g of the first ring."""
SERVER = 101

PIPELINED = Timing(
    mode="pipelined",
    slot_ns=10 * MS,
    late_ns=12 * MS,
    request_ns=26 * MS,
    attempts=3,
    hold_ns=300 * MS,
    join_ns=26 * MS,
    lead_ns=38 * MS,
    backoff_ns=90 * MS,
    ask_ns=360 * MS,
    resend_ns=46 * MS,
)
"""R = 168 ms, and a token is heard everywhere within 90 ms."""
LOCKSTEP = replace(PIPELINED, mode="lockstep", slot_ns=200 * MS)

T = TypeVar("T")


def lives(*members: int, life: int = 1) -> tuple[MemberLife, ...]:
    return tuple(MemberLife(member, life) for member in members)


def membership(*members: int, version: int = 0) -> Membership:
    return Membership(version, lives(*members))


def make_config(
    members: int = 3,
    *,
    mode: Mode = "pipelined",
    witnesses: Witnesses = "majority",
    credit: int = 8,
    servers: tuple[int, ...] = (SERVER, SERVER + 1),
) -> StripeConfig:
    return StripeConfig(
        stripe=0,
        timing=PIPELINED if mode == "pipelined" else LOCKSTEP,
        witnesses=witnesses,
        membership=membership(*range(1, members + 1)),
        servers=servers,
        credit=credit,
    )


def make_ring(
    generation: int = 1,
    members: Sequence[int] = (1, 2, 3),
    *,
    start_slot: int = 1,
    start_ns: int = START,
    before: Sequence[Era] = (),
    configured: Membership | None = None,
    stands: bool = True,
    life: int = 1,
    helper: int | None = None,
) -> Ring:
    ring = Ring(
        generation,
        SERVER,
        members[0] if helper is None else helper,
        configured if configured is not None else membership(*members),
        stands,
        lives(*members, life=life),
        (*before, Era(generation, start_slot, start_ns)),
        (),
    )
    return seal_message(ring, 0)


def make_token(
    ring: Ring,
    slot: int,
    have: int | None = None,
    runs: Iterable[Run] = (),
    *,
    marks: tuple[Mark, ...] = (),
    credit: int = 8,
    slot_ns: int = PIPELINED.slot_ns,
) -> Token:
    """The token of a slot of `ring`, by its site and at its time; `have` is its own slot unless said."""
    schedule = Schedule(ring, slot_ns)
    token = Token(
        ring.generation,
        slot,
        schedule.time_of(slot),
        schedule.owner_of(slot),
        slot if have is None else have,
        credit,
        tuple(runs),
        marks,
    )
    return seal_message(token, 0)


def make_data(source: int, number: int, *, incarnation: int = 1, payload: bytes | None = None) -> Data:
    if payload is None:
        payload = f"{source}.{incarnation}#{number}".encode()
    return seal(Packet(source, incarnation, number, 1, payload), 0)


def make_join(
    generation: int,
    member: int,
    *,
    life: int = 1,
    caught_up: int = 0,
    have: int = 0,
    settled: int = 0,
    clock_ns: int = START,
    lineage: tuple[Era, ...] = (),
    before: Membership | None = None,
    current: Membership | None = None,
    witnessed: bool = True,
) -> Join:
    return Join(
        generation,
        member,
        life,
        caught_up,
        have,
        settled,
        clock_ns,
        lineage,
        before,
        current if current is not None else membership(1, 2, 3),
        witnessed,
    )


def sent(effects: Iterable[Effect], kind: type[T]) -> list[T]:
    """The messages of one kind that a step sends."""
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def kept(effects: Iterable[Effect], kind: type[T]) -> list[T]:
    """The entries of one kind that a step journals."""
    return [e.entry for e in effects if isinstance(e, Persist) and isinstance(e.entry, kind)]


def released(effects: Iterable[Effect]) -> list[Release]:
    return [effect for effect in effects if isinstance(effect, Release)]


def reports(effects: Iterable[Effect], kind: str) -> list[Event]:
    return [effect for effect in effects if isinstance(effect, Event) and kind == effect.KIND]


class Seat:
    """A receiver with its disk, as a driver runs it: effects are carried out, sends are only returned."""

    def __init__(self, config: StripeConfig, member: int = 1, at: int = START, life: int = 1) -> None:
        self.config = config
        self.member = member
        self.disk = Disk(config, life)
        self.receiver = Member(config, member, self.disk.journal, self.disk.tape.tip, at)

    @property
    def frames(self) -> list[Frame]:
        return self.disk.tape.frames

    def step(self, *messages: Message, at: int, trusted: bool = True) -> list[Effect]:
        effects = self.receiver.step(messages, at, clock_trusted=trusted)
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.journal.apply(effect.entry)
            elif isinstance(effect, Release):
                self.disk.tape.append(effect.frame)
            elif isinstance(effect, Forget):
                self.disk.journal.forget(effect.slot, effect.places)
        return effects

    def enter(self, ring: Ring, at: int) -> list[Effect]:
        """Promise and enter `ring`."""
        return self.step(Invite(ring.generation, SERVER), at=at) + self.step(ring, at=at)

    def restart(self, at: int) -> None:
        """kill -9 and start again on the same disk."""
        self.receiver = Member(self.config, self.member, self.disk.journal, self.disk.tape.tip, at)


def seat_in_ring(
    config: StripeConfig | None = None, member: int = 1, ring: Ring | None = None, at: int = START - 20 * MS
) -> Seat:
    """A member that has entered `ring` a little before it starts."""
    config = config if config is not None else make_config()
    seat = Seat(config, member, at)
    seat.enter(ring if ring is not None else make_ring(), at)
    return seat
