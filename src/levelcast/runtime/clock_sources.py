"""Read the time sources of a running node: the kernel's clock and `chronyd`, without blocking its event loop (C1, C4).

The kernel is asked every second, which takes some microseconds. `chronyd` is asked every `CHRONY_NS` by `chronyc`. A
fork from the loop would stop it for a millisecond or more, perhaps just before a release. So a shell is started once,
with the node: it runs `chronyc` whenever it reads a line, and its output is read from the loop like a socket. The shell
exits when the node does, because its input ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from levelcast.overlay.clock_check import ClockCheck
from levelcast.protocol.clock import KERNEL
from levelcast.protocol.effects import Release
from levelcast.runtime.clock_sync import KernelClock, kernel_clock, parse_tracking

KERNEL_NS = 1_000_000_000
CHRONY_NS = 8_000_000_000
CHRONY = "chrony"
_SHELL = "while read -r _; do chronyc -c -n tracking 2>/dev/null || echo; done"
_MOST_TEXT = 4_096


class ChronyReader:
    """`chronyc tracking`, repeated by one shell."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._text = b""
        if shutil.which("chronyc") is None or shutil.which("sh") is None:
            return
        with suppress(OSError):
            self._shell = subprocess.Popen(
                ["sh", "-c", _SHELL],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
            for fileno in (self._in, self._out):
                os.set_blocking(fileno, False)

    @property
    def runs(self) -> bool:
        return self._shell is not None

    @property
    def _in(self) -> int:
        assert self._shell is not None
        assert self._shell.stdin is not None
        return self._shell.stdin.fileno()

    @property
    def _out(self) -> int:
        assert self._shell is not None
        assert self._shell.stdout is not None
        return self._shell.stdout.fileno()

    @property
    def filenos(self) -> Sequence[int]:
        return [self._out] if self._shell is not None else []

    def ask(self) -> None:
        """Request the next line; while the shell has not answered, requests accumulate in its pipe."""
        if self._shell is not None:
            try:
                os.write(self._in, b"\n")
            except BlockingIOError:
                pass  # chronyc does not answer
            except OSError:
                self.close()

    def lines(self) -> list[str]:
        """Return the lines that have arrived."""
        if self._shell is None:
            return []
        try:
            found = os.read(self._out, _MOST_TEXT)
        except BlockingIOError:
            return []
        except OSError:
            found = b""
        if not found:
            self.close()
            return []
        *lines, self._text = (self._text + found)[-_MOST_TEXT:].split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            for pipe in (shell.stdin, shell.stdout):
                if pipe is not None:
                    pipe.close()
            with suppress(OSError):
                shell.terminate()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(0.5)


class ClockSources:
    """Pass the bounds of time sources and announced leap seconds to the clock check: a `runtime.driver.Service`."""

    def __init__(
        self,
        check: ClockCheck,
        read_kernel: Callable[[], KernelClock | None] = kernel_clock,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._check = check
        self._read_kernel = read_kernel
        self._monotonic_ns = monotonic_ns
        self._chrony = ChronyReader()
        self._kernel_ns = self._chrony_ns = 0
        self._leap = {KERNEL: False, CHRONY: False}

    @property
    def filenos(self) -> Sequence[int]:
        return self._chrony.filenos

    @property
    def wake_ns(self) -> int | None:
        return None  # the loop turns more often than once a second

    def step(self, ready: Collection[int], now: int) -> None:
        monotonic_ns = self._monotonic_ns()
        if monotonic_ns >= self._kernel_ns:
            self._kernel_ns = monotonic_ns + KERNEL_NS
            self._ask_kernel(now, monotonic_ns)
        if monotonic_ns >= self._chrony_ns:
            self._chrony_ns = monotonic_ns + CHRONY_NS
            self._chrony.ask()
        if ready and any(fileno in ready for fileno in self._chrony.filenos):
            for line in self._chrony.lines():
                self._hear_chrony(line, now, monotonic_ns)

    def _ask_kernel(self, now: int, monotonic_ns: int) -> None:
        kernel = self._read_kernel()
        if kernel is None:
            return
        if kernel.synchronised:
            self._check.bound.vouch(KERNEL, kernel.max_error_ns, monotonic_ns)
        self._announce(KERNEL, kernel.leap, now)

    def _hear_chrony(self, line: str, now: int, monotonic_ns: int) -> None:
        tracking = parse_tracking(line)
        if tracking is not None:
            self._check.bound.vouch(CHRONY, tracking.max_error_ns, monotonic_ns)
            self._announce(CHRONY, tracking.leap, now)

    def _announce(self, source: str, leap: bool, now: int) -> None:
        self._leap[source] = leap
        self._check.announce_leap(any(self._leap.values()), now)

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Do nothing: releases do not concern the clock."""

    def close(self) -> None:
        self._chrony.close()
