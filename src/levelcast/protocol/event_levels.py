"""Levels of events for logs: ERROR needs an operator, WARNING is a fault that the network handles, INFO is normal."""

from __future__ import annotations

from enum import StrEnum

from levelcast.protocol.events import (
    ClockDoubted,
    ClockWrong,
    Conflict,
    Diverged,
    Event,
    EventRepeated,
    FaultReceived,
    FaultReported,
    KeysRefused,
    LeapAnnounced,
    LinesLost,
    NodeDied,
    NodeStop,
    PaceDiffers,
    PathsNotWritten,
    Rejected,
    RejectReason,
    RetentionFailed,
    RingRefused,
    RmpFault,
    SetupWarning,
    Superseded,
    Suspected,
    TapeDamaged,
    TornTailCut,
    UnlistedSource,
    Witnessed,
    is_request,
)


class Level(StrEnum):
    """The usual levels; logs omit DEBUG."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LEVELS: dict[type[Event], Level] = {
    Witnessed: Level.DEBUG,
    **dict.fromkeys(
        (
            FaultReported,
            FaultReceived,
            RmpFault,
            Suspected,
            Rejected,
            RingRefused,
            UnlistedSource,
            PaceDiffers,
            PathsNotWritten,
            RetentionFailed,
            TornTailCut,
            SetupWarning,
            KeysRefused,
            LeapAnnounced,
            LinesLost,
            NodeDied,
        ),
        Level.WARNING,
    ),
    **dict.fromkeys((Conflict, Diverged, TapeDamaged, Superseded, ClockWrong, ClockDoubted), Level.ERROR),
}
"""Levels of events; all others are INFO."""


def level_of(event: Event) -> Level:
    """Return the level of an event, which may depend on its reason."""
    match event:
        case EventRepeated(level=level):
            return Level(level)
        case NodeStop(error=error):
            return Level.ERROR if error else Level.INFO
        case Rejected(reason=RejectReason.CREDIT):
            return Level.INFO  # usual while a node catches up
    return Level.INFO if is_request(event) else LEVELS.get(type(event), Level.INFO)
