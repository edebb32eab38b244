"""Names of the paper are combinations of four choices."""

from __future__ import annotations

from itertools import product

import pytest

from levelcast.overlay.wide.choices import (
    WIDE_PROTOCOLS,
    Choices,
    ConfirmationPath,
    CopiesBy,
    DeliveryPath,
    RepairBy,
)
from tests.wide_parts import equal_matrix, group


def test_the_eight_protocols_and_hd_are_nine_combinations() -> None:
    assert list(WIDE_PROTOCOLS) == ["B", "M", "N", "D", "BR", "MR", "NR", "DR", "HD"]
    assert len(set(WIDE_PROTOCOLS.values())) == 9
    assert all(choices.fault() is None for choices in WIDE_PROTOCOLS.values())
    for name in ("B", "M", "N", "D"):
        assert WIDE_PROTOCOLS[name + "R"] == WIDE_PROTOCOLS[name]._replace(copies=CopiesBy.SENDER)


def test_only_the_sender_repairs_if_it_alone_knows_who_lacks_a_message() -> None:
    wrong = [
        each for each in map(Choices._make, product(DeliveryPath, ConfirmationPath, RepairBy, CopiesBy)) if each.fault()
    ]
    assert {each[:3] for each in wrong} == {(DeliveryPath.DIRECT, ConfirmationPath.DECENTRALISED, RepairBy.NEAREST)}
    with pytest.raises(ValueError, match="only the sender knows"):
        group(wrong[0], equal_matrix(3))
