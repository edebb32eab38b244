"""A process with keys leaves no core dump."""

from __future__ import annotations

import subprocess
import sys


def test_core_dumps_are_off() -> None:
    code = """
import ctypes, resource
from levelcast.keys.process import protect_process
protect_process()
print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]
