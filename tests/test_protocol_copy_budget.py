"""A sender's copies stay within the factor at every moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from levelcast.protocol.copy_budget import CopyBudget

SIZES = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 2_000)), max_size=40)


@given(factor=st.floats(1.0, 4.0), sizes=SIZES)
def test_the_bytes_sent_are_never_above_the_factor(factor: float, sizes: list[tuple[int, int]]) -> None:
    budget = CopyBudget(factor)
    for needed, copy in sizes:
        budget.need(needed)
        before = budget.copies
        assert budget.spend(copy) == (budget.copies == before + copy)
        assert budget.needed + budget.copies <= factor * budget.needed + 1e-6
        assert budget.left >= 0


def test_what_fits_is_sent() -> None:
    budget = CopyBudget(1.5)
    budget.need(100)
    assert (budget.spend(51), budget.spend(50), budget.spend(1)) == (False, True, False)
    assert not CopyBudget(1.0).spend(1)
