"""Convert the rows of a trade file to columns of numbers: check them in batches, and find the first bad row.

`TradeFileError` is a one-line message for the user: file, row, error and remedy. The columns are converted by pyarrow;
Python code searches for a row only when its batch has failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from levelcast.errors import UserError
from levelcast.extras import arrow
from levelcast.network import Floor, SymbolDirectory
from levelcast.records import PRICE_DECIMALS, UNDEF_PRICE, price_from_decimal

LARGEST_U32 = 2**32 - 1
LARGEST_TIME = 2**63 - 1
_SHOWN = 40

Ints = npt.NDArray[np.int64]
_DECIMAL = re.compile("[0-9]+", re.ASCII)
_HEXADECIMAL = re.compile("(0[xX])?[0-9a-fA-F]+", re.ASCII)


class TradeFileError(UserError):
    """The reason why a file of trades cannot be published, as a one-line message for the user."""


class RowError(TradeFileError):
    """The error of one row of a file; `sentence` is the message without the position."""

    def __init__(self, place: str, sentence: str) -> None:
        super().__init__(f"{place}: {sentence}")
        self.sentence = sentence


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Convert errors of opening and reading a file to one-line messages."""
    try:
        yield
    except FileNotFoundError:
        raise TradeFileError(f"{path}: file not found; check the path") from None
    except IsADirectoryError:
        raise TradeFileError(f"{path}: is a directory; pass the files in it") from None
    except PermissionError:
        raise TradeFileError(f"{path}: permission denied; check the owner and the mode of the file") from None
    except Exception as error:
        if not isinstance(error, OSError | EOFError) and not type(error).__module__.startswith("pyarrow"):
            raise
        reason = str(error).split("\n")[0].rstrip(".")
        raise TradeFileError(f"{path}: cannot be read ({reason}); the file is damaged or not of this format") from None


@dataclass(frozen=True, slots=True)
class Rows:
    """Position of a batch of rows: row `first + i` of the file, from 1 on, is number i of the batch."""

    path: Path
    first: int
    what: str = "row"
    line_of: Callable[[int], int] | None = None
    """Return the line of a row, for a text file."""
    kept: Ints | None = None
    """The numbers of the rows that were kept, if others were removed."""

    def name(self, index: int) -> str:
        row = self.place(index)
        line = f" (line {self.line_of(row):,})" if self.line_of is not None else ""
        return f"{self.path}: {self.what} {row:,}{line}"

    def keeping(self, kept: Ints) -> Rows:
        return replace(self, kept=kept)

    def place(self, index: int) -> int:
        """Return the row's number in its file."""
        return self.first + (index if self.kept is None else int(self.kept[index]))

    def places(self, count: int) -> Ints:
        """Return the numbers of the first `count` rows."""
        return np.arange(self.first, self.first + count) if self.kept is None else self.first + self.kept[:count]

    def part(self, start: int, stop: int) -> Rows:
        """Return the positions of some of the rows."""
        if self.kept is None:
            return replace(self, first=self.first + start)
        return replace(self, kept=self.kept[start:stop])

    def fail(self, index: int, sentence: str) -> NoReturn:
        raise RowError(self.name(index), sentence) from None


def show(value: object) -> str:
    """Return a value for a message: short and on one line."""
    text = str(value)
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + '"'


def named_files(paths: Sequence[Path], ends: tuple[str, ...], missing: str) -> list[Path]:
    """Return the files among `paths`, and those of directories with these name endings, sorted; at least one each."""
    files: list[Path] = []
    for path in paths:
        found = sorted(each for each in path.iterdir() if each.name.endswith(ends)) if path.is_dir() else [path]
        if not found:
            raise TradeFileError(f"{path}: {missing}")
        files += found
    return files


Refuse = Callable[[object, int], NoReturn]
"""Raise RowError for a value and its row."""


def _converted(column: Any, convert: Callable[[Any], Any], refuse: Refuse) -> Any:
    """Convert a column with `convert`; refuse the first value that fails."""
    errors = (arrow().ArrowInvalid, arrow().ArrowNotImplementedError)
    try:
        return convert(column)
    except errors:
        low, high = 0, len(column)  # rows before `low` are good; one before `high` is bad
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(column.slice(low, middle - low))
            low = middle
        except errors:
            high = middle
    refuse(column[low].as_py(), low)


