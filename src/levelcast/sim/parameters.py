"""What each scenario can be told: the names, the values and their bounds, for `levelcast sim` and for sweeps alike.

A history is a scenario, the values of its parameters and a seed. `ring`, `receivers` and `nack` draw everything from
the seed; all that can be told is which clause to leave out. `steady` and `world` draw nothing but chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelcast.sim.bulk.cities import Size
from levelcast.sim.bulk.run import Conditions
from levelcast.sim.compare_protocols import PROTOCOLS
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.run import SCENARIOS
from levelcast.timing.nack_sets import MOST_SETS, NackSets, even_sets, tree_sets

Value = int | float | str | bool | None
Values = Mapping[str, Any]
"""Each a `Value`."""

STEADY, WORLD = "steady", "world"
NONE = "none"
BRANCHES = 4
"""Below how many branches of the multicast tree the members hang where sets are to go by the tree."""
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|ms|s)?", re.ASCII | re.IGNORECASE)
_UNITS = {"%": 0.01, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a scenario can be told: a name, its meaning and its default."""

    name: str
    says: str
    default: Value

    def read(self, text: str) -> Value:
        """Return the value that somebody has written; raises ValueError with a sentence."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Number(Parameter):
    """A number within bounds. A share may be written with %, a time in ms or s (it counts in ms)."""

    low: float
    high: float
    whole: bool = False
    unit: str = ""
    """`%` or `ms`, where one may be written."""

    def fault(self, value: float) -> str | None:
        """Why a value cannot be."""
        return None if self.low <= value <= self.high else f"is outside {self.low:g} to {self.high:g}"

    def read(self, text: str) -> Value:
        match = _NUMBER.fullmatch(text.strip())
        units = {"": (), "%": ("%",), "ms": ("ms", "s")}[self.unit]
        if match is None or (match[2] and match[2].lower() not in units):
            raise ValueError(f"{self.name}={text} is no number")
        value = float(match[1]) * (_UNITS[match[2].lower()] if match[2] else 1.0)
        if self.whole and value != int(value):
            raise ValueError(f"{self.name}={text} is no whole number")
        if (wrong := self.fault(value)) is not None:
            raise ValueError(f"{self.name}={text} {wrong}")
        return int(value) if self.whole else round(value, 12)


@dataclass(frozen=True, slots=True)
class Word(Parameter):
    """One of a few words; `none` is nothing, where that is possible."""

    words: Sequence[str]

    def read(self, text: str) -> Value:
        word = text.strip()
        if word == NONE and self.default is None:
            return None
        if word not in self.words:
            known = ", ".join((*self.words, *((NONE,) if self.default is None else ())))
            raise ValueError(f"{self.name}={text} is not known: there are {known}")
        return word


@dataclass(frozen=True, slots=True)
class Flag(Parameter):
    """yes or no."""

    def read(self, text: str) -> Value:
        word = text.strip().lower()
        if word not in ("yes", "no", "true", "false"):
            raise ValueError(f"{self.name}={text} is neither yes nor no")
        return word in ("yes", "true")


@dataclass(frozen=True, slots=True)
class Sets(Parameter):
    """Sets of receivers that ask one after the other (MS §5.2): a number, `tree` or `none`."""

    def read(self, text: str) -> Value:
        word = text.strip()
        if word == NONE:
            return None
        nack_sets(word, MOST_SETS)
        return word


_WITHOUT = (Word("without", "A clause that is taken out of the rules.", None, tuple(MUTATIONS)),)
_SIZE, _CALM = Size(), Conditions(0.01)

PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    **dict.fromkeys(SCENARIOS, _WITHOUT),
    STEADY: (
        Word("protocol", "timed, or rmp: the original, event-driven one.", "timed", PROTOCOLS),
        Number("members", "Members of the ring.", 5, 2, 100, whole=True),
        Number("loss", "Share that is lost.", 0.01, 0, 0.5, unit="%"),
        Number("branch_loss", "Share lost at each of 4 branches, for all below.", 0.0, 0, 0.5, unit="%"),
        Number("load", "Packets a second.", 20.0, 0.01, 5_000),
        Number("seconds", "How long.", 10.0, 0.1, 3_600),
        Sets("nack_sets", "Sets that ask one after the other; a number or tree.", None),
    ),
    WORLD: (
        Number("cities", "How many are made up.", 240, 10, 2_000, whole=True),
        Number("primaries", "Primary receivers: the ring.", _SIZE.primaries, 3, 10_000, whole=True),
        Number("receivers", "Receivers in both layers.", _SIZE.receivers, 6, 1_000_000, whole=True),
        Number("customers", "Customers, on two lines each.", _SIZE.customers, 10, 10**9, whole=True),
        Number("regions", "Regions of two sites.", _SIZE.regions, 1, 10_000, whole=True),
        Number("reach", "No two receivers farther apart than this, in ms.", _SIZE.reach_ms, 1, 60_000, unit="ms"),
        Number("slot", "The slot length τ, in ms.", _SIZE.slot_ms, 1, 60_000, unit="ms"),
        Number("loss", "Loss of every copy.", _CALM.loss, 0, 0.5, unit="%"),
        Number("branch_loss", "Multicasts that are lost for a whole city at once.", 0.0, 0, 0.5, unit="%"),
        Flag("scoped", "Answers to several secondaries go to their group only.", False),
        Number("slots", "Slots that are counted in the core.", _CALM.slots, 2, 10**6, whole=True),
        Number("follow", "Slots that customers are followed through.", _CALM.follow, 1, 10**6, whole=True),
    ),
}
"""By scenario."""


def number_of(scenario: str, name: str) -> Number:
    """The bounds of a parameter."""
    (found,) = (each for each in PARAMETERS[scenario] if each.name == name and isinstance(each, Number))
    return found


def parameters_of(scenario: str) -> dict[str, Parameter]:
    """The parameters by name; raises ValueError where there is no such scenario."""
    if scenario not in PARAMETERS:
        raise ValueError(f"there is no scenario {scenario!r}; known: {', '.join(PARAMETERS)}")
    return {each.name: each for each in PARAMETERS[scenario]}


def read_value(scenario: str, name: str, text: str) -> Value:
    """A value as somebody has written it; raises ValueError with a sentence."""
    known = parameters_of(scenario)
    if name not in known:
        why = " (the seed draws the rest)" if scenario in SCENARIOS else ""
        raise ValueError(f"the scenario {scenario} takes no {name}; it takes {', '.join(known)}{why}")
    return known[name].read(text)


def complete(scenario: str, values: Values) -> dict[str, Value]:
    """With what was left out, in the order of the names; raises ValueError if the values do not go together."""
    known = sorted(parameters_of(scenario).items())
    whole: dict[str, Any] = {name: values.get(name, each.default) for name, each in known}
    if scenario == STEADY and whole["nack_sets"] is not None:
        nack_sets(whole["nack_sets"], whole["members"])
    if scenario == WORLD:
        size_of(whole)
    return whole


def size_of(values: Values) -> Size:
    """The size of a world; raises ValueError with a sentence."""
    told = {name: values[name] for name in ("primaries", "receivers", "customers", "regions")}
    return Size(**told, reach_ms=values["reach"], slot_ms=values["slot"])


def nack_sets(text: str, members: int) -> NackSets | None:
    """Sets by a number, or `tree`; raises ValueError with a sentence."""
    if text == "tree":
        return tree_sets({member: str(branch) for member, branch in branches(members).items()})
    most = min(MOST_SETS, members)
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= most:
        raise ValueError(f"nack_sets {text} makes no sense: give a number from 1 to {most}, or tree")
    return even_sets(int(text)) if int(text) > 1 else None


def branches(members: int) -> dict[int, int]:
    """The branch that each member hangs below; sources and servers hang below 0."""
    return {member: 1 + (member - 1) % BRANCHES for member in range(1, members + 1)}
