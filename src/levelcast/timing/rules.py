"""The timing of one stripe's ring: every number that the rules of the ring use, in one value.

The functions are the rules that connect these numbers: the attempts that a loss needs (rule 5), the durations of
recovery and release (rule 6), and the time within which everything sent is released once faults stop (the liveness
guarantee). `levelcast.timing.derive` applies them to a measured network and states the reasons.

An error in the paper: MS §5.1 states the rule R = δ_N + 2·k_r·τ_r with τ_r ≥ 2δ_N + X + P, and then a
closed form, (1 + 2k_r)·δ_N + k_r·(X + P), that is smaller by k_r·τ_r: one of the two recovery stages (first
the token, then the packets that it names) is missing from it. We use the rule and report both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

Mode = Literal["lockstep", "pipelined"]

FAULT_RATIO = 1e-9
"""Maximum number of faults per packet that a ring may report because of random loss alone (rule 5)."""

LOSS_LIMIT = 0.5
"""Above this loss no number of attempts is derived: k_r would exceed 70, and the hold time would be minutes."""

LATE_TARGET = 1e-5
"""Share of the releases that may be late at the worst receiver."""

BEATS_PER_DELAY = 6
SHORTEST_BEAT_NS, LONGEST_BEAT_NS = 10_000_000, 50_000_000

GUARD_NS = 2_000_000
"""Time for handling that is added to the delay after which something counts as missing."""

REFUSED_ASKS = 3
"""Maximum number of join requests that a reformation server refuses if a member requested to join and did not join: a
member that can send but not receive must not keep the ring in reformation.
"""

REFORMATIONS = 3
"""Maximum number of reformations after the last fault: the one in progress when it stops, one because the first omitted
a member, and one that admits the members that have returned meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in nanoseconds, with the papers' symbols."""

    mode: Mode
    slot_ns: int
    """τ: from one slot to the next (MS τ_t)."""
    late_ns: int
    """δ_N: a token not held this long after its slot counts as missing."""
    request_ns: int
    """τ_r: between two requests for the same thing."""
    attempts: int
    """k_r: requests before a fault is reported."""
    hold_ns: int
    """Δ_A: from the token's timestamp to the release."""
    join_ns: int
    """T_join: time after its first INVITE for which a reformation server waits for more than a majority."""
    lead_ns: int
    """Time from now to the start of a new ring."""
    backoff_ns: int
    """Additional wait of a reformation server compared with the one ranked before it."""
    ask_ns: int
    """Interval of the join requests of a member outside the ring."""
    resend_ns: int
    """Interval at which a source resends an unacknowledged packet."""
    stagger_ns: int = 0
    """Delay of the requests of the last set of receivers after the first (MS §5.2); 0 without NACK reduction."""
    beat_ns: int = 0
    """β: interval of the beats in which members claim what they have; 0: only tokens claim (lockstep)."""

    @property
    def recovery_ns(self) -> int:
        """R: maximum duration of recovery until it succeeds or a fault is reported (rule 6, MS §5.1)."""
        return self.late_ns + self.stagger_ns + 2 * self.attempts * self.request_ns

    @property
    def next_site_ns(self) -> int:
        """R of the first set, which includes the next slot owner, so that lockstep need not wait for the others."""
        return self.recovery_ns - self.stagger_ns

    @property
    def hear_ns(self) -> int:
        """Time from a token's timestamp until every operable receiver has it: δ_N + k_r·τ_r (rules 6, 7)."""
        return self.late_ns + self.stagger_ns + self.attempts * self.request_ns

    def unwitnessed_ns(self, witnesses: int) -> int:
        """Return the time from sending a packet until its source receives the mark, if nothing is lost.

        A token names the packet within τ, a token of each witness follows within w·τ, the next token marks it within τ.
        The packet and the token that marks it each need δ_N.
        """
        return (witnesses + 2) * self.slot_ns + 2 * self.late_ns


def failure_ratio(loss_ratio: float) -> float:
    """Return the probability that one attempt fails: the request or its answer is lost, 1 − (1 − p)²."""
    return 1.0 - (1.0 - loss_ratio) ** 2


def attempts_for(loss_ratio: float, members: int = 2, fault_ratio: float = FAULT_RATIO) -> int:
    """Return k_r: the fewest attempts with which random loss alone causes less than one fault in 10⁹ packets (rule 5).

    A fault needs a first loss and then k_r failed attempts, at one of the m − 1 other members, for the packet
    or for its token: 2(m − 1)·p·q^k_r per packet. Losses occur in bursts, so the first loss earns no credit:
    the factor before q^k_r never counts as less than 1.

    >>> [attempts_for(p) for p in (0.0, 0.001, 0.01, 0.05)]
    [1, 4, 6, 9]
    """
    if not 0.0 <= loss_ratio <= LOSS_LIMIT:
        raise ValueError(f"loss {loss_ratio} is outside 0 to {LOSS_LIMIT}: attempts cannot be derived from it")
    failure = failure_ratio(loss_ratio)
    if failure == 0.0:
        return 1
    chances = max(1.0, 2.0 * (members - 1) * loss_ratio)
    attempts = max(1, math.floor(math.log(fault_ratio / chances) / math.log(failure)))
    while chances * failure**attempts >= fault_ratio:
        attempts += 1
    return attempts


