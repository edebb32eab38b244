"""Query the status of running nodes concurrently, as `levelcast status` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.placement import Placement, all_places, place_of
from levelcast.network.roles import RECEIVER, ROLE_NAMED, SECONDARY, RoleKind
from levelcast.runtime.sockets import Address

_LARGEST = 4 << 20
_ANY = "0.0.0.0"
_REQUEST = "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of a node, or the reason for a missing answer."""

    name: str
    status: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    lag: int | None = None
    """Lag of a secondary after the primary that serves it, in slots, if both answer."""

    @property
    def ok(self) -> bool:
        return not self.problem

    @property
    def role(self) -> RoleKind | None:
        """None if the node did not answer."""
        return ROLE_NAMED.get(self.status.get("role", ""))


def ask_all(network: Network, names: Iterable[str] = (), timeout_s: float = 1.0, page: str = "/status") -> list[Answer]:
    """Query the named nodes, or every node of the file, concurrently, each in every stripe that it is in.

    STRIPE/NAME is a node's part in one stripe. Raise NetError if the file has no [status].
    """
    if network.status is None:
        raise NetError("the network file has no [status] table, so nodes serve no status; add it and restart the nodes")
    addresses = []
    for place in _chosen(network, list(names)):
        address = network.status_address(place.name, place.stripe)
        assert address is not None
        addresses.append((place.part, address))

    async def ask() -> list[Answer]:
        return await asyncio.gather(*(_ask(name, address, timeout_s, page) for name, address in addresses))

    return with_lags(asyncio.run(ask()))


def with_lags(answers: list[Answer]) -> list[Answer]:
    """Return the answers, with the lag of secondaries. Both nodes were queried together, but not simultaneously."""
    have = {(said.get("stripe"), said.get("name")): said.get("have") for said in (each.status for each in answers)}

    def lag_of(said: dict[str, Any]) -> int | None:
        ahead, here = have.get((said.get("stripe"), said.get("primary"))), said.get("have")
        return None if ahead is None or here is None else max(0, ahead - here)

    return [replace(answer, lag=lag_of(answer.status)) for answer in answers]


def _chosen(network: Network, names: list[str]) -> list[Placement]:
    everywhere = all_places(network)
    if not names:
        return everywhere
    chosen = []
    for name in names:
        found = place_of(network, name)
        whole = "/" not in name  # every part of the node
        chosen += [place for place in everywhere if place == found or (whole and place.name == name)]
    return chosen


async def _ask(name: str, address: Address, timeout_s: float, page: str) -> Answer:
    host = "127.0.0.1" if address[0] == _ANY else address[0]
    try:
        async with asyncio.timeout(timeout_s):
            status = _read(await _get(host, address[1], page))
    except TimeoutError:
        return Answer(name, problem=f"no answer within {timeout_s:g} s")
    except ConnectionRefusedError:
        return Answer(name, problem="not running")
    except (OSError, ValueError) as error:
        return Answer(name, problem=getattr(error, "strerror", None) or str(error))
    answers = status.get("part", status.get("name"))
    if answers != name:
        return Answer(name, problem=f"another node answers: {answers}")
    return Answer(name, status)


async def _get(host: str, port: int, page: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_REQUEST.format(page, host).encode())
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
        raise ValueError("not a status page: " + head.partition(b"\r\n")[0].decode("ascii", "replace")[:60])
    status = json.loads(body)
    if not isinstance(status, dict):
        raise ValueError("not a status page")
    return status


def in_one_ring(answers: Iterable[Answer]) -> bool:
    """Return whether all primaries among these are active in the same generation, in each stripe."""
    receivers = [answer.status for answer in answers if answer.role is RECEIVER]
    active = all(status.get("state") == "ACTIVE" for status in receivers)
    rings = {(status.get("stripe"), status.get("generation")) for status in receivers}
    return active and len(rings) <= len({status.get("stripe") for status in receivers})


def not_served(answers: Iterable[Answer]) -> list[str]:
    """Return the secondaries that no primary serves, or that do not follow the ring."""
    return [answer.name for answer in answers if answer.role is SECONDARY and answer.status.get("state") != "FOLLOWS"]
