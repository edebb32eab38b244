"""`levelcast demo` over real processes: whoever is killed, all tapes are identical and customers have everything.

Nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.system.processes import levelcast

LIMIT_S = 240.0
RECEIVERS = ["new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1"]


def test_a_short_demo_with_a_kill_ends_with_identical_tapes(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = levelcast(
        *("demo", "--for", "3s", "--rate", "500", "--kill", "tokyo-1@1s", "--keep", kept), timeout_s=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for words in (
        "delays ÷ 5",
        "5 floors open",
        "tokyo-1 is killed (kill -9)",
        "tokyo-1 is started again",
        "The tapes are identical",
        "Subscriber in europe: ",
        "levelcast tape info",
    ):
        assert words in done.stdout
    verified = levelcast("tape", "verify", *(kept / "data" / name for name in RECEIVERS))
    assert verified.returncode == 0, verified.stdout


def test_trades_of_a_file_are_replayed_and_told_as_json(tmp_path: Path) -> None:
    rows = [f"{i},{('XNAS', 'ARCX')[i % 2]},AAPL,10.5,{i + 1}" for i in range(1_000)]
    file = tmp_path / "trades.csv"
    file.write_text("ts_event,floor,symbol,price,size\n" + "\n".join(rows) + "\n", encoding="utf-8")
    done = levelcast(
        *("demo", "--trades", file, "--for", "2s", "--rate", "400", "--kill", "none", "--json"), timeout_s=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    report = json.loads(done.stdout)
    assert report["verdict"] == {"identical": True, "problems": [], "unfinished": []}
    assert report["trades"] == 800
    assert {floor["name"]: floor["published"] for floor in report["floors"]} == {"XNAS": 400, "ARCX": 400}
    assert [receiver["name"] for receiver in report["receivers"]] == RECEIVERS
    assert len({receiver["chain"] for receiver in report["receivers"]}) == 1
    assert {receiver["records"] for receiver in report["receivers"]} == {802}  # with a definition for each floor
    assert {customer["region"]: customer["records"] for customer in report["customers"]} == {
        "americas": 802,
        "europe": 802,
        "asia-pacific": 802,
    }
    assert report["kept"] is None
    assert report["contention"]["seconds"] > 2.0
