"""From measured delay and loss to the timing of a ring, each number with its rule and its reason.

`derive` takes what the network is like (`Path`), what the ring is meant to be (`Shape`) and whatever somebody
has fixed by hand (`Given`), and returns a `Timing` together with an explanation of every number in it. It
never refuses a number that was given: `contradictions` says which of them break a rule, and by how much.

>>> path = Path(delay_ns=70_000_000, loss_ratio=0.01, clock_error_ns=1_000_000, process_ns=5_000_000)
>>> shape = Shape("pipelined", slot_ns=50_000_000, witnesses=3, members=5, servers=2)
>>> derived = derive(path, shape)
>>> show_ns(derived.timing.late_ns), derived.timing.attempts, show_ns(derived.timing.hold_ns)
('72 ms', 6, '2.976 s')

What the paper leaves open and we chose: T_join, lead, backoff, ask and resend. All five follow from δ_N, τ_r,
τ, k_r and the number of servers, so that a network file with only τ, δ_N and k_r in it is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from levelcast.timing.rules import (
    Mode,
    Timing,
    attempts_for,
    closed_form_ns,
    failure_ratio,
    required_hold_ns,
)
from levelcast.units import show_ns

Unit = Literal["ns", "count", "ratio"]


class Explained(NamedTuple):
    """One number of a timing: the papers' symbol (if they have one), its name in the network file or in
    `Timing`, its value, the rule it follows and why it comes out so."""

    symbol: str
    name: str
    value: float
    """Nanoseconds (an int) where `unit` is "ns"."""
    unit: Unit
    rule: str
    because: str

    @property
    def text(self) -> str:
        """The value as a person reads it."""
        if self.unit == "ns":
            return show_ns(int(self.value))
        return f"{self.value:g}"


class Contradiction(NamedTuple):
    """A given number that breaks a rule. `field` is its name in the network file."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Path:
    """The worst that a message between two nodes of the core meets."""

    delay_ns: int
    """The largest one-way delay, as the quantile that all but late packets keep, between two core nodes."""
    loss_ratio: float
    """The largest loss p between two core nodes."""
    clock_error_ns: int = 0
    """How far any clock may be from UTC, to either side."""
    transmit_ns: int = 0
    """X: to transmit a request and its answer (MS §5.1)."""
    process_ns: int = 0
    """P: to process a request and its answer, journal included (MS §5.1)."""
    reach_ns: int = 0
    """The largest one-way delay between a source and a receiver; a source may stand far outside the core."""
    delay_between: str = "two members"
    loss_between: str = "two members"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the ring is meant to be. In lockstep a slot of None means the shortest one allowed, R."""

    mode: Mode
    slot_ns: int | None
    witnesses: int
    members: int
    servers: int
    layers: int = 0
    """Layers of secondary receivers (rule 11)."""
    nack_sets: int = 1
    """k_p: sets of receivers that ask for what is missing one after the other (MS §5.2); 1: all ask at once."""


@dataclass(frozen=True, slots=True)
class Given:
    """Numbers fixed by hand; None means: derive it."""

    late_ns: int | None = None
    request_ns: int | None = None
    attempts: int | None = None
    hold_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """A timing, the rule behind each of its numbers, and the least that the rules allow."""

    timing: Timing
    explained: tuple[Explained, ...]
    least_request_ns: int
    least_hold_ns: int
    closed_form_ns: int


def derive(path: Path, shape: Shape, given: Given = Given()) -> Derived:  # noqa: B008 - frozen, shared on purpose
    """The timing of a ring of this shape over this network, and why (rules 5 and 6, MS §5.1).

    Raises ValueError if k_r is to be derived from a loss above one half, or a pipelined slot is None.
    """
    handling_ns = path.transmit_ns + path.process_ns
    needed_late_ns = path.delay_ns + 2 * path.clock_error_ns
    late_ns = needed_late_ns if given.late_ns is None else given.late_ns
    least_request_ns = 2 * late_ns + handling_ns
    request_ns = least_request_ns if given.request_ns is None else given.request_ns
    if given.attempts is None:
        attempts = attempts_for(path.loss_ratio, shape.members)
    else:
        attempts = given.attempts
    stagger_ns = (shape.nack_sets - 1) * request_ns
    next_site_ns = late_ns + 2 * attempts * request_ns
    recovery_ns = next_site_ns + stagger_ns
    slot_ns = shape.slot_ns
    if slot_ns is None:
        if shape.mode == "pipelined":
            raise ValueError("a pipelined ring needs a slot length: no rule gives one")
        slot_ns = next_site_ns
    least_hold_ns = required_hold_ns(
        slot_ns, late_ns, request_ns, attempts, shape.witnesses, shape.layers, shape.nack_sets
    )
    lead_ns = late_ns + request_ns
    join_ns = -(-attempts // 3) * request_ns
    backoff_ns = request_ns + join_ns + lead_ns
    out_and_back_ns = max(request_ns, 2 * (path.reach_ns + path.clock_error_ns) + handling_ns)
    timing = Timing(
        mode=shape.mode,
        slot_ns=slot_ns,
        late_ns=late_ns,
        request_ns=request_ns,
        attempts=attempts,
        hold_ns=least_hold_ns if given.hold_ns is None else given.hold_ns,
        join_ns=join_ns,
        lead_ns=lead_ns,
        backoff_ns=backoff_ns,
        ask_ns=max(recovery_ns, (shape.servers + 2) * backoff_ns),
        resend_ns=out_and_back_ns + 2 * slot_ns,
        stagger_ns=stagger_ns,
    )
    closed_ns = closed_form_ns(late_ns, max(request_ns - 2 * late_ns, 0), attempts)
    explained = (
        *_explain_network(path, shape, given, timing, needed_late_ns, least_request_ns),
        *_explain_release(shape, given, timing, least_hold_ns, closed_ns),
        *_explain_reformation(shape, timing),
    )
    return Derived(timing, explained, least_request_ns, least_hold_ns, closed_ns)


def contradictions(derived: Derived, shape: Shape) -> list[Contradiction]:
    """Which numbers of a derived timing break rule 4, 5, 6 or 8, and by how much."""
    timing = derived.timing
    found = []
    if timing.request_ns < derived.least_request_ns:
        found.append(_too_small("request", "τ_r", timing.request_ns, derived.least_request_ns, "2δ_N + X + P (rule 6)"))
    if timing.mode == "lockstep" and timing.slot_ns < timing.next_site_ns:
        found.append(
            _too_small(
                "slot",
                "τ",
                timing.slot_ns,
                timing.next_site_ns,
                "in lockstep the recovery time R = δ_N + 2·k_r·τ_r (rule 4)",
            )
        )
    if timing.hold_ns < derived.least_hold_ns:
        rule = f"{_hold_rule(shape)} (rule 6)"
        found.append(_too_small("hold", "Δ_A", timing.hold_ns, derived.least_hold_ns, rule))
    if shape.witnesses > shape.members:
        found.append(
            Contradiction(
                "witness",
                f"witness asks for {shape.witnesses} members and there {_are(shape.members, 'receiver')}: "
                "nothing would ever be released (rule 8)",
            )
        )
    return found


def _too_small(field: str, symbol: str, value_ns: int, least_ns: int, rule: str) -> Contradiction:
    return Contradiction(
        field,
        f"{field} ({symbol}) is {show_ns(value_ns)}, {show_ns(least_ns - value_ns)} too short: "
        f"it must be at least {show_ns(least_ns)}, {rule}",
    )


def _are(count: int, noun: str) -> str:
    return f"is {count} {noun}" if count == 1 else f"are {count} {noun}s"


def _hold_rule(shape: Shape) -> str:
    waits = "" if shape.nack_sets == 1 else " + (k_p − 1)·τ_r"
    if shape.witnesses <= 1 and shape.layers == 0:
        return f"R = δ_N{waits} + 2·k_r·τ_r"
    if shape.layers:
        return f"R + {1 + shape.layers}·(w·τ + δ_N{waits} + k_r·τ_r)"
    return f"R + w·τ + δ_N{waits} + k_r·τ_r"


def _explain_network(
    path: Path, shape: Shape, given: Given, timing: Timing, needed_late_ns: int, least_request_ns: int
) -> list[Explained]:
    failure = failure_ratio(min(max(path.loss_ratio, 0.0), 1.0))
    if given.attempts is None:
        attempts_because = (
            f"p = {path.loss_ratio:g} between {path.loss_between}, so an attempt fails with "
            f"q = {failure:.4g}: q^{timing.attempts} = {failure**timing.attempts:.1e}"
        )
    else:
        attempts_because = (
            f"given; at p = {path.loss_ratio:g} all of them fail once in {_once_in(failure, timing.attempts)}"
        )
    if given.late_ns is None:
        late_because = (
            f"{show_ns(path.delay_ns)} between {path.delay_between}, and two clocks may each be "
            f"{show_ns(path.clock_error_ns)} off, to opposite sides"
        )
    else:
        late_because = f"given; the links and clocks of the file ask for {show_ns(needed_late_ns)}"
    if given.request_ns is None:
        request_because = f"X = {show_ns(path.transmit_ns)}, P = {show_ns(path.process_ns)}: there, back and handling"
    else:
        request_because = f"given; at least {show_ns(least_request_ns)}"
    if timing.mode == "lockstep":
        slot_rule = "τ ≥ R (rule 4, MS §5.1)"
        slot_because = "a site sends only when it holds everything before, so a slot leaves time to recover"
    else:
        slot_rule = "given; no lower bound (rule 4)"
        slot_because = "a site sends on time whatever it misses; a packet waits at most one slot for its token"
    return [
        Explained("p", "loss", path.loss_ratio, "ratio", "the worst link", f"between {path.loss_between}"),
        Explained(
            "k_r",
            "attempts",
            timing.attempts,
            "count",
            "fewest with q^k_r·max(1, 2(m−1)p) < 10⁻⁹, q = 1 − (1 − p)² (rule 5)",
            attempts_because,
        ),
        Explained(
            "δ_N",
            "late",
            timing.late_ns,
            "ns",
            "largest delay quantile + 2·clock error (MS §5.1)",
            late_because,
        ),
        Explained("τ_r", "request", timing.request_ns, "ns", "τ_r ≥ 2δ_N + X + P (rule 6)", request_because),
        Explained("τ", "slot", timing.slot_ns, "ns", slot_rule, slot_because),
        Explained(
            "w",
            "witness",
            shape.witnesses,
            "count",
            "w members say have ≥ t before release (rule 8)",
            f"of {shape.members} configured primaries",
        ),
    ]


def _explain_release(shape: Shape, given: Given, timing: Timing, least_hold_ns: int, closed_ns: int) -> list[Explained]:
    if given.hold_ns is not None:
        hold_because = f"given; at least {show_ns(least_hold_ns)}"
    elif shape.witnesses <= 1 and shape.layers == 0:
        hold_because = "by then every operable receiver has it, or the ring is being reformed"
    else:
        waits = "" if shape.nack_sets == 1 else "(k_p − 1)·τ_r + "
        hold_because = (
            "by R all hold it; within w slots more, w members say so; those tokens are heard within "
            f"δ_N + {waits}k_r·τ_r"
        )
    waits = "" if shape.nack_sets == 1 else " + (k_p − 1)·τ_r"
    return [
        *_explain_nack(shape, timing, least_hold_ns),
        Explained(
            "R",
            "recovery",
            timing.recovery_ns,
            "ns",
            f"R = δ_N{waits} + 2·k_r·τ_r (rule 6, MS §5.1)",
            "miss the token, recover it, then recover what it names: two stages of k_r requests",
        ),
        Explained(
            "R (MS)",
            "closed form",
            closed_ns,
            "ns",
            "(1 + 2k_r)·δ_N + k_r·(X + P) (MS §5.1), not used",
            f"it drops one recovery stage, k_r·τ_r: {show_ns(timing.next_site_ns - closed_ns)} less than "
            + ("R" if shape.nack_sets == 1 else "R without sets"),
        ),
        Explained("Δ_A", "hold", timing.hold_ns, "ns", f"Δ_A ≥ {_hold_rule(shape)} (rule 6)", hold_because),
    ]


def _explain_nack(shape: Shape, timing: Timing, least_hold_ns: int) -> list[Explained]:
    """Nothing where all ask at once."""
    if shape.nack_sets == 1:
        return []
    without_ns = required_hold_ns(
        timing.slot_ns, timing.late_ns, timing.request_ns, timing.attempts, shape.witnesses, shape.layers
    )
    return [
        Explained(
            "k_p",
            "nack_sets",
            shape.nack_sets,
            "count",
            "S_i asks i·τ_r later than S_0 (MS §5.2)",
            f"the last set waits {show_ns(timing.stagger_ns)}, which makes the least hold time "
            f"{show_ns(least_hold_ns - without_ns)} longer",
        )
    ]


def _explain_reformation(shape: Shape, timing: Timing) -> list[Explained]:
    return [
        Explained(
            "T_join",
            "join",
            timing.join_ns,
            "ns",
            "⌈k_r / 3⌉·τ_r (rule 12)",
            "round trips for the members whose invitation or answer was lost: a third of those that a lossy "
            "exchange may need, since a ring that leaves somebody out is soon formed again",
        ),
        Explained(
            "",
            "lead",
            timing.lead_ns,
            "ns",
            "δ_N + τ_r (rule 12)",
            "RING reaches every member before its first slot, even if it has to be sent twice",
        ),
        Explained(
            "",
            "backoff",
            timing.backoff_ns,
            "ns",
            "τ_r + T_join + lead (rule 12)",
            "the server ranked before has invited, waited and started a ring by then: no duel",
        ),
        Explained(
            "",
            "ask",
            timing.ask_ns,
            "ns",
            "max(R, (servers + 2)·backoff) (rule 12)",
            f"letting one in reforms the ring: the last attempt, with the turns of all {shape.servers} "
            "servers, must be over, and a ring must run for R before it is disturbed again",
        ),
        Explained(
            "",
            "resend",
            timing.resend_ns,
            "ns",
            "max(τ_r, 2·reach + X + P) + 2τ (rule 10)",
            "to a site and back, and two slots: only what two sites in turn have missed is sent again",
        ),
    ]


def _once_in(failure: float, attempts: int) -> str:
    chance = failure**attempts
    return f"{1 / chance:.1e} losses" if chance > 0.0 else "no loss at all"
