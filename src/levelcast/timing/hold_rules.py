"""The rules of a short hold time (wide-area rules W1 to W7) as tables: when to ask, whom, how often, when to release.

| rule | here                                                                                                 |
|------|------------------------------------------------------------------------------------------------------|
| W1   | `lateness_ms`: a token counts as missing at its slot + q, its packets from then or from its arrival   |
| W2   | `AskTable`: three members at once, the next attempt after the shortest round trip                     |
| W3   | `gap_guard_ms`, `gap_table`: a gap in a source's numbers is requested from the two nearest members    |
| W6   | `beat_ms`, `beat_phase_ms`                                                                            |
| W7   | `claim_ms` (H_j): the time within which a beat reaches everybody that does not lose it                |

`HoldRules` switches each change off; without all of them the rules are those of the ring without short hold times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Literal

import numpy as np

from levelcast.timing.copies import MOST_PARITY, MOST_TOKENS, Copies
from levelcast.timing.hold_draws import Floats, Ints
from levelcast.timing.rules import GUARD_NS, LATE_TARGET, attempts_for, beat_interval_ns, required_hold_ns

GUARD_MS = GUARD_NS / 1e6
"""W1, W7: time for handling that is added to the delay of a path."""
MIN_INTERVAL_MS = 10.0
"""W2: minimum interval of two attempts."""
QUICK_ATTEMPTS = 3
"""W2: attempts before the interval starts to double."""
GAP_GUARD_MS = 2.0
"""W3: added to the jitter of a source before a gap is requested."""
SECONDARY_DOUBLED = 2
"""W12: how often a secondary doubles the interval."""
MAX_ATTEMPTS = 24
"""Attempts that the model follows. With the intervals doubled they last for seconds."""
_TAIL = log(1000.0)


@dataclass(frozen=True, slots=True)
class HoldRules:
    """Switches of the rules, all on."""

    beats: bool = True
    """W6: claims in beats; otherwise in the members' own tokens."""
    pair_lateness: bool = True
    """W1: a token is missing by the delay of its own path; otherwise at δ_N."""
    nearest: bool = True
    """W2: nearest members first, the next attempt after their round trip; otherwise the owner first, every τ_r."""
    at_once: Literal[1, 2, 3] = 3
    """W2: members asked in one attempt; 3: two helpers and the owner."""
    gaps: bool = True
    """W3: request gaps in a source's numbers without waiting for the token."""
    token_twice: bool = True
    """W11: the owner sends its token again with its next beat."""
    common_time: bool = True
    """W7: release at one time for all; otherwise a receiver releases when it has received the claims."""


TODAY = HoldRules(
    beats=False, pair_lateness=False, nearest=False, at_once=1, gaps=False, token_twice=False, common_time=False
)
"""The rules of a ring without short hold times."""


@dataclass(frozen=True, slots=True)
class LossKind:
    """Distribution of the losses. The loss matrices remain the mean fraction of lost copies."""

    spell_ms: float = 0.0
    """Mean length of a bad spell, in which every copy is lost; 0: every copy is lost independently."""
    line_share: float = 0.0
    """Fraction of the loss that is on a node's own line, half incoming and half outgoing; the rest is on paths."""

    def __post_init__(self) -> None:
        if not (self.spell_ms >= 0.0 and 0.0 <= self.line_share <= 1.0):
            raise ValueError(f"{self}: spell_ms must not be negative and line_share must be 0 to 1")
        if self.line_share and not self.spell_ms:
            raise ValueError(f"{self}: line_share needs bursts; set spell_ms")


INDEPENDENT = LossKind()


