"""Asserts check everywhere in tests/, under `python -O` too."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.conftest import HELPERS


@pytest.mark.parametrize("name", HELPERS)
def test_the_asserts_of_a_helper_are_rewritten(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None
    assert type(spec.loader).__name__ == "AssertionRewritingHook"


def test_an_assert_of_a_test_fails() -> None:
    with pytest.raises(AssertionError):
        assert not HELPERS
