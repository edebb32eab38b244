"""Create the Spark session.

Settings, from the lowest to the highest precedence:

1. the project's defaults (`defaults`), where Spark has no setting of its own;
2. `spark-defaults.conf`, or the file of `--properties-file`;
3. `--conf` and the other options of `spark-submit`, also in the variable PYSPARK_SUBMIT_ARGS;
4. `--master` of the command, and settings that a job requires.

`--master sc://HOST` (or the variable SPARK_REMOTE) connects to a Spark Connect server: no Java is needed here, and all
settings are the server's. Jobs that need the driver's JVM, that is streams, say so.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import re
import shlex
import shutil
import socket
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
_REMOTE_TASKS = 4
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that runs for seconds: the second compiler would use much of its time without benefit."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITION_BYTES = 16 * 2**20
_FEW_PARTITIONS, _MANY_PARTITIONS, _USUAL_PARTITIONS = 4, 4_000, 16
_REMOTE = "sc://"
_REMOTE_PORT = 15002
_CONNECT_S = 10.0
_OPTIONS = {
    "--master": "spark.master",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
}
"""Options of spark-submit for settings that the project has a default of, or that a session reads."""
_FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")
_CAUSE = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ |: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)$", re.MULTILINE
)
_STACK = re.compile(r"\s+at |\s+\.\.\. ")
_STAMP = re.compile(r"^\d\d/\d\d/\d\d \S+ [A-Z]+ \w+: ")
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s|sc)://\S+")


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


def require_spark(master: str | None = None) -> None:
    """Raise SparkMissing if no session can be created: call it before long work that needs one."""
    try:
        import pyspark
    except ImportError:
        raise SparkMissing(_NO_PYSPARK) from None
    del pyspark
    if is_remote(master):
        for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
            try:
                importlib.import_module(package)
            except ImportError:
                raise SparkMissing(f"Spark Connect needs {package}; run pip install 'levelcast[connect]'") from None
        return
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise SparkMissing(f"Spark does not start (JAVA_HOME is {home}, which has no bin/java); {_JAVA}")
    if not home and shutil.which("java") is None:
        raise SparkMissing(f"Spark does not start (java not found); {_JAVA}")


def is_remote(master: str | None) -> bool:
    """Return True if a session is that of a Spark Connect server."""
    return (master or os.environ.get("SPARK_REMOTE", "")).startswith(_REMOTE)


def refuse_remote(master: str | None, what: str) -> None:
    """Raise SparkMissing for a job that Spark Connect cannot run."""
    if is_remote(master):
        raise SparkMissing(f"{what} is not available with Spark Connect; use --master spark://HOST:7077 or local[2]")


def bytes_of(paths: Iterable[Path]) -> int:
    """Return the size of the input; of very many files that of the first ones."""
    size = files = 0
    for path in paths:
        for each in path.rglob("*") if path.is_dir() else [path]:
            files += 1
            size += each.stat().st_size if each.is_file() else 0
            if files > _SMALL_FILES:
                return max(size, _SMALL_BYTES + 1)
    return size


def is_small(paths: Iterable[Path]) -> bool:
    """Return True if the input needs only seconds: Java is then started with options for a short run."""
    return bytes_of(paths) <= _SMALL_BYTES


# -- settings ---------------------------------------------------------------------------------------------


def partitions_of(size: int | None) -> int:
    """Return the number of shuffle partitions for an input of this many bytes. Spark merges those that are small."""
    if size is None:
        return _USUAL_PARTITIONS
    return min(max(-(-size // _PARTITION_BYTES), _FEW_PARTITIONS), _MANY_PARTITIONS)


def defaults(where: str, size: int | None, *, submitted: bool) -> dict[str, str]:
    """Return the project's defaults for a master and an input of this many bytes."""
    found = _SETTINGS | {PARTITIONS: str(partitions_of(size))}
    if not submitted:
        # A driver and its local workers use one heap; the default of 1 GB is small for a million lists.
        found["spark.driver.memory"] = "3g"
    if where.startswith("local"):
        found |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
        if size is not None and size <= _SMALL_BYTES and not submitted:
            found["spark.driver.extraJavaOptions"] = _SHORT_LIVED
    return found


