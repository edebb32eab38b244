"""Read binary feeds: split a file into pieces that end with a message, and group messages by type into arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from levelcast.formats.columns import Ints
from levelcast.records import RecordArray, StatusAction

Layouts = Mapping[bytes, np.dtype[np.void]]
Found = TypeVar("Found")
DAY_EVENTS = {
    b"O": StatusAction.PRE_OPEN,
    b"S": StatusAction.PRE_OPEN,
    b"M": StatusAction.CLOSE,
    b"E": StatusAction.POST_CLOSE,
    b"C": StatusAction.NOT_AVAILABLE_FOR_TRADING,
}
"""System events with the same letter in ITCH and DEEP; the start of trading has different letters."""


def pieces_of(
    stream: IO[bytes], size: int, split: Callable[[bytes], tuple[Found, int]], rest: bytes = b""
) -> Iterator[tuple[bytes, Found, int]]:
    """Yield a stream in pieces of about `size` bytes: each with the result of `split`, and the number of bytes left at
    its end; 0 unless it is the last piece."""
    read = b" "
    while read:
        read = stream.read(size)
        content = rest + read
        found, end = split(content)
        rest = content[end:]
        yield content, found, 0 if read else len(rest)


def layouts(head: str, fields: Mapping[bytes, tuple[int, str]]) -> Layouts:
    """Return the layout of each type of message, from its length and its fields after the common ones."""
    return {kind: _layout(f"{head}, {own}".strip(", "), size) for kind, (size, own) in fields.items()}


def _layout(fields: str, size: int) -> np.dtype[np.void]:
    pairs = [(name, form) for name, form in (item.split() for item in fields.split(", "))]
    rest = size - np.dtype(pairs).itemsize
    return np.dtype([*pairs, *([("_rest", f"V{rest}")] if rest else [])])


def by_type(
    content: bytes, starts: Ints, sizes: Ints, known: Layouts
) -> tuple[dict[bytes, tuple[Ints, RecordArray]], list[int]]:
    """Return the messages of each type with their indexes, and the indexes of messages of unknown type or length."""
    octets = np.frombuffer(content, np.uint8)
    kinds = np.where(sizes > 0, octets[np.minimum(starts, len(octets) - 1)], 0) if len(starts) else sizes
    bad = np.ones(len(starts), bool)
    found = {}
    for kind, layout in known.items():
        at = np.flatnonzero((kinds == kind[0]) & (sizes == layout.itemsize))
        bad[at] = False
        if len(at):
            rows = np.ascontiguousarray(octets[starts[at][:, None] + np.arange(layout.itemsize)])
            found[kind] = at, rows.view(layout).reshape(len(at))
    return found, np.flatnonzero(bad).tolist()


def actions_of(values: npt.NDArray[Any], actions: Mapping[Any, int]) -> npt.NDArray[Any]:
    """Return the status action of each code; 0 for an unknown code."""
    return np.select([values == code for code in actions], [int(action) for action in actions.values()], 0)