def beat_interval_ns(delay_ns: int) -> int:
    """Return β: a sixth of the largest delay, from 10 to 50 ms. Shorter beats cost datagrams, longer ones hold time."""
    return min(max(delay_ns // BEATS_PER_DELAY, SHORTEST_BEAT_NS), LONGEST_BEAT_NS)


def required_hold_ns(
    slot_ns: int, late_ns: int, request_ns: int, attempts: int, witnesses: int, layers: int = 0, nack_sets: int = 1
) -> int:
    """Return the minimum Δ_A of rule 6: R for w = 1 (the paper), else R + w·τ + δ_N + k_r·τ_r.

    Each layer of secondaries adds the time to receive its witnesses once more. The rule is the same in both
    modes; lockstep differs in that τ itself must be R or more. With k_p sets of receivers that send requests in turn,
    R and the time to receive a witness are (k_p − 1)·τ_r longer (MS §5.2).
    """
    hear_ns = late_ns + (nack_sets - 1 + attempts) * request_ns
    recovery_ns = hear_ns + attempts * request_ns
    if witnesses <= 1 and layers == 0:
        return recovery_ns
    return recovery_ns + (1 + layers) * (witnesses * slot_ns + hear_ns)


def closed_form_ns(late_ns: int, handling_ns: int, attempts: int) -> int:
    """Return MS §5.1's closed form (1 + 2k_r)·δ_N + k_r·(X + P): shown with R, never used (see the module)."""
    return (1 + 2 * attempts) * late_ns + attempts * handling_ns


class BoundTerm(NamedTuple):
    """One summand of the liveness bound: the event to wait for, its maximum duration, and the rule."""

    term: str
    ns: int
    rule: str


def liveness_terms(
    timing: Timing,
    members: int,
    servers: int,
    *,
    reformations: int = REFORMATIONS,
    catch_up_rounds: int = 1,
    refused_asks: int = REFUSED_ASKS,
) -> list[BoundTerm]:
    """Return the time within which everything sent is released once faults stop, as a sum of named waits.

    Ordinary loss continues after the faults, so each exchange counts with all its k_r attempts. `catch_up_rounds` is
    the number of requests, in sequence, that a returned member needs for the slots that it missed: 1 when one answer
    contains them all. `refused_asks` is the number of join requests that a server refuses to a member that requested
    to join before and then did not, for example because of a fault in between. Terms of each reformation are counted
    `reformations` times.
    """
    exchange_ns = timing.attempts * timing.request_ns
    round_ns = members * timing.slot_ns
    each = [
        BoundTerm("the slot of a failed site is due", round_ns, "m·τ: each member has one slot in a round (rule 1)"),
        BoundTerm("its token is found missing", timing.recovery_ns, "R: recovery succeeds or reports a fault (rule 6)"),
        BoundTerm("a missing ring is reported, or a join request sent", timing.ask_ns, "ask: their interval (rule 12)"),
        BoundTerm("the report arrives", timing.hear_ns, "δ_N + k_r·τ_r: a report is repeated like a request (rule 5)"),
        BoundTerm(
            "servers back off in turn",
            max(2 * servers - 1, 0) * timing.backoff_ns,
            "(2·servers − 1)·backoff: the last one waits, invites with a low number, waits again (rule 12)",
        ),
        BoundTerm("invitations are answered", 2 * exchange_ns, "2·k_r·τ_r: then the server gives up (rule 12)"),
        BoundTerm("other members may join", timing.join_ns, "T_join (rule 12)"),
        BoundTerm("the ring is announced and starts", timing.lead_ns, "lead: T_g is this far ahead (rule 12)"),
        BoundTerm(
            "members catch up",
            timing.recovery_ns + (max(catch_up_rounds, 1) - 1) * exchange_ns,
            "R, and k_r·τ_r for each request after the first (rules 5, 9)",
        ),
    ]
    once = [
        BoundTerm(
            "the source resends",
            timing.hold_ns + timing.attempts * timing.resend_ns,
            "Δ_A until it abandons a lost acknowledgement, then k_r·resend (rule 10)",
        ),
        BoundTerm("a token acknowledges it", round_ns, "m·τ: every member has had a slot since (rules 1, 2)"),
        BoundTerm("it is held and released", max(timing.hold_ns, timing.hear_ns), "Δ_A (rule 7)"),
    ]
    if refused_asks:
        asks_ns = refused_asks * timing.ask_ns
        once.append(BoundTerm("join requests are refused", asks_ns, f"{refused_asks}·ask (rule 12)"))
    repeated = [BoundTerm(f"{reformations} × {term}", reformations * ns, rule) for term, ns, rule in each]
    return repeated + once


def liveness_bound_ns(timing: Timing, members: int, servers: int, **counts: int) -> int:
    """Return the sum of `liveness_terms` with these `counts`: the time to release everything once faults stop."""
    return sum(term.ns for term in liveness_terms(timing, members, servers, **counts))
