"""Quantities are parsed exactly, shown briefly, and a quantile is always a measured value."""

from __future__ import annotations

import doctest
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import units
from levelcast.units import BYTES_PER_UNIT, NS_PER_AGE_UNIT, NS_PER_UNIT, parse_amount, quantile, quantiles


def test_the_examples_hold() -> None:
    assert doctest.testmod(units).failed == 0


@pytest.mark.parametrize(
    ("text", "table", "amount"),
    [
        ("35.5ms", NS_PER_UNIT, 35_500_000),
        (" 2 min ", NS_PER_UNIT, 120_000_000_000),
        ("-1ns", NS_PER_UNIT, -1),
        ("7d", NS_PER_AGE_UNIT, 7 * 86_400 * 10**9),
        ("1KiB", BYTES_PER_UNIT, 1024),
        ("7d", NS_PER_UNIT, None),
        ("5", NS_PER_UNIT, None),
        ("1e3ms", NS_PER_UNIT, None),
        ("٣ms", NS_PER_UNIT, None),
    ],
)
def test_amounts(text: str, table: dict[str, int], amount: int | None) -> None:
    assert parse_amount(text, table) == (None if amount is None else Decimal(amount))


@given(st.lists(st.integers(-1000, 1000)), st.floats(0, 1))
def test_a_quantile_of_a_list_and_of_an_array_is_the_same_measured_value(values: list[int], share: float) -> None:
    found = quantile(values, share)
    assert found == quantile(np.array(values, np.int64), share)
    assert found in values or (not values and found == 0)
    assert sum(value < found for value in values) <= share * len(values)
    assert quantiles(values, (0.0, 1.0)) == ([min(values), max(values)] if values else [0, 0])
