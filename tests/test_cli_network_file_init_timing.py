"""`levelcast init` and `levelcast timing`, as somebody at a terminal meets them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast import __version__
from levelcast.cli import main
from levelcast.cli.network_file import init_timing
from levelcast.network import FiveCities, five_cities, load_network, parse_network
from levelcast.timing import copy_plan
from levelcast.timing.rules import liveness_bound_ns
from levelcast.units import show_ns

runner = CliRunner()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a terminal that is wide enough to read tables in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `levelcast` with these arguments, through its entry point."""
    monkeypatch.setattr(sys, "argv", ["levelcast", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_init_writes_a_file_that_timing_explains(here: Path) -> None:
    result = runner.invoke(main.app, ["init"])
    assert result.exit_code == 0
    assert "levelcast timing --network network.toml" in result.output
    network = load_network(here / "network.toml")
    assert (here / "network.toml").read_text(encoding="utf-8") == five_cities(FiveCities.identified(network.id))
    assert [path.name for path in here.iterdir()] == ["network.toml"]
    result = runner.invoke(main.app, ["timing"])
    assert result.exit_code == 0
    for number in parse_network(five_cities()).explain():
        assert number.name in result.output
        assert number.text in result.output
    assert "closed form" in result.output
    bound_ns = sum(term.ns for term in parse_network(five_cities()).liveness())
    assert show_ns(bound_ns) in result.output
    assert "Warning" not in result.output


def test_init_refuses_to_overwrite_unless_told_to(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "mine.toml"
    path.write_text("precious")
    assert run(monkeypatch, "init", "-o", "mine.toml") == 2
    assert capsys.readouterr().err == "levelcast: mine.toml: already exists; use --force to replace it\n"
    assert path.read_text() == "precious"
    assert run(monkeypatch, "init", "-o", "mine.toml", "--force") == 0
    first = load_network(path).id
    assert run(monkeypatch, "init", "-o", "mine.toml", "--force") == 0
    assert load_network(path).id != first, "each file describes another network"


def test_init_does_not_overwrite_a_file_that_appears_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def appear(_: FiveCities) -> str:
        Path("network.toml").write_text("somebody else's")
        return five_cities()

    monkeypatch.setattr(init_timing, "five_cities", appear)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert run(monkeypatch, "init") == 2
    assert "already exists" in capsys.readouterr().err
    assert (here / "network.toml").read_text() == "somebody else's"
    assert [path.name for path in here.iterdir()] == ["network.toml"]


def test_init_says_what_is_wrong_with_its_path(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "init", "-o", "none/network.toml") == 2
    assert capsys.readouterr().err == ("levelcast: none/network.toml: the directory does not exist; create it first\n")
    assert run(monkeypatch, "init", "-o", ".", "--force") == 2
    assert "is a directory" in capsys.readouterr().err


def test_timing_as_json_has_the_numbers_the_rules_and_the_bound(here: Path) -> None:
    Path("network.toml").write_text(five_cities(), encoding="utf-8")
    result = runner.invoke(main.app, ["timing", "--network", "network.toml", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    (stripe,) = report["stripes"]
    timing = parse_network(five_cities()).timing()
    assert report["network"] == "five cities"
    assert stripe["timing"]["hold_ns"] == timing.hold_ns
    assert stripe["timing"]["recovery_ns"] == timing.recovery_ns
    assert stripe["timing"]["closed_form_ns"] < timing.recovery_ns
    assert stripe["liveness"]["bound_ns"] == liveness_bound_ns(timing, 5, 2)
    assert {number["symbol"] for number in stripe["explained"]} >= {"k_r", "δ_N", "τ_r", "R", "Δ_A", "T_join"}
    assert stripe["warnings"] == []


def test_timing_prints_warnings_and_one_stripe_when_asked(here: Path) -> None:
    text = five_cities().replace("# [stripes.main]", "[stripes.main]").replace("# [stripes.slow]", "[stripes.slow]")
    text = text.replace('# slot = "200ms"', 'slot = "200ms"').replace('# witness = "all"', "witness = 1")
    Path("network.toml").write_text(text, encoding="utf-8")
    both = runner.invoke(main.app, ["timing"])
    assert "stripe main" in both.output
    slow = runner.invoke(main.app, ["timing", "--stripe", "slow"])
    assert "stripe main" not in slow.output
    assert "200 ms" in slow.output
    assert "Warning: Witness is 1, less than a majority of 5" in slow.output


def test_an_unknown_stripe_is_told_which_there_are(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("network.toml").write_text(five_cities(), encoding="utf-8")
    assert run(monkeypatch, "timing", "--stripe", "slow") == 2
    assert 'stripe "slow" not found; the file has "main"' in capsys.readouterr().err


def test_every_problem_of_a_network_file_is_one_line_on_stderr(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = five_cities().replace('site = "sydney"', 'site = "sidney"')
    Path("network.toml").write_text(text, encoding="utf-8")
    assert run(monkeypatch, "timing", "--network", "network.toml") == 2
    rows = capsys.readouterr().err.splitlines()
    assert len(rows) == 2
    assert all(row.startswith("network.toml:") and 'did you mean "sydney"?' in row for row in rows)


def test_a_missing_file_is_one_sentence(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "timing", "--network", "none.toml") == 2
    assert capsys.readouterr().err == (
        "levelcast: none.toml: network file not found; write one with `levelcast init --out none.toml`\n"
    )


def test_control_c_ends_with_130_and_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(init_timing, "load_network", interrupted)
    assert run(monkeypatch, "timing") == 130
    assert capsys.readouterr().err == "levelcast: stopped\n"


def test_timing_stores_the_hold_time_that_init_has_stored(here: Path) -> None:
    runner.invoke(main.app, ["init"])
    text = Path("network.toml").read_text(encoding="utf-8")
    Path("network.toml").write_text(re.sub("\nhold = .*", "", text), encoding="utf-8")
    assert load_network("network.toml").stripes[0].rules.hold_ns is None
    result = runner.invoke(main.app, ["timing", "--write"])
    assert result.exit_code == 0
    assert "Stored hold = 417 ms of main in network.toml." in result.output
    assert load_network("network.toml").timing() == parse_network(text).timing()
    assert "# Secondary receivers are not in the ring" in Path("network.toml").read_text(encoding="utf-8")


def test_a_hold_time_that_is_too_short_says_by_how_much_and_what_to_expect(here: Path) -> None:
    text = five_cities(FiveCities(hold="300ms"))
    Path("network.toml").write_text(text, encoding="utf-8")
    result = runner.invoke(main.app, ["timing"])
    assert "Warning: Hold is 300 ms, 117 ms less than " in result.output
    [stripe] = json.loads(runner.invoke(main.app, ["timing", "--json"]).output)["stripes"]
    [warning] = stripe["warnings"]
    assert re.search(r"for a late target of 1e-05: expect (0\.\d+|[1-9]\.\d+) % of its releases to be late", warning)
    assert stripe["derived_hold"]["hold_ms"] == 417


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('mode = "pipelined"', "nack_sets = 2"), "with NACK sets it follows from rule 6"),
        (('mode = "pipelined"', 'mode = "lockstep"'), "in lockstep it follows from rule 6"),
        (('slot = "50ms"', 'slot = "1us" '), "a slot of 1 µs is below 200 µs"),
        (("loss = 0.01", "loss = 0.6"), "the loss between new-york and london is 0.6, above 0.5"),
    ],
)
def test_a_hold_time_that_does_not_follow_from_links_is_not_stored(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    reason: str,
) -> None:
    text = five_cities(FiveCities(hold=None, slot="5s" if "lockstep" in change[1] else "50ms")).replace(*change, 1)
    if "0.6" in change[1]:
        text = text.replace("[timing]", "[timing]\nattempts = 6", 1)
    Path("network.toml").write_text(text, encoding="utf-8")
    assert run(monkeypatch, "timing", "--write") == 2
    assert capsys.readouterr().err == f"network.toml:1: there is no hold time to store; {reason}\n"
    assert run(monkeypatch, "timing") == 0
    assert Path("network.toml").read_text(encoding="utf-8") == text


def test_the_hold_time_of_each_stripe_is_stored_in_its_own_table(here: Path) -> None:
    text = five_cities(FiveCities(hold=None)) + '[stripes.main]\n[stripes.slow]\nslot = "200ms"\n'
    Path("network.toml").write_text(text, encoding="utf-8")
    assert runner.invoke(main.app, ["timing", "--write"]).exit_code == 0
    network = load_network("network.toml")
    assert [stripe.rules.hold_ns is not None for stripe in network.stripes] == [True, True]
    assert network.timing("main").hold_ns == 417_000_000
    assert network.timing("slow").slot_ns == 200_000_000


def test_a_file_that_cannot_take_the_hold_time_stays_as_it_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = five_cities(FiveCities(hold=None))
    begin, end = text.index("[timing]"), text.index("\n\n", text.index("[timing]"))
    text = 'timing = { clock_error = "1ms" }\nstripes = { main = { slot = "50ms" } }\n' + text[:begin] + text[end:]
    Path("network.toml").write_text(text, encoding="utf-8")
    assert run(monkeypatch, "timing", "--write") == 2
    assert capsys.readouterr().err == (
        'network.toml:1: the hold time cannot be stored here; write hold = "417ms" into [timing] yourself\n'
    )
    assert Path("network.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("arguments", [["--help"], ["init", "--help"], ["timing", "--help"]])
def test_help_has_examples(arguments: list[str]) -> None:
    result = runner.invoke(main.app, arguments)
    assert result.exit_code == 0
    assert "Examples" in result.output
    assert "levelcast " in result.output


def test_the_version_is_the_packages() -> None:
    result = runner.invoke(main.app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"levelcast {__version__}\n"


def test_the_command_runs_as_a_process_even_where_greek_cannot_be_printed(tmp_path: Path) -> None:
    def levelcast(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "levelcast.cli.main", *arguments],
            cwd=tmp_path,
            env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert levelcast("init").returncode == 0
    explained = levelcast("timing", "--network", "network.toml")
    assert explained.returncode == 0, explained.stderr
    assert "closed form" in explained.stdout
    assert explained.stderr == ""
    refused = levelcast("init")
    assert refused.returncode == 2
    assert refused.stderr == "levelcast: network.toml: already exists; use --force to replace it\n"


@pytest.mark.parametrize(
    ("lockstep", "arguments", "message"),
    [
        (False, ("--hold", "500ms"), "needs --apply"),
        (False, ("--apply", "--hold", "soon"), "--hold"),
        (False, ("--apply", "--hold", "500ms"), "no receiver of stripe main replies, so its hold time is unknown"),
        (('slot = "50ms"', 'mode = "lockstep"'), ("--apply", "--hold", "500ms"), "in lockstep the hold time does not"),
        (('slot = "50ms"', 'mode = "lockstep"'), ("--apply",), "no hold time is derived; pass --hold"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_in_one_sentence(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lockstep: bool,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    text = five_cities(FiveCities(network_id=1, hold=None))
    if lockstep:
        text = text.replace('mode = "pipelined"', 'mode = "lockstep"').replace('slot = "50ms"', "")
    (here / "network.toml").write_text(text, encoding="utf-8")
    assert run(monkeypatch, "timing", *arguments) != 0
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_copies_are_planned_within_the_redundancy_of_the_file_and_stored(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_plan, "slots_for", lambda group: 20_000)
    path = here / "network.toml"
    text = five_cities(FiveCities(loss_ratio=0.05)).replace(
        "[timing]\n", "[timing]\nredundancy = 1.2\nlate_target = 0.001\n", 1
    )
    path.write_text(text, encoding="utf-8")
    result = runner.invoke(main.app, ["timing", "--write"])
    assert result.exit_code == 0, result.output
    rules = load_network(path).stripe(0).rules
    assert re.search(
        r"Additional copies: 1\.\d+ times the bytes \(redundancy = 1\.2\), \d+ ms -> \d+ ms", result.output
    )
    assert f"and copies for {len(rules.copies)} receivers of main" in result.output
    assert 0 < len(rules.copies) <= 5
    result = runner.invoke(main.app, ["timing", "--json"])
    [stripe] = json.loads(result.output)["stripes"]
    assert stripe["warnings"] == []
    assert stripe["derived_hold"]["hold_ms"] * 1_000_000 == rules.hold_ns
    planned = {each["name"]: (each["tokens"], each["parity"]) for each in stripe["copies"]["receivers"]}
    assert planned == {name: each[:2] for name, each in rules.copies}
    assert stripe["copies"]["without_hold_ms"] > stripe["derived_hold"]["hold_ms"]
    path.write_text(re.sub("copies = .*", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    assert "The file has other copies than these" in runner.invoke(main.app, ["timing"]).output


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("redundancy = 0.9", "redundancy = 0.9: it must be a factor from 1 to 4, such as 1.4"),
        ("redundancy = 1.4\ncopies = { rome-1 = { parity = 3 } }", 'copies has "rome-1", which is no receiver'),
        ("redundancy = 1.4\ncopies = { tokyo-1 = { parity = 99 } }", "parity from 0 to 64"),
        ("redundancy = 1.4\ncopies = { tokyo-1 = { path = 1 } }", "receivers with tokens from 0 to 4"),
        ("copies = { tokyo-1 = { parity = 3 } }", "copies needs redundancy above 1"),
        (
            "redundancy = 1.4\ncopies = { tokyo-1 = { second_path = true } }",
            'second_path of "tokyo-1" needs transport = "unicast" or "sites" in [core]',
        ),
    ],
)
def test_bad_copies_are_one_sentence(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keys: str, sentence: str
) -> None:
    text = five_cities().replace("[timing]\n", f"[timing]\n{keys}\n", 1)
    (here / "network.toml").write_text(text, encoding="utf-8")
    assert run(monkeypatch, "timing") == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said
