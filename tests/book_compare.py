"""Comparisons of the matching engine on random commands; as a program, long ones with a line of progress every 10 s.

python -m tests.book_compare equivalent --commands 10000000
python -m tests.book_compare model --commands 1000000

`equivalent` compares the compiled engine with the one in Python: events, for batches of different sizes, and snapshots.
`model` compares the engine with the slow model: events after every command, and books and balances now and then.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from levelcast.native.book import COMPILED, BookKernel
from levelcast.native.book_codes import EVENT
from levelcast.native.pure_book import BookKernel as PureBook
from levelcast.native.pure_book_snapshot import BALANCE, ORDER
from tests.book_model import Model, run_model
from tests.book_parts import INSTRUMENTS, Step, flow, run_steps, shown

EVERY_S = 10.0


def against_model(make: Any, steps: list[Step], accounts: bool) -> str:
    """Return the first difference from the model, in events, books or balances; empty: none."""
    book, model = make(accounts=accounts), Model(accounts)
    for place, step in enumerate(steps):
        mine, theirs = run_steps(book, [step]), run_model(model, step.call, step.args)
        if list(EVENT.iter_unpack(mine)) != theirs:
            wanted = shown(b"".join(EVENT.pack(*each) for each in theirs))
            return "\n".join([f"step {place}: {step}", *shown(mine), "the model:", *wanted])
        if place % 100 == 0 or place == len(steps) - 1:
            if accounts and (found := balances(book)) != (wanted_balances := model_balances(model)):
                return f"step {place}: balances {found}, the model: {wanted_balances}"
            if orders(book) != model_orders(model):
                return f"step {place}: orders {orders(book)}, the model: {model_orders(model)}"
    return ""


def orders(book: Any) -> list[tuple[int, ...]]:
    """Return (instrument, id, side, price, left) in book order."""
    return [
        (instrument, o[0], o[8], o[3], o[6])
        for instrument in INSTRUMENTS
        for o in ORDER.iter_unpack(book.orders(instrument))
    ]


def model_orders(model: Model) -> list[tuple[int, ...]]:
    return [(i, o.id, ord(o.side), o.price, o.left) for i in INSTRUMENTS for o in model.all_orders(i)]


def balances(book: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Return free and reserved by account and number of the asset, without empty ones."""
    found = {}
    for account, asset, _, _, free, reserved in BALANCE.iter_unpack(book.balances()):
        amounts = (int.from_bytes(free, "little", signed=True), int.from_bytes(reserved, "little", signed=True))
        if amounts != (0, 0):
            found[account, asset] = amounts
    return found


def model_balances(model: Model) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the model's balances with the engine's numbers of assets: of instruments and currencies as defined."""
    numbers: dict[Any, int] = {}
    for each in model.instruments.values():
        numbers.setdefault(each.id, len(numbers))
        numbers.setdefault(str(each.currency), len(numbers))
    return {(account, numbers[asset]): amounts for (account, asset), amounts in model.balances().items()}


def differs_from_equivalent(steps: list[Step], accounts: bool) -> str:
    """Return what differs between the compiled engine and the one in Python, with other batches; empty: nothing."""
    one, other = BookKernel(accounts=accounts), PureBook(accounts=accounts)
    if run_steps(one, steps, batch=1000) != run_steps(other, steps, batch=7):
        return "other events"
    return "" if one.snapshot() == other.snapshot() else "other snapshots"


COMPARISONS: dict[str, tuple[int, Callable[[list[Step], bool], str]]] = {
    "equivalent": (20_000, differs_from_equivalent),
    "model": (1_000, lambda steps, accounts: against_model(BookKernel, steps, accounts)),
}
"""Steps of one flow, and the comparison."""


def compare(which: str, commands: int, seed: int, progress: Callable[[str], Any] = print) -> str:
    """Compare on at least this many commands, from a seed on; return the first difference, with its seed."""
    length, differs = COMPARISONS[which]
    start = shown = time.monotonic()
    done, first = 0, seed
    while done < commands:
        accounts = seed % 4 != 3
        steps = flow(seed, length, accounts)
        if found := differs(steps, accounts):
            return f"seed {seed}: {found}"
        done += sum(step.call == "command" for step in steps)
        seed += 1
        if (now := time.monotonic()) - shown > EVERY_S or done >= commands:
            shown = now
            rate = done / (now - start)
            progress(f"{done:,} of {commands:,} commands compared, seeds {first}..{seed - 1}, {rate:,.0f}/s")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", choices=sorted(COMPARISONS))
    parser.add_argument("--commands", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=10_000)
    options = parser.parse_args()
    if not COMPILED and options.which == "equivalent":
        parser.exit(1, "the compiled engine is not in use: there is nothing to compare\n")
    if found := compare(options.which, options.commands, options.seed, lambda line: print(line, flush=True)):
        parser.exit(1, found + "\n")
    print("No difference.")


if __name__ == "__main__":
    main()
