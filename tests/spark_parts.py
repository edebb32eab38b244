"""One Spark session for all tests of a process: small, on one core, without a web page.

`from tests.spark_parts import spark` in a test module gives it the fixture. Without pyspark or Java the test is
skipped. Commands that run in the test's process use the same session and leave it running. `tests/conftest.py` sends
all tests of a module that imports from here to one of two processes, so that a run has two of Java.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from levelcast.pipeline import session
from tests.conftest import lacking

ROOT = Path(__file__).resolve().parents[1]


def need_spark() -> None:
    """Skip the test where pyspark, deltalake or Java is not here; CI must have Java."""
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        lacking("Java 17 or newer")


SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Settings that a command changes for its own session."""


def _keep(kept: Any) -> None:
    """Take the place of `levelcast.pipeline.session._stop`: undo a command's settings, and keep the session."""
    for key, value in SETTINGS.items():
        kept.conf.set(key, value)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with `local[1]`; whatever needs another one has to run in a process of its own."""
    need_spark()
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The workers import what this process imports, from a checkout as well.
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(ROOT / "src"), str(ROOT), *filter(None, known)]))
    place = tmp_path_factory.mktemp("spark")
    made = (
        pyspark.SparkSession.builder.master("local[1]")
        .appName("levelcast tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        # Java's second compiler takes half of the time of a process that lives for minutes, and pays later.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.streaming.stopTimeout", "30s")
        .config(map=SETTINGS)
        .getOrCreate()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_stop", _keep)
        yield made
