"""An edge sends the recorded bytes for fixed frames, plans and requests (`tests.baseline.edge_bytes`)."""

from __future__ import annotations

import pytest

from tests.baseline.edge_bytes import SCENARIOS, edge_hashes, recorded


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_edge_sends_the_recorded_bytes(scenario: str) -> None:
    assert edge_hashes(scenario) == recorded()[scenario]
