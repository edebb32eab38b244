"""Two sessions with journals lose and repeat no message: random losses of the connection, kills of both processes."""

from __future__ import annotations

import pytest

from tests.fix_link import LinkHistory

SEEDS, BLOCKS = 1_000, 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_search_finds_no_message_lost_or_repeated(block: int) -> None:
    kills = losses = resends = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        history = LinkHistory(seed)
        history.run()
        kills, losses, resends = kills + history.kills, losses + history.losses, resends + history.resends
    assert min(kills, losses, resends) > 100


@pytest.mark.campaign
@pytest.mark.parametrize("block", range(100))
def test_many_random_histories(block: int) -> None:
    for seed in range(SEEDS + block * 1_000, SEEDS + (block + 1) * 1_000):
        LinkHistory(seed).run()