def own_settings() -> dict[str, str]:
    """Return the settings that Spark will have without the project: of spark-defaults.conf and of spark-submit. Java is
    not running yet, so the file and the options are read here, in the way of spark-submit."""
    from pyspark.find_spark_home import _find_spark_home

    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    options: dict[str, str] = {}
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    file = folder / "spark-defaults.conf"
    at = 0
    while at < len(arguments):
        name, equals, value = arguments[at].partition("=")
        if not equals and at + 1 < len(arguments):
            value = arguments[at + 1]
        if name in ("--conf", "-c") and "=" in value:
            key, _, value = value.partition("=")
            options[key] = value
        elif name in _OPTIONS:
            options[_OPTIONS[name]] = value
        elif name == "--properties-file":
            file = Path(value)
        at += 1
    return _properties(file) | options


def _properties(path: Path) -> dict[str, str]:
    """Return the settings in a file of properties: a key, then spaces, = or :, then the value."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    parts = (re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in lines)
    return {part[0]: part[1] for part in parts if len(part) == 2 and part[0].startswith("spark.")}


_own: frozenset[str] = frozenset()


def is_own(key: str) -> bool:
    """Return True if the user has set this setting of Spark, so that a job must not change it."""
    return key in _own


# -- the session ------------------------------------------------------------------------------------------


@contextmanager
def spark_session(
    master: str | None, name: str, settings: Mapping[str, str] | None = None, *, inputs: Iterable[Path] | None = None
) -> Iterator[SparkSession]:
    """Open a session for a block. `master` is `local[2]` or a cluster's address; without one, the setting of Spark, or
    else all cores of this machine. `inputs` are the files to be read, which the number of partitions follows;
    `settings` are additional settings that the job requires."""
    require_spark(master)
    if master is not None and not _MASTER.fullmatch(master):
        known = "local[2], spark://HOST:7077, yarn, k8s://URL or sc://HOST"
        raise SparkMissing(f"--master {master}: not supported; use {known}")
    if is_remote(master):
        with _remote_session(master or os.environ["SPARK_REMOTE"], name, settings or {}) as spark:
            yield spark
        return
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    global _own
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers use the same Python with its packages
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has its own --master, memory and log
    if submitted:
        SparkContext._ensure_initialized()  # SparkConf finds the settings of spark-submit in its JVM
    conf = SparkConf(loadDefaults=submitted)
    own = dict(conf.getAll()) if submitted else own_settings()
    _own = frozenset(own)
    where = master or own.get("spark.master") or "local[*]"
    size = None if inputs is None else bytes_of(inputs)
    chosen = {key: value for key, value in defaults(where, size, submitted=submitted).items() if key not in own}
    conf.setAppName(name).setMaster(where).setAll([*chosen.items(), *(settings or {}).items()])
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
def _remote_session(url: str, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a session of a Spark Connect server, whose own settings hold."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    host, _, port = url.removeprefix(_REMOTE).partition("/")[0].rpartition(":")
    if not host:
        host, port = port, str(_REMOTE_PORT)
    try:
        # The client would try for minutes.
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise SparkMissing(
            f"Spark Connect does not answer at {url} ({first_line(error)}); check the address of the server"
        ) from None
    builder: Any = SparkSession.builder
    try:
        spark = builder.remote(url).appName(name).config(map=dict(settings)).getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise SparkMissing(f"Spark Connect at {url} does not open a session ({first_line(error)})") from None
    try:
        yield spark
    finally:
        with suppress(PySparkException, OSError):
            spark.stop()


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
    text = java_log.reason() or first_line(error)
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
    """Return the first line of an error's text, shortened, or its class."""
    return _short(next(iter(str(error).splitlines()), type(error).__name__))


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


def is_connected(spark: SparkSession) -> bool:
    """Return True for a session of Spark Connect, which has no JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that can run at the same time; a guess for Spark Connect, which does not tell it."""
    return _REMOTE_TASKS if is_connected(spark) else int(spark.sparkContext.defaultParallelism)


def describe_job(spark: SparkSession, text: str) -> None:
    """Set the description of the next jobs in Spark's user interface; Spark Connect has none."""
    if not is_connected(spark):
        spark.sparkContext.setJobDescription(text)


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel the running jobs of a session."""
    spark.interruptAll() if is_connected(spark) else spark.sparkContext.cancelAllJobs()


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
