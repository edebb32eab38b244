"""Reasons for which a session rejects a message (tag 373, SessionRejectReason) and their usual texts (tag 58)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class SessionRejectReason(IntEnum):
    INVALID_TAG = 0
    REQUIRED_MISSING = 1
    NOT_DEFINED_FOR_TYPE = 2
    NO_VALUE = 4
    VALUE_INCORRECT = 5
    FORMAT_INCORRECT = 6
    COMP_ID = 9
    SENDING_TIME = 10
    INVALID_TYPE = 11
    REPEATED = 13
    OUT_OF_ORDER = 14
    GROUP_ORDER = 15
    GROUP_COUNT = 16
    OTHER = 99


TEXTS: dict[SessionRejectReason, bytes] = {
    SessionRejectReason.INVALID_TAG: b"Invalid tag number",
    SessionRejectReason.REQUIRED_MISSING: b"Required tag missing",
    SessionRejectReason.NOT_DEFINED_FOR_TYPE: b"Tag not defined for this message type",
    SessionRejectReason.NO_VALUE: b"Tag specified without a value",
    SessionRejectReason.VALUE_INCORRECT: b"Value is incorrect (out of range) for this tag",
    SessionRejectReason.FORMAT_INCORRECT: b"Incorrect data format for value",
    SessionRejectReason.COMP_ID: b"CompID problem",
    SessionRejectReason.SENDING_TIME: b"SendingTime accuracy problem",
    SessionRejectReason.INVALID_TYPE: b"Invalid MsgType",
    SessionRejectReason.REPEATED: b"Tag appears more than once",
    SessionRejectReason.OUT_OF_ORDER: b"Tag specified out of required order",
    SessionRejectReason.GROUP_ORDER: b"Repeating group fields out of order",
    SessionRejectReason.GROUP_COUNT: b"Incorrect NumInGroup count for repeating group",
}


class Rejection(NamedTuple):
    """A fault of one message. `tag` is the text of the faulty tag as it was received, empty if no tag is at fault."""

    reason: SessionRejectReason
    tag: bytes = b""
    text: bytes = b""

    @property
    def words(self) -> bytes:
        return self.text or TEXTS[self.reason]
