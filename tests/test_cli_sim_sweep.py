"""`levelcast sweep` as somebody at a terminal meets it, in processes of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from levelcast.cli import main

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parents[1]
FEW = ("--scenario", "steady", "--set", "members=3,4", "--set", "loss=0,5%", "--set", "seconds=1", "--seeds", "1..2")


def levelcast(*arguments: object) -> Result:
    env = {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner(env=env).invoke(main.app, [*map(str, arguments)])


def test_a_grid_is_run_once_shown_and_drawn(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    where = ("--jobs", "1", "-o", tmp_path / "rows.parquet", "--plots", tmp_path / "plots")
    done = levelcast("sweep", *FEW, *where, "--plot", "ready_p99_ms:members:loss", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["histories"], told["ran"], told["broken"]) == (8, 8, [])
    points = told["sweeps"][0]["points"]
    assert [(p["parameters"]["members"], p["parameters"]["loss"]) for p in points] == [
        (3, 0.0), (3, 0.05), (4, 0.0), (4, 0.05),
    ]  # fmt: skip
    assert Path(told["plots"][0]).read_text(encoding="utf-8").startswith("<svg")
    rows = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert sorted({row["seed"] for row in rows}) == [1, 2]
    again = levelcast("sweep", *FEW, *where)
    assert again.exit_code == 0, again.output
    assert "0 histories run" in again.output
    assert "8 already stored" in again.output
    sim = levelcast("sim", "--scenario", "steady", "--members", "4", "--loss", "0.05", "--seconds", "1", "--protocol",
                    "timed", "--seeds", "2", "--json")  # fmt: skip
    (row,) = (r for r in rows if r["seed"] == 2 and json.loads(r["parameters"]) | {"members": 4, "loss": 0.05}
              == json.loads(r["parameters"]))  # fmt: skip
    timed = json.loads(sim.stdout)["protocols"]["timed"]
    assert json.loads(row["figures"])["control_per_packet"] == pytest.approx(timed["control_per_packet"], abs=1e-4)
    assert row["packets"] == timed["packets"]


def test_a_broken_promise_is_exit_code_1_with_the_command_that_shows_it(tmp_path: Path) -> None:
    asked = ("--set", "without=own-token-not-journaled", "--seeds", "10", "--jobs", "1", "-o", tmp_path / "r.parquet")
    done = levelcast("sweep", *asked)
    assert done.exit_code == 1, done.output
    assert "seed 10: broken: " in done.output
    assert "levelcast sim --scenario ring --seeds 10..10 --without own-token-not-journaled --trace" in done.output


def test_the_example_can_be_read() -> None:
    from levelcast.cli.sim.sweep import read_file

    parts = read_file(ROOT / "examples" / "sweep.toml")
    assert [len(part.points()) * len(part.seeds) for part in parts] == [240, 80, 100]


BAD = [
    (["--scenario", "tape"], "scenario 'tape' is not known; use one of ring"),
    (["--set", "members=3"], "scenario ring has no parameter members; use without (the seed draws the rest)"),
    (["--scenario", "steady", "--set", "members=x"], "members=x is not a number"),
    (["--scenario", "steady", "--set", "members=3.5"], "members=3.5 is not an integer"),
    (["--scenario", "steady", "--set", "members=1"], "members=1 is outside 2 to 100"),
    (["--scenario", "steady", "--set", "loss=60%"], "loss=60% is outside 0 to 0.5"),
    (["--scenario", "steady", "--set", "loss=5ms"], "loss=5ms is not a number"),
    (["--scenario", "steady", "--set", "members=3", "--set", "nack_sets=4"], "use a number from 1 to 3, or tree"),
    (["--scenario", "steady", "--set", "protocol=tcp"], "protocol=tcp is not known; use one of timed, rmp"),
    (["--scenario", "world", "--set", "receivers=7"], "do not form equal groups"),
    (["--set", "without"], "--set without: no value; write NAME=VALUE"),
    (["--set", "without=no-such"], "without=no-such is not known"),
    (["--set", "without=none", "--set", "without=none"], "--set without: specified twice"),
    (["--seeds", "9..1"], "the range 9..1 runs backward"),
    (["--plot", "x"], "'x' is not a plot; use FIGURE:AGAINST"),
    (["none.toml"], "none.toml: sweep file not found"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_what_cannot_be_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = levelcast("sweep", *arguments, "--jobs", "1", "-o", tmp_path / "rows.parquet")
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("levelcast: ")]
    assert len(lines) == 1, done.stderr
    assert message in lines[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "specify where to store the rows: --lake DIR or -o FILE.parquet"),
        (["-o", "a.parquet", "--lake", "lake"], "specify where to store the rows"),
        (["-o", "a.parquet", "--jobs", "1", "--master", "local[1]"], "--jobs runs without Spark"),
    ],
)
def test_where_rows_go_is_said_once(arguments: list[str], message: str) -> None:
    done = levelcast("sweep", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario = 'ring'", "unknown key 'scenario'; use [[sweep]]"),
        ("", "no [[sweep]] table"),
        ("[[sweep]]\nseeds = '1'", "a [[sweep]] needs a scenario"),
        ("[[sweep]]\nscenario = 'ring'\nspeed = 1", "unknown key 'speed' in [[sweep]]"),
        ("[[sweep]]\nscenario = 'steady'\nset = { members = [] }", "members has no value"),
        ("[[sweep]]\nscenario = 'steady'\nset = 3", "set must be a table"),
        ("[[sweep]]\nscenario = 'ring'\nplot = 'a:b'", "plot must be a list"),
        ("[[sweep", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
    done = levelcast("sweep", tmp_path / "sweep.toml", "--jobs", "1", "-o", tmp_path / "rows.parquet")
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "sweep.toml" in done.stderr
