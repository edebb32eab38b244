"""A receiver that loses its disk comes back as another life, and the ring takes it in by a record (rule 12)."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from levelcast.node.verdict import judge
from tests.system.processes import in_ring, levelcast, nodes_of, write_network

RECEIVERS = ("a-1", "b-1", "c-1")
OTHERS = ("reform-a", "reform-b")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lost_disk_is_declared_and_replaced(tmp_path: Path) -> None:
    file, data = write_network(tmp_path / "network.toml"), tmp_path / "data"
    here = ("--network", file, "--data", data)
    assert levelcast("disk", "init", *here, "--all").returncode == 0
    with nodes_of(file, tmp_path) as nodes:
        for name in (*RECEIVERS, *OTHERS):
            nodes.start(name, data)
        nodes.start("XNYS", data, "--rate", 200)
        nodes.wait_for(lambda said: in_ring(said, *RECEIVERS) and said["c-1"]["tape_records"] > 20)

        assert nodes.end("c-1", signal.SIGKILL) == -signal.SIGKILL
        shutil.rmtree(data / "c-1")
        refused = nodes.start("c-1", data).wait(45)
        assert refused == 2
        assert "levelcast disk lost --name c-1" in nodes.log("c-1").read_text().splitlines()[-1]

        lost = levelcast("disk", "lost", *here, "--name", "c-1")
        assert (lost.returncode, lost.stderr) == (0, "")
        assert "life 2" in lost.stdout
        nodes.start("c-1", data)
        nodes.wait_for(lambda said: "c-1" in said)
        running = levelcast("disk", "lost", *here, "--name", "c-1")
        assert (running.returncode, "c-1: still running" in running.stderr) == (2, True)
        said = nodes.wait_for(lambda said: in_ring(said, "a-1", "b-1") and said["c-1"]["life"] == 2)
        assert said["c-1"]["state"] == "NEW"  # it counts nowhere before the record

        replaced = levelcast("disk", "replace", "--network", file, "--name", "c-1")
        assert (replaced.returncode, replaced.stderr) == (0, "")
        said = nodes.wait_for(
            lambda said: (
                in_ring(said, *RECEIVERS) and all(said[name]["membership"]["version"] == 1 for name in RECEIVERS)
            )
        )
        for name in RECEIVERS:
            assert {"id": 103, "life": 2} in said[name]["membership"]["members"]
        caught_up = said["a-1"]["tape_records"]
        nodes.wait_for(lambda said: all(said[name]["tape_records"] > caught_up for name in RECEIVERS))

        nodes.end("XNYS")
        sent = nodes.wait_for(lambda said: len({said[name]["tape_records"] for name in RECEIVERS}) == 1)
        nodes.wait_for(lambda said: said["c-1"]["released_slot"] > sent["c-1"]["have"])
        assert [nodes.end(name) for name in (*RECEIVERS, *OTHERS)] == [0] * 5
    verdict = judge(data, RECEIVERS)
    assert verdict.problems == []
    assert verdict.receivers[0].records > caught_up
