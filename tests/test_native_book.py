"""The compiled matching engine against its equivalent in Python: the same bytes for the same calls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from levelcast.native import book as chosen
from levelcast.native import book_codes, pure_book
from levelcast.native.book_codes import EVENT, BookReason, EventKind
from tests.book_compare import compare
from tests.book_parts import INSTRUMENTS, Flow, Step, command, events_of, flow, run_steps, shown
from tests.conftest import lacking

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "src" / "levelcast" / "native" / "_book_state.h"
OTHER_NAMES = {"OK": "NONE", "VERSION_OF_RULES": "RULES_VERSION"}


@pytest.fixture(scope="module")
def kernel() -> Any:
    try:
        from levelcast.native import _book  # type: ignore[attr-defined]
    except ImportError:
        lacking("the compiled matching engine: a C compiler at installation")
    return _book.BookKernel


def first_difference(kernel: Any, steps: list[Step], accounts: bool) -> str:
    one, other = kernel(accounts=accounts), pure_book.BookKernel(accounts=accounts)
    for place, step in enumerate(steps):
        mine, theirs = run_steps(one, [step]), run_steps(other, [step])
        if mine != theirs:
            return "\n".join([f"step {place}: {step}", *shown(mine), "but in Python:", *shown(theirs)])
    return ""


@pytest.mark.parametrize("seed", range(24))
def test_kernel_and_equivalent_agree(kernel: Any, seed: int) -> None:
    accounts = seed % 4 != 3
    steps = flow(seed, 800, accounts)
    one, other = kernel(accounts=accounts), pure_book.BookKernel(accounts=accounts)
    mine, theirs = run_steps(one, steps, batch=50), run_steps(other, steps)
    assert mine == theirs, first_difference(kernel, steps, accounts)
    assert one.snapshot() == other.snapshot()
    assert one.balances() == other.balances()
    assert one.instruments() == other.instruments() == np.array(INSTRUMENTS, "<u4").tobytes()
    for instrument in (1, 2, 77, 5):
        assert one.orders(instrument) == other.orders(instrument)
        assert one.top(instrument, 3) == other.top(instrument, 3)
        for side in b"AB":
            assert one.front(instrument, side, 5) == other.front(instrument, side, 5)
    assert (one.count, one.order_count, one.trade_count, one.live, one.now_ns, one.rules) == (
        other.count, other.order_count, other.trade_count, other.live, other.now_ns, other.rules,
    )  # fmt: skip


@pytest.mark.campaign
def test_ten_million_random_commands(kernel: Any) -> None:
    assert chosen.BookKernel is kernel
    assert compare("equivalent", 10_000_000, seed=10_000) == ""


@pytest.mark.parametrize("pure", [False, True], ids=["kernel", "python"])
def test_batch_boundaries_do_not_matter(kernel: Any, pure: bool) -> None:
    make = pure_book.BookKernel if pure else kernel
    for seed in range(6):
        steps = flow(seed, 1500)
        whole = make()
        events = run_steps(whole, steps, batch=10_000)
        for batch in (1, 7, 100):
            divided = make()
            assert run_steps(divided, steps, batch=batch) == events
            assert divided.snapshot() == whole.snapshot()


def test_trace_is_run_with_the_book_after_each_command(kernel: Any) -> None:
    steps = flow(3, 600, accounts=False)
    commands = [step.args[0] for step in steps if step.call == "command"]
    begin = [step for step in Flow(3, accounts=False).begin() if step.call == "define"] + [Step("status", (0, 7))]
    one, other, plain = kernel(accounts=False), pure_book.BookKernel(accounts=False), kernel(accounts=False)
    for each in (one, other, plain):
        run_steps(each, begin)
    octets = np.concatenate(commands).tobytes()
    traced = one.trace(octets, 2)
    assert traced == other.trace(octets, 2)
    assert traced[0] == plain.run(octets)
    ends = np.frombuffer(traced[1], "<u8")
    assert ends[-1] == len(traced[0]) // EVENT.size
    assert len(traced[2]) == len(commands) * 2 * 32


def test_commands_at_any_address(kernel: Any) -> None:
    steps = flow(5, 500)
    one, other = kernel(), kernel()
    for each in (one, other):
        run_steps(each, Flow(5).begin())
    octets = np.concatenate([step.args[0] for step in steps if step.call == "command"]).tobytes()
    shifted = memoryview(b"x" + octets)[1:]
    assert one.run(octets) == other.run(shifted)


def test_wrong_arguments_are_refused_alike(kernel: Any) -> None:
    for make in (kernel, pure_book.BookKernel):
        book = make()
        with pytest.raises(ValueError, match="commands have 96 bytes each"):
            book.run(b"x" * 95)
        with pytest.raises(ValueError, match="commands have 96 bytes each"):
            book.trace(b"x" * 97, 1)
        for wrong in [(0, 1, 1, 1, 1, 1, 1, 1, 1), (1, 0, 1, 1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1, -2, 1),
                      (2**32, 1, 1, 1, 1, 1, 1, 1, 1)]:  # fmt: skip
            with pytest.raises(ValueError, match="a definition needs a positive id"):
                book.define(*wrong)


def test_snapshot_continues_like_the_original(kernel: Any) -> None:
    for seed in range(8):
        accounts = seed % 4 != 3
        steps = flow(seed, 1000, accounts)
        original = kernel(accounts=accounts)
        run_steps(original, steps[:700], batch=30)
        octets = original.snapshot()
        copies = [make.restore(octets) for make in (kernel, pure_book.BookKernel)]
        events = run_steps(original, steps[700:])
        for copy in copies:
            assert run_steps(copy, steps[700:]) == events
            assert copy.snapshot() == original.snapshot()


def test_damaged_snapshots_are_refused_or_load_without_harm(kernel: Any) -> None:
    book, rng = kernel(), Random(1)
    run_steps(book, flow(2, 1000))
    octets = book.snapshot()
    for make in (kernel, pure_book.BookKernel):
        for cut in (0, 10, 100, len(octets) // 2, len(octets) - 1):
            with pytest.raises(ValueError, match="snapshot"):
                make.restore(octets[:cut])
        with pytest.raises(ValueError, match="the snapshot is damaged"):
            make.restore(octets + b"x")
        with pytest.raises(ValueError, match="not a snapshot of this version"):
            make.restore(octets[:4] + b"\x09" + octets[5:])
    for _ in range(2000):
        at = rng.randrange(len(octets))
        damaged = octets[:at] + bytes([octets[at] ^ 1 << rng.randrange(8)]) + octets[at + 1 :]
        with suppress(ValueError):
            kernel.restore(damaged)


def test_codes_are_those_of_the_header() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    values: dict[str, int] = {}
    for body in re.findall(r"enum \{(.*?)\};", text, re.DOTALL):
        number = -1
        for item in body.split(","):
            name, _, given = (part.strip() for part in item.partition("="))
            number = number + 1 if not given else ord(given[1]) if given[0] == "'" else int(eval(given))
            values.setdefault(name, number)
    for reason in BookReason:
        names = {theirs: mine for mine, theirs in OTHER_NAMES.items()}
        assert values[names.get(reason.name, reason.name)] == reason, reason.name
    for name in ("KEPT_TRADES", "GATEWAY_BITS", "FIRST_RULES", "OLDEST_RULES", "RULES_VERSION"):
        assert values[name] == getattr(book_codes, name)
    assert {int(kind) for kind in EventKind} <= set(values.values())


def test_environment_selects_python() -> None:
    program = "from levelcast.native import book; print(book.COMPILED, book.BookKernel.__module__)"
    made = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"LEVELCAST_PURE": "1"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert made.stdout.split() == ["False", "levelcast.native.pure_book"]
    assert chosen.BookKernel.__name__ == "BookKernel"


def test_every_kind_and_reason_occurs_in_the_random_flows() -> None:
    seen: set[tuple[int, int]] = set()
    for seed in range(60):
        book = chosen.BookKernel(accounts=seed % 4 != 3)
        events = events_of(run_steps(book, flow(seed, 1500, seed % 4 != 3), batch=100))
        seen |= set(zip(events["kind"].tolist(), events["reason"].tolist(), strict=True))
    assert {kind for kind, _ in seen} == set(EventKind)
    assert set(BookReason) - {reason for _, reason in seen} <= {
        BookReason.ALREADY_BUSTED,
        BookReason.NONE,
        BookReason.NOTIONAL,
    }


def test_kernel_survives_an_empty_batch(kernel: Any) -> None:
    assert kernel().run(b"") == b""
    assert events_of(kernel().run(command().tobytes()))["reason"].tolist() == [BookReason.UNKNOWN_ACCOUNT]
