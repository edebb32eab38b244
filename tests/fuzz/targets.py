"""What the fuzzer feeds, and the promise that each of these keeps for any bytes whatever.

A target's `prepare` imports what it tests only when it is called: the fuzzer instruments those imports, and a
part that does not exist yet leaves the others runnable. It returns the check, which raises if the promise is
broken, and seeds that are real encodings, so that the fuzzer starts behind the first length check.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from levelcast.wire.messages import Message

Check = Callable[[bytes], None]


class Target(NamedTuple):
    name: str
    promise: str
    prepare: Callable[[], tuple[Check, list[bytes]]]


def _core() -> tuple[Check, list[bytes]]:
    from levelcast.wire import chain_messages as chain
    from levelcast.wire import codec, messages
    from levelcast.wire.header import Malformed
    from levelcast.wire.packets import seal

    run = messages.Run(7, 1, 5, 9)
    data = seal(messages.Packet(7, 1, 12, 2, b"ab"), 1)
    era = messages.Era(3, 101, 10**18)
    life = messages.MemberLife(1, 1)
    members = messages.Membership(1, (life, messages.MemberLife(2, 5)))
    token = messages.Token(3, 100, 10**18, 2, 99, 64, (run, run), (messages.Mark(7, 1, 4),))
    token = codec.seal_message(token, 1)
    pace = messages.Pace(417_000_000, 26_000_000, (messages.Cutoff(1, 160_000_000),))
    ring = codec.seal_message(messages.Ring(3, 9, 1, members, True, (life,), (era,), (), pace), 1)
    group = codec.seal_message(messages.Group(6, 9, 1, (301, 302)), 1)
    lines = codec.seal_message(messages.LineHolders(3, 9, 7, ((1, "a"), (301, "börse-b"))), 1)
    cited = chain.Citation(2, 5, b"d" * 32)
    header = chain.ChainHeader(1, 6, 21, b"c" * 32, (cited,), b"s" * 64)
    chained = codec.seal_message(chain.ChainMessage(3, header, b"content"), 1)
    slots = (messages.CatchUpSlot(12, 10**18, (run,)), messages.CatchUpSlot(20, 10**18, ()))
    examples: list[messages.Message] = [
        data,
        messages.Parity(7, 1, 5, 3, 2, bytes(range(100))),
        token,
        messages.Beat(2, 3, (messages.Claim(10, 90), messages.Claim(60, 91)), 41, 10**18, 900, -1_200),
        messages.Beat(2, 3, (messages.Claim(0, 99),), 1, 10**18),
        messages.Request(1, 3, 90, (91, 95), (run,)),
        messages.Repair(1, (token, data, ring, group, lines)),
        messages.CatchUpPackets(1, 10, (messages.Packet(7, 1, 12, 2, b"ab"),)),
        messages.CatchUp(1, 10, 20, b"h" * 32, b"i" * 32, slots),
        messages.Fault(1, 1, 3, 4, messages.FaultReason.STUCK, 91, 2),
        messages.Invite(4, 9),
        messages.Join(3, 1, 1, 2, 99, 90, 10**18, (era,), members, members, True),
        messages.Join(3, 1, 1, 2, 99, 90, 10**18, (), None, members, False),
        messages.Promised(1, 5),
        messages.Ring(3, 9, 1, members, True, (life,), (era,), ((1, "233.252.0.1:7001"), (2, "börse:7002"))),
        messages.Ring(3, 9, 1, members, False, (life,), (era,), ()),
        ring,
        messages.Ring(3, 9, 1, members, False, (life,), (era,), (), messages.Pace(6_400_000_000, 0, ())),
        messages.GroupToken(301, 3, 5, 77, 90),
        messages.GroupRequest(301, 0, 5, 1, 302),
        messages.GroupInvite(6, 9),
        group,
        lines,
        messages.LineRequest(301, 3, 7),
        messages.Probe(1, 7, 10**18),
        chained,
        messages.Repair(1, (chained,)),
        chain.ChainRequest(1, 3, (4, 0, 7), (cited,), (2, 4), True),
        chain.ChainEvidence(1, 3, chained.header, chained.header._replace(slot=9)),
        chain.ChainStatement(1, 3, (chain.DeliveredRow(2, 1, b"d" * 32, b"c" * 32),), b"s" * 64),
        _succession(),
        messages.Echo(2, 1, 7, 10**18, 10**18 + 5, 10**18 + 9),
        messages.PathRow(2, ()),
        messages.ReleaseRow(2, 20, 30, 40, (messages.ReleaseSecond(10**9, 20, 1, 50),)),
        messages.PathRow(2, (messages.PathFigures(1, 9, 1, 1, -5, 20, 30, 40, 10, b"\xff" * 32),)),
        *_wide_examples(),
    ]

    def check(datagram: bytes) -> None:
        check_one(datagram)
        check_one(_resealed(datagram))

    def check_one(datagram: bytes) -> None:
        decoded, rejected = codec.decode_batch([datagram], 1)
        assert len(decoded) + rejected.total() == 1
        try:
            stripe, message = codec.decode(datagram)
        except Malformed:
            assert not decoded
            return
        assert codec.encode(message, stripe) == datagram, "two encodings of one message"

    return check, [codec.encode(example, 1) for example in examples]


def _succession() -> Message:
    from levelcast.wire import chain_messages as chain

    members = (chain.EpochKey(2, b"k" * 32), chain.EpochKey(1, b"l" * 32))
    record = chain.EpochRecord(4, members, (chain.EpochKey(9, b"m" * 32),))
    return chain.ChainSuccession(1, 3, record, (chain.EpochVote(1, b"s" * 64), chain.EpochVote(3, b"t" * 64)))


def _chain_content() -> tuple[Check, list[bytes]]:
    from levelcast.wire import chain_codec
    from levelcast.wire import chain_messages as chain
    from levelcast.wire.header import Malformed

    contents = [
        chain.ChainContent((4, 0, 7), (2, 4), (b"ab", b"")),
        chain.ChainContent((), (), (b"outside",)),
        chain.ChainContent((1, 2), (), (), chain.PriorPlace(3, 9), (b"proof", b"another")),
    ]

    def check(content: bytes) -> None:
        try:
            found = chain_codec.unpack_content(content)
        except Malformed:
            return
        assert chain_codec.pack_content(found) == content, "two encodings of one content"

    return check, [chain_codec.pack_content(each) for each in contents]


def _chain_member() -> tuple[Check, list[bytes]]:
    from levelcast.byzantine.config import ChainConfig
    from levelcast.byzantine.digests import Author
    from levelcast.byzantine.epochs import EpochMachine, EpochMember
    from levelcast.byzantine.image import ChainImage, EpochsImage
    from levelcast.byzantine.member import ChainMember
    from levelcast.byzantine.signatures import KeyedHash, KeyedHashVerifier
    from levelcast.byzantine.turns import BySlot
    from levelcast.wire import chain_messages as chain
    from levelcast.wire import codec
    from levelcast.wire.chain_codec import epoch_bytes, pack_content
    from levelcast.wire.header import Malformed

    config = ChainConfig((1, 2, 3, 4), (9,), domain=1)
    keys = [chain.EpochKey(node, bytes([node]) * 32) for node in (1, 2, 3, 4, 9)]
    first = chain.EpochRecord(1, tuple(keys[:4]), tuple(keys[4:]))
    second = chain.EpochRecord(2, (*keys[1:4], chain.EpochKey(5, b"5" * 32)), ())
    authors = {node: Author(node, 1, 1, KeyedHash(node)) for node in (2, 3, 9)}
    body = pack_content(chain.ChainContent((0,) * 5, (), (b"packet",)))
    one = authors[2].message(1, 2, body, ())
    cited = chain.Citation(3, 1, b"d" * 32)
    votes = tuple(chain.EpochVote(node, KeyedHash(node).sign(epoch_bytes(second, 1))) for node in (2, 3, 4))
    examples: list[Message] = [
        one,
        authors[2].message(2, 6, body, (cited,)),
        authors[9].message(1, 0, pack_content(chain.ChainContent((), (), (b"outside",))), ()),
        chain.ChainRequest(2, 1, (0,) * 5, (cited,), (3,), True),
        chain.ChainEvidence(2, 1, one.header, authors[2].message(1, 2, body, (cited,)).header),
        authors[3].statement([chain.DeliveredRow(2, 1, b"d" * 32, b"c" * 32)]),
        chain.ChainSuccession(2, 1, second, votes),
    ]

    def part(epochs: EpochMember, of: ChainConfig, image: ChainImage, now: int) -> EpochMachine:
        verifier = KeyedHashVerifier(of.senders)
        turns = BySlot(of, epochs.me, now, start_ns=0, slot_ns=10)
        return ChainMember(of, epochs.me, KeyedHash(epochs.me), verifier, image, now, lambda _: turns)

    def check(datagram: bytes) -> None:
        for bytes_of in (datagram, _resealed(datagram)):
            try:
                _, message = codec.decode(bytes_of)
            except Malformed:
                continue
            member = EpochMember(
                first, config, 1, KeyedHash(1), lambda each: KeyedHashVerifier(tuple(each.keys)), EpochsImage(), 0, part
            )
            member.step((message, message), 5)
            member.step((), 10)

    return check, [codec.encode(example, 1) for example in examples]


def _wide_examples() -> list[Message]:
    from levelcast.wire import codec
    from levelcast.wire import wide_messages as wide

    number = wide.WideId(3, 1, 7)
    statement, predecessor = wide.WideStatement(number, 2, asks=True), wide.WidePredecessor(number, 3, (1, 3, 5))
    data = wide.WideData(4, 2, 1, 8, 0, 1, 7, 6, (1, 3), (predecessor,), (statement,), b"ab")
    data = codec.seal_message(data, 1)
    content = wide.WideContent((wide.WideMember(1, 1, 9, 0),), (number,))
    return [
        data,
        wide.WideRelay(5, 4, True, data),
        wide.WideConfirm(2, 4, 7, 6, (statement,)),
        wide.WideRequest(2, 4, 9, False),
        wide.WidePrepare(2, 4, 1, (1, 3)),
        wide.WidePromise(2, 4, 2, 1, 1, 3, content, 5, (number,)),
        wide.WideAccept(2, 4, 1, content),
        wide.WideAccepted(2, 4, 1, 3),
        wide.WideView(2, 5, content),
    ]


_HEAD_BYTES, _SEAL_BYTES = 32, 4
_KIND_AT, _REPAIR = 3, 4


def _resealed(datagram: bytes) -> bytes:
    """The same head and body under a true length and a seal that holds, and so for the items of a Repair.

    A fuzzer does not guess a CRC-32: without this it would never see a body. The seals are written out here,
    from the module head of `levelcast.wire.header`, so that they do not share a mistake with what they test.
    """
    if len(datagram) < _HEAD_BYTES + _SEAL_BYTES:
        return datagram
    if datagram[_KIND_AT] == _REPAIR:
        datagram = _with_items_resealed(datagram)
    size = struct.pack("<I", len(datagram))
    head_and_body = datagram[:16] + size + bytes((1, _SEAL_BYTES)) + datagram[22:-_SEAL_BYTES]
    return head_and_body + struct.pack("<I", crc32(head_and_body))


def _with_items_resealed(repair: bytes) -> bytes:
    """Each item where its neighbour's length says it is, as long as that stays inside the Repair."""
    at, end = _HEAD_BYTES + 4, len(repair) - _SEAL_BYTES
    while at + _HEAD_BYTES + _SEAL_BYTES <= end:
        (size,) = struct.unpack_from("<I", repair, at + 16)
        if not _HEAD_BYTES + _SEAL_BYTES <= size <= end - at:
            break
        if repair[at + _KIND_AT] != _REPAIR:  # a Repair in a Repair is refused before its seal is looked at
            repair = repair[:at] + _resealed(repair[at : at + size]) + repair[at + size :]
        at += size
    return repair


