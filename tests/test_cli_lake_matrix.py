"""`levelcast matrix` and `levelcast probe convert` as somebody at a terminal meets them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.network import load_network
from levelcast.network.regions.published import published_probes
from tests.spark_parts import spark
from tests.test_cli_lake_pipeline import levelcast, levelcast_here, one_sentence

pytest.importorskip("deltalake")

from levelcast.pipeline.lake.lake import Lake

__all__ = ["spark"]

runner = CliRunner()
DATA = os.environ.get("LEVELCAST_DATA")
REGIONS = """\
region,region_name,eu-west-1,us-east-1,us-west-2
eu-west-1,Ireland,1,68,130
us-east-1,Virginia,70,2,60
us-west-2,Oregon,128,61,1
"""
NETWORK = '[timing]\nslot = "50ms"\n[[reformation]]\nname = "reform"\nid = 11\nsite = "us-east-1"\n' + "".join(
    f'[[site]]\nname = "{site}"\n[[receiver]]\nname = "{site}-a"\nid = {place}\nsite = "{site}"\n'
    for place, site in enumerate(("eu-west-1", "us-east-1", "us-west-2"), 1)
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spark")
def test_from_published_figures_to_a_network_that_includes_them(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text(REGIONS)
    probes, lake, out = tmp_path / "probes.csv", tmp_path / "lake", tmp_path / "measured.toml"
    made = runner.invoke(
        app, ["probe", "convert", str(tmp_path / "regions.csv"), "--at", "2023-03-01T00", "-o", str(probes)]
    )
    assert made.exit_code == 0, made.output
    assert "6 probes between 3 sites" in made.output
    loaded = levelcast_here("pipeline", "load", "probes", probes, "--lake", lake, "--master", "local[1]")
    assert loaded.returncode == 0, loaded.stderr
    file = tmp_path / "network.toml"
    file.write_text(NETWORK + '[links]\ndelay = "1ms"\n')
    arguments = ("--lake", lake, "--network", file, "--loss", "0.02", "--master", "local[1]", "-o", out)
    done = levelcast_here("matrix", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["hour"], len(told["pairs"])) == ("2023-03-01T00", 3)
    assert [each["site"] for each in told["helpers"]["us-west-2"]] == ["us-east-1", "eu-west-1"]
    assert "3 of 3 pairs have fewer than 100 answered probes" in done.stderr
    assert "the probes of 3 of 3 pairs have no loss value; 0.02 is assumed" in done.stderr
    file.write_text('include = ["measured.toml"]\n' + NETWORK)
    network = load_network(file)
    # The slower direction, half of 130 ms.
    assert network.path().delay_ns == 65_000_000
    assert network.link("eu-west-1", "us-west-2").loss_ratio == 0.02
    assert network.timing().hold_ns == told["timing"][0]["timing"]["hold_ns"]
    page = runner.invoke(app, ["report", "--lake", str(lake), "-o", str(tmp_path / "report.html")])
    assert page.exit_code == 0, page.output
    assert "us-east-1 to us-west-2: 30 ms" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_can_be_told_without_spark_is_told_at_once(tmp_path: Path) -> None:
    Lake.create(tmp_path / "lake")
    (tmp_path / "there.toml").write_text("precious")
    for arguments, told in (
        (("--lake", tmp_path / "none"), "not a lake"),
        (
            ("--lake", tmp_path / "lake", "--quantile", "0.42"),
            "quantile 0.42 is not supported; use one of 0.5, 0.9",
        ),
    ):
        result = runner.invoke(app, ["matrix", *map(str, arguments)])
        assert result.exit_code == 2, result.output
        assert told in result.stderr
    refused = levelcast("matrix", "--lake", tmp_path / "lake", "-o", tmp_path / "there.toml")
    assert refused.returncode == 2
    assert "already exists; use --force to replace it" in refused.stderr
    assert (tmp_path / "there.toml").read_text() == "precious"


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_lake_without_probes_is_told_so(tmp_path: Path) -> None:
    Lake.create(tmp_path / "lake")
    assert "has neither measured paths nor probes; run `levelcast pipeline load paths DATA" in one_sentence(
        levelcast_here("matrix", "--lake", tmp_path / "lake", "--master", "local[1]")
    )


@pytest.mark.skipif(DATA is None, reason="needs LEVELCAST_DATA")
@pytest.mark.parametrize(
    ("name", "sites", "rows"),
    [
        ("wan_wondernetwork_20181110/pings.csv.gz", 242, 173_421),
        ("wan_aws_regions/aws_region_rtt_ms.csv", 21, 420),
        ("wan_planetlab/PlanetLabData_1.tsv.gz", 490, 239_610),
    ],
)
def test_real_measurements_are_read_whole(name: str, sites: int, rows: int) -> None:
    found = published_probes(Path(DATA or "") / name, 1_000_000_000)
    assert (len({row[0] for row in found}), len(found)) == (sites, rows)