def matches(column: Any, pattern: str) -> npt.NDArray[np.bool_]:
    """Return whether the text of each row matches."""
    found = arrow("pyarrow.compute").match_substring_regex(column, pattern)
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def refuse_first(bad: npt.NDArray[np.bool_], column: Any, refuse: Refuse) -> None:
    if bad.any():
        first = int(bad.argmax())
        refuse(column[first].as_py(), first)


def _is_text(column: Any) -> bool:
    types = arrow().types
    return bool(types.is_string(column.type) or types.is_large_string(column.type))


# -- numbers ----------------------------------------------------------------------------------------------


def whole_numbers(column: Any, name: str, rows: Rows, largest: int) -> npt.NDArray[np.uint64]:
    """Return integers from 0 to `largest`, from texts or integers."""
    pa, pc = arrow(), arrow("pyarrow.compute")

    def refuse(value: object, index: int) -> NoReturn:
        why = "is empty" if value == "" else f"{show(value)} is not an integer from 0 to {largest:,}"
        rows.fail(index, f"{name} {why}; correct it or remove the row")

    check_present(column, name, rows)
    if _is_text(column):
        refuse_first(~matches(column, "^[0-9]{1,20}$"), column, refuse)
    elif not pa.types.is_integer(column.type):
        rows.fail(0, f"{name} is of type {column.type}; store it as integers")
    numbers = _converted(column, lambda part: pc.cast(part, pa.uint64()), refuse).to_numpy(zero_copy_only=False)
    refuse_first(numbers > largest, column, refuse)
    return np.asarray(numbers, np.uint64)


def check_present(column: Any, name: str, rows: Rows) -> None:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False).argmax()
        rows.fail(int(missing), f"{name} is empty; fill it in or remove the row")


def prices(column: Any, rows: Rows) -> Ints:
    """Return exact integers in units of 1e-9, from decimal texts, decimals or floats.

    A float represents the shortest decimal text that reads back as it, as every program prints it. An integer has no
    known unit, so it is refused.
    """
    pa, pc = arrow(), arrow("pyarrow.compute")
    check_present(column, "price", rows)
    if pa.types.is_floating(column.type):
        column = pc.cast(column, pa.string())
    elif pa.types.is_integer(column.type):
        rows.fail(0, f"price is of type {column.type}, which has no known unit; store it as decimal or text")
    refuse = partial(_refuse_price, rows)
    decimals = _converted(column, lambda part: pc.cast(part, pa.decimal128(38, PRICE_DECIMALS)), refuse)
    low, high = halves_of(decimals).T
    refuse_first((high != low >> 63) | (low == UNDEF_PRICE), column, refuse)
    return np.ascontiguousarray(low)


def halves_of(decimals: Any) -> Ints:
    """Return the low and the high 64 bits of 128-bit decimals."""
    view = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    return view[decimals.offset : decimals.offset + len(decimals)]


def _refuse_price(rows: Rows, value: object, index: int) -> NoReturn:
    text = str(value)
    why = "price is empty" if text == "" else f"price {show(text)} is not a decimal number"
    try:
        price_from_decimal(text)
    except ValueError as error:
        if text:
            why = str(error)
    rows.fail(index, f"{why}; correct it or remove the row")


# -- times ------------------------------------------------------------------------------------------------


