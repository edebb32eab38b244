"""A network namespace for each node, with a wire to a common bridge that can be cut.

    node namespace  TAG-1   eth0, 10.77.0.1/24 ──┐
    node namespace  TAG-2   eth0, 10.77.0.2/24 ──┤ ports p1, p2, … of the bridge br0
    …                                            ┘ in the namespace TAG-0

Nothing is left in the machine's own namespace, so that removing the namespaces removes everything. The bridge forwards
multicast to all ports, like a switch without snooping. It needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from types import TracebackType

BRIDGE = "br0"
MOST_NODES = 250
_LIMIT_S = 20.0

Command = list[str]


class NoNamespaces(Exception):
    """Namespaces cannot be made here, in one sentence."""


def address_of(number: int) -> str:
    """The address of the `number`-th node, from 1 on."""
    return f"10.77.0.{number}"


def setup_commands(tag: str, nodes: int) -> list[Command]:
    """What makes the bridge and the namespaces of this many nodes, in order."""
    assert 0 < nodes <= MOST_NODES
    bridge = f"{tag}-0"
    commands = [
        ["ip", "netns", "add", bridge],
        ["ip", "-n", bridge, "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0", "stp_state", "0"],
        ["ip", "-n", bridge, "link", "set", BRIDGE, "up"],
    ]
    for number in range(1, nodes + 1):
        node, port = f"{tag}-{number}", f"p{number}"
        commands += [
            ["ip", "netns", "add", node],
            ["ip", "link", "add", port, "netns", bridge, "type", "veth", "peer", "name", "eth0", "netns", node],
            ["ip", "-n", bridge, "link", "set", port, "master", BRIDGE, "up"],
            ["ip", "-n", node, "address", "add", f"{address_of(number)}/24", "dev", "eth0"],
            ["ip", "-n", node, "link", "set", "lo", "up"],
            ["ip", "-n", node, "link", "set", "eth0", "up"],
        ]
    return commands


def teardown_commands(tag: str, nodes: int) -> list[Command]:
    """What removes them; links and addresses go with their namespaces."""
    return [["ip", "netns", "delete", f"{tag}-{number}"] for number in range(nodes, -1, -1)]


def switch_command(tag: str) -> Command:
    """An `ip` that waits for `switch_line`s: a cut is made within a millisecond, not when a process has started."""
    return ["ip", "-n", f"{tag}-0", "-force", "-batch", "-"]


def switch_line(number: int, *, up: bool) -> str:
    """Sets the bridge's end of a node's wire up or down."""
    return f"link set p{number} {'up' if up else 'down'}\n"


class Namespaces:
    """The namespaces of named nodes, from `with` to its end. Raises NoNamespaces where they cannot be made."""

    def __init__(self, names: Sequence[str]) -> None:
        self.tag = f"lvl{os.getpid()}"
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._switch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Namespaces:
        try:
            for command in setup_commands(self.tag, len(self._numbers)):
                _run(command)
            self._switch = subprocess.Popen(switch_command(self.tag), stdin=subprocess.PIPE, text=True)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        """Remove whatever there is; one that was never made does not matter."""
        if self._switch is not None:
            self._switch.communicate(timeout=_LIMIT_S)
        for command in teardown_commands(self.tag, len(self._numbers)):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)

    def launch(self, name: str) -> tuple[list[str], list[str]]:
        """What a node's command is put behind, and the options by which it uses its wire."""
        number = self._numbers[name]
        return ["ip", "netns", "exec", f"{self.tag}-{number}"], ["--interface", address_of(number)]

    def cut(self, name: str) -> None:
        self._set(name, up=False)

    def mend(self, name: str) -> None:
        self._set(name, up=True)

    def _set(self, name: str, *, up: bool) -> None:
        assert self._switch is not None
        assert self._switch.stdin is not None
        self._switch.stdin.write(switch_line(self._numbers[name], up=up))
        self._switch.stdin.flush()


def _run(command: Command) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except FileNotFoundError:
        raise NoNamespaces("`ip` not found; install iproute2") from None
    if done.returncode:
        raise NoNamespaces(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