def _records() -> tuple[Check, list[bytes]]:
    from levelcast import records

    makers = (records.trades, records.quotes, records.orders, records.statuses, records.system_messages)
    seeds = [make(2).tobytes() for make in makers]
    seeds.append(seeds[0] + seeds[1] + seeds[3])

    def check(payload: bytes) -> None:
        try:
            count = records.count_records(payload)
        except records.BadRecords:
            count = None
        try:
            stamped = records.stamp(payload, 2**32 - 1, 10**18)
        except records.BadRecords:
            assert count is None, "counted but not stamped"
            return
        assert count is not None, "stamped but not counted"
        assert len(stamped) == len(payload)
        assert records.count_records(stamped) == count, "a stamp changed what the records are"
        assert records.stamp(stamped, 2**32 - 1, 10**18) == stamped

    return check, seeds


def _membership() -> tuple[Check, list[bytes]]:
    from levelcast.wire.membership import decode_membership, encode_membership
    from levelcast.wire.messages import MemberLife, Membership

    def members(count: int, life: int) -> tuple[MemberLife, ...]:
        return tuple(MemberLife(node, life) for node in range(1, count + 1))

    largest = Membership(2**64 - 1, members(40, 2**32 - 1))
    sets = (Membership(1, members(1, 1)), Membership(4, members(3, 7)), largest)
    seeds = [encode_membership(each) for each in sets]

    def check(payload: bytes) -> None:
        membership = decode_membership(payload)
        assert membership is None or encode_membership(membership) == payload

    return check, seeds


