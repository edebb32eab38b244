"""Scenario `entry`: gateways stamp the orders of traders, and receivers compute the fair sequence (E1 to E8; MS §7.2).

The nodes, faults and checks of the scenario `ring` remain; its sources are gateways. Each gateway runs on the host of a
receiver, whose clock and releases it uses. An order is *received* when the gateway has journaled it (150=A), and
*accepted* when it is in the sequence (150=0). The operator starts order entry with a record and may change the set of
gateways and the numbers. Traders send single orders, copies and floods.

Each life of a receiver has a `FairEntry`. A restarted receiver continues from its last snapshot and its tape. Checked
are

| invariant        | checked |
|------------------|---------|
| One sequence     | after every frame: the commands for the engine are the same at every receiver |
| Once             | at every order of the sequence: it was sent, and is there for the first time |
| Own order        | at every order: those of an account at one gateway keep their order within a bucket |
| In turn          | at every order that is not late: its stamp is less than two buckets below those before it |
| Closed in time   | at every order: its bucket closes with the first frame that is Θ after its end, at the latest |
| Late only after Θ | at every late order: its gateway let Θ pass before |
| Honest accepted  | at every refusal: the gateway's clock was wrong, or the gateway is not in the set |
| None lost        | at the end: a received order is accepted or refused, unless its gateway lost its disk |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from random import Random
from typing import ClassVar

import numpy as np

from levelcast.market.fair.changes import changed_entry_rules
from levelcast.market.fair.fair_order import BEAT, EntryBatch, EntryReason, FairEntry
from levelcast.market.fair.snapshot import entry_snapshot, restored_entry
from levelcast.market.fair.stamps import GatewayStamper
from levelcast.market.fair.stripes import entry_frame
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.machine import Machine
from levelcast.records import ORDER, RecordArray, orders
from levelcast.ring.source import Source
from levelcast.sim.check.ring import InvariantBroken, PacketId
from levelcast.sim.engine.world import START_NS, SimNode
from levelcast.sim.faults import MS
from levelcast.sim.scenarios.ring import CLOCK_ERROR_NS, LAST_SUBMIT_NS, DrawSets, Outcome, RingHistory
from levelcast.wire.entry_change import EntryRules, encode_entry_rules
from levelcast.wire.messages import Data
from levelcast.wire.packets import open_packets

S = 1_000 * MS
MOST_ORDERS = 12
"""Orders in one packet."""
MOST_WAITING = 6
"""Segments that wait for credit; a gateway then reads no more (G3)."""
NETWORK_NS = 30_000
"""From a segment's arrival to the gateway's reading it."""
HEARD_NS = 10 * MS
"""From sending orders until the receivers of other gateways have them."""
OrderKey = tuple[int, int]
"""Account and client order id."""


class SimGateway:
    """A gateway on a receiver's host: stamps orders and submits them as a source of the ring."""

    def __init__(self, history: EntryHistory, node: SimNode, host: SimNode) -> None:
        self.node = node
        self.host = host
        self._history = history
        self._stamper = GatewayStamper(node.id, history.config.timing.slot_ns)
        self._queue: deque[RecordArray] = deque()
        self._count = 0
        self.error_ns = history.draws.choice((0, 0, 0, 0, -1, 1)) * history.draws.randint(5 * MS, 3 * S)
        """Error of its stamps that no check of its clock finds."""
        self.clock_was_wrong = self.error_ns != 0
        self._begun = False

    def restarted(self) -> None:
        """Continue after a start of the process: what was not journaled is gone."""
        self._queue.clear()
        self._stamper = GatewayStamper(self.node.id, self._history.config.timing.slot_ns)
        self._stamper.clock.last_ns = newest_stamp(self.node.disk.journal.packets.values())
        if not self._begun:
            self._begun = True
            self._tick()

    def released(self, release: Release) -> None:
        """Note a release of the receiver on this host."""
        frame = release.frame
        self._stamper.released((0, frame.slot), release.scheduled_ns, self.host.local_ns)

    def heard_order(self) -> None:
        """Note an order of another gateway that the receiver on this host has."""
        if self.running:
            self._stamper.heard_order(self.host.local_ns + self.error_ns)

    def trade(self, records: RecordArray) -> None:
        """Receive orders that have just arrived in one segment."""
        now = self.host.local_ns + self.error_ns
        rules = self._rules()
        applying = [each for each in rules if each.from_ns <= now]
        if not self.running or len(self._queue) >= MOST_WAITING:
            return
        if not applying or self.node.id not in applying[-1].gateways:
            return
        self._history.sent |= set(zip(records["account"].tolist(), records["client_order_id"].tolist(), strict=True))
        self._stamper.learn(rules, now)
        received = np.full(len(records), now - NETWORK_NS, np.int64)
        self._queue.append(self._stamper.stamped(records, received, now))
        self._submit()

    def _rules(self) -> list[EntryRules]:
        """Return the rules that the receiver on this host has released."""
        return [era.rules for era in self._history.entry_at(self.host).eras]

    @property
    def running(self) -> bool:
        """Return whether the gateway may stamp: it runs, and its clock is not known to be wrong (rule 13)."""
        wrong = abs(self.host.clock_offset_ns) > CLOCK_ERROR_NS
        self.clock_was_wrong |= wrong
        return self.node.machine is not None and self._history.world.now >= self.node.paused_until_ns and not wrong

    def next_ids(self, count: int) -> list[int]:
        self._count += count
        return [(self.node.id << 48) + self._count - place for place in reversed(range(count))]

    def _tick(self) -> None:
        """Beat if no order has shown the clock for a slot, and submit what waits for credit."""
        if self.running:
            now = self.host.local_ns + self.error_ns
            self._submit()
            inside = any(self.node.id in each.gateways for each in self._rules())
            if inside and not self._queue and now >= self._stamper.wake_ns:
                self._queue.append(self._stamper.beat(now, now))
                self._submit()
        self._history.world.after(self._history.config.timing.slot_ns // 2, self._tick)

    def _submit(self) -> None:
        node, source = self.node, self.node.machine
        while self._queue and isinstance(source, Source) and source.room and node.machine is source:
            records = self._queue.popleft()
            while self._queue and len(records) + len(self._queue[0]) <= MOST_ORDERS:
                records = np.concatenate((records, self._queue.popleft()))
            node.perform(source.submit(records.tobytes(), len(records), node.local_ns))
            if node.machine is source:  # not killed before the journal had it
                self._history.note_received(self, records)


def newest_stamp(kept: Iterable[Data]) -> int:
    """Return the newest stamp in the packets of a journal: stamps do not go back after a restart (E2)."""
    payloads = [packet.payload for data in kept for packet in open_packets(data)]
    return max((int(np.frombuffer(payload, ORDER)["ts_event"].max()) for payload in payloads), default=0)


class EntryWitness:
    """Watcher: order entry at every receiver, and its invariants."""

    def __init__(self, history: EntryHistory) -> None:
        self._history = history
        self._world = history.world
        self.entries: dict[tuple[int, int], FairEntry] = {}
        self._snapshots: dict[tuple[int, int], bytes] = {}
        self._payload_of: dict[int, str] = {}
        self.reference = FairEntry()
        """Order entry over the common tape, whose batches are checked."""
        self.accepted: set[OrderKey] = set()
        self.refused: set[OrderKey] = set()
        self.late = 0
        self._newest_ns = 0
        self._last_of: dict[tuple[int, int], tuple[int, int]] = {}
        self.let_pass: set[int] = set()

    def entry(self, node: SimNode) -> FairEntry:
        """Return order entry of a receiver; after a restart from its snapshot and its tape."""
        life = (node.id, node.disk.journal.life)
        if life not in self.entries:
            snapshot = self._snapshots.get(life)
            entry = restored_entry(snapshot) if snapshot is not None else FairEntry()
            for frame in node.disk.tape.frames:
                converted = entry_frame(frame)
                if converted.sequence > entry.sequence:
                    entry.frame(converted)
            self.entries[life] = entry
        return self.entries[life]

    def restart(self, node: SimNode) -> None:
        """Forget what a process knew; its snapshot and its tape remain."""
        self.entries.pop((node.id, node.disk.journal.life), None)

    def snapshot(self, node: SimNode) -> None:
        self._snapshots[node.id, node.disk.journal.life] = entry_snapshot(self.entry(node))

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if not isinstance(effect, Release) or node not in self._history.receivers:
            return
        known = (node.id, node.disk.journal.life) in self.entries
        entry = self.entry(node)
        converted = entry_frame(effect.frame)
        if known:
            self._check_same(node, converted.sequence, entry.frame(converted))
        if converted.sequence > self.reference.sequence:
            before_ns = self.reference.timestamp_ns
            batch = self.reference.frame(converted)
            self._check_same(node, converted.sequence, batch)
            self._check_batch(batch, before_ns)
        for gateway in self._history.gateways:
            if gateway.host is node:
                gateway.released(effect)

    def _check_same(self, node: SimNode, sequence: int, batch: EntryBatch) -> None:
        digest = sha256(batch.payload + batch.late.tobytes()).hexdigest()
        if self._payload_of.setdefault(sequence, digest) != digest:
            raise InvariantBroken("one sequence", f"{node.name} has other commands after sequence {sequence}")

    def _check_batch(self, batch: EntryBatch, before_ns: int) -> None:
        self.let_pass.update(batch.left)
        for record, late in zip(batch.orders, batch.late.tolist(), strict=True):
            key = int(record["account"]), int(record["client_order_id"])
            if key in self.accepted:
                raise InvariantBroken("once", f"order {key} is in the sequence twice")
            if key not in self._history.sent:
                raise InvariantBroken("once", f"order {key} was not sent")
            self.accepted.add(key)
            self._check_own(record, late=late)
            self._check_time(record, before_ns, late=late)
        for record, reason in zip(batch.refused, batch.reasons.tolist(), strict=True):
            self._check_refused(record, EntryReason(reason))

    def _check_own(self, record: RecordArray, *, late: bool) -> None:
        own = int(record["account"]), int(record["publisher_id"])
        place = int(record["ts_event"]), int(record["client_order_id"])
        if not late and place < self._last_of.get(own, (0, 0)):
            raise InvariantBroken("own order", f"account {own[0]}: {place} comes after {self._last_of[own]}")
        self._last_of[own] = max(place, self._last_of.get(own, (0, 0)))

    def _check_time(self, record: RecordArray, before_ns: int, *, late: bool) -> None:
        stamp, gateway = int(record["ts_event"]), int(record["publisher_id"])
        longest = self._history.longest_bucket_ns
        if late:
            self.late += 1
            if gateway not in self.let_pass:
                raise InvariantBroken("late only after Θ", f"gateway {gateway} never let Θ pass, but its order is late")
            return
        if stamp < self._newest_ns - 2 * longest:
            raise InvariantBroken("in turn", f"stamp {stamp} comes {self._newest_ns - stamp} ns after a newer one")
        self._newest_ns = max(self._newest_ns, stamp)
        if before_ns > stamp + 2 * longest + self._history.longest_close_ns:
            raise InvariantBroken("closed in time", f"the bucket of stamp {stamp} is open at {before_ns}")

    def _check_refused(self, record: RecordArray, reason: EntryReason) -> None:
        beat = record["action"] == b"N" and record["command"] == BEAT
        gateway = self._history.gateway_named(int(record["publisher_id"]))
        if reason is not EntryReason.UNKNOWN_GATEWAY and not gateway.clock_was_wrong:
            raise InvariantBroken("honest accepted", f"a record of {gateway.node.name} is refused: {reason.name}")
        if not beat:
            self.refused.add((int(record["account"]), int(record["client_order_id"])))


class EntryHistory(RingHistory):
    """History of one seed with order entry."""

    SIZES: ClassVar[tuple[tuple[int, ...], ...]] = (3, 3, 4), (0, 0, 1), (2, 3)
    SLOTS_MS: ClassVar[tuple[int, ...]] = (20, 30)
    FAULTS_S: ClassVar = {"lockstep": (4, 6), "pipelined": (1.5, 4)}

    def __init__(self, seed: int, draw_sets: DrawSets | None = None) -> None:
        self.draws = Random(f"entry {seed}")
        super().__init__(seed, draw_sets)
        self._quiet_ns: int | None = None
        """Packets that were submitted later need not be released at the end."""
        self.sent: set[OrderKey] = set()
        self.received: dict[OrderKey, tuple[int, int]] = {}
        """By order: gateway and the life of its disk."""
        self._rules: list[EntryRules] = []
        self.watch = EntryWitness(self)
        self.world.watchers.append(self.watch)
        hosts = [node for node in self.receivers if node.id in self._member_ids]
        self.gateways = [
            SimGateway(self, self.world.nodes[source], hosts[place % len(hosts)])
            for place, source in enumerate(self._source_ids)
        ]

    def _start_source(self, node: SimNode) -> Source:
        machine = super()._start_source(node)
        for gateway in getattr(self, "gateways", ()):
            if gateway.node is node:
                self.world.after(0, gateway.restarted)
        assert isinstance(machine, Source)
        return machine

    def _start_receiver(self, node: SimNode) -> Machine:
        watch = getattr(self, "watch", None)
        if watch is not None:
            watch.restart(node)
        return super()._start_receiver(node)

    @property
    def longest_bucket_ns(self) -> int:
        return max((rules.quantum_ns for rules in self._rules), default=0)

    @property
    def longest_close_ns(self) -> int:
        return max((rules.close_ns for rules in self._rules), default=0)

    def entry_at(self, node: SimNode) -> FairEntry:
        return self.watch.entry(node)

    def gateway_named(self, source: int) -> SimGateway:
        return next(gateway for gateway in self.gateways if gateway.node.id == source)

    def note_received(self, gateway: SimGateway, records: RecordArray) -> None:
        life = gateway.node.disk.journal.life
        if (records["command"] != BEAT).any():
            for other in self.gateways:
                if other is not gateway:
                    self.world.after(HEARD_NS, other.heard_order)
        for record in records[records["command"] != BEAT]:
            self.received[int(record["account"]), int(record["client_order_id"])] = (gateway.node.id, life)

    # -- the workload -------------------------------------------------------------------------------------

    def begin(self) -> int:
        end_ns = super().begin()
        self.world.at(START_NS + 60 * MS, self._start_entry)
        rng = self.draws
        for _ in range(rng.choice((0, 0, 1, 2)) if not self.undisturbed else 0):
            self.world.at(rng.randint(self.faults_begin_ns, end_ns), self._change_entry)
        for _ in range(rng.randint(1, 6)):
            self.world.at(rng.randint(self.faults_begin_ns, end_ns), self._snapshot_one)
        return end_ns

    def _snapshot_one(self) -> None:
        node = self.draws.choice(self.receivers)
        if node.up:
            self.watch.snapshot(node)

    def _workload(self, node: SimNode, mean_gap_ns: int, end_ns: int) -> None:
        """Let traders of a city send orders until shortly after the faults."""
        rng = self.rng

        def tick() -> None:
            self._trade(self.gateway_named(node.id))
            if self.world.now < end_ns:
                self.world.after(int(rng.expovariate(1.0) * mean_gap_ns) + 1, tick)

        self.world.after(rng.randint(0, mean_gap_ns), tick)

    def _trade(self, gateway: SimGateway) -> None:
        rng = self.draws
        many = rng.choice((1, 1, 1, 2, 5, MOST_ORDERS))
        account = rng.randint(1, 5)
        for _ in range(20 if rng.random() < 0.05 else 1):  # a flood now and then
            records = orders(many)
            records["account"] = account
            records["client_order_id"] = gateway.next_ids(many)
            gateway.trade(records)

    def _start_entry(self) -> None:
        """Send the first rules until a version of them counts."""
        if self.watch.reference.eras:
            return
        if not self._rules or self.world.now > self._rules[-1].from_ns:
            self._send_first()
        self.world.after(50 * MS, self._start_entry)

    def _send_first(self) -> None:
        timing, rng = self.config.timing, self.draws
        slot_ns, members = timing.slot_ns, len(self._member_ids)
        close_ns = timing.late_ns + 2 * timing.resend_ns + members * slot_ns
        hold_ns = max(self._timing_changes.longest_ns, timing.hold_ns, 4 * MS)
        rules = EntryRules(
            version=1,
            from_ns=self.world.now + hold_ns + 300 * MS,
            quantum_ns=rng.choice((0, 1 * MS, 5 * MS, 5 * MS, close_ns)),
            close_ns=close_ns,
            late_cap_ns=rng.choice((0, MS // 2, MS)),
            ahead_ns=1 * S,
            epoch_ns=max(MS, min(1 * S, hold_ns // 2)),
            hold_ns=hold_ns,
            gateways=tuple(sorted(self._source_ids)),
        )
        if self._submit_timing(encode_entry_rules(rules)):
            self._rules.append(rules)

    def _change_entry(self) -> None:
        """Change the set of gateways or the numbers, as an operator does."""
        if not self.watch.reference.eras:
            return
        rng, last = self.draws, self.watch.reference.eras[-1].rules
        some = rng.sample(self._source_ids, rng.randint(1, len(self._source_ids)))
        changed = changed_entry_rules(
            last,
            self.world.now,
            margin_ns=rng.choice((20, 200)) * MS,
            gateways=some,
            quantum_ns=rng.choice((0, MS, 5 * MS)),
        )
        if self._submit_timing(encode_entry_rules(changed)):
            self._rules.append(changed)

    # -- the end ------------------------------------------------------------------------------------------

    def _check_liveness(self, faults_end_ns: int) -> None:
        self._quiet_ns = faults_end_ns + LAST_SUBMIT_NS
        self.bound_ns += self.longest_close_ns + 2 * self.longest_bucket_ns + 20 * self.config.timing.slot_ns
        super()._check_liveness(faults_end_ns)

    def _living(self) -> list[PacketId]:
        """Return the packets of gateways that have their journal; beats go on for ever."""
        upto_ns, submitted_at = self._quiet_ns or 0, self.checker.submitted_at
        return [packet for packet in super()._living() if submitted_at[packet] <= upto_ns]

    def _witnessed(self) -> list[PacketId]:
        upto_ns, submitted_at = self._quiet_ns or 0, self.checker.submitted_at
        return [packet for packet in super()._witnessed() if submitted_at[packet] <= upto_ns]

    def _outcome(self, broken: str | None) -> Outcome:
        outcome = super()._outcome(broken)
        outcome.orders, outcome.late_orders = len(self.watch.accepted), self.watch.late
        outcome.refused_orders = len(self.watch.refused)
        return outcome

    def _what_is_stuck(self) -> str:
        return f"{super()._what_is_stuck()}; orders {self._missing()[:3]} are not in the sequence"

    def _all_released(self) -> bool:
        return super()._all_released() and not self._missing()

    def _missing(self) -> list[OrderKey]:
        """Return received orders that are neither accepted nor refused, of gateways that have their disk."""
        lives = {gateway.node.id: gateway.node.disk.journal.life for gateway in self.gateways}
        done = self.watch.accepted | self.watch.refused
        return [key for key, (gateway, life) in self.received.items() if lives[gateway] == life and key not in done]
