"""Name the MoldUDP64 sessions of a stripe."""

from __future__ import annotations

from levelcast.network import Stripe
from levelcast.wire.mold import SESSION_SIZE, session_name


def stripe_session(stripe: Stripe) -> bytes:
    """Return the session of a stripe: its name, or, if that is too long, its beginning and the stripe's index."""
    name = stripe.name
    if len(name) > SESSION_SIZE:
        mark = f"~{stripe.index}"  # a tilde is not valid in names
        name = name[: SESSION_SIZE - len(mark)] + mark
    return session_name(name)
