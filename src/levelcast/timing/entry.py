"""Derive the numbers of fair order entry, each with its rule and its reason (E2, E4 to E7; MS §7.2).

`derive_entry` reads the timing of the order stripe, the sites (`EntryPath`) and numbers fixed by the operator
(`EntryGiven`). It never refuses a given number: `entry_contradictions` returns those that break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from levelcast.timing.derive import Contradiction, Explained
from levelcast.timing.rules import Timing
from levelcast.units import show_ns

STAMP_ERROR_NS = 50_000
QUANTA_PER_ERROR = 100
LEAST_QUANTA_PER_ERROR = 50
"""With q = 50·e the worst pair is at 0.51."""
LATE_CAP_NS = 1_000_000
EPOCH_NS = 1_000_000_000
LEAST_EPOCH_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class EntryPath:
    """Properties of the sites of gateways and receivers."""

    shortest_ns: int
    """Shortest one-way delay between two sites."""
    shortest_between: str
    members: int
    clock_error_ns: int


@dataclass(frozen=True, slots=True)
class EntryGiven:
    """Numbers fixed by the operator; None: derive it."""

    stamp_error_ns: int = STAMP_ERROR_NS
    """e: largest systematic difference between two gateways of the time from the release to the stamp."""
    quantum_ns: int | None = None
    close_ns: int | None = None
    late_cap_ns: int | None = None


@dataclass(frozen=True, slots=True)
class EntryTiming:
    """Numbers of fair order entry, with the rule for each."""

    quantum_ns: int
    close_ns: int
    late_cap_ns: int
    ahead_ns: int
    epoch_ns: int
    beat_ns: int
    hold_ns: int
    least_close_ns: int
    explained: tuple[Explained, ...]


def derive_entry(timing: Timing, path: EntryPath, given: EntryGiven = EntryGiven()) -> EntryTiming:  # noqa: B008
    """Return the numbers of fair entry on a stripe with this timing."""
    error_ns = given.stamp_error_ns
    quantum_ns = QUANTA_PER_ERROR * error_ns if given.quantum_ns is None else given.quantum_ns
    least_close_ns = timing.late_ns + 2 * timing.resend_ns + path.members * timing.slot_ns
    close_ns = max(least_close_ns, quantum_ns) if given.close_ns is None else given.close_ns
    cap_ns = min(LATE_CAP_NS, path.shortest_ns // 2) if given.late_cap_ns is None else given.late_cap_ns
    ahead_ns = 2 * path.clock_error_ns + timing.late_ns
    epoch_ns = max(LEAST_EPOCH_NS, min(EPOCH_NS, timing.hold_ns // 2))
    explained = (
        Explained(
            "q", "quantum", quantum_ns, "ns", f"{QUANTA_PER_ERROR}·stamp_error (E7)",
            _or_given(given.quantum_ns, f"stamps differ by up to {show_ns(error_ns)} between gateways; the chance of "
            f"being first is then within {error_ns / (2 * quantum_ns) if quantum_ns else 0.5:.3f} of 0.5"),
        ),
        Explained(
            "Θ", "close", close_ns, "ns", "δ_N + 2·resend + m·τ (E4)",
            _or_given(given.close_ns, f"{show_ns(timing.late_ns)} + 2·{show_ns(timing.resend_ns)} + {path.members}·"
            f"{show_ns(timing.slot_ns)}: two lost copies, and a turn of all sites"),
        ),
        Explained(
            "", "late_cap", cap_ns, "ns", "below the shortest delay between two sites (E2)",
            _or_given(given.late_cap_ns, f"{show_ns(LATE_CAP_NS)}, at most half of the {show_ns(path.shortest_ns)} "
            f"between {path.shortest_between}"),
        ),
        Explained(
            "", "epoch", epoch_ns, "ns", "at most Δ_A / 2 (E5)",
            f"{show_ns(EPOCH_NS)}, at most half of the hold time of {show_ns(timing.hold_ns)}: the start of the "
            "buckets is public only after the epoch",
        ),
        Explained(
            "", "ahead", ahead_ns, "ns", "2·clock_error + δ_N (E6)",
            "a stamp that is later than its token by more is refused: two clocks are wrong, and the token is late",
        ),
        Explained("", "gateway beat", timing.slot_ns, "ns", "τ (E4)", "a gateway shows its clock once in a slot"),
    )  # fmt: skip
    return EntryTiming(
        quantum_ns, close_ns, cap_ns, ahead_ns, epoch_ns, timing.slot_ns, timing.hold_ns, least_close_ns, explained
    )


def _or_given(value: int | None, because: str) -> str:
    return because if value is None else "set in the network file"


def entry_contradictions(entry: EntryTiming, path: EntryPath, given: EntryGiven) -> Iterator[Contradiction]:
    """Yield the given numbers that contradict the delays or each other."""
    if entry.quantum_ns > entry.close_ns:
        yield Contradiction(
            "quantum" if given.quantum_ns is not None else "close",
            f"[entry] quantum (q) is {show_ns(entry.quantum_ns)}, above close (Θ) of {show_ns(entry.close_ns)}; a "
            "bucket cannot be longer than the time after which it is closed",
        )
    if entry.close_ns < entry.least_close_ns:
        yield Contradiction(
            "close",
            f"[entry] close (Θ) is {show_ns(entry.close_ns)}, below δ_N + 2·resend + m·τ = "
            f"{show_ns(entry.least_close_ns)}; gateways would leave the set because of ordinary loss",
        )
    if entry.late_cap_ns >= path.shortest_ns > 0:
        yield Contradiction(
            "late_cap",
            f"[entry] late_cap is {show_ns(entry.late_cap_ns)}, but a message between {path.shortest_between} takes "
            f"{show_ns(path.shortest_ns)}; a trader could gain by sending through a late site, so set less",
        )


def entry_warnings(entry: EntryTiming, given: EntryGiven) -> Iterator[str]:
    """Yield messages about valid but questionable numbers."""
    if entry.quantum_ns < LEAST_QUANTA_PER_ERROR * given.stamp_error_ns:
        chance = min(1.0, 0.5 + given.stamp_error_ns / (2 * entry.quantum_ns)) if entry.quantum_ns else 1.0
        yield (
            f"Quantum (q) is {show_ns(entry.quantum_ns)}, less than {LEAST_QUANTA_PER_ERROR}·stamp_error: of two "
            f"equally fast traders one may be first with a chance of {chance:.2f}; use "
            f"{show_ns(QUANTA_PER_ERROR * given.stamp_error_ns)}."
        )
