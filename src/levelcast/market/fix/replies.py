"""Bodies of the messages that refuse another one: Reject, BusinessMessageReject."""

from __future__ import annotations

from levelcast.market.fix.journal import HeadFields
from levelcast.market.fix.reader import Message
from levelcast.market.fix.reasons import Rejection

_REVERSE_ROUTE = ((115, 128), (116, 129), (144, 145), (128, 115), (129, 116), (145, 144))
"""OnBehalfOf and DeliverTo: CompID, SubID, LocationID. A reply swaps them."""
_MAX_TYPE = 32
"""Bytes of a MsgType that a reply repeats."""


def reject_body(message: Message, fault: Rejection) -> bytes:
    tag = b"371=%b\x01" % fault.tag if fault.tag else b""
    kind = b"372=%b\x01" % message.type[:_MAX_TYPE] if message.type else b""
    return b"45=%d\x0158=%b\x01%b%b373=%d\x01" % (message.seq or 0, fault.words, tag, kind, fault.reason)


def business_reject_body(message: Message, reason: int, text: bytes, reference: bytes = b"") -> bytes:
    """Return the body of a BusinessMessageReject; `reference` is the identifier of the refused request."""
    ref = b"379=%b\x01" % reference if reference else b""
    return b"45=%d\x0158=%b\x01372=%b\x01%b380=%d\x01" % (message.seq or 0, text, message.type, ref, reason)


def reject_head(message: Message) -> HeadFields:
    """Return the route of a reply: the reverse of the message's own."""
    route = ((to, message.get(tag)) for tag, to in _REVERSE_ROUTE)
    return tuple((to, value) for to, value in route if value)
