"""`levelcast plan`: from tables to plans and back, and one sentence for everything that a person can get wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.planner.files import all_or_nothing

WANTS = {"ann": "IBM AAPL MSFT", "bob": "IBM XOM", "cyd": "XOM CVX BP", "dee": "AAPL MSFT", "eve": "BP CVX"}
RATES = {"IBM": 5.0, "AAPL": 9.0, "MSFT": 7.0, "XOM": 4.0, "CVX": 3.0, "BP": 2.0, "GONE": 1.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pairs = [f"{user},{flow}" for user, flows in WANTS.items() for flow in flows.split()]
    (tmp_path / "interest.csv").write_text("\n".join(["user,flow", *pairs, ""]), encoding="utf-8")
    rates = [f"{flow},{rate}" for flow, rate in RATES.items()]
    (tmp_path / "rates.csv").write_text("\n".join(["flow,rate", *rates, ""]), encoding="utf-8")
    return tmp_path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def make(folder: Path, *more: object, out: str = "plan", interest: str = "interest.csv") -> Any:
    files = ("--interest", folder / interest, "--rates", folder / "rates.csv", "--out", folder / out)
    return run("make", *files, "--groups", 2, "--sessions", 4, *more)


def facts(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_plan_is_made_and_evaluates_to_what_its_report_says(folder: Path) -> None:
    made = facts(make(folder, "--json"))
    assert made["sessions"] <= 4
    assert made["groups"] == 2
    assert made["flows_sent"] == 6  # nobody wants GONE
    assert json.loads((folder / "plan" / "report.json").read_text(encoding="utf-8")) == made
    flows = pq.read_table(folder / "plan" / "flow_session.parquet")
    assert flows.column_names == ["flow", "session"]
    assert sorted(flows["flow"].to_pylist()) == sorted(set(RATES) - {"GONE"})
    assert pq.read_table(folder / "plan" / "session_group.parquet").column_names == ["session", "group"]
    files = ("--interest", folder / "interest.csv", "--rates", folder / "rates.csv")
    again = facts(run("evaluate", folder / "plan", *files, "--json"))
    assert again["legal"] is True
    for name in ("c_1", "c_2", "c_w", "c_x", "c_f", "goodput", "unicast_factor"):
        assert again[name] == pytest.approx(made[name])


def test_parquet_and_integers_do_as_well_and_stay_integers(folder: Path) -> None:
    numbers = {flow: number for number, flow in enumerate(RATES)}
    pairs = [(user, numbers[flow]) for user, flows in WANTS.items() for flow in flows.split()]
    interest = pa.table({"user": [user for user, _ in pairs], "flow": [flow for _, flow in pairs]})
    pq.write_table(interest, folder / "interest.parquet")
    pa_csv.write_csv(pa.table({"flow": list(numbers.values()), "rate": list(RATES.values())}), folder / "rates.csv")
    facts(make(folder, "--json", interest="interest.parquet"))
    assert pa.types.is_integer(pq.read_table(folder / "plan" / "flow_session.parquet")["flow"].type)


@pytest.mark.parametrize("algorithm", ["sf", "gf", "it", "rra", "levelcast"])
def test_every_algorithm_has_its_name(folder: Path, algorithm: str) -> None:
    assert facts(make(folder, "--algorithm", algorithm, "--json"))["algorithm"] == algorithm


def test_people_get_tables(folder: Path) -> None:
    made = make(folder)
    assert made.exit_code == 0
    assert "relative cost" in made.stdout
    shown = run("show", folder / "plan")
    assert shown.exit_code == 0
    assert "Largest groups by number of flows" in shown.stdout
    assert json.loads(run("show", folder / "plan", "--json").stdout)["report"]["seed"] == 0


def test_weights_may_be_the_paper_s_curves(folder: Path) -> None:
    made = facts(make(folder, "--alpha", "0.5+4/h", "--beta", "0.25", "--aggregation", 8, "--json"))
    assert (made["alpha"], made["beta"]) == (1.0, 0.25)


def test_weights_may_be_what_the_benchmark_measured(folder: Path) -> None:
    file = folder / "filtering.json"
    weights = {"alpha": "0.5+4.0/h", "beta": "0.2500+2.0/h", "aggregation": 8}
    file.write_text(json.dumps({"name": "filtering", "weights": weights}), encoding="utf-8")
    made = facts(make(folder, "--weights", file, "--json"))
    assert (made["alpha"], made["beta"]) == (1.0, 0.5)
    made = facts(make(folder, "--weights", file, "--aggregation", 4, "--json", out="other"))
    assert (made["alpha"], made["beta"]) == (1.5, 0.75)
    files = ("--interest", folder / "interest.csv", "--rates", folder / "rates.csv")
    again = facts(run("evaluate", folder / "other", *files, "--weights", file, "--aggregation", 4, "--json"))
    assert again["c_x"] == pytest.approx(made["c_x"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", 'has no "weights"'),
        (b'{"weights": {"alpha": "1", "beta": "1"}}', "with alpha, beta and aggregation"),
        (b'{"quick": true, "weights": {"alpha": "1", "beta": "1", "aggregation": 8}}', "from a quick run"),
        (b'{"weights": {"alpha": "-1", "beta": "1", "aggregation": 8}}', '"-1" is neither a number'),
        (b'{"weights": {"alpha": "1", "beta": null, "aggregation": 8}}', '"None" is neither a number'),
        (b'{"weights": {"alpha": "0", "beta": "0", "aggregation": 8}}', "not both 0"),
        (b'{"weights": {"alpha": "1", "beta": "1", "aggregation": 0}}', "at least 1, not 0"),
        (b'{"weights": {"alpha": "1", "beta": "1", "aggregation": true}}', "at least 1, not True"),
        (b'{"weights": {"alpha": "1", "beta": "1", "aggregation": "8"}}', "at least 1, not '8'"),
    ],
)
def test_a_bad_file_of_weights_is_one_sentence_and_no_plan(folder: Path, content: bytes | None, says: str) -> None:
    file = folder / "filtering.json"
    if content is not None:
        file.write_bytes(content)
    result = make(folder, "--weights", file)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (folder / "plan").exists()


def test_a_plan_is_changed_and_compared(folder: Path) -> None:
    facts(make(folder, "--json"))
    with (folder / "interest.csv").open("a", encoding="utf-8") as file:
        file.write("fay,GONE\nfay,IBM\n")
    files = ("--interest", folder / "interest.csv", "--rates", folder / "rates.csv")
    stale = run("evaluate", folder / "plan", *files)
    assert stale.exit_code == 1
    assert "1 subscribed flows are not in any session" in stale.stderr
    changed = facts(make(folder, "--from", folder / "plan", "--json", out="plan-2"))
    assert changed["moved"] == 0
    assert run("evaluate", folder / "plan-2", *files).exit_code == 0
    compared = run("diff", folder / "plan", folder / "plan-2", "--json")
    assert compared.exit_code == 1
    found = json.loads(compared.stdout)
    assert (found["in_another_session"], found["flows_only_in_b"]) == (0, 1)
    same = run("diff", folder / "plan", folder / "plan")
    assert same.exit_code == 0
    assert "0 of them in another session" in same.stdout
    before = dict(zip(*pq.read_table(folder / "plan" / "flow_session.parquet").to_pydict().values(), strict=True))
    after = dict(zip(*pq.read_table(folder / "plan-2" / "flow_session.parquet").to_pydict().values(), strict=True))
    assert {flow: after[flow] for flow in before} == before


def test_limits_and_pins(folder: Path) -> None:
    made = make(
        folder, "--session-rate", 18, "--group-rate", 25, "--together", "IBM,BP", "--apart", "AAPL,MSFT", "--json"
    )
    facts(made)
    sessions = dict(zip(*pq.read_table(folder / "plan" / "flow_session.parquet").to_pydict().values(), strict=True))
    assert sessions["IBM"] == sessions["BP"]
    assert sessions["AAPL"] != sessions["MSFT"]


def test_plots_are_drawn(folder: Path) -> None:
    facts(make(folder, "--plots", "--json"))
    for name in ("interest.svg", "excess.svg"):
        assert ElementTree.parse(folder / "plan" / name).getroot().tag.endswith("svg")


def test_the_paper_s_benchmark_is_generated(tmp_path: Path) -> None:
    options = ("--flows", 500, "--users", 30, "--seed", 3)
    made = run("generate", "--out", tmp_path / "bench", *options)
    assert made.exit_code == 0
    assert "500 flows, 30 users" in made.stdout
    files = ("--interest", tmp_path / "bench/interest.parquet", "--rates", tmp_path / "bench/rates.parquet")
    found = facts(run("make", *files, "--groups", 3, "--sessions", 20, "--out", tmp_path / "plan", "--json"))
    assert found["users"] == 30
    assert 0 < found["relative_cost"] < 1


def break_file(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("interest.csv", "ann,IBM", "ann,NOPE", "flow 'NOPE' has no rate in"),
        ("interest.csv", "ann,AAPL", "ann,IBM", "user 'ann' and flow 'IBM' are paired more than once"),
        ("interest.csv", "user,flow", "who,flow", "column 'user' not found"),
        ("rates.csv", "IBM,5.0", "IBM,-5.0", "flow 'IBM' has the rate -5"),
        ("rates.csv", "IBM,5.0", "IBM,", "1 rows have no rate"),
        ("rates.csv", "IBM,5.0", "IBM,fast", "a rate is not a number"),
        ("rates.csv", "IBM,5.0", "IBM,nan", "1 rows have no rate"),
        ("rates.csv", "AAPL,9.0", "IBM,9.0", "flow 'IBM' appears 2 times"),
        ("rates.csv", "IBM,5.0\n", "", "flow 'IBM' has no rate in"),
        ("rates.csv", "IBM,5.0", "IBM,5.0,1", "cannot be read"),
    ],
)
def test_a_broken_file_is_one_sentence_and_no_plan(folder: Path, name: str, old: str, new: str, says: str) -> None:
    break_file(folder, name, old, new)
    result = make(folder)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.startswith("levelcast: ")
    assert result.stderr.count("\n") == 1
    assert not (folder / "plan").exists()
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--groups", 5), "5 groups are more than 4 sessions"),
        (("--groups", 0), "at least one group"),
        (("--alpha", "x"), "neither a number"),
        (("--alpha", "0", "--beta", "0"), "not both 0"),
        (("--alpha", "", "--beta", "0"), "neither a number"),
        (("--weights", "x.json", "--beta", "1"), "omit --alpha and --beta"),
        (("--engine", "spark", "--effort", "best"), "supports only"),
        (("--engine", "spark", "--together", "IBM,BP"), "use the engine local"),
        (("--together", "IBM,NOPE"), "flow to pin not found: 'NOPE'"),
        (("--session-rate", "1"), "above the limit"),
        (("--algorithm", "it", "--session-rate", "20"), "does not support limits"),
        (("--from", "nowhere"), "not a plan"),
    ],
)
def test_a_wrong_wish_is_one_sentence_and_no_plan(folder: Path, more: tuple[object, ...], says: str) -> None:
    result = make(folder, *more)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (folder / "plan").exists()


def test_without_spark_a_sentence_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.errors", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    result = make(folder, "--engine", "spark")
    assert result.exit_code == 2
    assert "pip install 'levelcast[spark]'" in result.stderr
    assert not (folder / "plan").exists()


def test_a_damaged_plan_is_one_sentence(folder: Path) -> None:
    facts(make(folder, "--json"))
    (folder / "plan" / "session_group.parquet").write_bytes(b"PAR1")
    result = run("show", folder / "plan")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def write_half(target: Path) -> None:
    with all_or_nothing(target) as made:
        (made / "a").write_text("second", encoding="utf-8")
        (made / "missing" / "b").write_text("never", encoding="utf-8")


def test_a_plan_that_fails_half_way_leaves_the_one_before(tmp_path: Path) -> None:
    target = tmp_path / "plan"
    with all_or_nothing(target) as made:
        (made / "a").write_text("first", encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        write_half(target)
    assert (target / "a").read_text(encoding="utf-8") == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["plan"]
