"""A secret has no readable form and does not leave the process by accident."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest

from levelcast.keys.secret import Secret

CONTENT = b"not for any log!"


@pytest.mark.parametrize("show", [repr, str, lambda secret: f"{secret}", lambda secret: f"{[secret]!r}"])
def test_no_form_of_a_secret_has_its_bytes(show: object) -> None:
    assert callable(show)
    assert CONTENT.decode() not in show(Secret(CONTENT))
    assert CONTENT.hex() not in show(Secret(CONTENT))


def test_a_traceback_has_no_secret() -> None:
    try:
        Secret(CONTENT).reveal()[100]
    except IndexError:
        assert CONTENT.decode() not in traceback.format_exc()


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_not_pickled_or_copied(leave: object) -> None:
    assert callable(leave)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        leave(Secret(CONTENT))


def test_secrets_are_compared_by_content_and_are_not_keys_of_a_table() -> None:
    assert Secret(CONTENT) == Secret(bytes(CONTENT))
    assert Secret(CONTENT) != Secret(CONTENT[:-1])
    assert Secret(CONTENT) != CONTENT
    assert len(Secret(CONTENT)) == len(CONTENT)
    with pytest.raises(TypeError):
        hash(Secret(CONTENT))
