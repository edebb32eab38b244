"""Check passwords outside the loop: one thread with a lower priority, and a limit for each address.

A check takes tens of milliseconds of CPU time, so a burst of logons must not slow down the sessions that trade. A
password that was right before is recognised by a keyed hash in memory. An address with too many waiting checks is
refused without a check, and so is one with too many wrong passwords for a CompID in a minute.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from levelcast.market.entry.gateway import PasswordCheck
from levelcast.node.floor.accounts import password_matches

MAX_WAITING, MAX_WAITING_PER_ADDRESS = 1_024, 64
MAX_WRONG, WRONG_WINDOW_NS = 10, 60 * 10**9
_NICE = 5


class Verdict(NamedTuple):
    """The result of a check: `refusal` is empty if the password is right."""

    check: PasswordCheck
    address: str
    refusal: bytes


class PasswordChecker:
    """`submit` a check; `wake` is called from the thread when `results` has a new one."""

    def __init__(self, hashes: Callable[[str], str | None], wake: Callable[[], None]) -> None:
        self.results: deque[Verdict] = deque()
        self._hashes, self._wake = hashes, wake
        self._waiting: Counter[str] = Counter()
        self._wrong: dict[tuple[str, str], deque[int]] = {}
        """Times of wrong passwords, by address and CompID."""
        self._secret = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._queue: SimpleQueue[tuple[PasswordCheck, str, str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="passwords", daemon=True)
        self._thread.start()

    def submit(self, check: PasswordCheck, address: str, now: int) -> None:
        """Check a password; the result is in `results` now or later."""
        stored = self._hashes(check.comp_id)
        wrong = self._wrong.setdefault((address, check.comp_id), deque())
        while wrong and wrong[0] < now - WRONG_WINDOW_NS:
            wrong.popleft()
        if not wrong:
            del self._wrong[address, check.comp_id]
        refusal = None
        if check.username not in (b"", check.comp_id.encode()):
            refusal = b"Username is not the SenderCompID"
        elif stored is None:
            refusal = b"wrong password"
        elif self._right.get(check.comp_id) == self._mark(check, stored):
            refusal = b""
        elif len(wrong) >= MAX_WRONG:
            refusal = b"too many wrong passwords, try again in a minute"
        elif self._waiting[address] >= MAX_WAITING_PER_ADDRESS or self._waiting.total() >= MAX_WAITING:
            refusal = b"too many logons at once, try again later"
        if refusal is None and stored is not None:
            self._waiting[address] += 1
            self._queue.put((check, address, stored))
        else:
            self.results.append(Verdict(check, address, refusal or b""))
            self._wake()

    def note(self, verdict: Verdict, now: int) -> None:
        """Count a result that was taken."""
        if verdict.refusal == b"wrong password":
            key = verdict.address, verdict.check.comp_id
            self._wrong.setdefault(key, deque(maxlen=MAX_WRONG)).append(now)

    def remember(self, comp_id: str, password: bytes, stored: str) -> None:
        """Note that a password is right, so that it is not checked again."""
        self._right[comp_id] = self._mark(PasswordCheck(None, comp_id, b"", password), stored)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=5)

    def _mark(self, check: PasswordCheck, stored: str) -> bytes:
        content = b"\0".join((check.comp_id.encode(), check.password, stored.encode()))
        return hashlib.blake2b(content, key=self._secret, digest_size=32).digest()

    def _run(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (item := self._queue.get()) is not None:
            check, address, stored = item
            right = password_matches(stored, check.password)
            if right:
                self.remember(check.comp_id, check.password, stored)
            self._waiting[address] -= 1
            self.results.append(Verdict(check, address, b"" if right else b"wrong password"))
            self._wake()
