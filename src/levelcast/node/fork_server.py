"""Start node processes by fork from a process that has already imported their modules.

Imports are the main CPU cost of a node's start, and a dozen nodes on one machine would all import the same modules. The
fork server is a separate program: single-threaded, in its own session, with no open file but a socket to the cluster.
Messages on that socket are JSON datagrams:

| to the server                                        | from the server                          |
|------------------------------------------------------|------------------------------------------|
| `{"arguments": [...]}` with two files: stdout, stderr | `{"started": PID}`                       |
|                                                      | `{"ended": PID, "code": CODE}`           |

A node is a process like any other: its own session, signal handlers and command line, and `kill -9` ends it alone. The
server exits when the cluster closes the socket or exits; the nodes then exit as well (`levelcast.node.cluster`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import IO

from levelcast.errors import NetError

MODULE = "levelcast.cli.live.fork_server"
_MAX_MESSAGE = 1 << 16
_TITLE_ROOM = " " * 600
"""Placeholder argument of the server: its memory is reused for the command line of the nodes."""


class ForkedProcess:
    """A node started by the server, with the part of the `subprocess.Popen` interface that a cluster uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = None
        self.returncode: int | None = None
        self._ended = Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The cluster's side: start the server with the first node, and track which nodes have exited."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._running: dict[int, ForkedProcess] = {}
        self._used = False
        self._started: SimpleQueue[ForkedProcess | None] = SimpleQueue()
        """A process for each request; None when the server has exited."""
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno()), _TITLE_ROOM],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._reader = Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, arguments: list[str], log: IO[str]) -> ForkedProcess:
        """Start `levelcast ARGUMENTS`; its stdout is a pipe, its stderr goes to `log`. Raise NetError."""
        ours, theirs = os.pipe()
        self._used = True
        try:
            request = json.dumps({"arguments": arguments}).encode()
            socket.send_fds(self._socket, [request], [theirs, log.fileno()])
            process = self._started.get()
        except OSError:
            process = None
        finally:
            os.close(theirs)
        if process is None:
            os.close(ours)
            raise NetError("the process that starts the nodes has exited; restart the network")
        process.stdout = os.fdopen(ours, encoding="utf-8")
        return process

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server; running nodes continue. A second call does nothing."""
        if not self._used:  # it may still import modules, which nothing needs
            self._server.kill()
        with suppress(OSError):  # it has already exited
            self._socket.shutdown(socket.SHUT_RDWR)
        self._server.wait()
        self._reader.join()
        self._socket.close()

    def _listen(self) -> None:
        with suppress(ConnectionResetError):
            while message := self._socket.recv(_MAX_MESSAGE):
                said = json.loads(message)
                if "started" in said:
                    process = self._running[said["started"]] = ForkedProcess(said["started"])
                    self._started.put(process)
                else:
                    self._running.pop(said["ended"]).end(said["code"])
        self._started.put(None)
        for process in self._running.values():  # their exit codes are no longer reported
            process.end(1)


# -- the server's side ------------------------------------------------------------------------------------


def serve(channel: socket.socket, main: Callable[[list[str]], None]) -> None:
    """Start a node for each request until the cluster has exited. `main` runs a node and exits."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            readable = select.select((channel, woken), (), ())[0]
            if woken in readable:
                woken.recv(_MAX_MESSAGE)
                _report_ended(channel)
            if channel in readable:
                request, files, _, _ = socket.recv_fds(channel, _MAX_MESSAGE, 2)
                if not request:
                    return
                pid = os.fork()
                if pid == 0:
                    for each in (channel, woken, wake):
                        each.close()
                    _become_node(json.loads(request)["arguments"], files, main)
                for file in files:
                    os.close(file)
                channel.send(json.dumps({"started": pid}).encode())


def _report_ended(channel: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1])
            channel.send(json.dumps({"ended": ended[0], "code": code}).encode())


def _become_node(arguments: list[str], files: list[int], main: Callable[[list[str]], None]) -> None:
    """Run a node in this new process, then exit."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for file, number in zip(files, (1, 2), strict=True):
            os.dup2(file, number)
            os.close(file)
        # The server's streams were opened on other files: unlike /dev/null, a pipe is not seekable.
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        _set_command_line([sys.executable, "-m", "levelcast", *arguments])
        main(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _set_command_line(words: list[str]) -> None:
    """Show the node's command in `ps`, truncated to the memory of the server's command line."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", encoding="ascii") as stat:
        begin, end = map(int, stat.read().rpartition(")")[2].split()[45:47])  # arg_start, arg_end: proc_pid_stat(5)
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write("\0".join(words).encode()[: end - begin - 1].ljust(end - begin, b"\0"))
