"""Parameters of each scenario: names, values and bounds, for `levelcast sim` and for sweeps.

A history is determined by a scenario, its parameter values and a seed. `ring`, `receivers` and `nack` draw everything
from the seed; their only parameter is the clause to remove. `steady` and `world` use the seed for random events only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelcast.sim.bulk.cities import Size
from levelcast.sim.bulk.run import Conditions
from levelcast.sim.compare_protocols import PROTOCOLS
from levelcast.sim.run import SCENARIOS, mutations_of
from levelcast.timing.nack_sets import MOST_SETS, NackSets, even_sets, tree_sets

Value = int | float | str | bool | None
Values = Mapping[str, Any]
"""Each a `Value`."""

STEADY, WORLD = "steady", "world"
NONE = "none"
BRANCHES = 4
"""Number of branches of the multicast tree over which members are distributed."""
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|ms|s)?", re.ASCII | re.IGNORECASE)
_UNITS = {"%": 0.01, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a scenario: name, meaning and default."""

    name: str
    says: str
    default: Value

    def read(self, text: str) -> Value:
        """Return the value that the text represents; raises ValueError with a message for the user."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Number(Parameter):
    """Number within bounds. A ratio may be written with %, a time in ms or s (the value is in ms)."""

    low: float
    high: float
    whole: bool = False
    unit: str = ""
    """`%` or `ms` if the text may have a unit."""

    def fault(self, value: float) -> str | None:
        """Return why a value is not valid, or None."""
        return None if self.low <= value <= self.high else f"is outside {self.low:g} to {self.high:g}"

    def read(self, text: str) -> Value:
        match = _NUMBER.fullmatch(text.strip())
        units = {"": (), "%": ("%",), "ms": ("ms", "s")}[self.unit]
        if match is None or (match[2] and match[2].lower() not in units):
            raise ValueError(f"{self.name}={text} is not a number")
        value = float(match[1]) * (_UNITS[match[2].lower()] if match[2] else 1.0)
        if self.whole and value != int(value):
            raise ValueError(f"{self.name}={text} is not an integer")
        if (wrong := self.fault(value)) is not None:
            raise ValueError(f"{self.name}={text} {wrong}")
        return int(value) if self.whole else round(value, 12)


@dataclass(frozen=True, slots=True)
class Word(Parameter):
    """One of several words; `none` means None if the default is None."""

    words: Sequence[str]

    def read(self, text: str) -> Value:
        word = text.strip()
        if word == NONE and self.default is None:
            return None
        if word not in self.words:
            known = ", ".join((*self.words, *((NONE,) if self.default is None else ())))
            raise ValueError(f"{self.name}={text} is not known; use one of {known}")
        return word


@dataclass(frozen=True, slots=True)
class Sets(Parameter):
    """Sets of receivers that send requests in turn (MS §5.2): a number, `tree` or `none`."""

    def read(self, text: str) -> Value:
        word = text.strip()
        if word == NONE:
            return None
        nack_sets(word, MOST_SETS)
        return word


def _without(scenario: str) -> tuple[Parameter, ...]:
    return (Word("without", "Clause to remove from the rules.", None, tuple(mutations_of(scenario))),)


_SIZE, _CALM = Size(), Conditions(0.01)

PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    **{name: _without(name) for name in SCENARIOS},
    STEADY: (
        Word("protocol", "timed, or rmp: the original event-driven protocol.", "timed", PROTOCOLS),
        Number("members", "Members of the ring.", 5, 2, 100, whole=True),
        Number("loss", "Fraction of copies that are lost.", 0.01, 0, 0.5, unit="%"),
        Number("branch_loss", "Fraction lost at each of 4 branches, for all below.", 0.0, 0, 0.5, unit="%"),
        Number("load", "Packets/s.", 20.0, 0.01, 5_000),
        Number("seconds", "Duration of the load in seconds.", 10.0, 0.1, 3_600),
        Sets("nack_sets", "NACK sets, which send requests in turn; a number or tree.", None),
    ),
    WORLD: (
        Number("cities", "Number of synthetic cities.", 240, 10, 2_000, whole=True),
        Number("primaries", "Primary receivers (members of the ring).", _SIZE.primaries, 3, 10_000, whole=True),
        Number("receivers", "Receivers in both layers.", _SIZE.receivers, 6, 1_000_000, whole=True),
        Number("customers", "Subscribers, with two lines each.", _SIZE.customers, 10, 10**9, whole=True),
        Number("regions", "Regions of two sites.", _SIZE.regions, 1, 10_000, whole=True),
        Number("reach", "Maximum delay between two receivers, in ms.", _SIZE.reach_ms, 1, 60_000, unit="ms"),
        Number("slot", "Slot length τ, in ms.", _SIZE.slot_ms, 1, 60_000, unit="ms"),
        Number("loss", "Loss ratio of each copy.", _CALM.loss, 0, 0.5, unit="%"),
        Number("branch_loss", "Fraction of multicasts lost for a complete city.", 0.0, 0, 0.5, unit="%"),
        Number("slots", "Measured slots in the core.", _CALM.slots, 2, 10**6, whole=True),
        Number("follow", "Measured slots at the subscribers.", _CALM.follow, 1, 10**6, whole=True),
    ),
}
"""By scenario."""


def number_of(scenario: str, name: str) -> Number:
    """Return a numeric parameter with its bounds."""
    (found,) = (each for each in PARAMETERS[scenario] if each.name == name and isinstance(each, Number))
    return found


def parameters_of(scenario: str) -> dict[str, Parameter]:
    """Return the parameters of a scenario by name; raises ValueError for an unknown scenario."""
    if scenario not in PARAMETERS:
        raise ValueError(f"scenario {scenario!r} is not known; use one of {', '.join(PARAMETERS)}")
    return {each.name: each for each in PARAMETERS[scenario]}


def read_value(scenario: str, name: str, text: str) -> Value:
    """Return the value that the text of a parameter represents; raises ValueError with a message for the user."""
    known = parameters_of(scenario)
    if name not in known:
        why = " (the seed draws the rest)" if scenario in SCENARIOS else ""
        raise ValueError(f"scenario {scenario} has no parameter {name}; use {', '.join(known)}{why}")
    return known[name].read(text)


def complete(scenario: str, values: Values) -> dict[str, Value]:
    """Add defaults for missing values, sorted by name; raises ValueError if the values are not compatible."""
    known = sorted(parameters_of(scenario).items())
    whole: dict[str, Any] = {name: values.get(name, each.default) for name, each in known}
    if scenario == STEADY and whole["nack_sets"] is not None:
        nack_sets(whole["nack_sets"], whole["members"])
    if scenario == WORLD:
        size_of(whole)
    return whole


def size_of(values: Values) -> Size:
    """Return the size of a world; raises ValueError with a message for the user."""
    told = {name: values[name] for name in ("primaries", "receivers", "customers", "regions")}
    return Size(**told, reach_ms=values["reach"], slot_ms=values["slot"])


def nack_sets(text: str, members: int) -> NackSets | None:
    """Return the sets for a number or `tree`; raises ValueError with a message for the user."""
    if text == "tree":
        return tree_sets({member: str(branch) for member, branch in branches(members).items()})
    most = min(MOST_SETS, members)
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= most:
        raise ValueError(f"nack_sets {text} is not valid; use a number from 1 to {most}, or tree")
    return even_sets(int(text)) if int(text) > 1 else None


def branches(members: int) -> dict[int, int]:
    """Return the branch of each member; sources and servers are on branch 0."""
    return {member: 1 + (member - 1) % BRANCHES for member in range(1, members + 1)}
