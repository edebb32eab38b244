"""What nodes tell of their probes, and what is gathered from it: each sample once."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.network import NetworkError, five_cities, parse_network
from levelcast.network.placement import place_of, probed_by
from levelcast.network.regions.published import MatrixUnit, published_probes
from levelcast.node.probe_report import Gathered, probe_page, probe_status
from levelcast.overlay.probe import KEPT, Prober
from levelcast.wire.messages import Echo
from tests.status_parts import metrics_of

T0 = 10**18
MS = 1_000_000
NAMES, SITES = {2: "b-1", 3: "c-1"}, {2: "b", 3: "c"}


def prober(probes: int) -> Prober:
    """Every probe is answered by 2 and by nobody else."""
    made = Prober(1, [2, 3], 100 * MS, T0)
    for number in range(1, probes + 1):
        now = T0 + number * 100 * MS
        made.step([], now)
        made.step([(Echo(2, 1, number, now, now + 4 * MS, now + 4 * MS), now + 10 * MS)], now + 10 * MS)
    return made


def page(of: Prober) -> dict[str, object]:
    return {"name": "a-1", "part": "a-1", "site": "a", **probe_page(of, NAMES, SITES)}


def test_a_node_tells_its_last_samples_and_its_figures_by_peer() -> None:
    told = probe_page(prober(3), NAMES, SITES)
    assert told["known"] == 3
    assert told["samples"][0] == (1, T0 + 100 * MS, "b-1", "b", 10 * MS, 4 * MS)
    assert probe_status(prober(3), NAMES)["b-1"]["answered"] == 3
    assert probe_status(prober(3), NAMES)["c-1"]["last_ns"] is None


def test_samples_are_gathered_once_however_often_a_node_is_asked() -> None:
    gathered = Gathered()
    gathered.take("a-1", page(prober(2)), first=True)
    assert gathered.rows == []
    gathered.take("a-1", page(prober(5)))
    gathered.take("a-1", page(prober(5)))
    assert [row[2] for row in gathered.rows] == [T0 + number * 100 * MS for number in (3, 4, 5)]
    assert gathered.rows[0] == ("a", "b", T0 + 300 * MS, 10 * MS, 0, 4 * MS, "a-1", "b-1")
    gathered.take("a-1", page(prober(1)))  # it was started again
    assert len(gathered.rows) == 4
    gathered.take("a-1", page(prober(KEPT + 11)))
    assert (gathered.overwritten, len(gathered.rows)) == (10, 4 + KEPT)


def test_a_node_that_probes_nobody_is_said_to() -> None:
    with pytest.raises(NetError, match=r"a-1 sends no probes; set \[probe\] every"):
        Gathered().take("a-1", page(Prober(1, [2], None, T0)))


def test_prometheus_gets_the_figures_of_each_peer() -> None:
    status = {"name": "a-1", "role": "floor", "version": "1", "probes": probe_status(prober(3), NAMES)}
    text = metrics_of(status)
    assert 'levelcast_probes_answered_total{node="a-1",role="floor",peer="b-1"} 3' in text
    assert 'levelcast_probe_round_trip_seconds{node="a-1",role="floor",peer="b-1"} 0.01' in text
    assert 'levelcast_probe_round_trip_seconds{node="a-1",role="floor",peer="c-1"}' not in text


def test_floors_do_not_probe_floors() -> None:
    network = parse_network(five_cities())
    floors, receivers = {floor.id for floor in network.floors}, {receiver.id for receiver in network.receivers}
    of_floor = probed_by(network, place_of(network, network.floors[0].name))
    assert not floors & set(of_floor)
    assert receivers <= set(of_floor)
    assert floors <= set(probed_by(network, place_of(network, network.receivers[0].name)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[probe]\nevery = "1ms"\n', "has an interval of 1 ms; the minimum is 10 ms"),
        ("[probe]\n", "has no every; set the interval between probes"),
    ],
)
def test_the_interval_of_probes_is_checked(text: str, told: str) -> None:
    assert parse_network(five_cities() + '[probe]\nevery = "1s"\n').probe_ns == 1_000_000_000
    with pytest.raises(NetworkError, match=told):
        parse_network(five_cities() + text)


# -- published figures ------------------------------------------------------------------------------------

PINGS = """\
from_city,to_city,avg_ms,min_ms,max_ms,checked_utc
New York,London,71,70.5,75,2018-11-10 12:23:34
London,New York,72,70,80,2018-11-10 13:00:00
"""


def test_pings_are_three_probes_a_line(tmp_path: Path) -> None:
    (tmp_path / "pings.csv").write_text(PINGS)
    rows = published_probes(tmp_path / "pings.csv", None)
    assert [(row[0], row[1], row[3]) for row in rows[:3]] == [
        ("new-york", "london", trip) for trip in (70_500_000, 71_000_000, 75_000_000)
    ]
    assert rows[0][2] == 1_541_852_614_000_000_000
    assert len(rows) == 6


def test_matrices_with_and_without_names(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text('region,region_name,a-1,b-1\na-1,"A, x",3,240\nb-1,B,241,1\n')
    rows = published_probes(tmp_path / "regions.csv", T0)
    assert rows == [("a-1", "b-1", T0, 240 * MS, ""), ("b-1", "a-1", T0, 241 * MS, "")]
    (tmp_path / "hosts.tsv").write_text("0\t0.17\t0\n0.2\t0\t0.3\n0.1\t0.1\t0\n")
    rows = published_probes(tmp_path / "hosts.tsv", T0, MatrixUnit.S)
    assert rows[0] == ("host-1", "host-2", T0, 170 * MS, "")
    assert len(rows) == 5  # a zero off the diagonal is no measurement


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        ("", None, "1: the file is empty"),
        ("from_city,to_city,min_ms,max_ms\n", None, "1: the header has no column avg_ms"),
        (PINGS.replace("71,", "x,"), None, '2: avg_ms is "x", not a time up to 60000 ms'),
        (PINGS.replace("2018-11-10 13:00:00", "noon"), None, '3: checked_utc is "noon", not a time'),
        ("0\t1\n1\t0\n", None, "1: a matrix has no time of measurement; pass --at"),
        ("0\t1\n1\t0\t5\n", T0, "2: this row has 3 numbers, but the file has 2 rows; a matrix must be square"),
        ("region,a\na,1\nb,2\n", T0, '3: the row of "b" has no column'),
    ],
)
def test_published_figures_that_cannot_be_read_name_their_line(
    tmp_path: Path, text: str, at: int | None, told: str
) -> None:
    (tmp_path / "file.csv").write_text(text)
    with pytest.raises(NetworkError) as caught:
        published_probes(tmp_path / "file.csv", at)
    assert str(caught.value) == f"{tmp_path / 'file.csv'}:{told}"
