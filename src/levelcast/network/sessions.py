"""Names of the MoldUDP64 sessions of a stripe."""

from __future__ import annotations

from levelcast.network import Stripe
from levelcast.wire.mold import SESSION_SIZE, session_name


def stripe_session(stripe: Stripe) -> bytes:
    """The session of a stripe: its name, or where that is too long its beginning and the stripe's index."""
    name = stripe.name
    if len(name) > SESSION_SIZE:
        mark = f"~{stripe.index}"  # no name has a tilde of its own
        name = name[: SESSION_SIZE - len(mark)] + mark
    return session_name(name)
