"""Configuration of a session."""

from __future__ import annotations

from dataclasses import dataclass

from levelcast.market.fix.framing import DEFAULT_MAX_MESSAGE
from levelcast.market.fix.schedule import SessionSchedule
from levelcast.market.fix.values import SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    sender: bytes
    """CompID of this side."""
    target: bytes
    """CompID of the peer."""
    initiator: bool = False
    """Whether this side connects and sends the first Logon."""
    heartbeat_s: int = 30
    """Interval that an initiator requests; an acceptor uses its peer's."""
    max_heartbeat_s: int = 3_600
    schedule: SessionSchedule | None = None
    """None: always open, numbers are never reset by time."""
    reset_on_logon: bool = False
    """Numbers start at 1 with every logon. An initiator requests it with ResetSeqNumFlag."""
    username: bytes = b""
    password: bytes = b""
    """An initiator's, in its Logon."""
    max_message: int = DEFAULT_MAX_MESSAGE
    """Greatest BodyLength that is accepted, bytes."""
    max_held: int = 1_000
    """Messages kept behind a gap; later ones are requested again."""
    max_held_bytes: int = 1 << 20
    resend_batch: int = 500
    """Numbers resent in one step."""
    time_tolerance_ns: int = 120 * SECOND
    """Greatest difference between SendingTime and the clock."""
    logon_timeout_ns: int = 10 * SECOND
    logout_timeout_ns: int = 5 * SECOND
    resend_timeout_ns: int = 30 * SECOND
    """A gap that has not become smaller for this long is requested again."""

    def __post_init__(self) -> None:
        for name, value in (("sender", self.sender), ("target", self.target)):
            if not value or b"\x01" in value:
                raise ValueError(f"{name}: a CompID is not empty and has no delimiter, not {value!r}")
        if not 0 <= self.heartbeat_s <= self.max_heartbeat_s:
            raise ValueError(f"heartbeat_s: 0 to {self.max_heartbeat_s} s, not {self.heartbeat_s}")
