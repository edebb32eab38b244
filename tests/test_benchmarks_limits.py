"""What follows from a profile."""

from __future__ import annotations

import pytest

from benchmarks.limits import bounds, part_of, records_per_s, shares_of

REPORT = """
# Samples: 2K of event 'cycles'
    33.70%  [kernel.kallsyms]
    31.50%  libpython3.11.so.1.0
    14.00%  libc.so.6
     7.20%  _mold.cpython-311-x86_64-linux-gnu.so
     6.70%  blake3.cpython-311-x86_64-linux-gnu.so
     5.50%  _core.cpython-311-x86_64-linux-gnu.so
     0.40%  _struct.cpython-311-x86_64-linux-gnu.so
     0.30%  [vdso]
     0.20%  ld-linux-x86-64.so.2
"""


def test_libraries_are_told_apart() -> None:
    shares = shares_of(REPORT)
    assert sum(shares.values()) == pytest.approx(0.995)
    assert {name: round(share, 3) for name, share in shares.items()} == {
        "kernel": 0.34, "Python": 0.319, "copies": 0.14, "compiled": 0.127, "hash": 0.067, "other": 0.002,
    }  # fmt: skip
    assert part_of("python3.12") == "Python"


def test_bounds_leave_out_what_they_say() -> None:
    ours = {"floor": 1.0, "receivers": 10.0, "customers": 1.5, "server": 0.5}
    shares = {"kernel": 0.3, "Python": 0.3, "copies": 0.2, "compiled": 0.1, "hash": 0.1, "other": 0.0}
    found = bounds(ours, shares, kept_ns=4.0)
    assert found == pytest.approx({"as it is": 13.0, "no Python": 10.0, "no copies": 8.0, "the C relay": 6.0})
    assert records_per_s(10.0, 2) == 3_125_000
