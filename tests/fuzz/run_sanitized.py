"""Run the C modules under AddressSanitizer and UndefinedBehaviorSanitizer: their tests, and mutated inputs.

    python tests/fuzz/run_sanitized.py [--inputs 5000] [--seed 1] [--no-tests]

Builds the modules of levelcast.native with sanitizers in a temporary copy of `src`. `--inputs` is per target of
`tests/fuzz/targets.py`, which has every decoder; each is a seed with changed, removed, repeated or inserted bytes. Exit
status: 0 no finding; 1 a finding, whose report is printed; 2 the compiler has no sanitizers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from random import Random

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = {"_book": (), "_core": (), "_mold": (), "_planner": (), "_seal": ("-lcrypto",)}
TESTS = (
    "test_native.py",
    "test_native_book.py",
    "test_native_pure_book.py",
    "test_native_mold.py",
    "test_native_planner.py",
    "test_native_seal.py",
)
FLAGS = ("-g", "-O1", "-std=c11", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-fsanitize=address,undefined")
OK, FINDING, NO_SANITIZER = 0, 1, 2
MOST_BYTES = 70_000


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the C modules under sanitizers.")
    parser.add_argument("--inputs", type=int, default=5_000, help="mutated inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-tests", action="store_true", help="only the mutated inputs")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _mutate(options.inputs, options.seed)
        return OK
    with tempfile.TemporaryDirectory(prefix="levelcast-sanitized-") as folder:
        environment = _build(Path(folder))
        if environment is None:
            print("The compiler has no AddressSanitizer: install libasan, or set CC to gcc.", file=sys.stderr)
            return NO_SANITIZER
        commands = [[__file__, "--inside", "--inputs", str(options.inputs), "--seed", str(options.seed)]]
        if not options.no_tests:
            tests = [str(REPOSITORY / "tests" / name) for name in TESTS]
            commands.insert(0, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not campaign", *tests])
        failed = [
            subprocess.run([sys.executable, *each], cwd=REPOSITORY, env=environment, check=False).returncode
            for each in commands
        ]
    return FINDING if any(failed) else OK


def _build(folder: Path) -> dict[str, str] | None:
    """Copy `src`, compile the modules in it, and return the environment of a process that uses them."""
    source = folder / "src"
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    compiler = os.environ.get("CC", "gcc")
    include, suffix = sysconfig.get_paths()["include"], sysconfig.get_config_var("EXT_SUFFIX")
    native = source / "levelcast" / "native"
    for name, libraries in MODULES.items():
        output = native / f"{name}{suffix}"
        command = [compiler, *FLAGS, f"-I{include}", str(native / f"{name}.c"), *libraries, "-o", str(output)]
        if subprocess.run(command, check=False).returncode:
            return None
    libraries_of = [
        subprocess.run(
            [compiler, f"-print-file-name=lib{each}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for each in ("asan", "ubsan")
    ]
    if not all(Path(each).is_absolute() for each in libraries_of):
        return None
    return os.environ | {
        "PYTHONPATH": str(source),
        "LD_PRELOAD": " ".join(libraries_of),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself keeps memory until it ends
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def _mutate(inputs: int, seed: int) -> None:
    """Feed mutated seeds to every target, inside the sanitized process."""
    sys.path.insert(0, str(REPOSITORY))
    from levelcast import native
    from levelcast.native import seal
    from tests.fuzz.targets import TARGETS

    assert native.COMPILED
    assert seal.COMPILED
    for target in TARGETS.values():
        check, seeds = target.prepare()
        random = Random(f"{seed} {target.name}")
        for _ in range(inputs):
            check(_changed(random.choice(seeds), random))
        print(f"{target.name:11} ok: {inputs:,} inputs", flush=True)


def _changed(seed: bytes, random: Random) -> bytes:
    content = bytearray(seed)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content) + 1)
        kind = random.randrange(4)
        if kind == 0 and at < len(content):
            content[at] = random.randrange(256)
        elif kind == 1:
            del content[at : at + random.choice((1, 2, 8, 60))]
        elif kind == 2:
            content[at:at] = random.randbytes(random.choice((1, 4, 16)))
        else:
            content[at:at] = content[: random.randrange(len(content) + 1)]
    return bytes(content[:MOST_BYTES])


if __name__ == "__main__":
    sys.exit(main())
