"""The campaign against two layers of receivers: its network, what it finds at customers and in logs; and one short run.

No test looks at how fast anything was: the machines are shared.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import receivers
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.receivers import (
    QUICK,
    Kill,
    Scale,
    Tape,
    customer_names,
    customer_problems,
    is_whole,
    longest_silence_ms,
    within,
)
from benchmarks.receivers_customers import Customer, Found
from levelcast.client.subscriber import Batch
from levelcast.network import load_network
from levelcast.network.line_assignment import holders
from levelcast.network.roles import RECEIVER, SECONDARY
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.records import RECORD_TYPES, RTYPE_TRADE, trades

MS = 1_000_000
NOW = 1_700_000_000_000_000_000
TRADE_KIND = next(kind for kind in RECORD_TYPES if kind.rtype == RTYPE_TRADE)


@pytest.mark.parametrize("scale", [Scale(), QUICK])
def test_every_region_is_covered_by_two_receivers_and_every_primary_has_secondaries(
    scale: Scale, tmp_path: Path
) -> None:
    network = load_network(receivers.write_network(scale, tmp_path))
    assert (len(network.receivers), len(network.secondaries)) == (scale.primaries, scale.secondaries)
    names = [each.name for each in network.receivers] + [each.name for each in network.secondaries]
    regions = [network.region_of(name) for name in names]
    assert min(regions.count(region) for region in regions) >= 2
    assert all(network.secondaries_of(each.name) for each in network.receivers)
    held = holders(network, names)
    assert sorted(held) == sorted(group.name for group in network.edge.groups)
    assert len(set(held.values())) == 2 * scale.regions  # nobody has two lines
    assert all(network.groups_of_region(network.region_of(name))[0].region in regions for name in names)
    customers = [text.split(":") for text in customer_names(scale)]
    assert len(customers) == scale.customers
    assert {region for _, region, _ in customers} <= set(regions)
    assert {grade for _, _, grade in customers} == {"guaranteed", "best effort", "latest only"}


def batch_of(first: int, count: int, instruments: int = 2) -> Batch:
    rows = trades(count)
    rows["sequence"] = np.arange(first, first + count)
    rows["trade_id"] = np.arange(first, first + count)
    rows["instrument_id"] = np.arange(first, first + count) % instruments + 1
    return Batch("main", first, TRADE_KIND, rows, first, None)


def found_by(*batches: Batch, grade: str = "guaranteed") -> Found:
    customer = Customer("c", "r", grade)
    for batch in batches:
        customer.take(batch, NOW)
    return customer.finish()


def test_a_customer_notices_a_gap_a_double_and_what_goes_back() -> None:
    whole = found_by(batch_of(1, 5), batch_of(6, 5))
    assert (whole.records, whole.jumps, whole.next_sequence) == (10, 0, 11)
    assert whole.digest == found_by(batch_of(1, 10)).digest
    assert found_by(batch_of(1, 5), batch_of(7, 4)).jumps == 1
    latest = found_by(batch_of(1, 5), batch_of(6, 5), grade="latest only")
    assert (latest.newest, latest.back) == ({1: 10, 2: 9}, 0)
    again = found_by(batch_of(1, 5), batch_of(2, 2), batch_of(6, 5), grade="latest only")
    assert (again.jumps, again.back) == (2, 2)


def test_each_grade_is_held_to_its_promise() -> None:
    good = found_by(batch_of(1, 10))
    tape = Tape(10, good.digest, {1: 10, 2: 9})
    assert customer_problems(good, tape) == []
    assert "not the 11 of the tape" in customer_problems(good, replace(tape, records=11))[0]
    assert "1 gaps, 0 messages lost" in customer_problems(found_by(batch_of(1, 5), batch_of(7, 4)), tape)[0]
    best = found_by(batch_of(1, 5), batch_of(7, 4), grade="best effort")
    assert customer_problems(best, tape) == []
    latest = found_by(batch_of(1, 3), batch_of(8, 3), grade="latest only")
    assert customer_problems(latest, tape) == []
    early = found_by(batch_of(1, 7), grade="latest only")
    assert "newest trade of 2 instruments" in customer_problems(early, tape)[0]
    back = found_by(batch_of(1, 10), batch_of(3, 1), grade="latest only")
    assert "1 trades arrived after newer ones" in customer_problems(back, tape)[0]
    broken = found_by(batch_of(1, 10))
    broken.error = "no"
    assert customer_problems(broken, tape) == ["c ended with: no"]


def test_only_one_that_is_not_in_the_ring_can_disturb_it() -> None:
    assert Kill("s", "secondary", NOW, "3@201", ring_after="4@201").disturbed
    assert not Kill("s", "secondary", NOW, "3@201", ring_after="3@201").disturbed
    assert not Kill("p", "receiver", NOW, "3@201", ring_after="4@201").disturbed


def test_a_silence_counts_where_it_ends() -> None:
    came = np.array([0, 10, 20, 500, 510, 2000], np.int64) * MS
    spans = [(400 * MS, 600 * MS)]
    assert within(came, spans).tolist() == [False, False, False, True, True, False]
    assert longest_silence_ms(came, spans, outside=False) == 480
    assert longest_silence_ms(came, spans, outside=True) == 1490
    assert longest_silence_ms(came[:1], spans, outside=True) == 0


def test_a_network_is_whole_with_one_ring_and_every_secondary_counted(tmp_path: Path) -> None:
    file = receivers.write_network(QUICK, tmp_path)
    cluster = Cluster(load_network(file), file, tmp_path, NodeOptions(), floors=False)

    class Lives:
        def poll(self) -> None:
            return None

    for member in cluster.members.values():
        member.process = Lives()  # type: ignore[assignment]
        said: dict[str, Any] = {"complete_upto_ns": NOW, "generation": "1@201", "members": [101, 102, 103]}
        number = member.place.name[-1]
        if member.place.role is RECEIVER:
            said |= {"state": "ACTIVE", "group": {"members": {f"secondary-{number}": {"counts": True}}}}
        elif member.place.role is SECONDARY:
            said |= {"state": "FOLLOWS", "primary": f"primary-{number}"}
        member.status = said
    assert is_whole(cluster, NOW)
    first, second = cluster.members["primary-1"].status, cluster.members["secondary-2"].status
    for status, key, wrong in (
        (first, "generation", "2@201"),
        (first, "state", "OUTSIDE"),
        (first, "members", [101, 102]),
        (first, "group", {"members": {"secondary-1": {"counts": False}}}),
        (second, "state", "ORPHAN"),
        (second, "primary", None),
        (second, "complete_upto_ns", 0),
    ):
        right, status[key] = status[key], wrong
        assert not is_whole(cluster, NOW), key
        status[key] = right
    assert is_whole(cluster, NOW)


def test_a_short_campaign_keeps_every_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmarks_main(["receivers", "--quick", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    each = json.loads((tmp_path / "receivers-each.json").read_text(encoding="utf-8"))
    assert each["problems"] == [], printed
    assert len(each["kills"]) == QUICK.times
    written = json.loads((tmp_path / "receivers.json").read_text(encoding="utf-8"))
    assert written["figures"][0]["value"] == 0
    assert "all tapes identical and complete, no gap, no other receiver disturbed" in printed
