"""The live matrix: what running nodes report of their paths."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import pytest

from levelcast.network import FiveCities, five_cities, load_network, parse_network
from levelcast.network.measured.file import measured_file
from levelcast.network.measured.matrix import Hour, Shared, helpers_of, missed_too
from levelcast.network.measured.timing import MatrixResult, UnmeasuredError, all_helpers, timings
from levelcast.node.path_report import STALE_NS, LiveMatrix, path_page, path_status
from levelcast.overlay.paths import REORDER, Paths

MS = 1_000_000
T0 = 1_800_000_000_000_000_000
NAMES = {1: "a-1", 2: "b-1", 3: "c-1"}
SITES = {1: "a", 2: "b", 3: "c"}


def page(node: int, delays_ms: dict[int, int], lost: dict[int, set[int]], at_ns: int = T0, beats: int = 400) -> Any:
    """The page of a node that has heard beats of others with these delays, without those that are lost."""
    paths = Paths(node, set(NAMES) - {node}, at_ns)
    for number in range(1, beats + REORDER + 1):
        sent_ns = at_ns + number * 25 * MS
        for peer, delay in delays_ms.items():
            if number not in lost.get(peer, set()):
                paths.hear_beat(peer, number, sent_ns, sent_ns + delay * MS)
    paths.step([], at_ns + beats * 25 * MS)
    own = {"name": NAMES[node], "part": NAMES[node], "site": SITES[node]}
    return own | path_page(paths, NAMES, SITES)


def three(at_ns: int = T0) -> list[Any]:
    return [
        page(1, {2: 10, 3: 40}, {2: {5, 6, 50}}, at_ns),
        page(2, {1: 12, 3: 30}, {}, at_ns),
        page(3, {1: 41, 2: 33}, {1: set(range(100, 140))}, at_ns),
    ]


def test_the_newest_row_of_each_node_counts() -> None:
    matrix = LiveMatrix([*three(), page(1, {2: 15, 3: 40}, {}, T0 + 5_000 * MS)])
    assert matrix.nodes == ["a-1", "b-1", "c-1"]
    by = {(path.sender, path.receiver): path for path in matrix.paths}
    assert len(by) == 6
    assert by["b-1", "a-1"].p50_ns == pytest.approx(15 * MS, abs=MS)
    assert by["a-1", "c-1"].lost == 40
    assert by["a-1", "c-1"].bursts == 1
    low, high = by["a-1", "c-1"].loss_limits
    assert low < by["a-1", "c-1"].loss_ratio < high


def test_a_node_that_is_silent_is_left_out() -> None:
    matrix = LiveMatrix([*three(T0)[:2], page(3, {1: 41}, {}, T0 + 2 * STALE_NS)])
    assert {(path.sender, path.receiver) for path in matrix.paths} == {("a-1", "c-1")}


def test_both_directions_of_a_pair_become_one_link() -> None:
    hour = LiveMatrix(three()).hour(0.99)
    way = hour.between("a", "b")
    assert way is not None
    assert way.min_ns == 10 * MS
    assert way.late_ns == pytest.approx(12 * MS, abs=MS)
    assert way.round_trip_ns == pytest.approx(22 * MS, abs=MS)
    assert hour.loss("a", "c") == pytest.approx(40 / 400, abs=0.01)
    assert hour.loss("c", "a") == 0.0
    assert [each.site for _, each in helpers_of(hour, "c", ["a", "b"], 100 * MS)] == ["b", "a"]


def test_losses_that_two_nodes_share_make_a_helper_worse() -> None:
    independent, shared = Shared(40, 4, one_way=True), Shared(40, 30, one_way=True)
    assert missed_too(0.1, 0.1, independent) == 0.1
    assert missed_too(0.1, 0.1, shared) == 0.75
    rows = [
        {"start_ns": T0, "from_site": a, "to_site": b, "answered": 900, "tried": 1_000, "lost": 100, "min_ns": 10 * MS,
         "p50_ns": 11 * MS, "p99_ns": 12 * MS, "p999_ns": 12 * MS, "round_trip_ns": 22 * MS, "loss_ratio": 0.1,
         "loss_upper": 0.12}
        for a in "abc" for b in "abc" if a != b
    ]  # fmt: skip
    both = [{"from_site": "a", "site": "c", "helper": "b", "tried": 40, "both": 30}]
    missed, shown = Hour(rows, 0.99, both, one_way=True).missed("c", "b")
    assert missed == pytest.approx(0.375)
    assert shown == 40


def test_the_file_to_include_has_the_measured_links(tmp_path: File) -> None:
    text = five_cities(FiveCities(hold=None))
    network = parse_network(text)
    sites = sorted(network.core_sites)
    hour = Hour(
        [
            {"start_ns": T0, "from_site": a, "to_site": b, "answered": 900, "tried": 1_000, "lost": 10,
             "min_ns": 20 * MS, "p50_ns": 21 * MS, "p99_ns": 25 * MS, "p999_ns": 26 * MS, "round_trip_ns": 42 * MS,
             "loss_ratio": 0.01, "loss_upper": 0.017}
            for a in sites for b in sites if a != b
        ],
        0.99,
        one_way=True,
    )  # fmt: skip
    times = timings(network, hour)
    found = MatrixResult(hour, "now", times, all_helpers(network, hour, times), (), 1)
    (tmp_path / "measured.toml").write_text(measured_file(found, network, "running nodes"), encoding="utf-8")
    begin = text.index("[network]")
    links = text.index("[links]")
    after = text.index("\n[", text.index("]\n", text.index("pairs = [", links)))
    (tmp_path / "network.toml").write_text(
        'include = ["measured.toml"]\n' + text[begin:links] + text[after:], encoding="utf-8"
    )
    loaded = load_network(tmp_path / "network.toml")
    link = loaded.link("tokyo", "sydney")
    assert (link.delay_ns, link.jitter_ns, link.loss_ratio) == (20 * MS, 5 * MS, 0.017)


def test_a_pair_without_measurement_and_link_is_named() -> None:
    network = parse_network(five_cities(FiveCities(hold=None)))
    hour = LiveMatrix(three()).hour(0.99)
    assert timings(network, hour)[0].unmeasured, "the network file has links"
    assert issubclass(UnmeasuredError, Exception)


def test_the_status_has_the_paths_to_a_node() -> None:
    paths = Paths(1, {2}, T0)
    assert path_status(paths, NAMES) == {}
    for number in range(1, 100):
        paths.hear_beat(2, number, T0, T0 + 7 * MS)
    paths.step([], T0 + 2_000 * MS)
    told = path_status(paths, NAMES)["b-1"]
    assert (told["heard"], told["lost"]) == (99, 0)
    assert told["p50_ns"] == pytest.approx(7 * MS, abs=MS)
