"""Fuzz the decoders, each in a process of its own for a bounded time.

    python tests/fuzz/run_atheris.py [--seconds 20] [target ...]      all targets unless some are named
    python tests/fuzz/run_atheris.py --input HEX target               one input, without the fuzzer

`--seconds` is per target; without it FUZZ_SECONDS in the environment is shared out among the targets, or 20
for each. Exit status: 0 all promises held; 1 one did not (its input is printed as hex); 2 a target that was
named, or any under LEVELCAST_CI=1, could not be imported; 3 atheris is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_SECONDS = 20
SLOW_INPUT_SECONDS = 10
"""One input that takes longer than this is a finding."""
GRACE_SECONDS = 60
"""For starting, instrumenting and one slow input, before a process counts as hung."""
NOISE = re.compile(r"#\d|INFO|WARNING|MS: |0x|stat::|Base64|artifact_prefix|.*\\[0-7]{3}")
"""libFuzzer's progress, and its own ways of printing the input that is printed as hex here."""

OK, BROKEN, ABSENT, NO_ATHERIS = 0, 1, 2, 3


def main() -> int:
    # A checkout works without being installed.
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "src")]
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description="Fuzz the decoders.")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, help="per target")
    parser.add_argument("--input", metavar="HEX", help="check this input alone")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))} (there are {', '.join(TARGETS)})")
    chosen = [TARGETS[name] for name in options.targets or TARGETS]
    if options.seconds is not None:
        seconds = options.seconds
    else:
        shared = os.environ.get("FUZZ_SECONDS")
        seconds = int(shared) // len(chosen) if shared else DEFAULT_SECONDS
    seconds = max(1, seconds)  # libFuzzer takes 0 for "forever"

    if options.input is not None:
        for target in chosen:
            target.prepare()[0](bytes.fromhex(options.input))
            print(f"{target.name}: holds")
        return OK
    if importlib.util.find_spec("atheris") is None:
        print("The fuzzer atheris is not installed: pip install 'levelcast[fuzz]'.", file=sys.stderr)
        return NO_ATHERIS
    if options.inside:
        _fuzz(chosen[0], Path(options.inside), seconds)
        return OK
    results = [_run(target, seconds) for target in chosen]
    if BROKEN in results:
        return BROKEN
    if ABSENT in results and (options.targets or os.environ.get("LEVELCAST_CI") == "1"):
        return ABSENT
    return OK


def _run(target: Target, seconds: int) -> int:
    """One target in a process of its own: libFuzzer ends the process it runs in, well or badly."""
    try:
        target.prepare()
    except ImportError as error:
        print(f"{target.name:11} absent: {error}", flush=True)
        return ABSENT
    with tempfile.TemporaryDirectory(prefix="levelcast-fuzz-") as folder:
        command = [sys.executable, __file__, "--inside", folder, "--seconds", str(seconds), target.name]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds + SLOW_INPUT_SECONDS + GRACE_SECONDS,
                check=False,
            )
            output, status = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as hung:
            output, status = (hung.stdout or b"").decode(errors="replace"), -1
        found = sorted(path for path in Path(folder, "found").glob("*") if path.is_file())
        inputs = [(path.name.split("-")[0], path.read_bytes()) for path in found]
    runs = re.findall(r"number_of_executed_units: (\d+)", output) or re.findall(r"#(\d+)\t", output)
    executions = f"{int(runs[-1]):,}" if runs else "no"
    if status == 0 and not inputs:
        print(f"{target.name:11} ok: {executions} executions in {seconds} s; {target.promise}", flush=True)
        return OK
    print(f"{target.name:11} BROKEN after {executions} executions: {target.promise}", flush=True)
    told = [line for line in output.splitlines() if line.strip() and not NOISE.match(line)]
    print("\n".join(f"    {line}" for line in told[-40:]))
    for kind, data in inputs:
        print(f"  {kind}, {len(data)} bytes; again with: --input {data.hex()} {target.name}")
    if not inputs:
        print(f"  no input was kept (exit status {status})")
    return BROKEN


def _fuzz(target: Target, folder: Path, seconds: int) -> None:
    """Inside the process of `target`: never returns, libFuzzer exits."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["levelcast"]):
        check, seeds = target.prepare()
    corpus, found = folder / "corpus", folder / "found"
    corpus.mkdir()
    found.mkdir()
    for number, seed in enumerate(seeds):
        corpus.joinpath(str(number)).write_bytes(seed)
    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={SLOW_INPUT_SECONDS}",
        "-rss_limit_mb=2048",
        f"-max_len={max(4096, *map(len, seeds))}",
        "-print_final_stats=1",
        f"-artifact_prefix={found}/",
    ]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
