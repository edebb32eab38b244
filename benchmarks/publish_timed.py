"""Run the `levelcast` command of any version and write the CPU time of a publication to a file, without reading.

    python -P benchmarks/publish_timed.py FILE publish --network ...

The CPU time of one reading is measured beforehand. In the command, a reading runs at the same time as the publication,
in several threads.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

spent = {"start_s": 0.0, "reading_s": 0.0, "readings": 0, "total_s": 0.0}


def main() -> None:
    file = Path(sys.argv.pop(1))
    try:
        replay: Any = import_module("levelcast.client.replay")
    except ModuleNotFoundError:
        replay = import_module("levelcast.net.replay")
    original = replay.Replay.__init__

    def begin(self: Any, network: Any, batches: Callable[[], Iterator[Any]], **options: Any) -> None:
        def counted() -> Iterator[Any]:
            spent["readings"] += 1
            return batches()

        for _ in range(2):  # the first one loads modules
            began = time.process_time()
            deque(batches(), 0)
            spent["reading_s"] = time.process_time() - began
        spent["start_s"] = time.process_time()
        original(self, network, counted, **options)

    replay.Replay.__init__ = begin
    try:
        import_module("levelcast.cli.main").run()
    finally:
        spent["total_s"] = time.process_time()
        file.write_text(json.dumps(spent), encoding="utf-8")


if __name__ == "__main__":
    main()
