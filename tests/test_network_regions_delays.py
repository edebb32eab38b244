"""Measurements of delay and loss as they lie in files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from levelcast.network.parse import NetworkError
from levelcast.network.regions.delays import LOCAL_MS, load_delays, load_weights

PINGS = """from_city,to_city,country,avg_ms,min_ms
Oslo,Rome,"Italy, Europe",60,50
Rome,Oslo,"Norway, Europe",66,52
Oslo,Bonn,"Germany, Europe",21,20
Rome,Bonn,"Germany, Europe",31,30
"""


def written(folder: Path, text: str, name: str = "delays.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_pings_are_halved_and_the_average_is_kept(tmp_path: Path) -> None:
    delays = load_delays(written(tmp_path, PINGS), loss=0.01)
    assert delays.names == ("Bonn", "Oslo", "Rome")
    assert delays.delay_ms[1, 2] == 25.0
    assert delays.delay_ms[1, 2] + delays.jitter_ms[1, 2] / 2 == 30.0
    assert delays.delay_ms[2, 1] == 26.0
    assert delays.delay_ms[0, 1] == 10.0, "measured in the other direction only"
    assert delays.delay_ms[0, 0] == LOCAL_MS
    assert (delays.loss == 0.01).all()


def test_one_way_times_and_loss_of_each_pair(tmp_path: Path) -> None:
    delays = load_delays(written(tmp_path, "from,to,delay_ms,jitter_ms,loss\na,b,5,1,0.02\nb,c,7,2,0.1\n"))
    assert delays.quantile_ms[0, 1] == 6.0
    assert delays.loss[1, 0] == 0.02
    assert delays.quantile_ms[0, 2] == 15.0, "over b"
    assert delays.loss[0, 2] == pytest.approx(1 - 0.98 * 0.9)


def test_a_packed_file_is_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "delays.csv.gz"
    packed.write_bytes(gzip.compress(PINGS.encode()))
    plain = load_delays(written(tmp_path, PINGS))
    assert np.array_equal(load_delays(packed).delay_ms, plain.delay_ms)
    assert plain.with_loss(0.1).loss.max() == 0.1
    assert plain.only(np.array([2, 0])).names == ("Rome", "Bonn")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: the header has no column from_city"),
        ("from,to\n", ":1: the header has no column delay_ms"),
        ("from,to,min_ms\na,b,1\n", ":1: the header has min_ms but no avg_ms"),
        ("from,to,delay_ms\n", ":1: the file has no pair"),
        ("from,to,delay_ms\na,b,soon\n", ':2: delay_ms is "soon"'),
        ("from,to,delay_ms\na,b,-1\n", ':2: delay_ms is "-1"'),
        ("from,to,delay_ms\na,b,nan\n", ':2: delay_ms is "nan"'),
        ("from,to,delay_ms,loss\na,b,1,2\n", ':2: loss is "2"'),
        ("from,to,delay_ms\na,b\n", ":2: this row has 2 fields"),
        ("from,to,delay_ms\na,b,1\nc,d,1\n", ":1: no connection between a and c"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(NetworkError) as refused:
        load_delays(written(tmp_path, text))
    assert says in str(refused.value)


def test_a_file_that_is_not_packed_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="not a gzip file"):
        load_delays(written(tmp_path, PINGS, "delays.csv.gz"))
    (tmp_path / "odd.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NetworkError, match="not UTF-8"):
        load_delays(tmp_path / "odd.csv")


def test_weights_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "city,customers\nNew+York,30\nBonn,10\nLima,5\n", "customers.csv")
    assert load_weights(path, ("Bonn", "New York", "Oslo")).tolist() == [10, 30, 20]
    with pytest.raises(NetworkError, match="check that the names are equal"):
        load_weights(path, ("Paris",))
    with pytest.raises(NetworkError, match="no column `customers`"):
        load_weights(written(tmp_path, "city\nBonn\n"), ("Bonn",))
    with pytest.raises(NetworkError, match=':2: customers is "many"'):
        load_weights(written(tmp_path, "city,customers\nBonn,many\n"), ("Bonn",))


def test_the_world_of_the_recorded_pings(data_dir: Path) -> None:
    folder = data_dir / "wan_wondernetwork_20181110"
    delays = load_delays(folder / "pings.csv.gz")
    weights = load_weights(folder / "cities.csv", delays.names)
    assert len(delays.names) == 242
    york, london = delays.names.index("New York"), delays.names.index("London")
    assert 35 < delays.delay_ms[york, london] < 36.5
    assert (weights > 0).all()
