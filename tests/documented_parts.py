"""Read the code blocks of a Markdown page, and run them as printed.

All blocks of a page run in order in one bash, in a copy of the directory that `levelcast demo --keep` wrote, and in a
network namespace of their own: every page may use the same groups and ports.

| language | what happens |
|---|---|
| `sh` | every line is a command |
| `console` | lines after `$ ` are commands, the others output |
| `python` | one program; all such blocks of a page on Spark share their names, with `spark` among them |
| `toml` | must be valid TOML |
| `text`, `csv`, `mermaid`, `{directive}` | nothing; `text` must not have commands, except those with [OPTIONS] |

In a table whose last column is "Example", every `levelcast` command of that column runs. Comments of the page, which a
reader does not see, change that:

| comment | effect |
|---|---|
| `<!-- not run: REASON -->` | before a block, or in a row of a table: only parse the options of `levelcast` commands |
| `<!-- file: NAME -->` | before a block: save it as NAME |
| `<!-- exit code: 1 -->` | before a block, or in a row: a command exits with 1, the others with 0 |
| `<!-- exit code: 0 or 1 -->` | before a block, or in a row: each command exits with one of these |
| `<!-- run: COMMAND -->` | anywhere: a command that the page leaves out, such as the start of a network |
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app, load_command
from levelcast.network import load_network
from tests.conftest import lacking

REFERENCE = ("api.md", "commands.md", "metrics.md", "network-keys.md", "records.md", "tables.md", "wire-formats.md")
"""Pages made from the code; tests of the commands parse the examples of their help."""
ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300.0
ALONE = ("unshare", "--net", "--map-root-user")
ON_SPARK = ("pipeline", "audit", "matrix", "plan from-lake")
"""Commands that run in the test's process, on its session: each process of their own would start Java."""

_FENCE = re.compile(r"^```(.*)$")
_COMMENT = re.compile(r"<!--\s*(not run|file|exit code|run)\b:?\s*(.*?)\s*-->")
_EXAMPLE = re.compile(r"`(levelcast [^`]+)`")
_OPERATOR = re.compile(r"^(?:[|&;]+|\d?>+.*)$")
_USAGE = re.compile(r"\[OPTIONS\]|COMMAND$")
_COMMANDS = ("levelcast", "make", "pip", "python", "spark-submit")

_BEGIN = r"""
failed() {
    seen=$1
    [[ " $codes " == *" $1 "* ]] || { echo "$at: exit code $1 of: $2" >&2; exit 1; }
}
check() {
    [[ " $codes " == *" $seen "* ]] || { echo "$at: no command exits with $codes" >&2; exit 1; }
}
ip link set lo up multicast on
set -E
trap 'failed $? "$BASH_COMMAND"' ERR
"""

Kind = Literal["shell", "python", "file", "parsed", "nothing"]


class BadPage(Exception):
    """A block or a comment that cannot be used, with its page and line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One block, one command of a table, or one hidden command."""

    where: str
    kind: Kind
    text: str
    name: str = ""
    """Of a file."""
    codes: tuple[int, ...] = (0,)
    """Exit codes that are not errors."""


@dataclass(slots=True)
class _Marks:
    """Comments that wait for their block."""

    where: str = ""
    found: dict[str, str] = field(default_factory=dict)


def steps_of(page: str, text: str) -> list[Step]:
    """Return the steps of a page in order."""
    steps, marks, header = [], _Marks(), ""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        where = f"{page}:{number}"
        header = (header or line) if line.startswith("|") else ""
        if fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                body.append(inner)
            else:
                raise BadPage(f"{where}: the block has no end")
            steps.append(_step(where, fence[1].strip(), "\n".join(body) + "\n", marks.found))
            marks = _Marks()
        elif _last_cell(header) == "Example":
            steps += _steps_of_row(where, line)
        else:
            if marks.found and line.strip() and not _COMMENT.fullmatch(line.strip()):
                raise BadPage(f"{marks.where}: no block follows this comment")
            for kind, value in _comments(where, line):
                if kind == "run":
                    steps.append(Step(where, "shell", value + "\n"))
                else:
                    marks.where, marks.found[kind] = where, value
    if marks.found:
        raise BadPage(f"{marks.where}: no block follows this comment")
    return steps


def _comments(where: str, line: str) -> Iterator[tuple[str, str]]:
    for kind, value in _COMMENT.findall(line):
        if not value:
            raise BadPage(f'{where}: "{kind}" needs a {"reason" if kind == "not run" else "value"}')
        yield kind, value


def _last_cell(row: str) -> str:
    return row.rstrip("| ").rpartition("|")[2].strip()


def _steps_of_row(where: str, line: str) -> Iterator[Step]:
    """Yield the hidden commands of a table's row, and the examples in its last cell."""
    comments = list(_comments(where, line))
    yield from (Step(where, "shell", value + "\n") for kind, value in comments if kind == "run")
    marks = dict(comments)
    kind: Kind = "parsed" if "not run" in marks else "shell"
    codes = _codes(marks)
    yield from (Step(where, kind, example + "\n", codes=codes) for example in _EXAMPLE.findall(_last_cell(line)))