def times(column: Any, rows: Rows) -> npt.NDArray[np.uint64]:
    """Return nanoseconds UTC, from integers, ISO 8601 texts with a zone, or timestamps (UTC without a zone)."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    refuse = partial(_refuse_time, rows)
    zone: str | None = "UTC"
    check_present(column, "ts_event", rows)
    if _is_text(column):  # the first row decides: all rows are integers of nanoseconds, or all are ISO 8601
        digits = matches(column, "^[0-9]{1,19}$")
        is_number = bool(len(digits) and digits[0])
        if is_number:
            refuse_first(~digits, column, refuse)
    else:
        is_number = not pa.types.is_timestamp(column.type)
        zone = getattr(column.type, "tz", None)
    if is_number:
        return whole_numbers(column, "ts_event", rows, LARGEST_TIME)
    stamps = _converted(column, lambda part: pc.cast(part, pa.timestamp("ns", zone)), refuse)
    numbers = pc.cast(stamps, pa.int64()).to_numpy(zero_copy_only=False)
    refuse_first(numbers < 0, column, refuse)
    return np.asarray(numbers).astype(np.uint64)


def _refuse_time(rows: Rows, value: object, index: int) -> NoReturn:
    rows.fail(
        index,
        f"ts_event {show(value)} is not a time from 1970 to 2262; write nanoseconds since 1970 UTC, or ISO 8601 with a "
        'zone in all rows, such as "2013-10-07T13:30:00.25Z"',
    )


# -- names ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of names: `names[codes[i]]` is the name in row i."""

    codes: Ints
    names: Sequence[str]

    @classmethod
    def of(cls, column: Any, name: str, rows: Rows) -> Coded:
        """Create it from a column of texts."""
        check_present(column, name, rows)
        encoded = column if arrow().types.is_dictionary(column.type) else column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(codes, [str(each) for each in encoded.dictionary.to_pylist()])

    @classmethod
    def named(cls, codes: npt.NDArray[np.intp], names: Sequence[str]) -> Coded:
        """Create it from names that may be empty: a row with an empty name has code -1."""
        known = np.array([bool(name) for name in names], bool)
        return cls(np.where(known[codes], codes, -1), names)

    def only(self, kept: Ints) -> Coded:
        return Coded(self.codes[kept], self.names)

    @classmethod
    def same(cls, name: str, count: int) -> Coded:
        """The same name in every row."""
        return cls(np.zeros(count, np.int64), [name])

    def first(self, code: int) -> int:
        """Return the first row with a name."""
        return int((self.codes == code).argmax())

    def parsed(self, parse: Callable[[str], int], rows: Rows, problem: str, largest: int = LARGEST_U32) -> Ints:
        """Return each row's name as a number, for columns with few different values."""
        values = np.zeros(len(self.names), np.int64)
        for code in np.unique(self.codes).tolist():
            try:
                values[code] = number = parse(self.names[code])
            except (ValueError, OverflowError):
                number = -1
            if not 0 <= number <= largest:
                why = problem.format(show(self.names[code]))
                rows.fail(self.first(code), f"{why}; correct it or remove the row")
        return values[self.codes]


def decimal(text: str) -> int:
    """Return an integer, from decimal digits or from 0x and hexadecimal digits."""
    if _DECIMAL.fullmatch(text):
        return int(text)
    return hexadecimal(text) if text[:2] in ("0x", "0X") else int("")


def hexadecimal(text: str) -> int:
    return int(text, 16) if _HEXADECIMAL.fullmatch(text) else int("")


class Places:
    """Map names of floors and symbols to numbers of the directory."""

    def __init__(self, directory: SymbolDirectory, floor: str | None = None, network: str = "the network file") -> None:
        self.directory = directory
        self.network = network
        self.only: Floor | None = None
        """The floor of all rows, if the caller has specified one."""
        if floor is not None:
            self.only = self._floor(floor)
        self._ids = {each.name: directory.ids_of(each) for each in directory.floors}

    def pick(self, floors: Coded) -> Ints | None:
        """Return the rows of the floor that the caller has specified; None for all."""
        if self.only is None:
            return None
        mine = [code for code, name in enumerate(floors.names) if name == self.only.name]
        return np.flatnonzero(np.isin(floors.codes, mine)).astype(np.int64)

    def _floor(self, name: str) -> Floor:
        try:
            return self.directory.floor(name)
        except KeyError:
            known = ", ".join(floor.name for floor in self.directory.floors)
            raise TradeFileError(
                f"{show(name)} is not a floor of {self.network}; specify one of {known}, or add it there"
            ) from None

    def numbers(self, floors: Coded, symbols: Coded, rows: Rows) -> tuple[Ints, Ints]:
        """Return publisher and instrument of each row; fail at the first row with a symbol not traded on its floor."""
        publishers = np.zeros(len(floors.names), np.int64)
        width = len(symbols.names)
        pairs, first, pair_of_row = np.unique(
            floors.codes * width + symbols.codes, return_index=True, return_inverse=True
        )
        instruments = np.zeros(len(pairs), np.int64)
        for at in np.argsort(first).tolist():
            floor_code, symbol_code = divmod(int(pairs[at]), width)
            try:
                floor = self._floor(floors.names[floor_code])
            except TradeFileError as error:
                rows.fail(int(first[at]), str(error))
            publishers[floor_code] = floor.publisher
            instruments[at] = self.instrument(floor, symbols.names[symbol_code], rows, int(first[at]))
        return publishers[floors.codes], instruments[pair_of_row]

    def instrument(self, floor: Floor, symbol: str, rows: Rows, index: int) -> int:
        number = self._ids[floor.name].get(symbol)
        if number is None:
            text = symbol if symbol.isascii() and symbol.isalnum() else show(symbol)
            rows.fail(index, f"{text} is not among the symbols of floor {floor.name} in {self.network}; add it there")
        return number