def _mold() -> tuple[Check, list[bytes]]:
    from levelcast import native, records
    from levelcast.client.line_stats import LineStats
    from levelcast.edge.server.retransmit_store import Retransmitter
    from levelcast.edge.subscriber.delivery import Grade, SubscriberConfig
    from levelcast.edge.subscriber.session_reader import SessionReader
    from levelcast.native import pure_mold
    from levelcast.wire import mold
    from levelcast.wire.header import Malformed

    session = mold.session_name("XNYS-1")
    payload = records.trades(2).tobytes()
    mixed = payload + records.quotes(1).tobytes() + records.statuses(1).tobytes()
    seeds = [*mold.encode_payload(session, 1, payload), *mold.encode_payload(session, 3, mixed)]
    bare = (mold.Heartbeat(session, 7), mold.EndOfSession(session, 7), mold.RetransmitRequest(session, 1, 6))
    seeds += [mold.encode(message) for message in bare]

    def check(datagram: bytes) -> None:
        for decode in (mold.decode, mold.decode_request):
            try:
                message: mold.Downstream | mold.RetransmitRequest = decode(datagram)
            except Malformed:
                continue
            assert mold.encode(message) == datagram, "two encodings of one packet"
        arrived = [datagram, seeds[0], datagram]
        blocks = native.join_molds(arrived, mold.Block)
        assert blocks == pure_mold.join_molds(arrived, mold.Block)
        for grade in Grade:
            one, other = (SessionReader({session: 1}, SubscriberConfig(grade)) for _ in range(2))
            one.receive(arrived, 0)
            other.receive(blocks, 0)
            for customer in (one, other):
                customer.wake(10**12)
            assert one.counts == other.counts
            assert one.position(session) == other.position(session) is not None
        line = LineStats("a", arrivals=True)
        for item in (datagram, *blocks):
            line.take(item, 0, 9)
        Retransmitter().answer(datagram)
        content = datagram[mold.HEADER_SIZE :]
        assert native.mold_train(content, session, 1, 1400, True) == pure_mold.mold_train(
            content, session, 1, 1400, True
        )

    return check, seeds