def _codes(marks: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(code) for code in marks.get("exit code", "0").split(" or "))


def _step(where: str, language: str, text: str, marks: dict[str, str]) -> Step:
    if language not in ("sh", "console", "python", "toml", "text", "csv", "mermaid") and not language.startswith("{"):
        raise BadPage(f'{where}: the block\'s language is "{language}"; use sh, console, python, toml, csv or text')
    if name := marks.get("file"):
        return Step(where, "file", text, name)
    if language == "toml":
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadPage(f"{where}: not valid TOML ({error})") from error
    if language == "text" and any(map(_is_command, text.splitlines())):
        raise BadPage(f"{where}: commands in a block of text; use sh or console")
    if language not in ("sh", "console", "python"):
        return Step(where, "nothing", text)
    if language == "console":
        text = "".join(_typed(text))
    if "not run" in marks:
        return Step(where, "nothing" if language == "python" else "parsed", text)
    return Step(where, "python" if language == "python" else "shell", text, codes=_codes(marks))


def _is_command(line: str) -> bool:
    return line.removeprefix("$ ").split(" ")[0] in _COMMANDS and not _USAGE.search(line)


def _typed(text: str) -> Iterator[str]:
    """Yield the lines that a user types: those after `$ `, and the lines that continue them."""
    continued = False
    for line in text.splitlines(keepends=True):
        if continued or line.startswith("$ "):
            yield line.removeprefix("$ ")
            continued = line.endswith("\\\n")


def steps_of_page(name: str) -> list[Step]:
    """Return the steps of a page of the repository."""
    return steps_of(name, (ROOT / name).read_text(encoding="utf-8"))


def pages(*, on_spark: bool) -> list[str]:
    """Return the pages with commands, either those that need Spark or the others, which include unreadable pages."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paths = [path for path in paths if path.name not in REFERENCE]
    return [name for path in paths if _needs_spark(name := str(path.relative_to(ROOT))) is on_spark]


def _needs_spark(page: str) -> bool | None:
    """Return None for a page without commands."""
    words = {"shell": [f"levelcast {name}" for name in ON_SPARK], "python": ["spark"]}
    try:
        steps = [step for step in steps_of_page(page) if step.kind != "nothing"]
    except BadPage:
        return False
    found = any(word in step.text for step in steps for word in words.get(step.kind, ()))
    return found if steps else None


# -- options


def parse_options(text: str) -> None:
    """Parse the options of every `levelcast` command with the command's own parser."""
    for arguments in _arguments(text):
        command, name = load_command(arguments[0]), arguments.pop(0)
        while hasattr(command, "commands"):
            name = arguments.pop(0)
            command = command.commands[name]
        command.make_context(name, arguments)


