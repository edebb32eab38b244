"""Matching rules by name: how the orders of an instrument trade (MS §7.3; M4, M10 to M12).

A floor selects them by `settings`: records that set the parameters of an instrument. They are on the tape like every
other command, so all receivers use the same rule from the same command on. A rule changes only while an instrument has
no orders.

| name       | trades                                                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| resting    | at once, at the price of the resting order                                                          |
| buyer      | at once, at the price of the buyer; a market order has none, so the resting order's                 |
| seller     | at once, at the price of the seller                                                                 |
| midpoint   | at once, halfway between the two, rounded to the tick towards the resting order                     |
| batch      | in a call auction every `interval_ns` of sequence time (M10)                                        |
| sealed     | in one round when the status CROSS arrives: the highest bid pays the second highest (M11)           |
| dutch      | by the first acceptance, at the price of a clock that falls by a step every interval (M12)          |

A call auction also opens trading and closes the day under the first four rules: statuses PRE_OPEN or PRE_CLOSE, then
CROSS.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelcast.native.book_codes import InstrumentSetting, MatchRule, PriceRule
from levelcast.records import RecordArray, orders


@dataclass(frozen=True)
class RuleOfFloor:
    """One row of `RULES`."""

    match: MatchRule
    price: PriceRule = PriceRule.RESTING
    needs: tuple[InstrumentSetting, ...] = ()
    """Parameters without which the rule does nothing."""


RULES = {
    "resting": RuleOfFloor(MatchRule.CONTINUOUS, PriceRule.RESTING),
    "buyer": RuleOfFloor(MatchRule.CONTINUOUS, PriceRule.BUYER),
    "seller": RuleOfFloor(MatchRule.CONTINUOUS, PriceRule.SELLER),
    "midpoint": RuleOfFloor(MatchRule.CONTINUOUS, PriceRule.MIDPOINT),
    "batch": RuleOfFloor(MatchRule.BATCH, needs=(InstrumentSetting.INTERVAL,)),
    "sealed": RuleOfFloor(MatchRule.SEALED),
    "dutch": RuleOfFloor(
        MatchRule.DUTCH,
        needs=(InstrumentSetting.INTERVAL, InstrumentSetting.DUTCH_START, InstrumentSetting.DUTCH_STEP),
    ),
}
_NAMES = {
    "interval_ns": InstrumentSetting.INTERVAL,
    "maker_fee": InstrumentSetting.MAKER_FEE,
    "taker_fee": InstrumentSetting.TAKER_FEE,
    "band": InstrumentSetting.BAND,
    "pause_ns": InstrumentSetting.PAUSE,
    "start_price": InstrumentSetting.DUTCH_START,
    "step": InstrumentSetting.DUTCH_STEP,
    "reference": InstrumentSetting.REFERENCE,
}


def settings_of(instrument: int, rule: str, treasury: int = 0, **parameters: int) -> RecordArray:
    """Return the commands that set a rule and its parameters; ValueError for an unknown or missing one."""
    if rule not in RULES:
        raise ValueError(f"rule {rule!r} is not one of {', '.join(RULES)}")
    unknown = [name for name in parameters if name not in _NAMES]
    if unknown:
        raise ValueError(f"parameter {unknown[0]!r} is not one of {', '.join(_NAMES)}")
    chosen = RULES[rule]
    given = {_NAMES[name]: value for name, value in parameters.items()}
    missing = [which for which in chosen.needs if which not in given]
    if missing:
        names = {which: name for name, which in _NAMES.items()}
        raise ValueError(f"rule {rule!r} needs the parameter {names[missing[0]]!r}")
    given |= {InstrumentSetting.MATCH_RULE: int(chosen.match), InstrumentSetting.PRICE_RULE: int(chosen.price)}
    made = orders(len(given))
    made["publisher_id"], made["instrument_id"] = treasury, instrument
    made["action"], made["command"] = b"N", b"P"
    made["order_id"], made["price"] = [int(which) for which in given], list(given.values())
    return made
