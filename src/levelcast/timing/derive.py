"""Derive the timing of a ring from measured delay and loss, each number with its rule and its reason.

`derive` reads the properties of the network (`Path`), the requirements on the ring (`Shape`) and numbers fixed by the
operator (`Given`). It returns a `Timing` and an explanation of every number in it. It never refuses a given number:
`contradictions` returns those that break a rule, and by how much.

>>> path = Path(delay_ns=70_000_000, loss_ratio=0.01, clock_error_ns=1_000_000, process_ns=5_000_000)
>>> shape = Shape("pipelined", slot_ns=50_000_000, witnesses=3, members=5, servers=2)
>>> derived = derive(path, shape)
>>> show_ns(derived.timing.late_ns), derived.timing.attempts, show_ns(derived.timing.hold_ns)
('72 ms', 6, '2.976 s')

The paper does not define T_join, lead, backoff, `ask` and resend. All five follow from δ_N, τ_r, τ, k_r and the number
of servers, so that a network file with only τ, δ_N and k_r in it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from levelcast.timing.rules import (
    LATE_TARGET,
    Mode,
    Timing,
    attempts_for,
    beat_interval_ns,
    closed_form_ns,
    failure_ratio,
    required_hold_ns,
)
from levelcast.units import show_ns

Unit = Literal["ns", "count", "ratio"]


class Explained(NamedTuple):
    """One number of a timing: the papers' symbol (if any), its name in the network file or in `Timing`, its value, the
    rule that it follows, and the reason for its value.
    """

    symbol: str
    name: str
    value: float
    """Nanoseconds (an int) where `unit` is "ns"."""
    unit: Unit
    rule: str
    because: str

    @property
    def text(self) -> str:
        """The value in readable form."""
        return show_ns(int(self.value)) if self.unit == "ns" else f"{self.value:g}"


class Contradiction(NamedTuple):
    """A given number that breaks a rule. `field` is its name in the network file."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Path:
    """The worst path between two nodes of the core."""

    delay_ns: int
    """The largest one-way delay between two core nodes: the quantile that all but late packets keep."""
    loss_ratio: float
    """The largest loss p between two core nodes."""
    clock_error_ns: int = 0
    """Maximum error of any clock against UTC, in either direction."""
    transmit_ns: int = 0
    """X: to transmit a request and its answer (MS §5.1)."""
    process_ns: int = 0
    """P: to process a request and its answer, journal included (MS §5.1)."""
    reach_ns: int = 0
    """The largest one-way delay between a source and a receiver; a source may be far outside the core."""
    delay_between: str = "two members"
    loss_between: str = "two members"


@dataclass(frozen=True, slots=True)
class Shape:
    """Requirements on the ring. In lockstep a slot of None means the shortest one allowed, R."""

    mode: Mode
    slot_ns: int | None
    witnesses: int
    members: int
    servers: int
    layers: int = 0
    """Layers of secondary receivers (rule 11)."""
    nack_sets: int = 1
    """k_p: sets of receivers that send requests in turn (MS §5.2); 1: all send immediately."""
    late_target: float = LATE_TARGET
    """Share of the releases that may be late at the worst receiver."""


@dataclass(frozen=True, slots=True)
class Given:
    """Numbers fixed by the operator; None: derive it."""

    late_ns: int | None = None
    request_ns: int | None = None
    attempts: int | None = None
    hold_ns: int | None = None
    bound_ns: int | None = None
    """The hold time if none is given, from the delays of all pairs (`levelcast.timing.hold_bound`); None: rule 6."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A timing, the rule for each of its numbers, and the minimum values that the rules allow."""

    timing: Timing
    explained: tuple[Explained, ...]
    least_request_ns: int
    least_hold_ns: int
    """The hold time if none is given."""
    closed_form_ns: int
    rule_6_ns: int
    from_pairs: bool
    """The hold time follows from the delays of pairs and a late target, not from rule 6."""


def derive(path: Path, shape: Shape, given: Given = Given()) -> Derived:  # noqa: B008 - frozen, shared on purpose
    """Return the timing of a ring of this shape over this network, with reasons (rules 5 and 6, MS §5.1).

    Raises ValueError if k_r is to be derived from a loss above one half, or a pipelined slot is None.
    """
    handling_ns = path.transmit_ns + path.process_ns
    needed_late_ns = path.delay_ns + 2 * path.clock_error_ns
    late_ns = needed_late_ns if given.late_ns is None else given.late_ns
    least_request_ns = 2 * late_ns + handling_ns
    request_ns = least_request_ns if given.request_ns is None else given.request_ns
    attempts = attempts_for(path.loss_ratio, shape.members) if given.attempts is None else given.attempts
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
    rule_6_ns = least_hold_ns
    if given.bound_ns is not None:
        least_hold_ns = min(given.bound_ns, rule_6_ns)
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
        beat_ns=beat_interval_ns(path.delay_ns) if shape.mode == "pipelined" else 0,
    )
    closed_ns = closed_form_ns(late_ns, max(request_ns - 2 * late_ns, 0), attempts)
    derived = Derived(timing, (), least_request_ns, least_hold_ns, closed_ns, rule_6_ns, given.bound_ns is not None)
    return replace(derived, explained=tuple(_explain(path, shape, given, derived, needed_late_ns)))


