"""The operator's door to a running floor: a Unix socket in its directory, one JSON object per line in both directions.

The permissions of the directory decide who may use it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from levelcast.errors import NetError
from levelcast.storage.append_file import open_directory

SOCKET_FILE = "control.sock"
MAX_REQUEST = 65_536
MAX_CLIENTS = 16
_TIMEOUT_S = 30.0

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class ControlServer:
    """Accept clients, and answer their requests with `answer`."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self._path = directory / SOCKET_FILE
        self._answer = answer
        with suppress(FileNotFoundError):
            self._path.unlink()  # the directory is locked: what is there is left from a process that was killed
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short_path(self._path) as short:
                self._socket.bind(short)
        except OSError as error:
            raise NetError(f"{self._path}: cannot open the control socket ({error.strerror or error})") from error
        self._path.chmod(0o600)
        self._socket.listen(MAX_CLIENTS)
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno()
        self._clients: dict[int, tuple[socket.socket, bytearray]] = {}

    def accept(self) -> int | None:
        """Accept a client; return its descriptor."""
        try:
            client, _ = self._socket.accept()
        except OSError:
            return None
        if len(self._clients) >= MAX_CLIENTS:
            client.close()
            return None
        client.setblocking(False)
        self._clients[client.fileno()] = (client, bytearray())
        return client.fileno()

    def receive(self, fileno: int) -> bool:
        """Answer a client's complete requests; return False when it is gone."""
        client, buffer = self._clients[fileno]
        try:
            data = client.recv(MAX_REQUEST)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        buffer += data
        if not data or len(buffer) > MAX_REQUEST:
            self._drop(fileno)
            return False
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            reply = json.dumps(self._reply(line)).encode() + b"\n"
            try:
                client.sendall(reply)
            except OSError:
                self._drop(fileno)
                return False
        return True

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"the request is not JSON ({error})"}
        return self._answer(request) if isinstance(request, dict) else {"error": "the request is not an object"}

    def _drop(self, fileno: int) -> None:
        client, _ = self._clients.pop(fileno)
        client.close()

    def close(self) -> None:
        for client, _ in self._clients.values():
            client.close()
        self._socket.close()
        with suppress(OSError):
            self._path.unlink()


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield a path that fits a socket's address, which has 107 bytes: if necessary, by an open directory."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    with open_directory(path.parent) as fd:
        yield f"/proc/self/fd/{fd}/{path.name}"


def ask_floor(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the floor of a directory; raise NetError with its error, or if it does not run."""
    path = directory / SOCKET_FILE
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_TIMEOUT_S)
        try:
            with _short_path(path) as short:
                client.connect(short)
            client.sendall(json.dumps(request).encode() + b"\n")
            reply = client.makefile("rb").readline()
        except TimeoutError:
            raise NetError(f"{directory}: the floor does not answer; check its process") from None
        except OSError:
            raise NetError(
                f"{directory}: no floor runs here; start it with `levelcast floor run --data {directory}`"
            ) from None
    found: dict[str, Any] = json.loads(reply) if reply else {"error": "the floor ended the connection"}
    if "error" in found:
        raise NetError(str(found["error"]))
    return found
