"""Measure chain multicast (MR): messages/s, signatures, latency and liars, in one run.

    python -m benchmarks chain

- *CPU alone*: all members in this process, each encoding, decoding, verifying and delivering; CPU time of one message
  against that of one signature and n − 1 verifications alone. No network, and no waiting.
- *Processes*: n processes with sockets on loopback multicast and threads that verify; wall and CPU time. One packet of
  1 KB per message, or as many as a message holds. By turn (MR §5), and by slot without flow control.
- *Simulator*: the same turns with the S, U and T that the processes measured.
- *Liars*: f members of each style, as share of the rate without liars.

MR had 250 messages/s among eight workstations, and 30 to 40 ms with flow control where 105 ms were expected without.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.report import Figure, Options, Result, Table
from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.ed25519 import Ed25519Signer, Ed25519Verifier
from levelcast.byzantine.image import ChainImage
from levelcast.byzantine.latency import chained_ns, flow_controlled_ns
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.turns import ByTurn
from levelcast.cli.demo.multicast import demo_file
from levelcast.cli.live.multicast import lying
from levelcast.network import load_network
from levelcast.protocol.effects import GROUP, ChainDeliver, Send
from levelcast.runtime.multicast_loop import GroupDelivery
from levelcast.runtime.multicast_node import GroupNode, MulticastOptions
from levelcast.runtime.realtime import calm_garbage_collection
from levelcast.sim.chain.liars import STYLES
from levelcast.sim.chain.rate import GroupTiming, RateResult, RateRun
from levelcast.wire.chain_messages import ChainMessage, EpochKey, EpochRecord
from levelcast.wire.codec import decode
from levelcast.wire.messages import Message

SIZES, QUICK_SIZES = (4, 8, 13), (4,)
PACKET = 1_000
BATCH = 30
"""Packets of one batched message."""
PAPER_RATE = 250.0
TARGET = 50.0
"""Percent of what signing and verifying alone allow, by CPU time."""
RUN_S, QUICK_S = 4.0, 1.0
WARM_S = 1.0
GROUP_ADDRESS, PORT = "239.77.79.1", 27_600


def run(options: Options) -> Result:
    """Measure everything, the costs of signatures first."""
    result = Result("chain")
    sizes = QUICK_SIZES if options.quick else SIZES
    calm_garbage_collection()  # as the command does
    sign_us, verify_us = signature_costs(50 if options.quick else 500)
    result.notes.append(f"Ed25519 with `cryptography`: S {sign_us:.0f} µs, U {verify_us:.0f} µs of CPU")
    _cpu(result, sizes, sign_us, verify_us, quick=options.quick)
    measured = _processes(result, sizes, quick=options.quick)
    _liars(result, measured, quick=options.quick)
    result.notes += [
        "Neighbours, from their own repositories (other hardware, languages and guarantees: no comparison of rates):",
        "Narwhal + Tusk orders 46,000 transactions/s of 512 bytes among 4 members of one machine at 0.56 s;",
        "Mysticeti about 100,000/s at 0.5 s in a WAN; Hyperledger Indy (Python, RBFT) hundreds/s among 25 nodes.",
        "They order transactions of clients in Rust or Python, in batches. This delivers messages of members, without "
        "a total order. Comparable are the message delays: 3 for Mysticeti, Q + 1 turns here.",
    ]
    return result


def signature_costs(calls: int) -> tuple[float, float]:
    """Return the CPU time of one signature and of one verification in µs, least of several rounds."""
    signer = Ed25519Signer(b"k" * 32)
    verifier = Ed25519Verifier({1: signer.public})
    content = bytes(200)
    signature = signer.sign(content)
    return _least_us(lambda: signer.sign(content), calls), _least_us(
        lambda: verifier.holds(1, content, signature), calls
    )


def _least_us(call: Callable[[], object], calls: int) -> float:
    best = float("inf")
    for _ in range(10):
        began = time.thread_time_ns()
        for _ in range(calls // 10 + 1):
            call()
        best = min(best, (time.thread_time_ns() - began) / (calls // 10 + 1) / 1e3)
    return best


# -- CPU alone -------------------------------------------------------------------------------------------


class _CpuGroup:
    """Members that hand datagrams to one another in turn."""

    def __init__(self, n: int, packets: int) -> None:
        members = tuple(range(1, n + 1))
        self._config = ChainConfig(members, window=16 * n, patience_ns=10**12, grace_ns=10**12, request_ns=10**12)
        signers = {each: Ed25519Signer(bytes([each]) * 32) for each in members}
        keys = {each: signer.public for each, signer in signers.items()}
        self._packets = [bytes(PACKET)] * packets
        self.members = {
            each: ChainMember(
                self._config, each, signers[each], Ed25519Verifier(keys), ChainImage(), 0,
                lambda after, each=each: ByTurn(self._config, each, 0, hops=0, timeout_ns=10**12),  # type: ignore[misc]
            )
            for each in members
        }  # fmt: skip
        self._inbox: list[bytes] = []
        self._from = 0
        self._now = 0
        self.delivered = 0

    def turn(self) -> None:
        """Deliver the last message to all others, and let the next member send."""
        self._now += 1
        datagrams, self._inbox = self._inbox, []
        sender = self._from
        for each, member in self.members.items():
            if datagrams and each == sender:  # nothing has arrived there
                continue
            batch: list[Message] = [decode(datagram).message for datagram in datagrams]
            if not member._queue:
                member.submit(self._packets)
            for effect in member.step(batch, self._now):
                if isinstance(effect, Send) and effect.to == GROUP and isinstance(effect.message, ChainMessage):
                    self._inbox.append(effect.message.sealed)
                    self._from = each
                elif isinstance(effect, ChainDeliver):
                    self.delivered += 1


def _cpu(result: Result, sizes: tuple[int, ...], sign_us: float, verify_us: float, *, quick: bool) -> None:
    rows: list[tuple[str | int | float, ...]] = []
    for n in sizes:
        for packets in (1, BATCH):
            group = _CpuGroup(n, packets)
            for _ in range(3 * n):
                group.turn()
            best, turns = float("inf"), 2 * n if quick else 8 * n
            before = group.delivered
            for _ in range(2 if quick else 5):
                began = time.thread_time_ns()
                for _ in range(turns):
                    group.turn()
                best = min(best, (time.thread_time_ns() - began) / turns / 1e3)
            if group.delivered == before:
                raise RuntimeError(f"{n} members deliver nothing")
            alone = sign_us + (n - 1) * verify_us
            what = "one per message" if packets == 1 else f"{packets} per message"
            rows.append((f"{n}, {what}", round(best), round(alone), round(100 * alone / best), round(2e6 / best)))
            result.figures.append(
                Figure(f"CPU, n = {n}, 1 KB, {what}: share of signing and verifying alone", 100 * alone / best, "%",
                       "target", TARGET)
            )  # fmt: skip
    columns = ("members", "CPU of a message, µs", "signatures alone, µs", "share, %", "messages/s on two cores")
    result.tables.append(Table("CPU time of one message at all members", columns, rows))


# -- processes -------------------------------------------------------------------------------------------


class ProcessRun(NamedTuple):
    """Measurements of one member."""

    messages: int
    """Delivered in the measured time."""
    packets: int
    wall_s: float
    cpu_s: float
    latencies_ns: list[int]
    """From sending an own message to its delivery here."""
    measured: tuple[int, int, int]
    """S, U, T."""
    signed: int
    """Own messages signed."""


def run_group(
    n: int,
    packets: int,
    lasting_s: float,
    *,
    by_turn: bool = True,
    slot_ns: int | None = None,
    style: str | None = None,
) -> dict[int, ProcessRun]:
    """Run n processes; the last f of them lie if there is a style. Return what the honest ones measured."""
    sites = tuple(f"site{number}" for number in range(1, n + 1))
    liars = set(range(n - (n - 1) // 3 + 1, n + 1)) if style is not None else set()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="levelcast-chain-") as directory:
        file = Path(directory) / "network.toml"
        file.write_text(demo_file(GROUP_ADDRESS, PORT, sites), encoding="utf-8")
        pipes: dict[int, Connection] = {}
        processes = []
        for number in range(1, n + 1):
            ours, theirs = context.Pipe(duplex=False)
            lie = style if number in liars else None
            arguments = (file, number, n, packets, lasting_s, by_turn, slot_ns, lie, theirs)
            processes.append(context.Process(target=_member, args=arguments))
            processes[-1].start()
            theirs.close()
            pipes[number] = ours
        found = {}
        for number, pipe in pipes.items():
            if number not in liars and pipe.poll(lasting_s + 60):
                found[number] = ProcessRun(*pipe.recv())
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    return found


def _member(
    file: Path, number: int, n: int, packets: int, lasting_s: float, by_turn: bool, slot_ns: int | None,
    style: str | None, pipe: Connection,
) -> None:  # fmt: skip
    signers = {each: Ed25519Signer(bytes([each]) * 32) for each in range(1, n + 1)}
    record = EpochRecord(1, tuple(EpochKey(each, signer.public) for each, signer in signers.items()))
    sent_ns: dict[int, int] = {}
    latencies: list[int] = []
    counts = {"packets": 0}
    payload = bytes(PACKET)

    def on_delivery(delivery: GroupDelivery) -> None:
        counts["packets"] += len(delivery.packets)

    def on_turn() -> None:
        member = node.loop.machine.member
        if not isinstance(member, ChainMember):
            return
        now = time.time_ns()
        chain = member.chain
        for seq in range(len(sent_ns) + 1, chain.seq + 1):
            sent_ns[seq] = now
        done = chain.ledger.count(node.me)
        latencies.extend(now - sent_ns.get(seq, now) for seq in range(counts.get("done", 0) + 1, done + 1))
        counts["done"] = done
        if node.loop.machine.room > 9_000:
            node.loop.machine.submit([payload] * packets if not member._queue else [])

    options = MulticastOptions(by_turn=by_turn, slot_ns=slot_ns, threads=2)
    replace = None if style is None else lying(style, signers[number])
    node = GroupNode(
        load_network(file), f"site{number}-1", record, signers[number], file.parent / "data", on_delivery, options,
        on_turn, replace,
    )  # fmt: skip
    loop = node.loop
    loop.measure(int(WARM_S * 1e9))
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        loop.turn()
    member = loop.machine.member
    chain = member.chain if isinstance(member, ChainMember) else None
    before = (chain.counts.delivered, chain.seq) if chain is not None else (0, 0)
    latencies.clear()
    counts["packets"] = 0
    wall, cpu = time.perf_counter(), time.process_time()
    until = time.monotonic() + lasting_s
    while time.monotonic() < until:
        loop.turn()
    after = (chain.counts.delivered, chain.seq) if chain is not None else (0, 0)
    measured = (*node.measured[:2], loop.transmit_ns or 0)
    found = after[0] - before[0], counts["packets"], time.perf_counter() - wall, time.process_time() - cpu
    pipe.send((*found, latencies, measured, after[1] - before[1]))
    until = time.monotonic() + 1.0  # the others need this member until they have ended
    while time.monotonic() < until:
        loop.turn()
    node.close()


def _processes(result: Result, sizes: tuple[int, ...], *, quick: bool) -> GroupTiming:
    rows: list[tuple[str | int | float, ...]] = []
    measured = GroupTiming(32_000, 107_000, 150_000)
    lasting_s = QUICK_S if quick else RUN_S
    for n in sizes:
        for packets, by_turn in ((1, True), (BATCH, True), (1, False)):
            slot_ns = None if by_turn else 2_000_000
            found = run_group(n, packets, lasting_s, by_turn=by_turn, slot_ns=slot_ns)
            if not found:
                raise RuntimeError(f"{n} processes have measured nothing; stop other programs on {GROUP_ADDRESS}")
            rate = median(each.messages / each.wall_s for each in found.values())
            packet_rate = median(each.packets / each.wall_s for each in found.values())
            cpu_us = (
                sum(each.cpu_s for each in found.values()) * 1e6 / max(1, median(m.messages for m in found.values()))
            )
            signed = sum(each.signed for each in found.values()) / max(1, median(m.messages for m in found.values()))
            latencies = [latency for each in found.values() for latency in each.latencies_ns]
            s, u, t = (round(median(each.measured[at] for each in found.values())) for at in range(3))
            formula = flow_controlled_ns(n, s, u, t) if by_turn else chained_ns(n, s, u, t)
            timing = GroupTiming(s, u, max(t, 1_000), slot_ns or 0)
            simulated = RateRun(n, timing).run(20 if quick else 40)
            alone_us = (s + (n - 1) * u) / 1e3
            what = ("by turn" if by_turn else "by slot of 2 ms") + (", batched" if packets > 1 else "")
            rows.append(
                (f"{n}, {what}", round(rate), round(packet_rate), round(cpu_us), round(100 * alone_us / cpu_us),
                 round(signed, 2), round(median(latencies) / 1e6, 2) if latencies else 0.0, round(formula / 1e6, 2),
                 round(simulated.messages_per_s), round(simulated.latency_ns / 1e6, 2))
            )  # fmt: skip
            if by_turn and packets == 1:
                result.figures.append(Figure(f"processes, n = {n}, 1 KB", rate, "messages/s", "MR, n = 8", PAPER_RATE))
            if n == sizes[0] and packets == 1 and by_turn:
                measured = timing
    columns = (
        "members", "messages/s", "packets/s", "CPU, µs", "share, %", "signatures", "latency, ms", "formula, ms",
        "simulated messages/s", "simulated latency, ms",
    )  # fmt: skip
    title = (
        "processes: CPU of a message at all members, its share that signatures need, signatures per delivered message"
    )
    result.tables.append(Table(title, columns, rows))
    sign_us, verify_us, transmit_us = (value / 1e3 for value in measured[:3])
    result.notes.append(
        f"measured by the processes at n = {sizes[0]}: S {sign_us:.0f} µs, U {verify_us:.0f} µs, T {transmit_us:.0f} µs"
    )
    return measured


# -- liars -----------------------------------------------------------------------------------------------


def _liars(result: Result, measured: GroupTiming, *, quick: bool) -> None:
    slot_ns = measured.transmit_ns + measured.verify_ns
    sizes = ((4, 30),) if quick else ((4, 60), (13, 20))
    styles = ("silent", "versions") if quick else tuple(STYLES)
    for n, rotations in sizes:
        rows: list[tuple[str | int | float, ...]] = []
        for by_turn in (False, True):
            timing = measured._replace(slot_ns=0 if by_turn else slot_ns)
            calm = RateRun(n, timing).run(rotations)
            rows += [_liar_row(n, timing, style, calm, rotations, by_turn=by_turn) for style in styles]
        columns = ("liars, turns", "rate of the honest, %", "latency, ms", "without liars, ms", "C-6", "waits for")
        result.tables.append(Table(f"f liars of each style, n = {n}, in the simulator", columns, rows))
    if quick:
        return
    without = run_group(4, 1, 2.0, by_turn=False, slot_ns=2_000_000)
    shares: list[tuple[str | int | float, ...]] = []
    for style in (None, *STYLES):
        found = without if style is None else run_group(4, 1, 2.0, by_turn=False, slot_ns=2_000_000, style=style)
        base = sum(each.signed for each in list(without.values())[: len(found)]) or 1
        delivered = sum(len(each.latencies_ns) for each in found.values())
        latencies = [latency for each in found.values() for latency in each.latencies_ns] or [0]
        shares.append((style or "nobody lies", round(100 * delivered / base), round(median(latencies) / 1e6, 2)))
    names = ("the fourth member", "own messages of the others delivered, % of sent without liars", "latency, ms")
    result.tables.append(Table("a liar of each style, n = 4, as processes by slots of 2 ms", names, shares))


def _liar_row(
    n: int, timing: GroupTiming, style: str, calm: RateResult, rotations: int, *, by_turn: bool
) -> tuple[str | int | float, ...]:
    run = RateRun(n, timing, style)
    found = run.run(rotations)
    honest = n - len(run.liars)
    share = 100 * found.messages_per_s / (calm.messages_per_s * honest / n) if calm.messages_per_s else 0.0
    waits = f"member {found.slowest}" + (" (liar)" if found.slowest in run.liars else "") if share < 90 else "nobody"
    return (
        f"{style}, {'by turn' if by_turn else 'by slot'}", round(share), round(found.latency_ns / 1e6, 2),
        round(calm.latency_ns / 1e6, 2), found.resent, waits,
    )  # fmt: skip
