"""Reasons for which a member refuses what it receives. Cheap checks come first; a signature is checked last."""

from __future__ import annotations

from enum import StrEnum


class ChainRefusal(StrEnum):
    """One reason each. A refused message changes nothing."""

    EPOCH = "epoch"
    """Another epoch."""
    STRANGER = "stranger"
    """Its author is neither a member nor a sender outside the group."""
    OWN = "own"
    """It claims to be this member's own, and is not known here."""
    OUTSIDE = "outside"
    """Its author is a sender outside the group, and it has acknowledgements or a slot."""
    SLOT = "slot"
    """Its slot belongs to another member."""
    AHEAD = "ahead"
    """Its number is beyond the window of undelivered messages."""
    KNOWN = "known"
    """It is held, or settled and discarded."""
    UNWANTED = "unwanted"
    """A second version that nobody cites, of a sender that is convicted, or of a message that is delivered."""
    DIGEST = "digest"
    """The content is not the one that is signed."""
    CONTENT = "content"
    """The content is malformed, or does not fit this group."""
    PRIOR = "prior"
    """It names a message of an epoch before without proof, or not as the first message of its epoch."""
    SIGNATURE = "signature"
    """The signature is not the author's."""
    EVIDENCE = "evidence"
    """The two headers prove nothing."""
    VECTOR = "vector"
    """The vector does not fit this group."""
    TOO_OFTEN = "too often"
    """The sender requests more often than the interval between requests."""