@dataclass(frozen=True)
class HoldInput:
    """A group of m members, their secondaries and f sources. Matrices are directed: row = sender, column = receiver."""

    delay_ms: Floats
    jitter_ms: Floats
    loss: Floats
    source_delay_ms: Floats
    source_jitter_ms: Floats
    source_loss: Floats
    slot_ms: float = 50.0
    witnesses: int = 0
    """w; 0: a majority."""
    packets: int = 6
    """Packets of the train that one source sends in each slot time."""
    process_ms: float = 0.0
    """P: to answer a request, journal included."""
    transmit_ms: float = 0.0
    """X: to transmit a request and its answer; part of τ_r only."""
    clock_error_ms: float = 0.0
    scheduling_ms: float = 0.0
    """Allowance for the delay of the process that releases, added to the hold time."""
    late_target: float = LATE_TARGET
    chosen_beat_ms: float = 0.0
    """β; 0: by W6."""
    loss_kind: LossKind = INDEPENDENT
    rules: HoldRules = HoldRules()
    quantile: float = 1.0
    """W1: quantile of the jitter that q includes. Tokens beyond it are requested although they arrive."""
    heavy_tail: bool = False
    """Exponential jitter with its .999 quantile at `jitter_ms`; otherwise uniform."""
    names: tuple[str, ...] = ()
    homes: tuple[int, ...] = ()
    """Secondaries are the last receivers: the place of the one that each asks (rule 11)."""
    copies: tuple[Copies, ...] = ()
    """W11: what each receiver gets in addition; empty: nothing."""

    def __post_init__(self) -> None:
        receivers, sources = self.receivers, len(self.source_delay_ms)
        for name in ("delay_ms", "jitter_ms", "loss", "source_delay_ms", "source_jitter_ms", "source_loss"):
            matrix = np.asarray(getattr(self, name), dtype=np.float64)
            shape = (sources if name.startswith("source") else receivers, receivers)
            if matrix.shape != shape:
                raise ValueError(f"{name} has shape {matrix.shape}; it must be {shape}")
            if not (np.isfinite(matrix).all() and (matrix >= 0.0).all()):
                raise ValueError(f"{name} has a negative or infinite value")
            object.__setattr__(self, name, matrix)
        self._check(self.members, sources)

    def _check(self, members: int, sources: int) -> None:
        if members < 2 or sources < 1:
            raise ValueError(f"{members} members and {sources} sources; at least 2 and 1 are needed")
        if max(self.loss.max(), self.source_loss.max()) > 0.5:
            raise ValueError("loss is above 0.5; no hold time is derived from it")
        if not 0 <= self.witnesses <= members:
            raise ValueError(f"witnesses is {self.witnesses}; it must be 0 to {members}")
        if self.packets < 1 or self.slot_ms <= 0.0 or not 0.0 < self.late_target < 1.0:
            raise ValueError("packets and slot_ms must be positive, late_target between 0 and 1")
        if not 0.5 <= self.quantile <= 1.0 or (self.heavy_tail and self.quantile == 1.0):
            raise ValueError("quantile must be 0.5 to 1, and below 1 with a heavy tail")
        if any(not 0 <= home < members + place for place, home in enumerate(self.homes)):
            raise ValueError(f"homes are {self.homes}; each must be a receiver before its secondary")
        if self.copies and len(self.copies) != self.receivers:
            raise ValueError(f"copies are for {len(self.copies)} receivers; there are {self.receivers}")
        if any(not (0 <= each.tokens <= MOST_TOKENS and 0 <= each.parity <= MOST_PARITY) for each in self.copies):
            raise ValueError(f"a copy is outside 0 to {MOST_TOKENS} tokens and a parity for 0 to {MOST_PARITY} packets")

    @property
    def receivers(self) -> int:
        return len(self.delay_ms)

    @property
    def members(self) -> int:
        """Return m: the primaries, which own the slots and claim."""
        return self.receivers - len(self.homes)

    @property
    def layers(self) -> int:
        """Return the layers of secondaries."""
        layers = [0] * self.members
        for home in self.homes:
            layers.append(layers[home] + 1)
        return max(layers)

    @property
    def needed(self) -> int:
        """w: the number of claims that release a slot."""
        return self.witnesses or self.members // 2 + 1

    def name(self, member: int) -> str:
        return self.names[member] if self.names else f"member {member}"

    # -- values of rules 5 and 6

    @cached_property
    def late_ms(self) -> float:
        """δ_N."""
        return float((self.delay_ms + self.jitter_ms).max()) + 2.0 * self.clock_error_ms

    @property
    def request_ms(self) -> float:
        """τ_r."""
        return 2.0 * self.late_ms + self.process_ms + self.transmit_ms

    @property
    def rule_6_ms(self) -> float:
        """Δ_A of rule 6, which is the upper bound of every derived hold time."""
        attempts = attempts_for(float(max(self.loss.max(), self.source_loss.max())), self.members)
        slot_ns, late_ns, request_ns = (round(ms * 1e6) for ms in (self.slot_ms, self.late_ms, self.request_ms))
        return required_hold_ns(slot_ns, late_ns, request_ns, attempts, self.needed, self.layers) / 1e6

    # -- W1

    def jitter_at(self, share: Floats | float) -> Floats:
        """Return the quantile of the jitter at `share`, in units of `jitter_ms`."""
        share = np.asarray(share, dtype=np.float64)
        return -np.log1p(-share) / _TAIL if self.heavy_tail else share

    @cached_property
    def quantile_ms(self) -> Floats:
        """q_ab = d_ab + jitter quantile + 2·clock error."""
        return self.delay_ms + self.jitter_ms * self.jitter_at(self.quantile) + 2.0 * self.clock_error_ms

    @cached_property
    def lateness_ms(self) -> Floats:
        """W1: time after its slot at which a token of owner (row) counts as missing at a member (column)."""
        if not self.rules.pair_lateness:
            return np.full_like(self.delay_ms, self.late_ms)
        return np.minimum(self.quantile_ms + GUARD_MS, self.late_ms)

    # -- W2, W3

    @cached_property
    def round_trip_ms(self) -> Floats:
        """Longest usual round trip, with the time to answer."""
        there = self.delay_ms + self.jitter_ms
        return there + there.T + self.process_ms

    @cached_property
    def nearness(self) -> Ints:
        """The other members by round trip without jitter, for each member; ties by position."""
        delay_ms = self.delay_ms[: self.members, : self.members]
        trip = delay_ms + delay_ms.T
        order = np.argsort(trip, axis=1, kind="stable")
        return np.stack([row[row != member] for member, row in enumerate(order)])

    @cached_property
    def ask_table(self) -> AskTable:
        """W2: the members that a member asks for an item of an owner."""
        return ask_table(self)

    @cached_property
    def gap_table(self) -> AskTable:
        """W3: the two nearest members, whoever the owner will be."""
        table = np.full((1, self.receivers, self.members, 2), -1, dtype=np.int64)
        table[0, : self.members, :, : self.members - 1] = self.nearness[:, None, :2]
        table[0, self.members :, :, 0] = np.array(self.homes, dtype=np.int64)[:, None]
        return AskTable(table, _intervals(self, table), self.request_ms, _most_doubled(self))

    @cached_property
    def gap_guard_ms(self) -> Floats:
        """W3: time after a later packet of a source (row) at which a member (column) requests a gap."""
        return self.source_jitter_ms + GAP_GUARD_MS

    # -- W6, W7

    @cached_property
    def beat_ms(self) -> float:
        """β."""
        longest_ns = round(float((self.delay_ms + self.jitter_ms).max()) * 1e6)
        return self.chosen_beat_ms or beat_interval_ns(longest_ns) / 1e6

    @cached_property
    def beat_phase_ms(self) -> Floats:
        """W6: the time of a member's beats after a multiple of β."""
        return np.arange(self.members) / self.members * self.beat_ms

    @cached_property
    def claim_ms(self) -> Floats:
        """H_j: time after its schedule within which a beat reaches everybody that does not lose it."""
        farthest: Floats = self.quantile_ms[: self.members].max(axis=1)
        return np.asarray(farthest + GUARD_MS)


