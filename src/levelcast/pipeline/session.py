"""Create the Spark session."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from levelcast.errors import UserError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Made = TypeVar("Made")

_NO_PYSPARK = "pyspark is not installed; run pip install 'levelcast[spark]'"
_JAVA = "install Java 17 or newer, or set JAVA_HOME to it"
_KEPT_LINES = 2000
_LONGEST_REASON = 200
_MOST_TASKS = 4_000
_SMALL_BYTES = 64 * 2**20
_SMALL_FILES = 10_000
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that runs for seconds: the second compiler would use much of its time without benefit."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
_FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")
_CAUSE = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ |: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)$", re.MULTILINE
)
_STACK = re.compile(r"\s+at |\s+\.\.\. ")
_STAMP = re.compile(r"^\d\d/\d\d/\d\d \S+ [A-Z]+ \w+: ")
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://\S+")


class SparkMissing(UserError):
    """Error: Spark is not available, with a one-line message."""


class JavaLog(logging.Handler):
    """Collect the stderr of Java and the workers. Users see a one-line message; this is for errors without one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def open(self) -> int:
        """Return the write end of a pipe that is read until it is closed."""
        reading, writing = os.pipe()
        threading.Thread(target=self._collect, args=(reading,), name="java's stderr", daemon=True).start()
        return writing

    def _collect(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.lines.append(line)

    def reason(self) -> str:
        """Return the probable cause of a failure."""
        text = "".join(self.lines)
        found = _CAUSE.findall(text) or [line for line in text.splitlines() if line.strip() and not _STACK.match(line)]
        return _short(_STAMP.sub("", found[-1])) if found else ""

    def save(self, error: BaseException) -> Path | None:
        """Save the complete log to a file; return None if no file can be written."""
        try:
            number, name = tempfile.mkstemp(prefix="levelcast-spark-", suffix=".log")
            with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
                file.write(f"{error}\n\n")
                file.writelines(self.lines)
        except OSError:
            return None
        return Path(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect log records of py4j too: it logs errors on ^C."""
        self.lines.append(_FORMAT.format(record) + "\n")

    def note_error(self, *_: object) -> None:
        """Add the error that is being handled, with its traceback."""
        self.lines.append(traceback.format_exc())


java_log = JavaLog()


def require_spark() -> None:
    """Raise SparkMissing if no session can be created: call it before long work that needs one."""
    try:
        import pyspark
    except ImportError:
        raise SparkMissing(_NO_PYSPARK) from None
    del pyspark
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise SparkMissing(f"Spark does not start (JAVA_HOME is {home}, which has no bin/java); {_JAVA}")
    if not home and shutil.which("java") is None:
        raise SparkMissing(f"Spark does not start (java not found); {_JAVA}")


def is_small(paths: Iterable[Path]) -> bool:
    """Return True if the input needs only seconds: Java is then started with options for a short run."""
    left, files = _SMALL_BYTES, 0
    for path in paths:
        for each in path.rglob("*") if path.is_dir() else [path]:
            files += 1
            left -= each.stat().st_size if each.is_file() else 0
            if left < 0 or files > _SMALL_FILES:
                return False
    return True


@contextmanager
def spark_session(
    master: str | None, name: str, settings: Mapping[str, str] | None = None, *, small: bool = False
) -> Iterator[SparkSession]:
    """Open a session for a block. `master` is `local[2]` or a cluster's address; without one, the setting of
    spark-submit, or else all cores of this machine. `small` indicates small input; `settings` are additional
    settings of Spark."""
    require_spark()
    if master is not None and not _MASTER.fullmatch(master):
        raise SparkMissing(f"--master {master}: not supported; use local[2], spark://HOST:7077, yarn or k8s://URL")
    from py4j.protocol import Py4JError
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers use the same Python with its packages
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has its own --master, memory and log
    where = master or ("" if submitted else "local[*]")
    conf = SparkConf(loadDefaults=submitted).setAppName(name).setAll([*_SETTINGS.items(), *(settings or {}).items()])
    if where:
        conf.setMaster(where)
    if not submitted:
        # A driver and its local workers use one heap; the default of 1 GB is small for a million lists.
        conf.set("spark.driver.memory", "3g")
    if where.startswith("local"):
        conf.set("spark.driver.host", "localhost").set("spark.driver.bindAddress", "127.0.0.1")
        if small and not submitted:
            conf.set("spark.driver.extraJavaOptions", _SHORT_LIVED)
    with _listening():
        try:
            if not submitted:
                _launch(conf)
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except (PySparkException, Py4JError, RuntimeError, OSError) as error:
            raise SparkMissing(_why(error, where)) from None
        _quiet_accumulators(spark)
        try:
            yield spark
        finally:
            _stop(spark)


@contextmanager
def _listening() -> Iterator[None]:
    """Redirect py4j's log: it uses the root logger, which prints to the terminal without a handler."""
    logging.getLogger().addHandler(java_log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(java_log)


def _quiet_accumulators(spark: SparkSession) -> None:
    """Suppress a traceback: Java may exit before the thread that receives its counters, which then prints an error."""
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = java_log.note_error


def _launch(conf: SparkConf) -> None:
    """Start Java with its stderr redirected: it prints warnings at startup, and an error has a hundred lines."""
    from pyspark import SparkContext, java_gateway

    launch: Any = java_gateway.launch_gateway
    if SparkContext._gateway is not None:
        return  # started by an earlier session
    writing = java_log.open()
    try:
        SparkContext._ensure_initialized(gateway=launch(conf, {"stderr": writing}), conf=conf)
    finally:
        os.close(writing)


def _why(error: BaseException, where: str) -> str:
    """Return the reason why the session could not be created."""
    text = java_log.reason() or _short(first_line(error))
    if "class file version" in text or "JAVA_GATEWAY_EXITED" in str(error):
        return f"Spark does not start ({text}); {_JAVA}"
    if where and not where.startswith("local"):
        return f"Spark does not start with --master {where} ({text}); check the address of the cluster"
    return f"Spark does not start ({text})"


def failure(error: BaseException) -> str:
    """Return one line for an error of Spark; save the rest of it to a file."""
    found = _CAUSE.findall(str(error))
    text = _short(found[-1] if found else first_line(error))
    kept = java_log.save(error)
    return f"Spark has failed ({text})" + (f"; full log in {kept}" if kept else "")


def _stop(spark: SparkSession) -> None:
    """Stop the session; do nothing if Java has exited."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its class."""
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def on_spark(spark: SparkSession, work: Callable[[Unit], Made], units: Sequence[Unit]) -> list[Made]:
    """Apply `work` to every unit, each in its own task: small units out, small results back in their order."""
    if not units:
        return []
    count = min(len(units), _MOST_TASKS)
    packed = [pickle.dumps(unit) for unit in units]

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for place in batch.column(0).to_pylist():
                for number in range(place, len(packed), count):
                    made = pickle.dumps(work(pickle.loads(packed[number])))
                    yield pa.RecordBatch.from_pydict({"number": [number], "made": pa.array([made], pa.binary())})

    rows = spark.range(0, count, 1, count).mapInArrow(task, "number long, made binary").collect()
    made = {row["number"]: pickle.loads(row["made"]) for row in rows}
    return [made[number] for number in range(len(units))]


def tasks() -> tuple[int, int]:
    """Return finished and total tasks of Spark's current stages; nothing during startup or shutdown."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or getattr(context, "_jsc", None) is None:  # a context is known before it is ready
        return 0, 0
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, AttributeError, OSError):
        return 0, 0
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
