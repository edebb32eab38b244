"""`levelcast.Group`: processes of a group in one event loop, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import levelcast
from levelcast.client.group import GroupMessage, WideGroup
from levelcast.errors import NetError
from levelcast.network import Network, parse_network
from tests.network_parts import free_ports, three_rooms

NAMES = ("a-1", "b-1", "c-1")


@pytest.fixture
def network() -> Network:
    return parse_network(three_rooms(""))


def three(network: Network, **options: Any) -> list[WideGroup]:
    port = free_ports(3)
    given: dict[str, Any] = {"protocol": "M", "start_s": 20.0, "port": port} | options
    return [levelcast.Group(network, name, **given) for name in NAMES]


def together(groups: list[WideGroup], what: Callable[[list[WideGroup]], Coroutine[Any, Any, None]]) -> None:
    """Start all, do something, and close those that still run."""

    async def run() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.start() for each in groups))
            try:
                await what(groups)
            finally:
                for each in groups:
                    each.close()

    asyncio.run(run())


async def read(group: WideGroup, count: int) -> list[GroupMessage]:
    return [await group.receive() for _ in range(count)]


async def drained(group: WideGroup) -> None:
    """Read messages without end."""
    async for _ in group:
        pass


@pytest.mark.parametrize("protocol", ["M", "N", "DR", "HD"])
def test_all_receive_everything_in_causal_order(network: Network, protocol: str) -> None:
    async def chat(groups: list[WideGroup]) -> None:
        a, b, c = groups
        assert a.members == NAMES
        await a.send(b"question")
        assert await read(b, 1) == [GroupMessage("a-1", b"question")]
        await b.send(b"answer")
        # Also where the answer is the first to arrive, the question comes before it.
        assert await read(c, 2) == [GroupMessage("a-1", b"question"), GroupMessage("b-1", b"answer")]
        for number in range(40):
            await groups[number % 3].send(b"%d" % number)
        await asyncio.gather(*(each.flush() for each in groups))
        for place, each in enumerate(groups):
            found = [int(one.payload) for one in await read(each, each.waiting) if one.payload.isdigit()]
            assert sorted(found) == [number for number in range(40) if number % 3 != place]
            for other in range(3):
                own = [number for number in found if number % 3 == other]
                assert own == sorted(own)

    together(three(network, protocol=protocol, impair=True), chat)


def test_a_message_to_some_is_received_by_nobody_else(network: Network) -> None:
    async def whisper(groups: list[WideGroup]) -> None:
        a, b, c = groups
        await a.send(b"secret", to=["c-1"])
        await a.send(b"x" * 5_000)  # several packets
        await asyncio.gather(a.flush(), b.flush())
        assert [one.payload for one in await read(b, 1)] == [b"x" * 5_000]
        assert [one.payload for one in await read(c, 2)] == [b"secret", b"x" * 5_000]
        assert b.waiting == 0
        with pytest.raises(ValueError, match='"a-1" is no other receiver of the group; choose from b-1, c-1'):
            await a.send(b"", to=["a-1"])
        with pytest.raises(ValueError, match="a message has up to 76,800 bytes, not 100,000"):
            await a.send(bytes(100_000))

    together(three(network), whisper)


def test_more_messages_than_the_window_wait(network: Network) -> None:
    async def burst(groups: list[WideGroup]) -> None:
        for number in range(300):
            await groups[0].send(b"%d" % number)
        await groups[0].flush()
        assert [int(one.payload) for one in await read(groups[2], 300)] == list(range(300))

    together(three(network, protocol="D", defer_s=0.002), burst)


def test_the_others_go_on_without_a_process_that_fails(network: Network) -> None:
    async def lose_one(groups: list[WideGroup]) -> None:
        a, b, c = groups
        c.close()
        await a.send(b"after")
        await a.flush()  # only when c-1 was removed, everybody that is left is known to have it
        assert a.members == ("a-1", "b-1")
        assert await read(b, 1) == [GroupMessage("a-1", b"after")]
        with pytest.raises(ValueError, match="c-1 is not in the group any more"):
            await a.send(b"", to=["c-1"])
        back = WideGroup(a.network, "c-1", protocol="M", start_s=20.0)
        await back.start()
        try:
            assert back.members == NAMES
            await back.send(b"again")
            assert await read(a, 1) == [GroupMessage("c-1", b"again")]
        finally:
            back.close()

    together(three(network), lose_one)


def test_a_process_leaves_at_the_end_of_the_block(network: Network) -> None:
    async def run() -> None:
        groups = three(network)
        async with asyncio.timeout(60):
            others = groups[1:]
            starting = asyncio.gather(*(each.start() for each in others))
            async with groups[0] as first:
                await starting
                await first.send(b"bye")
            assert first.process.removed
            assert await read(others[0], 1) == [GroupMessage("a-1", b"bye")]
            await others[0].send(b"we go on")
            await others[0].flush()
            assert others[0].members == ("b-1", "c-1")
            with pytest.raises(NetError, match="a-1: the group is closed; open a new one"):
                await first.receive()
            await asyncio.gather(*(each.leave() for each in others))
            for each in others:
                each.close()

    asyncio.run(run())


def test_a_group_that_is_not_complete_names_who_is_missing(network: Network) -> None:
    async def run() -> None:
        a, b, _ = three(network, start_s=0.5)
        started = await asyncio.gather(a.start(), b.start(), return_exceptions=True)
        assert [str(each) for each in started] == [
            f"{name}: no message from c-1 within 0.5 s; start all receivers of the group, and check host, port and "
            "firewall"
            for name in ("a-1", "b-1")
        ]

    asyncio.run(run())


def test_a_removed_process_raises_instead_of_waiting(network: Network) -> None:
    async def cut_off(groups: list[WideGroup]) -> None:
        a, b, c = groups
        loop = asyncio.get_running_loop()
        assert c.socket is not None
        loop.remove_reader(c.socket.fileno)
        timer, c._schedule = c._timer, lambda now: None  # type: ignore[method-assign]  # stopped, like by SIGSTOP
        assert timer is not None
        timer.cancel()
        await a.send(b"x")
        await a.flush()
        while b.members != ("a-1", "b-1"):
            await asyncio.sleep(0.01)
        del c._schedule
        loop.add_reader(c.socket.fileno, c._turn)
        with pytest.raises(NetError, match="c-1: removed from the group, because the others did not hear it for 2"):
            await drained(c)

    together(three(network), cut_off)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("a1", {}, 'receiver "a1" not found in the network file; did you mean a-1?'),
        ("reform-a", {}, 'receiver "reform-a" not found'),
        ("a-1", {"protocol": "X"}, 'protocol "X" not found; use one of B, M'),
    ],
)
def test_bad_input(network: Network, name: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(NetError) as error:
        WideGroup(network, name, **options)  # type: ignore[arg-type]
    assert str(error.value).startswith(why)
