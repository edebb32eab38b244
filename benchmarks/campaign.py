"""How a campaign's own command ends: like a benchmark, with an exit code that says whether every promise held."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from benchmarks.report import Options, Result, Stopwatch, machine_facts, show_facts, tell, write_json

INTERRUPTED = 130


def conduct(campaign: Callable[[], tuple[Result, bool]], options: Options, *, as_json: bool = False) -> int:
    """Run it, print and write its report. 0: every promise held; 1: one broke, or was not tried; 130: interrupted."""
    facts = machine_facts()
    try:
        with _ended_in_order(), Stopwatch() as watch:
            result, held = campaign()
    except KeyboardInterrupt:
        return INTERRUPTED
    result.set_times(watch)
    written = write_json(result, facts, options)
    if as_json:
        print(json.dumps({**result.as_json(), "machine": facts}, indent=1, ensure_ascii=False))
    else:
        print(f"{show_facts(facts)}\n\n{result}", flush=True)
    tell(f"written: {written}")
    return 0 if held else 1


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends like ^C: nodes are ended and namespaces removed."""

    def interrupt(*_: int | FrameType | None) -> None:
        raise KeyboardInterrupt

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
