"""Open one member of the multicast group of a network file: keys, claim of the key, sockets, store, loop, status.

    DATA/NAME/multicast/multicast.log    journal and log of deliveries (`levelcast.storage.chain_store`)
    DATA/NAME/multicast/group.json       the record of the first epoch, which a member that joins later needs

The members are the receivers of the file, in its order, with the keys of its signed statement. Floors with keys are
senders outside the group. One process on a machine
has a key at a time: an abstract socket with the public key in its name. A process on another machine is found when it
sends (`MulticastLoop`).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.ed25519 import Ed25519Verifier
from levelcast.byzantine.epochs import EpochMachine, EpochMember
from levelcast.byzantine.image import ChainImage, EpochsImage
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.outside import OutsideSender
from levelcast.byzantine.signatures import RecentVerifier, Signer
from levelcast.byzantine.turns import BySlot, ByTurn, SendingTurns
from levelcast.errors import NetError
from levelcast.keys.files import passphrase
from levelcast.keys.identity import SIGN, Identity, key_text, read_key
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import KeyStatement, read_statement
from levelcast.network import Network
from levelcast.network.placement import links_to, place_of
from levelcast.runtime.core_sockets import open_core
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.multicast_loop import GroupDelivery, Measured, MulticastLoop, measure_signatures
from levelcast.runtime.sockets import LOOPBACK
from levelcast.runtime.verify_pool import VerifyPool, default_threads
from levelcast.storage.append_file import AppendFile
from levelcast.storage.chain_store import ChainStore
from levelcast.wire.chain_messages import EpochKey, EpochRecord
from levelcast.wire.codec import encode
from levelcast.wire.header import domain_of

GROUP_STRIPE = 0xFFFF
"""The stripe in the datagrams of a group: nodes of a ring on the same network drop them."""
DIRECTORY = "multicast"
GROUP_FILE, GROUP_KIND = "group.json", "levelcast multicast group"
KEYS_VARIABLE = "LEVELCAST_KEYS"
MIN_PATIENCE_NS = 300_000_000
LISTEN_NS = 300_000_000
"""Time for which a process measures T and listens for another one with its key, before it sends."""


@dataclass(frozen=True, slots=True)
class MulticastOptions:
    """Run-time options of a member."""

    by_turn: bool = False
    """Take turns by number, as in MR §5, instead of slots by the clock."""
    slot_ns: int | None = None
    """Length of a slot; None: that of the network file's ring."""
    interface: str = LOOPBACK
    impair: bool = False
    seed: int = 1
    threads: int = 0
    """Threads that verify; 0: one per core, at most four."""
    group: Path | None = None
    """The file `group.json` of a member, for one that joins after the first epoch; None: the receivers of the file."""


def group_record(network: Network, statement: KeyStatement) -> EpochRecord:
    """Return the record of the first epoch: the receivers of the network file, and the floors as senders outside.

    A receiver without a key is an error, a floor without one is no sender.
    """
    keys = []
    for receiver in network.receivers:
        holder = statement.holder(receiver.name)
        if holder is None:
            raise KeysError(
                f"{statement.where}: {receiver.name} has no key; admit it with `levelcast keys node --admit`"
            )
        keys.append(EpochKey(receiver.id, holder.keys.sign))
    if not keys:
        raise NetError("the network file has no receivers; add at least one, and four to tolerate a liar")
    floors = [(floor.id, statement.holder(floor.name)) for floor in network.floors]
    outside = [EpochKey(floor, holder.keys.sign) for floor, holder in floors if holder is not None]
    return EpochRecord(1, tuple(keys), tuple(outside))


def names_of(network: Network) -> dict[int, str]:
    """Return the names of all nodes that may be in a group."""
    return {receiver.id: receiver.name for receiver in network.receivers} | {
        floor.id: floor.name for floor in network.floors
    }


def write_group(path: Path, record: EpochRecord) -> None:
    """Write the record of the first epoch for members that join later."""
    parts = {
        part: [{"id": each.node, "key": key_text(SIGN, each.key)} for each in some]
        for part, some in (("members", record.members), ("outside", record.outside))
    }
    text = json.dumps({"kind": GROUP_KIND, "epoch": record.epoch, **parts}, indent=1) + "\n"
    AppendFile.create(path, text.encode()).close()