def _network() -> tuple[Check, list[bytes]]:
    network = importlib.import_module("levelcast.network")
    if not hasattr(network, "parse_network"):
        raise ImportError("levelcast.network has no parse_network yet")
    seeds = [
        network.five_cities().encode(),
        b'[[site]]\nname = "tokyo"\nregion = "asia"\n\n[timing]\nslot_ms = 5.0\nmode = "pipelined"\n',
        b'[[stripe]]\nid = 1\ngroup = "233.252.0.1:7001"\nmembers = ["tokyo-1", "london-1"]\n',
        b'[node.tokyo-1]\nid = 1\nlife = 1\naddress = "127.0.0.1:0"\nwhen = 2024-01-01T00:00:00Z\n',
    ]

    def check(text: bytes) -> None:
        try:
            network.parse_network(text.decode(errors="replace"), "fuzz.toml")
        except network.NetworkError as error:
            if not str(error):
                raise AssertionError("a refusal that says nothing") from error

    return check, seeds


def _fix() -> tuple[Check, list[bytes]]:
    from levelcast.market.fix import writer
    from levelcast.market.fix.config import SessionConfig
    from levelcast.market.fix.effects import DeliverMessage, SendBytes
    from levelcast.market.fix.framing import FixFrame, Framer
    from levelcast.market.fix.reader import Reader
    from levelcast.market.fix.session import FixSession

    now, time = 1_767_614_400 * 10**9, b"20260105-12:00:00.000"
    head = writer.HeadWriter(b"TW44", b"ISLD")
    logon = head.message(b"A", 1, time, b"98=0\x01108=30\x01")
    order = b"11=A\x0121=1\x0138=100\x0140=1\x0154=1\x0155=IBM\x0160=20260105-12:00:00\x01"
    parties = b"453=1\x01448=X\x01452=1\x01802=1\x01523=a\x01354=3\x01355=a\x01b\x01"
    bodies = [(b"D", order + parties), (b"2", b"7=1\x0116=0\x01"), (b"4", b"36=9\x01123=Y\x01"), (b"1", b"112=T\x01")]
    bodies += [(b"5", b""), (b"A", b"98=0\x01108=30\x01141=Y\x01"), (b"W", b"55=I\x01268=1\x01269=0\x01270=1.5\x01")]

    def check(data: bytes) -> None:
        check_stream(data)
        fields = data.partition(b"\x0135=")[2].rpartition(b"\x0110=")[0]
        check_stream(writer.seal(b"35=" + fields + b"\x01"))

    def check_stream(data: bytes) -> None:
        session = FixSession(SessionConfig(sender=b"ISLD", target=b"TW44"))
        session.connect(now)
        effects = session.receive(logon, now)
        assert len(effects) == 4, "no answer to the Logon"
        for cut in (len(data) // 2, len(data)):
            effects += session.receive(data[:cut], now)
            data = data[cut:]
        delivered = [effect.message for effect in effects if isinstance(effect, DeliverMessage)]
        assert all(message.rejection is None for message in delivered), "a message with a fault was delivered"
        framer, reader = Framer(), Reader()
        for sent in (effect.data for effect in effects if isinstance(effect, SendBytes)):
            framer.feed(sent)
            frame = framer.next()
            assert isinstance(frame, FixFrame), "garbled output"
            assert frame.raw == sent, "garbled output"
            assert reader.read(frame).rejection is None, "an answer that the reader rejects"

    return check, [head.message(kind, 2, time, body) for kind, body in bodies]


def _entry() -> tuple[Check, list[bytes]]:
    from levelcast.market.entry.journal import read_batches
    from levelcast.market.fix import writer
    from levelcast.market.fix.framing import FixFrame, Framer
    from levelcast.market.fix.reader import Reader
    from tests.entry_link import FloorDisk, SimFloor, rights
    from tests.fix_parts import START

    time = b"20260105-12:00:00.000"
    head = writer.HeadWriter(b"T1", b"FLOOR")
    logon = head.message(b"A", 1, time, b"98=0\x01108=30\x01")
    order = b"11=A\x0138=100\x0140=2\x0144=181.52\x0154=1\x0155=IBM\x0160=20260105-12:00:00\x01"
    bodies = [
        (b"D", order),
        (b"F", b"41=A\x01" + order),
        (b"G", b"41=A\x01" + order),
        (b"q", b"11=M\x01530=7\x0160=" + time + b"\x01"),
    ]
    bodies += [
        (b"V", b"262=m\x01263=1\x01264=0\x01267=1\x01269=0\x01146=1\x0155=IBM\x01"),
        (b"x", b"320=x\x01559=4\x01"),
    ]
    bodies += [
        (
            b"AN",
            b"710=p\x01724=0\x01453=1\x01448=1\x01447=D\x01452=24\x011=*\x01581=1\x01715=20260105\x0160="
            + time
            + b"\x01",
        )
    ]

    def check(data: bytes) -> None:
        disk = FloorDisk()
        floor = SimFloor(disk, rights(1), now=START)
        floor.prepare(1)
        floor.gateway.connect(1, START)
        fields = data.partition(b"\x0135=")[2].rpartition(b"\x0110=")[0]
        first = head.message(b"D", 2, time, order)
        for octets in (logon, first, data, writer.seal(b"35=" + fields + b"\x01")):
            floor.gateway.receive(1, octets, START, START)
            floor.cycle()
        framer, reader = Framer(1 << 20), Reader()
        framer.feed(floor.sent[1])
        while (frame := framer.next()) is not None:
            assert isinstance(frame, FixFrame), "garbled output"
            assert reader.read(frame).rejection is None, "an answer that the reader rejects"
        assert list(read_batches(bytes(disk.journal))), "no journal"
        again = SimFloor(disk, rights(1), now=START)
        assert again.machine.engine.chain == floor.machine.engine.chain, "a restart gives another state"
        assert again.gateway.take().packet is None, "a restart sends a packet again"

    return check, [head.message(kind, 3, time, body) for kind, body in bodies]


def _sealed() -> tuple[Check, list[bytes]]:
    from levelcast import records
    from levelcast.native import pure_seal, seal
    from levelcast.wire.messages import Data

    key, head = bytes(32), (1, 7, 1, 3, 5)
    openers = [module.Opener() for module in (pure_seal, seal)]
    for opener in openers:
        opener.add(7, 3, 1, 5, key)
    train, *_ = pure_seal.Sealer(key, *head).seal_packets(records.trades(60).tobytes(), 1_400, 9, 1)
    one = pure_seal.Sealer(key, *head).seal(9, 1, records.mappings(1).tobytes())

    def answer(call: Callable[[bytes], object], content: bytes) -> object:
        try:
            return call(content)
        except (KeyError, ValueError) as error:
            return type(error), error.args

    def check(content: bytes) -> None:
        for call in ("open", "assemble"):
            pure, chosen = (
                answer(
                    lambda content, opener=opener, call=call: (  # type: ignore[misc]
                        opener.open(content, 1, Data)
                        if call == "open"
                        else opener.assemble([Data(7, 1, 1, 1, content)])
                    ),
                    content,
                )
                for opener in openers
            )
            assert pure == chosen
        taken = [module.Sealer(key, *head).seal_packets(content, 1_400, 9, 1) for module in (pure_seal, seal)]
        assert taken[0] == taken[1]

    return check, [train, one, records.trades(3).tobytes()]


def _keyed() -> tuple[Check, list[bytes]]:
    from levelcast.keys.authority import first_statement
    from levelcast.keys.beat_macs import BeatSender, BeatVerifier
    from levelcast.keys.control import ControlSeal, ControlVerifier
    from levelcast.keys.identity import Identity
    from levelcast.keys.keyring import open_keyring
    from levelcast.keys.packets import SealedPackets, SealedSource
    from levelcast.keys.secret import KeysError
    from levelcast.keys.statement import Holder, parse_statement, statement_text
    from levelcast.wire.codec import encode
    from levelcast.wire.header import domain_of
    from levelcast.wire.messages import Beat, Claim, Packet, Token

    now, domain = 10**18, domain_of(9, 0)
    authority, one, two, floor = (Identity.new(name) for name in ("authority", "one", "two", "floor"))
    holders = [Holder(1, "receiver", one.public), Holder(2, "receiver", two.public), Holder(7, "floor", floor.public)]
    statement = first_statement(authority, 9, holders, now)
    content = statement_text(statement, authority).encode()
    rings = [open_keyring(each, statement) for each in (one, two, floor)]
    token = encode(Token(3, 100, now, 1, 99, 64, (), ()), domain)
    beat = encode(Beat(1, 3, (Claim(0, 99),), 1, now), domain)
    seeds = [
        ControlSeal(one, rings[0].epochs[1]).sign(token, now + 1),
        *BeatSender(rings[0], rings[0].epochs[1]).seal(beat, now + 1),
        SealedSource(rings[2], domain, 5, 1).seal(Packet(7, 1, 1, 1, bytes(64))).sealed,
        content,
    ]
    control, beats = ControlVerifier(rings[1], now), BeatVerifier(rings[1], now)
    packets = SealedPackets(rings[1], domain)

    def check(found: bytes) -> None:
        control.begin_turn()
        control.check(found, now + 2)
        control.check_item(found)
        beats.check(found, now + 2)
        packets.check(found, now + 2)
        try:
            parse_statement(found, authority.public.sign_text, 9, now)
        except KeysError:
            assert found != content

    return check, seeds


def _book() -> tuple[Check, list[bytes]]:
    from levelcast.native.book import BookKernel
    from levelcast.native.book_codes import COMMAND
    from levelcast.native.pure_book import BookKernel as PureBook
    from tests.book_parts import Flow, flow, run_steps

    book = BookKernel()
    run_steps(book, flow(2, 300))
    commands = [step.args[0].tobytes() for step in flow(3, 60) if step.call == "command"]

    def check(content: bytes) -> None:
        try:
            BookKernel.restore(content).snapshot()
        except ValueError:
            assert content != book.snapshot()
        whole = content[: len(content) // COMMAND.size * COMMAND.size]
        events = []
        for make in (BookKernel, PureBook):
            engine = make()
            run_steps(engine, Flow(3).begin())
            events.append(engine.run(whole) + engine.finish())
        assert events[0] == events[1]

    return check, [book.snapshot(), b"".join(commands), *commands[-3:]]


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("core", "a core datagram decodes to a message with that one encoding, or Malformed", _core),
        Target("chain-content", "a content has one encoding, or is Malformed", _chain_content),
        Target("chain-member", "a member handles every message without an error", _chain_member),
        Target("records", "a payload is counted and stamped, or BadRecords", _records),
        Target("membership", "a payload is the one encoding of a set of primaries, or None", _membership),
        Target("mold", "a MoldUDP64 packet decodes to a message with that one encoding, or Malformed", _mold),
        Target("fix", "a session delivers valid messages only, and answers with valid ones", _fix),
        Target("entry", "a gateway answers with valid messages, and a restart gives the same state", _entry),
        Target("network", "a network file is read, or NetworkError says why not", _network),
        Target("sealed", "C and Python seal and open the same packets, and reject the same bytes", _sealed),
        Target("book", "a snapshot is loaded or refused; C and Python give the same events for any commands", _book),
        Target("keyed", "bytes without the right keys get a reason or KeysError", _keyed),
    )
}