@dataclass(frozen=True, slots=True)
class AskTable:
    """Members asked at attempt n by a member for an item of an owner; -1 where fewer are asked."""

    targets: Ints
    """[attempt modulo its length, member, owner, place]."""
    intervals_ms: Floats
    """[attempt modulo its length, member, owner]: time to the next attempt, before it is doubled."""
    longest_ms: float
    most_doubled: Ints
    """[member]: how often the interval is doubled at most."""

    def asked(self, attempt: int, member: Ints, owner: Ints) -> Ints:
        """Return the members that are asked, [request, place]."""
        found: Ints = self.targets[attempt % len(self.targets), member, owner]
        return found

    def interval_ms(self, attempt: int, member: Ints, owner: Ints) -> Floats:
        """Return the time from this attempt to the next."""
        base: Floats = self.intervals_ms[attempt % len(self.targets), member, owner]
        doubled = np.minimum(max(0, attempt - QUICK_ATTEMPTS + 1), self.most_doubled[member])
        return np.minimum(base * np.exp2(doubled), self.longest_ms)


def _most_doubled(group: HoldInput) -> Ints:
    """W12: a secondary asks its primary again soon, which may still wait for the item itself."""
    found: Ints = np.where(np.arange(group.receivers) < group.members, MAX_ATTEMPTS, SECONDARY_DOUBLED)
    return found


def _intervals(group: HoldInput, targets: Ints) -> Floats:
    if not group.rules.nearest:
        return np.full(targets.shape[:3], group.request_ms)
    receivers = np.arange(group.receivers)[None, :, None, None]
    trips = np.where(targets >= 0, group.round_trip_ms[receivers, targets], np.inf)
    shortest: Floats = trips.min(axis=-1)
    return np.maximum(shortest, MIN_INTERVAL_MS)


def ask_table(group: HoldInput) -> AskTable:
    """Build the table of W2 for the rules of the group."""
    m, at_once = group.members, group.rules.at_once
    period = max(1, m - 2 if at_once == 3 else m - 1)
    targets = np.full((period, group.receivers, m, at_once), -1, dtype=np.int64)
    targets[:, m:, :, 0] = np.array(group.homes, dtype=np.int64)[:, None]
    for member in range(m):
        nearest = group.nearness[member].tolist()
        for owner in range(m):
            if owner == member:
                continue
            helpers = [other for other in nearest if other != owner]
            for attempt in range(period):
                targets[attempt, member, owner] = _places(nearest, helpers, owner, attempt, group.rules)
    return AskTable(targets, _intervals(group, targets), group.request_ms, _most_doubled(group))


def _places(nearest: list[int], helpers: list[int], owner: int, attempt: int, rules: HoldRules) -> list[int]:
    at_once = rules.at_once
    if at_once == 3:
        line, first, always = helpers, 2 * attempt, [owner]
    else:
        line, first, always = (nearest if rules.nearest else [owner, *helpers]), at_once * attempt, []
    chosen = always + [line[(first + place) % len(line)] for place in range(at_once - len(always)) if line]
    distinct = list(dict.fromkeys(chosen))
    return distinct + [-1] * (at_once - len(distinct))