def _arguments(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word in ("levelcast", "$program"):
                ends = [end for end in range(at, len(words)) if _OPERATOR.match(words[end])]
                yield words[at + 1 : min(ends, default=len(words))]


# -- running


def keep_demo(temporary: pytest.TempPathFactory) -> Path:
    """Return the directory that a demo wrote: network file, tapes and journals. The first process runs the demo."""
    root = temporary.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    kept = root / "demo"
    with (root / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            command = [sys.executable, "-m", "levelcast", "demo", "--for", "2s", "--kill", "none", "--quiet", "--keep"]
            done = subprocess.run([*command, str(kept)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return kept


def prepare(directory: Path, kept: Path) -> Path:
    """Copy what the demo kept, and add the files of their own that users of the guides have."""
    shutil.copytree(kept, directory)
    (directory / "examples").symlink_to(ROOT / "examples")
    (directory / "ticks").mkdir()
    (directory / "ticks" / "ibm_trade.csv").write_text("34200000,1815200,300,N,0,0\n34201000,1815300,100,N,0,0\n")
    (directory / "trades.csv").write_text(
        "ts_event,symbol,price,size\n2026-01-05T14:30:00Z,IBM,181.52,300\n2026-01-05T14:30:01Z,KO,71.5,100\n"
    )
    symbols = [symbol for floor in load_network(directory / "network.toml").floors for symbol in floor.symbols]
    interest = [f"user-{number % 4},{symbol}" for number, symbol in enumerate(symbols)]
    (directory / "interest.csv").write_text("\n".join(["user,flow", *interest]) + "\n")
    (directory / "rates.csv").write_text("\n".join(["flow,rate", *(f"{symbol},10" for symbol in symbols)]) + "\n")
    return directory


def need_namespaces() -> None:
    """Skip the test where a user must not make network namespaces, or `ip` is missing; CI must have both."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        lacking("the programs unshare and ip")
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        lacking("network namespaces (unshare --net --map-root-user)")


def script_of(steps: list[Step]) -> str:
    """Return the bash script of a page."""
    parts = [_BEGIN]
    for number, step in enumerate(steps):
        parts.append(f"at={shlex.quote(step.where)} codes='{' '.join(map(str, step.codes))}' seen=0; echo == $at")
        if step.kind == "file":
            parts.append(f"cp $BLOCKS/{number} {shlex.quote(step.name)}")
        elif step.kind == "python":
            parts.append(f"run-block $BLOCKS/{number}")
        elif step.kind == "shell":
            parts.append(step.text)
        parts.append("check")
    return "\n".join(parts) + "\n"


class Runner:
    """Runs the steps of a page in a directory; with `spark`, commands on Spark run in this process."""

    def __init__(self, directory: Path, tools: Path, spark: Any = None) -> None:
        self.directory = directory
        self.tools = tools
        tools.mkdir()
        self.spark = spark
        self.names: dict[str, Any] = {"__name__": "__main__", "spark": spark}

    def run(self, steps: list[Step]) -> str:
        """Run all steps; return the output. A step that fails fails the test, with the output."""
        with chdir(self.directory):
            for step in steps:
                if step.kind == "parsed":
                    self._parse(step)
        for number, step in enumerate(steps):
            if step.kind in ("file", "python"):
                (self.tools / str(number)).write_text(step.text, encoding="utf-8")
        steps = [step if step.kind != "parsed" else replace(step, kind="nothing") for step in steps]
        output = self.tools / "output"
        with self._listening() as server, output.open("wb") as file:
            shell = subprocess.Popen(
                [*ALONE, "bash", "-c", script_of(steps)],
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + LIMIT_S
                while shell.poll() is None and time.monotonic() < deadline:
                    self._serve(server)
            finally:
                _end(shell)
        text = output.read_text(encoding="utf-8", errors="replace")
        if shell.returncode:
            pytest.fail(text, pytrace=False)
        return text

    def _parse(self, step: Step) -> None:
        try:
            parse_options(step.text)
        except Exception as error:
            raise BadPage(f"{step.where}: {getattr(error, 'message', '') or repr(error)}") from error

    def _environment(self) -> dict[str, str]:
        python = shlex.quote(sys.executable)
        forward = f'exec {python} {shlex.quote(str(Path(__file__).with_name("documented_client.py")))} "$@"'
        spark = "|".join(f'"{name}"*' for name in ON_SPARK)
        cases = f'case "$*" in {spark}) {forward};; esac\n' if self.spark is not None else ""
        self._write("levelcast", f'{cases}exec {python} -m levelcast "$@"')
        self._write("python", f'exec {python} "$@"')
        self._write("run-block", forward if self.spark is not None else f'exec {python} "$@"')
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        own = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PYTHONPATH": path,
            "LEVELCAST_SOCKET": str(self._socket),
            "BLOCKS": str(self.tools),
        }
        return {**os.environ, **own, "COLUMNS": "120"}

    def _write(self, name: str, text: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.tools / name).chmod(0o755)

    # -- commands on Spark

    @property
    def _socket(self) -> Path:
        return self.tools / "socket"

    @contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as server:
            with chdir(self.tools):  # the address of a socket has at most 107 bytes
                server.bind(self._socket.name)
            server.listen()
            server.settimeout(0.2)
            yield server

    def _serve(self, server: socket.socket) -> None:
        """Answer one request of `documented_client`, if there is any: run a command or a block of Python."""
        try:
            client, _ = server.accept()
        except TimeoutError:
            return
        with client, client.makefile("rw", encoding="utf-8") as stream:
            request = json.loads(stream.readline())
            work = self._block if request["arguments"][0].startswith("/") else _command
            with chdir(request["directory"]):
                code, text = work(request["arguments"])
            stream.write(json.dumps({"code": code, "text": text}))

    def _block(self, arguments: list[str]) -> tuple[int, str]:
        source, output = Path(arguments[0]).read_text(encoding="utf-8"), io.StringIO()
        try:
            with _loading_from_here(), redirect_stdout(output):
                exec(compile(source, arguments[0], "exec"), self.names)
        except Exception:
            return 1, output.getvalue() + traceback.format_exc()
        return 0, output.getvalue()


@contextmanager
def _loading_from_here() -> Iterator[None]:
    """Resolve relative paths of Spark's readers: Java and its workers remain where the session was started."""
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    def resolving(load: Any) -> Any:
        return lambda reader, path: load(reader, str(Path(path).resolve()))

    with pytest.MonkeyPatch.context() as patch:
        for reader in (DataFrameReader, DataStreamReader):
            patch.setattr(reader, "load", resolving(reader.load))
        yield


def _command(arguments: list[str]) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def _end(shell: subprocess.Popen[bytes]) -> None:
    """End what a page left running; the nodes of `levelcast up` end with it."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGTERM if shell.poll() is not None else signal.SIGKILL)
    shell.wait()
