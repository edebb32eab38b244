"""Print what a Levelcast edge group carries: a bare MoldUDP64 listener in plain Python, without Levelcast.

python examples/listen.py 239.192.75.1 31001 [address of the interface, 0.0.0.0 for the default]
"""

import socket
import struct
import sys

HEADER = struct.Struct(">10sQH")  # MoldUDP64, big-endian: session, sequence of the first message, count
TRADE = struct.Struct("<BBHIQqI")  # DBN, little-endian: length, rtype, floor, instrument, ts_event, price, size

group, port, interface = (*sys.argv[1:], "0.0.0.0")[:3]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
sock.bind((group, int(port)))
sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(interface))
print(f"listening to {group}:{port}", file=sys.stderr, flush=True)

expected: dict[str, int] = {}  # the next sequence of each session
live: set[str] = set()
while live or not expected:  # until every session that was heard of has ended
    packet = sock.recv(65_535)
    name, sequence, count = HEADER.unpack_from(packet)
    session = name.decode().rstrip()
    missing = sequence - expected.setdefault(session, sequence)
    if missing > 0:  # heartbeats and the end of a session show it too
        print(f"{session}: {missing} messages missing before {sequence}", file=sys.stderr, flush=True)
    (live.discard if count == 0xFFFF else live.add)(session)
    at = HEADER.size
    for number in range(sequence, sequence + (count if count < 0xFFFF else 0)):
        (size,) = struct.unpack_from(">H", packet, at)
        record = packet[at + 2 : at + 2 + size]
        at += 2 + size
        if number >= expected[session] and record[1] == 0:  # rtype 0 is a trade; the others are skipped by length
            _, _, floor, instrument, ts_event, price, shares = TRADE.unpack_from(record)
            print(session, number, floor, instrument, ts_event, price / 1e9, shares, sep=",")
    expected[session] = max(expected[session], sequence + (count if count < 0xFFFF else 0))
