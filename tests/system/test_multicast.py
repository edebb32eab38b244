"""A group in which some may lie, as real processes and over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import levelcast
from levelcast.cli.demo.multicast import SITES, demo_file
from levelcast.errors import NetError
from levelcast.node.multicast_group import MulticastProcesses, compare

pytestmark = pytest.mark.system
NAMES = [f"{site}-1" for site in SITES]


@pytest.fixture
def group_file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    number = abs(hash(request.node.name)) % 200
    file = tmp_path / "network.toml"
    file.write_text(demo_file(f"239.77.78.{number}", 27_200 + 2 * number), encoding="utf-8")
    run("keys", "init", "--all", "--network", str(file))
    return file


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "levelcast", *arguments], check=check, capture_output=True, text=True, timeout=120
    )


def test_demo_convicts_the_liar() -> None:
    found = run("multicast", "--demo", "--json")
    report = json.loads(found.stdout)
    assert report["differences"] == []
    assert report["proofs_of"] == NAMES[:3]
    assert min(report["delivered"][name] for name in NAMES[:3]) > 50


def test_a_member_that_is_killed_catches_up_after_its_restart(group_file: Path, tmp_path: Path) -> None:
    processes = MulticastProcesses(group_file, tmp_path / "data", NAMES, ["--rate", "20", "--for", "8s"])
    try:
        for name in NAMES:
            processes.start(name)
        for event in processes.events(30.0):
            if event.what.get("delivering") and event.name == NAMES[0]:
                break
        processes.kill(NAMES[3])
        processes.start(NAMES[3], ["--for", "5s"])
        list(processes.events(60.0))
    finally:
        processes.close()
    verdict = compare(processes.final, NAMES[:3])
    assert verdict.identical, verdict.differences
    ends = [processes.final[name]["delivered"] for name in NAMES]
    for sender in NAMES[:3]:  # the restarted one has delivered as much as the others, give or take what is under way
        assert ends[3][sender] > ends[0][sender] - 40


def test_one_process_has_a_key(group_file: Path, tmp_path: Path) -> None:
    async def twice() -> None:
        options = group_file, NAMES[0]
        first = levelcast.ReliableMulticast(*options, tmp_path / "data")
        async with first, levelcast.ReliableMulticast(*options, tmp_path / "other"):
            raise AssertionError("two processes have one key")

    with pytest.raises(NetError, match="already uses its key"):
        asyncio.run(twice())


def test_an_application_continues_after_the_last_message_that_it_confirmed(group_file: Path, tmp_path: Path) -> None:
    async def first() -> list[bytes]:
        async with levelcast.ReliableMulticast(group_file, NAMES[0], tmp_path / "data") as group:
            for number in range(10):
                await group.send(b"%d" % number + bytes(70_000 if number == 3 else 0))
            return [(await group.__anext__()).payload for _ in range(4)]

    async def second() -> list[bytes]:
        async with levelcast.ReliableMulticast(group_file, NAMES[0], tmp_path / "data") as group:
            found = []
            async for message in group:
                found.append(message.payload[:1])
                if message.payload[:1] == b"9":
                    return found
            return found

    async def both() -> list[bytes]:
        others = [levelcast.ReliableMulticast(group_file, name, tmp_path / "data") for name in NAMES[1:3]]
        for each in others:
            await each.__aenter__()
        try:
            await asyncio.wait_for(first(), 60)
            return await asyncio.wait_for(second(), 60)
        finally:
            for each in others:
                await each.__aexit__(None, None, None)

    # Four were received; the fourth was not confirmed, because the next one was not requested.
    assert asyncio.run(both()) == [b"%d" % number for number in range(3, 10)]


def test_missing_keys_are_reported_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(demo_file("239.77.78.250", 27_990), encoding="utf-8")
    found = run("multicast", str(file), "--name", NAMES[0], "--data", str(tmp_path), check=False)
    assert found.returncode == 2
    assert "levelcast keys init" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    run("keys", "init", "--all", "--network", str(file))
    (tmp_path / "keys" / f"{NAMES[1]}.ed25519.pem").rename(tmp_path / "keys" / f"{NAMES[0]}.ed25519.pem")
    swapped = run("multicast", str(file), "--name", NAMES[0], "--data", str(tmp_path), check=False)
    assert swapped.returncode == 2
    assert "is not the one in" in swapped.stderr
    missing = run("multicast", str(file), "--name", NAMES[1], "--data", str(tmp_path), check=False)
    assert "private key not found" in missing.stderr


def test_a_member_joins_in_the_next_epoch(group_file: Path, tmp_path: Path) -> None:
    data, four = tmp_path / "data", group_file.read_text(encoding="utf-8")
    processes = MulticastProcesses(group_file, data, NAMES, ["--rate", "10", "--for", "300s"])
    epochs: dict[str, int] = {}
    try:
        for name in NAMES:
            processes.start(name)
        delivering = set()
        for event in processes.events(120.0):
            delivering |= {event.name} if event.what.get("delivering") else set()
            if delivering == set(NAMES):
                break
        site = '\n[[site]]\nname = "essen"\n\n[[receiver]]\nname = "essen-1"\nid = 5\nsite = "essen"\n'
        keys = four.index("[keys]")
        group_file.write_text(four[:keys] + site + "\n" + four[keys:], encoding="utf-8")
        run("keys", "node", "--name", "essen-1", "--network", str(group_file))
        processes.start("essen-1", ["--group", str(data / NAMES[0] / "multicast" / "group.json")])
        for name in NAMES:
            os.kill(processes.pid(name), signal.SIGHUP)
        for event in processes.events(240.0):
            epochs[event.name] = event.what.get("epoch", epochs.get(event.name, 1))
            if event.name == "essen-1" and event.what.get("delivering"):
                break
    finally:
        processes.close()
    list(processes.events(300.0))
    assert epochs == dict.fromkeys((*NAMES, "essen-1"), 2)
    assert {final["epoch"] for final in processes.final.values()} == {2}
    assert processes.final["essen-1"]["deliveries"] > 0


def test_a_floor_sends_from_outside_the_group(group_file: Path, tmp_path: Path) -> None:
    floor = '\n[[floor]]\nname = "XTST"\npublisher = 77\nsite = "athens"\n'
    text = group_file.read_text(encoding="utf-8")
    keys = text.index("[keys]")
    group_file.write_text(text[:keys] + floor + "\n" + text[keys:], encoding="utf-8")
    run("keys", "node", "--name", "XTST", "--network", str(group_file))
    processes = MulticastProcesses(group_file, tmp_path / "data", NAMES[:3], ["--for", "300s", "--rate", "2"])
    try:
        for name in (*NAMES[:3], "XTST"):
            processes.start(name)
        delivering = set()
        for event in processes.events(200.0):
            delivering |= {event.name} if event.what.get("delivering") else set()
            if len(delivering) == 3 and event.name == "XTST" and event.what.get("sent", 0) > 3:
                break
    finally:
        processes.close()
    list(processes.events(400.0))
    assert all(processes.final[name]["packets"]["XTST"][0] > 0 for name in NAMES[:3])
    assert processes.final["XTST"]["delivered_by_all"] > 0
    assert processes.final["XTST"]["packets"] == {}
