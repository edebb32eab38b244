"""Tapes on which plans are replaced: what the tests of feeds, followers and mergers share."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np

from levelcast.protocol.history import Frame, Tip
from levelcast.records import instruments, statuses, trades
from levelcast.wire.channel_plan import ChannelPlan, build_channel_plan, part_records, swap_record, symbols_crc
from levelcast.wire.messages import CONTROL_SOURCE, Packet
from tests.tape_parts import FIRST, SLOT_NS, T0, frame_of_packets

INSTRUMENTS = 12


SYMBOLS = {number: f"S{number}" for number in range(1, INSTRUMENTS + 1)}


def some_plan(number: int, seed: int, stripe: int = 0, groups: int = 4) -> ChannelPlan:
    """A plan of all instruments, unlike that of another seed."""
    rng = Random(f"{number} {seed} {stripe}")
    sessions = rng.randint(1, 5)
    pairs = [(each, rng.randrange(sessions)) for each in range(1, INSTRUMENTS + 1)]
    places = [rng.randrange(groups) for _ in range(sessions)]
    default = rng.randrange(sessions)
    return build_channel_plan(number, pairs, places, default=default, symbols=symbols_crc(SYMBOLS.items()))


def definitions() -> bytes:
    batch = instruments(INSTRUMENTS)
    batch["instrument_id"] = np.arange(1, INSTRUMENTS + 1)
    batch["raw_symbol"] = [symbol.encode() for symbol in SYMBOLS.values()]
    batch["publisher_id"] = 1
    return batch.tobytes()


def some_records(rng: Random, count: int, first_id: int) -> bytes:
    """Trades of all instruments, now and then a halt of the whole venue."""
    batch = trades(count)
    batch["publisher_id"] = 1
    batch["instrument_id"] = [rng.randint(1, INSTRUMENTS + 1) for _ in range(count)]  # one is in no plan
    batch["trade_id"] = np.arange(first_id, first_id + count)
    batch["ts_event"] = batch["trade_id"]
    content: bytes = batch.tobytes()
    if rng.random() < 0.2:
        halt = statuses(1)
        halt["publisher_id"], halt["ts_event"] = 1, first_id + 10**9
        content += halt.tobytes()
    return content


class PlannedTape:
    """Frames of one stripe, made one at a time; slots without one between."""

    def __init__(self, seed: int, stripe: int = 0) -> None:
        self.rng = Random(f"{seed} {stripe}")
        self.stripe = stripe
        self.frames: list[Frame] = []
        self.trades = 0
        self._tip: Tip = FIRST.copy()
        self._numbers: dict[int, int] = {}
        self.frame([(201, definitions(), INSTRUMENTS)])

    def frame(self, payloads: Iterable[tuple[int, bytes, int]]) -> Frame:
        packets = []
        for source, payload, records in payloads:
            number = self._numbers[source] = self._numbers.get(source, 0) + 1
            packets.append(Packet(source, 1, number, records, payload))
        slot = self._tip.slot + self.rng.choice((1, 1, 2, 5))
        made = frame_of_packets(slot, T0 + slot * SLOT_NS, self._tip.next_sequence, packets, self._tip.chain)
        self._tip.append(made)
        self.frames.append(made)
        return made

    def trade(self, frames: int, control: Iterable[bytes] = ()) -> None:
        """Some frames of trades; the operator's records are in the first ones, some together."""
        waiting = list(control)
        while frames > 0 or waiting:
            frames -= 1
            count = self.rng.randint(1, 30)
            content = some_records(self.rng, count, self.trades)
            self.trades += count
            payloads = [(201, content, count + (len(content) > count * 64))]
            while waiting and self.rng.random() < 0.7:
                payloads.append((CONTROL_SOURCE, waiting.pop(0), 1))
            self.frame(payloads if self.rng.random() < 0.5 else [*payloads[1:], payloads[0]])

    def swap(self, plan: ChannelPlan, between: int = 2) -> None:
        self.trade(1, part_records(plan, self.stripe))
        self.trade(between)
        self.trade(1, [swap_record(plan, self.stripe)])


def planned_tape(seed: int, swaps: int = 3, stripe: int = 0, groups: int = 4) -> PlannedTape:
    """Trades under several plans, one behind the other."""
    tape = PlannedTape(seed, stripe)
    tape.trade(tape.rng.randint(1, 5))
    for number in range(1, swaps + 1):
        tape.swap(some_plan(number, seed, stripe, groups), tape.rng.randint(0, 4))
        tape.trade(tape.rng.randint(0, 6))
    return tape
