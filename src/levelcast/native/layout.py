"""Offsets of the fields in a core datagram that compiled code and its Python equivalent both read.

The table is in the module head of `levelcast.wire.header`. `_datagram.h` has the same numbers for C, and a test
compares them. The size of a seal is never assumed: each datagram states it.
"""

from __future__ import annotations

from struct import Struct

MAGIC = b"LC"
VERSION = 2
HEADER = Struct("<2sBBHHQIBBHQ")

KIND_AT = 3
STRIPE_AT = 4
SENDER_AT = 6
SALT_AT = 8
"""Of a Data with an AES-256-GCM seal, in place of the generation: drawn when the process of its source started."""
LENGTH_AT = 16
SEAL_KIND_AT = 20
SEAL_SIZE_AT = 21
EPOCH_AT = 22
NETWORK_AT = 24

KIND_DATA = 1
DATA_BODY = Struct("<QQI")
"""Incarnation, number, records of a Data; its payload follows."""

STRIPE_BITS = 16
STRIPE_MASK = 0xFFFF
"""A domain is one stripe of one network, both in one number: network << STRIPE_BITS | stripe."""

CRC32_KIND = 1
CRC32_SIZE = 4
AES_GCM_KIND = 2
AES_GCM_SIZE = 16
"""The tag."""