def contradictions(derived: Derived, shape: Shape) -> list[Contradiction]:
    """Return the numbers of a derived timing that break rule 4, 5, 6 or 8, and by how much."""
    timing = derived.timing
    found = []
    if timing.request_ns < derived.least_request_ns:
        found.append(_too_small("request", "τ_r", timing.request_ns, derived.least_request_ns, "2δ_N + X + P (rule 6)"))
    if timing.mode == "lockstep" and timing.slot_ns < timing.next_site_ns:
        rule = "in lockstep the recovery time R = δ_N + 2·k_r·τ_r (rule 4)"
        found.append(_too_small("slot", "τ", timing.slot_ns, timing.next_site_ns, rule))
    if timing.hold_ns < derived.least_hold_ns and not derived.from_pairs:
        rule = f"{_hold_rule(shape)} (rule 6{_rule_6_for(shape)}); remove hold, and it is derived"
        found.append(_too_small("hold", "Δ_A", timing.hold_ns, derived.least_hold_ns, rule))
    if shape.witnesses > shape.members:
        are = "is 1 receiver" if shape.members == 1 else f"are {shape.members} receivers"
        message = f"witness requires {shape.witnesses} members and there {are}: no slot would ever be released (rule 8)"
        found.append(Contradiction("witness", message))
    return found


def _too_small(field: str, symbol: str, value_ns: int, least_ns: int, rule: str) -> Contradiction:
    short = f"{field} ({symbol}) is {show_ns(value_ns)}, {show_ns(least_ns - value_ns)} too short"
    return Contradiction(field, f"{short}: it must be at least {show_ns(least_ns)}, {rule}")


def _rule_6_for(shape: Shape) -> str:
    """Return what in a pipelined ring requires rule 6."""
    return ", with NACK sets" if shape.mode == "pipelined" and shape.nack_sets > 1 else ""


def _waits(shape: Shape) -> str:
    """Return the term by which sets of receivers make recovery longer."""
    return "" if shape.nack_sets == 1 else " + (k_p − 1)·τ_r"


def _hold_rule(shape: Shape) -> str:
    waits = _waits(shape)
    if shape.witnesses <= 1 and shape.layers == 0:
        return f"R = δ_N{waits} + 2·k_r·τ_r"
    if shape.layers:
        return f"R + {1 + shape.layers}·(w·τ + δ_N{waits} + k_r·τ_r)"
    return f"R + w·τ + δ_N{waits} + k_r·τ_r"


_PAIRS_RULE = "delay, repair and claims of each pair (rules 5 to 8)"
_RULES: dict[str, tuple[str, Unit, str]] = {
    "loss": ("p", "ratio", "the worst link"),
    "attempts": ("k_r", "count", "fewest with q^k_r·max(1, 2(m−1)p) < 10⁻⁹, q = 1 − (1 − p)² (rule 5)"),
    "late": ("δ_N", "ns", "largest delay quantile + 2·clock error (MS §5.1)"),
    "request": ("τ_r", "ns", "τ_r ≥ 2δ_N + X + P (rule 6)"),
    "slot": ("τ", "ns", "{slot} (rule 4{source})"),
    "witness": ("w", "count", "w members claim have ≥ t before release (rule 8)"),
    "nack_sets": ("k_p", "count", "S_i sends requests i·τ_r after S_0 (MS §5.2)"),
    "recovery": ("R", "ns", "R = δ_N{waits} + 2·k_r·τ_r (rule 6, MS §5.1)"),
    "closed form": ("R (MS)", "ns", "(1 + 2k_r)·δ_N + k_r·(X + P) (MS §5.1), not used"),
    "beat": ("β", "ns", "interval of the claims of a member (rule 8)"),
    "hold": ("Δ_A", "ns", "{hold}"),
    "join": ("T_join", "ns", "⌈k_r / 3⌉·τ_r (rule 12)"),
    "lead": ("", "ns", "δ_N + τ_r (rule 12)"),
    "backoff": ("", "ns", "τ_r + T_join + lead (rule 12)"),
    "ask": ("", "ns", "max(R, (servers + 2)·backoff) (rule 12)"),
    "resend": ("", "ns", "max(τ_r, 2·reach + X + P) + 2τ (rule 10)"),
}
"""The symbol, unit and rule of each number; names in braces are filled in by `_explain`."""


