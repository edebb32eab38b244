"""Messages as bytes: a body of fields, and a head and tail around it.

The order of the fields is that of their tags in the head (after BeginString, BodyLength and MsgType), and the
caller's in the body.
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.market.fix.dictionary import DATA_OF_LENGTH
from levelcast.market.fix.framing import SOH, checksum
from levelcast.market.fix.reader import Fields

Pairs = Iterable[tuple[int, "bytes | list[Fields]"]]

_DATA = frozenset(DATA_OF_LENGTH.values())


def seal(body: bytes, begin: bytes = b"FIX.4.4") -> bytes:
    """Return a message from its fields from MsgType on, each with its delimiter: add length and checksum."""
    message = b"8=%b\x019=%d\x01%b" % (begin, len(body), body)
    return b"%b10=%03d\x01" % (message, checksum(message))


def encode_fields(pairs: Pairs) -> bytes:
    """Return fields as bytes. A group is its count's tag and its entries; the caller orders their fields.

    Raises ValueError for an empty value and for a delimiter in a value that is not data.
    """
    parts: list[bytes] = []
    for tag, value in pairs:
        if isinstance(value, list):
            parts.append(b"%d=%d\x01" % (tag, len(value)))
            parts += [encode_fields(entry.items()) for entry in value]
            continue
        if not value or (SOH in value and tag not in _DATA):
            raise ValueError(f"field {tag}: the value {value!r} is empty or contains the delimiter")
        parts.append(b"%d=%b\x01" % (tag, value))
    return b"".join(parts)


class HeadWriter:
    """Write the head of the messages of one session."""

    def __init__(self, sender: bytes, target: bytes) -> None:
        self._sender, self._target = sender, target
        self._plain = b"35=%%b\x0134=%%d\x0149=%b\x0152=%%b\x0156=%b\x01%%b" % (
            sender.replace(b"%", b"%%"),
            target.replace(b"%", b"%%"),
        )

    def message(self, kind: bytes, seq: int, sent: bytes, body: bytes) -> bytes:
        """Return a message without optional head fields. `sent` is the text of SendingTime."""
        return seal(self._plain % (kind, seq, sent, body))

    def message_with(self, kind: bytes, seq: int, sent: bytes, body: bytes, extra: Pairs) -> bytes:
        """Return a message with further head fields, such as PossDupFlag."""
        pairs: list[tuple[int, bytes | list[Fields]]] = [
            (34, b"%d" % seq),
            (49, self._sender),
            (52, sent),
            (56, self._target),
            *extra,
        ]
        pairs.sort(key=lambda pair: pair[0])
        return seal(b"35=%b\x01%b%b" % (kind, encode_fields(pairs), body))
