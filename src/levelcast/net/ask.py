"""Ask running nodes for their status, all at once, as `levelcast status` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from levelcast.net.sockets import Address, NetError
from levelcast.network import Network

_LARGEST = 4 << 20
_ANY = "0.0.0.0"
_REQUEST = "GET /status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said, or why there is no answer."""

    name: str
    status: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


def ask_all(network: Network, names: Iterable[str] = (), timeout_s: float = 1.0) -> list[Answer]:
    """Ask the named nodes, or every node of the file, concurrently. Raises NetError if the file has no [status]."""
    if network.status is None:
        raise NetError("the network file has no [status], so its nodes tell nothing: add it and start them again")
    chosen = list(names) or list(network.node_names)
    addresses = []
    for name in chosen:
        if name not in network.node_names:
            raise NetError(f'no node of the network is called "{name}"; there are {", ".join(network.node_names)}')
        address = network.status_address(name)
        assert address is not None
        addresses.append((name, address))
    return asyncio.run(_ask_all(addresses, timeout_s))


async def _ask_all(addresses: list[tuple[str, Address]], timeout_s: float) -> list[Answer]:
    return await asyncio.gather(*(_ask(name, address, timeout_s) for name, address in addresses))


async def _ask(name: str, address: Address, timeout_s: float) -> Answer:
    host = "127.0.0.1" if address[0] == _ANY else address[0]
    try:
        async with asyncio.timeout(timeout_s):
            status = _read(await _get(host, address[1]))
    except TimeoutError:
        return Answer(name, problem=f"no answer within {timeout_s:g} s")
    except ConnectionRefusedError:
        return Answer(name, problem="not running")
    except (OSError, ValueError) as error:
        return Answer(name, problem=str(error))
    if status.get("name") != name:
        return Answer(name, problem=f"another node answers: {status.get('name')}")
    return Answer(name, status)


async def _get(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_REQUEST.format(host).encode())
        answer = b""
        while chunk := await reader.read(_LARGEST):
            answer += chunk
            if len(answer) > _LARGEST:
                raise ValueError("the answer is too long")
        return answer
    finally:
        writer.close()


def _read(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError("no status there: " + head.partition(b"\r\n")[0].decode("ascii", "replace")[:60])
    status = json.loads(body)
    if not isinstance(status, dict):
        raise ValueError("no status there")
    return status


def in_one_ring(answers: Iterable[Answer]) -> bool:
    """Whether all of these that are receivers are active in the same generation."""
    receivers = [answer.status for answer in answers if answer.status.get("role") == "receiver"]
    active = all(status.get("state") == "ACTIVE" for status in receivers)
    return active and len({status.get("generation") for status in receivers}) <= 1