def read_group(path: Path) -> EpochRecord:
    """Return the record of such a file; raise NetError for another file."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        members, outside = (
            tuple(EpochKey(int(each["id"]), read_key(each["key"], SIGN, str(path))) for each in found[part])
            for part in ("members", "outside")
        )
        if found["kind"] != GROUP_KIND:
            raise ValueError
        return EpochRecord(int(found["epoch"]), members, outside)
    except FileNotFoundError:
        raise NetError(f"{path}: not found; copy group.json of a member of the group") from None
    except (ValueError, KeyError, TypeError):
        raise NetError(f"{path}: not the record of a group; copy group.json of a member of the group") from None


def group_config(network: Network, record: EpochRecord, stripe: int | str = 0) -> ChainConfig:
    """Return the settings that follow from the links and slots of the network file."""
    members = tuple(each.node for each in record.members)
    sites = [receiver.site for receiver in network.receivers]
    delays = [network.link(a, b).quantile_ns for a in sites for b in sites] if network.links is not None else [0]
    delay_ns = max(delays)
    rotation_ns = len(members) * network.timing(stripe).slot_ns
    return ChainConfig(
        members,
        domain=domain_of(network.id, GROUP_STRIPE),
        patience_ns=max(MIN_PATIENCE_NS, 2 * rotation_ns + 4 * delay_ns),
        grace_ns=max(10_000_000, delay_ns),
        request_ns=max(20_000_000, 2 * delay_ns),
        window=max(64, 16 * len(members)),
    )


def claim_key(public: bytes, name: str) -> socket.socket:
    """Return a socket that marks the key as in use while it is open; raise NetError if a process has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0levelcast multicast {public.hex()}")
    except OSError:
        claim.close()
        raise NetError(
            f"{name}: a process on this machine already uses its key; stop it first, because two processes with one "
            "key sign two versions of one message, which proves a lie"
        ) from None
    return claim


def read_keys(file: Path, network: Network, name: str) -> tuple[Identity, KeyStatement]:
    """Return the private keys of a member and the signed statement; raise KeysError with what is missing."""
    if network.keys is None:
        raise KeysError(f"{file}: the network file has no [keys] table; create keys with `levelcast keys init --all`")
    variable = os.environ.get(KEYS_VARIABLE)
    directory = Path(variable) if variable else file.parent / network.keys.directory
    where = file.parent / network.keys.statement
    statement = read_statement(where, network.keys.authority, network.id, time.time_ns())
    identity = Identity.load(directory, name, passphrase())
    holder = statement.holder(name)
    if holder is None or holder.keys.sign != identity.public.sign:
        raise KeysError(
            f"{directory}: the private key of {name} is not the one in {where}; restore it, or admit its public key"
        )
    return identity, statement


