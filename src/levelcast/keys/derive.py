"""Derive the keys of an epoch from its core secret with HKDF-SHA-256 (RFC 5869; rules K1, K2).

The network identifier is the salt of every derivation from a random secret, and each purpose has a label, so a key of
one network, stripe, source, incarnation or purpose is useless for another. Secrets of epochs are random and never
derived from an earlier one.

| key                         | derived from    | label and fields                                                    |
|-----------------------------|-----------------|---------------------------------------------------------------------|
| source key S of a source    | core secret C   | `levelcast source`, source u16                                      |
| control key N               | core secret C   | `levelcast control`                                                 |
| packet key                  | source key S    | `levelcast packets`, stripe u16, incarnation u64, salt u64 (expand) |
| beat key of two nodes       | X25519, then N  | `levelcast beats`, sender u16, receiver u16                         |
"""

from __future__ import annotations

import struct

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from levelcast.keys.secret import Secret

KEY_SIZE = 32


def source_key(core: Secret, network: int, source: int) -> Secret:
    """Return S, the key of a source in an epoch."""
    return _derive(core.reveal(), network, b"levelcast source" + struct.pack("<H", source))


def control_key(core: Secret, network: int) -> Secret:
    """Return N, the key of all nodes for the MAC of control messages in an epoch."""
    return _derive(core.reveal(), network, b"levelcast control")


def packet_key(source: Secret, stripe: int, incarnation: int, salt: int) -> Secret:
    """Return the key under which a process of a source numbers its packets (K5)."""
    info = b"levelcast packets" + struct.pack("<HQQ", stripe, incarnation, salt)
    return Secret(HKDFExpand(SHA256(), KEY_SIZE, info).derive(source.reveal()))


def beat_key(agreed: Secret, control: Secret, network: int, sender: int, receiver: int) -> Secret:
    """Return the key with which one node authenticates its beats to another; both can compute it, and no other node."""
    info = b"levelcast beats" + struct.pack("<HH", sender, receiver)
    return _derive(agreed.reveal() + control.reveal(), network, info)


def _derive(secret: bytes, network: int, info: bytes) -> Secret:
    return Secret(HKDF(SHA256(), KEY_SIZE, network.to_bytes(8, "little"), info).derive(secret))
