"""One place that makes the Spark session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NO_PYSPARK = "Spark needs pyspark, which is not here: pip install 'levelcast[spark]'"


class SparkMissing(Exception):
    """Why there is no Spark here, in one sentence for a person."""


def require_spark() -> None:
    """Raise SparkMissing where no session can be made: before something long is done for it."""
    try:
        import pyspark
    except ImportError:
        raise SparkMissing(_NO_PYSPARK) from None
    del pyspark
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SparkMissing("Spark does not start (there is no program java): it needs Java 17 or newer")


@contextmanager
def spark_session(master: str | None, name: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that ends with the block. `master` is `local[2]` or a cluster's address; without one it is what
    spark-submit was told, or else all cores of this machine. `settings` are more of Spark's own."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing(_NO_PYSPARK) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python has what this one has
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has its own --master, memory and log
    where = master or ("" if submitted else "local[*]")
    builder = (
        SparkSession.builder.appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    if where:
        builder = builder.master(where)
    if not submitted:
        # A driver and its local workers share one heap; the default of 1 GB is small for a million lists.
        builder = builder.config("spark.driver.memory", "3g")
    if where.startswith("local"):
        builder = builder.config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    try:
        spark = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise SparkMissing(f"Spark does not start ({reason}): it needs Java 17 or newer") from None
    try:
        yield spark
    finally:
        spark.stop()


def tasks() -> tuple[int, int]:
    """Tasks done, and tasks in all, of the stages that Spark is at now."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
