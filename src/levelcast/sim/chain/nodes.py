"""Simulated members of a group: journal and log of deliveries on a disk, verification of signatures as time."""

from __future__ import annotations

from collections.abc import Callable

from levelcast.byzantine.digests import cite
from levelcast.byzantine.epochs import EpochMember
from levelcast.byzantine.image import EpochsImage
from levelcast.byzantine.member import ChainMember
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import ChainDeliver, ChainDirect, ChainSettled, Effect, Record, Send, ServeDelivered
from levelcast.protocol.machine import Machine
from levelcast.sim.engine.disk import Disk
from levelcast.sim.engine.world import SimNode, World
from levelcast.timing.derive import Given, Path, Shape, derive
from levelcast.wire.chain_messages import ChainMessage, Citation
from levelcast.wire.messages import Membership, Message, Repair

ANSWER_BYTES = 60_000
VerifyTime = Callable[[ChainMessage], int]


def carrier(network: int = 0) -> StripeConfig:
    """Return the configuration that a world needs: of it, a group uses only the domain."""
    timing = derive(
        Path(delay_ns=1, loss_ratio=0.0, clock_error_ns=0, process_ns=1),
        Shape("pipelined", 1_000_000, 1, 1, 1, 0, 1),
        Given(attempts=1),
    ).timing
    return StripeConfig(0, timing, "majority", Membership(0, ()), (), network=network)


class ChainNode(SimNode):
    """Host of one member, honest or not."""

    def __init__(self, world: World, node: int, start: Callable[[SimNode], Machine], verify_time: VerifyTime) -> None:
        super().__init__(world, node, f"member {node}", start, Disk(world.config, 1), EpochMember.LISTENS)
        self.image = EpochsImage()
        self.log: dict[tuple[int, Citation], ChainMessage] = {}
        """The versions in the journal and in the log of deliveries, by epoch."""
        self._any: dict[tuple[int, int, int], ChainMessage] = {}
        self.packets: list[tuple[int, bytes]] = []
        """What the application has received: (sender, packet)."""
        self.after_step: Callable[[ChainNode], None] | None = None
        self._verify_time = verify_time
        self._verifier_free_ns = 0

    def member_of(self, epoch: int) -> ChainMember | None:
        """Return the protocol class of an honest member that runs, in one epoch."""
        machine: Machine | None = self.machine
        if isinstance(machine, EpochMember):
            machine = machine.machines.get(epoch)
        return machine if isinstance(machine, ChainMember) and machine.config.epoch == epoch else None

    def arrive(self, *messages: Message) -> None:
        """Deliver messages after the time that their signatures take; one verifier, in order of arrival."""
        machine, took_ns = self.machine, 0
        for message in messages:
            items = message.items if isinstance(message, Repair) else (message,)
            for item in items:
                if isinstance(item, ChainMessage):
                    member = self.member_of(item.epoch)
                    if member is None or member.screen(item) is None:
                        took_ns += self._verify_time(item)
        if not took_ns:
            super().arrive(*messages)
            return
        begins_ns = max(self.world.now, self._verifier_free_ns)
        self._verifier_free_ns = begins_ns + took_ns

        def verified() -> None:
            if self.machine is machine:
                SimNode.arrive(self, *messages)

        self.world.at(self._verifier_free_ns, verified)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Record):
            self.image.apply(effect.entry)
            entry = effect.entry
            if isinstance(entry, ChainDirect):
                self._log(entry.message)
            elif isinstance(entry, ChainSettled):
                for message in entry.messages:
                    self._log(message)
        elif isinstance(effect, ChainDeliver):
            row = effect.row
            self.image.deliver(effect.message.epoch, row)
            self._log(effect.message)
            self.packets += [(row.sender, packet) for packet in effect.packets]
        elif isinstance(effect, ServeDelivered):
            self._serve_log(effect)
        else:
            super()._perform(effect)

    def _log(self, message: ChainMessage) -> None:
        ref = cite(message.header, self.world.config.domain, message.epoch)
        self.log[message.epoch, ref] = self._any[message.epoch, ref.sender, ref.seq] = message

    def _serve_log(self, effect: ServeDelivered) -> None:
        """Send messages from the log of deliveries (C-9)."""
        items: list[ChainMessage] = []
        for ref in effect.versions:
            epoch = effect.epoch
            message = self.log.get((epoch, ref)) or self._any.get((epoch, ref.sender, ref.seq))
            if message is not None and sum(len(item.sealed) for item in (*items, message)) <= ANSWER_BYTES:
                items.append(message)
        if items:
            send = Send(effect.to, Repair(self.id, tuple(items)))
            super()._perform(send)
            for watcher in self.world.watchers:
                watcher.on_effect(self, send)

    def perform(self, effects: list[Effect]) -> None:
        super().perform(effects)
        if self.after_step is not None and self.machine is not None:
            self.after_step(self)