def _explain(path: Path, shape: Shape, given: Given, derived: Derived, needed_late_ns: int) -> Iterator[Explained]:
    """Explain every number of a timing, in the order of `_RULES`."""
    timing = derived.timing
    lockstep = timing.mode == "lockstep"
    filled = {
        "slot": "τ ≥ R" if lockstep else "given; no lower bound",
        "source": ", MS §5.1" if lockstep else "",
        "waits": _waits(shape),
        "hold": _PAIRS_RULE if derived.from_pairs else f"Δ_A ≥ {_hold_rule(shape)} (rule 6)",
    }
    values = {
        "loss": path.loss_ratio,
        "attempts": timing.attempts,
        "witness": shape.witnesses,
        "nack_sets": shape.nack_sets,
        "closed form": derived.closed_form_ns,
    }
    reasons = _network_reasons(path, shape, given, derived, needed_late_ns) | _release_reasons(shape, given, derived)
    for name, (symbol, unit, rule) in _RULES.items():
        if (name != "nack_sets" or shape.nack_sets > 1) and (name != "beat" or timing.beat_ns):
            value = values[name] if name in values else getattr(timing, f"{name}_ns")
            yield Explained(symbol, name, value, unit, rule.format_map(filled), reasons[name])


def _network_reasons(path: Path, shape: Shape, given: Given, derived: Derived, needed_late_ns: int) -> dict[str, str]:
    attempts = derived.timing.attempts
    failure = failure_ratio(min(max(path.loss_ratio, 0.0), 1.0))
    reasons = {
        "loss": f"between {path.loss_between}",
        "attempts": f"p = {path.loss_ratio:g} between {path.loss_between}, so an attempt fails with "
        f"q = {failure:.4g}: q^{attempts} = {failure**attempts:.1e}",
        "late": f"{show_ns(path.delay_ns)} between {path.delay_between}, and two clocks may each be "
        f"{show_ns(path.clock_error_ns)} off, to opposite sides",
        "request": f"X = {show_ns(path.transmit_ns)}, P = {show_ns(path.process_ns)}: round trip and handling",
        "slot": "a slot owner sends on time whatever it misses; a packet waits at most one slot for its token",
        "witness": f"of {shape.members} configured primaries",
    }
    if given.attempts is not None:
        once_in = _once_in(failure, attempts)
        reasons["attempts"] = f"given; at p = {path.loss_ratio:g} all of them fail {once_in}"
    if given.late_ns is not None:
        reasons["late"] = f"given; the links and clocks of the file need {show_ns(needed_late_ns)}"
    if given.request_ns is not None:
        reasons["request"] = f"given; at least {show_ns(derived.least_request_ns)}"
    if derived.timing.mode == "lockstep":
        reasons["slot"] = "a slot owner sends only when it holds everything before, so a slot leaves time to recover"
    return reasons


def _release_reasons(shape: Shape, given: Given, derived: Derived) -> dict[str, str]:
    timing = derived.timing
    without_ns = required_hold_ns(
        timing.slot_ns, timing.late_ns, timing.request_ns, timing.attempts, shape.witnesses, shape.layers
    )
    reasons = {
        "nack_sets": f"the last set waits {show_ns(timing.stagger_ns)}, which increases the minimum hold time by "
        f"{show_ns(derived.least_hold_ns - without_ns)}",
        "recovery": "recover the missing token, then the packets that it names: two stages of k_r requests",
        "closed form": "it omits one recovery stage, k_r·τ_r: "
        f"{show_ns(timing.next_site_ns - derived.closed_form_ns)} less than R"
        f"{'' if shape.nack_sets == 1 else ' without sets'}",
        "beat": "a sixth of the largest delay: shorter beats cost datagrams, longer ones hold time",
        "hold": "after R all hold it; within w more slots, w members claim it; those tokens arrive within "
        f"δ_N{_waits(shape)} + k_r·τ_r",
        "join": "round trips for members that lost the invitation or the reply: a third of those that a lossy "
        "exchange may need, since a ring without a member is soon formed again",
        "lead": "RING reaches every member before its first slot, even if it has to be sent twice",
        "backoff": "by then the server ranked before has invited, waited and started a ring",
        "ask": f"admitting a member reforms the ring: the last attempt, with the turns of all {shape.servers} "
        "servers, must be complete, and a ring must run for R before it is disturbed again",
        "resend": "round trip to a slot owner, and two slots: only packets that two of them in turn missed are resent",
    }
    if derived.from_pairs:
        late = f"at most {shape.late_target:g} of the releases late at the worst receiver"
        reasons["hold"] = (
            f"given; {late} needs no more than {show_ns(derived.least_hold_ns)}"
            if given.hold_ns is not None
            else f"a bound for {late}; `levelcast timing --write` stores the exact value"
        )
        reasons["hold"] += f"; rule 6 needs {show_ns(derived.rule_6_ns)}"
    elif given.hold_ns is not None:
        reasons["hold"] = f"given; at least {show_ns(derived.least_hold_ns)}"
    elif shape.witnesses <= 1 and shape.layers == 0:
        reasons["hold"] = "by then every operable receiver has it, or the ring is being reformed"
    return reasons


def _once_in(failure: float, attempts: int) -> str:
    chance = failure**attempts
    return f"once in {1 / chance:.1e} losses" if chance > 0.0 else "never"
