"""Settings of Spark: the user's own win over the project's; Spark Connect reads and loads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from levelcast.pipeline import session
from levelcast.pipeline.session import defaults, own_settings, partitions_of
from tests.spark_parts import need_spark
from tests.tape_parts import make_frames
from tests.test_cli_lake_pipeline import ROOT, levelcast, one_sentence
from tests.test_pipeline_input_tapes import write

pyspark = pytest.importorskip("pyspark")

HOME = Path(pyspark.__path__[0])
PARTITIONS, MEMORY = "spark.sql.shuffle.partitions", "spark.driver.memory"
TOLD = (PARTITIONS, MEMORY, "spark.executor.cores", "spark.ui.enabled", "spark.sql.session.timeZone", "spark.master")
PROGRAM = f"""
import json, sys
from pathlib import Path
from levelcast.pipeline.session import is_own, spark_session

with spark_session(None, "settings", inputs=[Path(sys.argv[1])]) as spark:
    found = {{key: spark.conf.get(key, None) for key in {TOLD!r}}}
    print(json.dumps(found | {{"own": is_own({PARTITIONS!r})}}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spark-defaults.conf").write_text(
        "# settings of the cluster\n"
        f"{PARTITIONS}   77\n{MEMORY}=1200m\nspark.ui.enabled: false\n\nspark.master local[1]\nnot.of.spark 1\n"
    )
    (tmp_path / "settings.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, *command: str, submit: str = "") -> dict[str, Any]:
    need_spark()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}
    if submit:
        env["PYSPARK_SUBMIT_ARGS"] = submit
    result = subprocess.run(
        [*command, str(folder / "settings.py"), str(folder)], env=env, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_spark_defaults_conf_wins_over_the_project_and_conf_over_it(folder: Path) -> None:
    """Before, 77 and 99 partitions became 16, and the memory of the driver 3g."""
    found = run(folder, sys.executable, submit=f"--conf {PARTITIONS}=99 --conf spark.executor.cores=1 pyspark-shell")
    assert found == {
        PARTITIONS: "99",
        MEMORY: "1200m",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.master": "local[1]",
        "own": True,
    }


def test_options_of_spark_submit_win(folder: Path) -> None:
    submit = str(HOME / "bin" / "spark-submit")
    found = run(folder, submit, "--conf", f"{PARTITIONS}=99", "--driver-memory", "900m")
    assert (found[PARTITIONS], found[MEMORY], found["own"]) == ("99", "900m", True)
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_where_a_setting_comes_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    of_file = {PARTITIONS: "77", MEMORY: "1200m", "spark.ui.enabled": "false", "spark.master": "local[1]"}
    assert own_settings() == of_file
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-memory 2g -c {PARTITIONS}=5 --conf=spark.a=b=c pyspark-shell")
    assert own_settings() == of_file | {MEMORY: "2g", PARTITIONS: "5", "spark.a": "b=c"}
    other = folder / "other.conf"
    other.write_text("spark.x 1")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {other} --master local[3] pyspark-shell")
    assert own_settings() == {"spark.x": "1", "spark.master": "local[3]"}
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder / "none"))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    assert own_settings() == {}


def test_the_defaults_are_those_of_the_page_and_follow_the_input() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    local, cluster = defaults("local[2]", 1, submitted=False), defaults("spark://a:7077", 2**40, submitted=False)
    for key in local.keys() | cluster.keys():
        assert f"| `{key}` |" in page, key
    assert [partitions_of(size) for size in (None, 0, 2**24, 2**27, 2**33, 2**50)] == [16, 4, 4, 8, 512, 4000]
    assert (local[PARTITIONS], cluster[PARTITIONS]) == ("4", "4000")
    assert "spark.driver.extraJavaOptions" in local
    assert "spark.driver.extraJavaOptions" not in cluster
    assert MEMORY not in defaults("local[2]", 1, submitted=True)


# -- Spark Connect ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server of the PySpark package."""
    need_spark()
    pytest.importorskip("grpc")
    place = tmp_path_factory.mktemp("connect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        PARTITIONS: "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "1g"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME)}
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True, cwd=place)
    try:
        for _ in range(2_000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (place / "log").read_text()[-2000:]
            time.sleep(0.2)
        else:
            raise AssertionError(f"no answer at port {port}: {(place / 'log').read_text()[-2000:]}")
        yield f"sc://localhost:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_on_spark_connect(server: str, tmp_path: Path) -> None:
    frames = make_frames(20, 4)
    write(tmp_path / "node" / "tape", frames).close()
    lake = tmp_path / "lake"
    without_java = {"PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""}
    done = levelcast(
        "pipeline", "run", "--input", tmp_path / "node", "--lake", lake, "--master", server, "--json", env=without_java
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert rows["tape"] == sum(frame.records for frame in frames)
    assert rows["bars"] > 0
    checked = levelcast("pipeline", "check", "--lake", lake, "--json", env={**without_java, "SPARK_REMOTE": server})
    assert (checked.returncode, json.loads(checked.stdout)["findings"]) == (0, [])
    by_server = levelcast("pipeline", "check", "--lake", lake, "--master", server, env=without_java)
    assert by_server.returncode == 0, by_server.stderr
    stream = levelcast("pipeline", "stream", "--input", tmp_path / "node", "--lake", lake, "--master", server)
    assert "levelcast pipeline stream is not available with Spark Connect" in one_sentence(stream)
    reading = f"""
from levelcast.pipeline import register
from levelcast.pipeline.session import spark_session
with spark_session({server!r}, "reading") as spark:
    register(spark)
    print(spark.read.format("levelcast").load({str(tmp_path / "node")!r}).count())
"""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    read = subprocess.run([sys.executable, "-c", reading], env=env, capture_output=True, text=True)
    assert read.stdout == f"{rows['tape']}\n", read.stderr


def test_a_server_that_does_not_answer_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"sc://127.0.0.1:{free.getsockname()[1]}"
        with (
            pytest.raises(session.SparkMissing, match=r"does not answer at sc://.*; check the address of the server"),
            session.spark_session(url, "none"),
        ):
            pass
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(session.SparkMissing, match=r"needs grpc; run pip install 'levelcast\[connect\]'"):
        session.require_spark(url)
