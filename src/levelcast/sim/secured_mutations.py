"""Mutations of the rules of keys: remove one clause, so that a history with intruders must fail (K5 to K14)."""

from __future__ import annotations

from levelcast.keys import beat_macs, control
from levelcast.keys.packets import SealedPackets, SealedSource
from levelcast.keys.replay import SenderWindow
from levelcast.native.layout import SENDER_AT
from levelcast.sim.mutations import Mutation, Patch
from levelcast.wire.header import HEADER_SIZE, Reason
from levelcast.wire.messages import Data


def _unchecked(self: SealedPackets, sealed: bytes, now_ns: int, *, named: bool = False) -> Data | Reason:
    source = int.from_bytes(sealed[SENDER_AT : SENDER_AT + 2], "little")
    incarnation = int.from_bytes(sealed[HEADER_SIZE : HEADER_SIZE + 8], "little")
    number = int.from_bytes(sealed[HEADER_SIZE + 8 : HEADER_SIZE + 16], "little")
    return Data(source, incarnation, number, number, sealed)


def _mutation(name: str, rule: str, without: str, *patches: Patch) -> tuple[str, Mutation]:
    return name, Mutation(name, "", rule, without, patches)


SECURED_MUTATIONS: dict[str, Mutation] = dict(
    (
        _mutation(
            "packet-unopened",
            "K6",
            "A packet is held without being opened",
            (SealedPackets, "check", _unchecked),
        ),
        _mutation(
            "packet-not-renewed",
            "K10",
            "A source resends packets of an ended epoch as they are",
            (SealedSource, "renewed", lambda self, data, now: data),
        ),
        _mutation(
            "signature-unchecked",
            "K11",
            "The MAC of the control key is enough",
            (control, "_is_signed", lambda datagram, holder: True),
        ),
        _mutation(
            "any-role",
            "K13",
            "Every node may send every kind",
            (control, "may_send", lambda kind, role: True),
        ),
        _mutation(
            "no-window",
            "K12",
            "A message counts again when it is repeated",
            (SenderWindow, "refusal", lambda self, sent_ns, now_ns: None),
        ),
        _mutation(
            "any-beat",
            "K11",
            "A beat counts whatever its MAC is",
            (beat_macs, "compare_digest", lambda one, other: True),
        ),
    )
)