class GroupNode:
    """One member of a group, opened and ready to run."""

    def __init__(
        self,
        network: Network,
        name: str,
        record: EpochRecord,
        signer: Signer,
        data: Path,
        on_delivery: Callable[[GroupDelivery], None],
        options: MulticastOptions | None = None,
        on_turn: Callable[[], None] = lambda: None,
        replace: Callable[[ChainConfig, int, Callable[[], ChainMember]], EpochMachine] | None = None,
    ) -> None:
        """`replace` returns what runs instead of an honest member: for demonstrations and tests."""
        self._replace = replace
        self._options = options = options or MulticastOptions()
        place = place_of(network, name)
        self.me, self.name = place.id, name
        self.names = names_of(network)
        if self.me not in record.keys:
            raise NetError(
                f"{name}: neither a receiver nor a floor with a key; choose one of {', '.join(self.names.values())}"
            )
        self.config = group_config(network, record, place.stripe)
        self._slot_ns = options.slot_ns or network.timing(place.stripe).slot_ns
        with ExitStack() as opened:
            claim = claim_key(record.keys[self.me], name)
            opened.callback(claim.close)
            store = ChainStore(data / name / DIRECTORY, self.config.domain, network.tape.durable)
            opened.callback(store.close)
            if store.first is None:
                store.begin(record if options.group is None else read_group(options.group))
            first = store.first or record
            write_group(data / name / DIRECTORY / GROUP_FILE, first)
            sockets = open_core(network, place.stripe, place.id, options.interface)
            opened.callback(sockets.close)
            self.measured = measure_signatures(signer, Ed25519Verifier(record.keys), self.me)
            pool = VerifyPool(options.threads or default_threads())
            opened.callback(pool.close)
            machine = self._machine(store, first, signer)
            opened.pop_all()
        self._claim = claim
        seed = crc32(f"{options.seed} {name}".encode())
        self.loop = MulticastLoop(
            machine, sockets, store, self.config.domain, pool, on_delivery,
            impairment=Impairment(links_to(network, place), seed) if options.impair else None,
            on_turn=on_turn,
        )  # fmt: skip

    def _machine(self, store: ChainStore, record: EpochRecord, signer: Signer) -> EpochMember:
        image = EpochsImage()
        for entry in store.entries:
            image.apply(entry)
        for epoch, row in store.deliveries:
            if epoch not in image.ended:
                image.deliver(epoch, row)
        store.entries, store.deliveries = [], []
        return EpochMember(
            record, self.config, self.me, signer,
            lambda each: RecentVerifier(Ed25519Verifier(each.keys)), image, time.time_ns(), self._part(signer),
        )  # fmt: skip

    def _part(self, signer: Signer) -> Callable[[EpochMember, ChainConfig, ChainImage, int], EpochMachine]:
        def make(epochs: EpochMember, config: ChainConfig, image: ChainImage, now: int) -> EpochMachine:
            def turns(after: int) -> SendingTurns:
                if self._options.by_turn:
                    hops, timeout_ns = self.measured.hops, config.patience_ns // 4
                    return ByTurn(config, self.me, now, hops=hops, timeout_ns=timeout_ns, after_slot=after)
                return BySlot(config, self.me, now, start_ns=0, slot_ns=self._slot_ns, after_slot=after)

            if self.me in config.outside:
                return OutsideSender(config, self.me, signer, epochs.verifiers[config.epoch], image, now)

            def honest() -> ChainMember:
                return ChainMember(config, self.me, signer, epochs.verifiers[config.epoch], image, now, turns)

            return honest() if self._replace is None else self._replace(config, self.me, honest)

        return make

    def propose(self, record: EpochRecord) -> None:
        """E-2: sign the set of this record as that of the next epoch, if it differs from that of the last one."""
        epochs = self.loop.machine
        if record[1:] != epochs.records[epochs.epoch][1:]:
            self.loop.propose(record._replace(epoch=epochs.epoch + 1))

    def run(self, listen_ns: int = LISTEN_NS) -> None:
        """Measure T, and run until the loop is stopped; close everything at the end."""
        try:
            self.loop.measure(listen_ns)
            self.measured = Measured(*self.measured[:2], self.loop.transmit_ns)
            self.loop.run()
        finally:
            self.close()

    def close(self) -> None:
        """Close everything, and release the key."""
        try:
            self.loop.close()
        finally:
            self._claim.close()

    def status(self) -> dict[str, Any]:
        """Return the state of this member as JSON values."""
        epochs = self.loop.machine
        status: dict[str, Any] = {
            "name": self.name,
            "epoch": epochs.epoch,
            "members": [self.names.get(each.node, str(each.node)) for each in epochs.records[epochs.epoch].members],
            "tolerated_liars": epochs.config_of(epochs.records[epochs.epoch]).f,
            "measured_ns": self.measured._asdict() | {"hops": self.measured.hops},
            "deliveries": self.loop.store.delivered,
            "confirmed": self.loop.store.confirmed.number,
            "room": self.loop.room,
            "datagrams_in": self.loop.datagrams_in,
            "datagrams_out": self.loop.datagrams_out,
            "malformed": dict(self.loop.malformed),
        }
        member = epochs.member
        if isinstance(member, OutsideSender):
            status |= {"sent": member.seq, "delivered_by_all": member.confirmed, "sent_again": member.sent_again}
        if isinstance(member, ChainMember):
            chain = member.chain
            senders = [self.names.get(each, str(each)) for each in member.config.senders]
            status |= {
                "delivered": dict(zip(senders, member.vector, strict=True)),
                "own_undelivered": len(chain.own),
                "held_bytes": chain.graph.content_bytes,
                "digest_bytes": chain.ledger.digest_bytes,
                "refused": {reason.value: count for reason, count in member.refused.items()},
                "sent_again": chain.counts.resent,
                "acknowledged_late": chain.counts.acknowledged_late,
                "convicted": {
                    self.names.get(each, str(each)): base64.b64encode(
                        encode(chain.convictions.evidence(each), self.config.domain)
                    ).decode()
                    for each in chain.convictions.members
                },
            }
        return status
