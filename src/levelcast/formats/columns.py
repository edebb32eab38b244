"""Rows of a trade file as columns of numbers: checked as a whole, and where that fails, to the row that is wrong.

`TradeFileError` is one sentence for a person: the file, the row, what is wrong, what to do. The columns are converted
by pyarrow; a row is looked for in Python only when its batch has failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
    """Why a file of trades cannot be published, in one sentence for a person."""


class RowError(TradeFileError):
    """What is wrong with one row of it; `sentence` is without its place."""

    def __init__(self, place: str, sentence: str) -> None:
        super().__init__(f"{place}: {sentence}")
        self.sentence = sentence


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """What the file itself has against being read, in one sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise TradeFileError(f"{path}: {(error.strerror or str(error)).lower()}: name another file") from None
    except Exception as error:
        if not isinstance(error, OSError | EOFError) and not type(error).__module__.startswith("pyarrow"):
            raise
        reason = str(error).split("\n")[0].rstrip(".")
        raise TradeFileError(f"{path}: cannot be read ({reason}): the file is damaged or not of this format") from None


@dataclass(frozen=True, slots=True)
class Rows:
    """Where a batch of rows stands: row `first + i` of the file is number i of the batch, from 1 on."""

    path: Path
    first: int
    what: str = "row"
    line_of: Callable[[int], int] | None = None
    """The line of a row, for a file that has lines."""
    kept: Ints | None = None
    """The numbers of those that were kept, where others were left out."""

    def name(self, index: int) -> str:
        row = self.place(index)
        line = f" (line {self.line_of(row):,})" if self.line_of is not None else ""
        return f"{self.path}: {self.what} {row:,}{line}"

    def keeping(self, kept: Ints) -> Rows:
        return replace(self, kept=kept)

    def place(self, index: int) -> int:
        """The row's number in its file."""
        return self.first + (index if self.kept is None else int(self.kept[index]))

    def places(self, count: int) -> Ints:
        """The numbers of the first `count` rows."""
        return np.arange(self.first, self.first + count) if self.kept is None else self.first + self.kept[:count]

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        if self.kept is None:
            return replace(self, first=self.first + start)
        return replace(self, kept=self.kept[start:stop])

    def fail(self, index: int, sentence: str) -> NoReturn:
        raise RowError(self.name(index), sentence) from None


def show(value: object) -> str:
    """A value for a message: short and on one line."""
    text = str(value)
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut) + '"'


def first_bad(column: Any, convert: Callable[[Any], object]) -> int:
    """The first row that `convert` refuses, of a column that it refuses as a whole."""
    errors = (arrow().ArrowInvalid, arrow().ArrowNotImplementedError)
    low, high = 0, len(column)  # rows before `low` are good; one before `high` is bad
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(column.slice(low, middle - low))
            low = middle
        except errors:
            high = middle
    return low


# -- numbers ----------------------------------------------------------------------------------------------


def whole_numbers(column: Any, name: str, rows: Rows, largest: int) -> npt.NDArray[np.uint64]:
    """Whole numbers from 0 to `largest`, from texts or integers."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    check_present(column, name, rows)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        digits = pc.match_substring_regex(column, "^[0-9]{1,20}$")
        if not pc.all(digits, min_count=0).as_py():
            bad = digits.to_numpy(zero_copy_only=False).argmin()
            _refuse_number(column[int(bad)].as_py(), int(bad), name, rows, largest)
    elif not pa.types.is_integer(column.type):
        rows.fail(0, f"{name} is of type {column.type}: store it as whole numbers")
    try:
        numbers = pc.cast(column, pa.uint64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        bad = first_bad(column, lambda part: pc.cast(part, pa.uint64()))
        _refuse_number(column[bad].as_py(), bad, name, rows, largest)
    if len(numbers) and int(numbers.max()) > largest:
        bad = int((numbers > largest).argmax())
        _refuse_number(int(numbers[bad]), bad, name, rows, largest)
    return np.asarray(numbers, np.uint64)


def _refuse_number(value: object, index: int, name: str, rows: Rows, largest: int) -> NoReturn:
    why = "is empty" if value == "" else f"{show(value)} is not a whole number from 0 to {largest:,}"
    rows.fail(index, f"{name} {why}: correct it or leave the row out")


def check_present(column: Any, name: str, rows: Rows) -> None:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False).argmax()
        rows.fail(int(missing), f"{name} is empty: fill it in or leave the row out")


def prices(column: Any, rows: Rows) -> Ints:
    """Exact whole numbers of 1e-9, from decimal texts, decimals or floats.

    A float stands for the shortest decimal text that reads back as it, as every program prints it. An integer does not
    say its unit, so it is refused.
    """
    pa, pc = arrow(), arrow("pyarrow.compute")
    check_present(column, "price", rows)
    if pa.types.is_floating(column.type):
        column = pc.cast(column, pa.string())
    elif pa.types.is_integer(column.type):
        rows.fail(0, f"price is of type {column.type}, which does not say its unit: store it as decimal or text")

    def convert(part: Any) -> Any:
        return pc.cast(part, pa.decimal128(38, PRICE_DECIMALS))

    try:
        halves = halves_of(convert(column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        bad = first_bad(column, convert)
        _refuse_price(str(column[bad].as_py()), bad, rows)
    low, high = halves[:, 0], halves[:, 1]
    unfit = (high != low >> 63) | (low == UNDEF_PRICE)
    if unfit.any():
        bad = int(unfit.argmax())
        _refuse_price(str(column[bad].as_py()), bad, rows)
    return np.ascontiguousarray(low)


def halves_of(decimals: Any) -> Ints:
    """The low and the high 64 bits of 128-bit decimals."""
    view = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    return view[decimals.offset : decimals.offset + len(decimals)]


def _refuse_price(text: str, index: int, rows: Rows) -> NoReturn:
    why = "price is empty" if text == "" else f"price {show(text)} is not a decimal number"
    try:
        price_from_decimal(text)
    except ValueError as error:
        if text:
            why = str(error)
    rows.fail(index, f"{why}: correct it or leave the row out")


# -- times ------------------------------------------------------------------------------------------------


def times(column: Any, rows: Rows) -> npt.NDArray[np.uint64]:
    """Nanoseconds UTC, from integers, ISO 8601 texts with a zone, or timestamps (without a zone they are UTC)."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    check_present(column, "ts_event", rows)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        numbers = _times_of_text(column, rows)
    elif pa.types.is_timestamp(column.type):
        zone = column.type.tz
        try:
            numbers = pc.cast(pc.cast(column, pa.timestamp("ns", zone)), pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            bad = first_bad(column, lambda part: pc.cast(part, pa.timestamp("ns", zone)))
            _refuse_time(column[bad].as_py(), bad, rows)
    else:
        return whole_numbers(column, "ts_event", rows, LARGEST_TIME)
    if len(numbers) and int(numbers.min()) < 0:
        _refuse_time(column[int(numbers.argmin())].as_py(), int(numbers.argmin()), rows)
    return np.asarray(numbers).astype(np.uint64)


def _times_of_text(column: Any, rows: Rows) -> Ints:
    """Either all of a batch are whole numbers of nanoseconds or all are ISO 8601: the first row says which."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    digits = pc.match_substring_regex(column, "^[0-9]{1,19}$").to_numpy(zero_copy_only=False)
    if len(digits) and digits[0]:
        if not digits.all():
            _refuse_time(column[int(digits.argmin())].as_py(), int(digits.argmin()), rows)
        return whole_numbers(column, "ts_event", rows, LARGEST_TIME).astype(np.int64)

    def convert(part: Any) -> Any:
        return pc.cast(part, pa.timestamp("ns", "UTC"))

    try:
        return np.asarray(pc.cast(convert(column), pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        bad = first_bad(column, convert)
        _refuse_time(column[bad].as_py(), bad, rows)


def _refuse_time(value: object, index: int, rows: Rows) -> NoReturn:
    rows.fail(
        index,
        f"ts_event {show(value)} is not a time from 1970 to 2262: write nanoseconds since 1970 UTC, or ISO 8601 with a "
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
        """From a column of texts."""
        check_present(column, name, rows)
        encoded = column if arrow().types.is_dictionary(column.type) else column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(codes, [str(each) for each in encoded.dictionary.to_pylist()])

    def only(self, kept: Ints) -> Coded:
        return Coded(self.codes[kept], self.names)

    @classmethod
    def same(cls, name: str, count: int) -> Coded:
        """The same name in every row."""
        return cls(np.zeros(count, np.int64), [name])

    def first(self, code: int) -> int:
        """The first row with a name."""
        return int((self.codes == code).argmax())

    def parsed(self, parse: Callable[[str], int], rows: Rows, problem: str, largest: int = LARGEST_U32) -> Ints:
        """Each row's name as a number: for columns of few different values."""
        values = np.zeros(len(self.names), np.int64)
        for code in np.unique(self.codes).tolist():
            try:
                values[code] = number = parse(self.names[code])
            except (ValueError, OverflowError):
                number = -1
            if not 0 <= number <= largest:
                rows.fail(
                    self.first(code), f"{problem.format(show(self.names[code]))}: correct it or leave the row out"
                )
        return values[self.codes]


def decimal(text: str) -> int:
    """A whole number, in digits or as 0x and hexadecimal digits."""
    if _DECIMAL.fullmatch(text):
        return int(text)
    return hexadecimal(text) if text[:2] in ("0x", "0X") else int("")


def hexadecimal(text: str) -> int:
    return int(text, 16) if _HEXADECIMAL.fullmatch(text) else int("")


class Places:
    """Floors and symbols by name, as numbers of the directory."""

    def __init__(self, directory: SymbolDirectory, floor: str | None = None, network: str = "the network file") -> None:
        self.directory = directory
        self.network = network
        self.only: Floor | None = None
        """The floor of all rows, where the caller has named one."""
        if floor is not None:
            self.only = self._floor(floor)
        self._ids = {each.name: directory.ids_of(each) for each in directory.floors}

    def pick(self, floors: Coded) -> Ints | None:
        """The rows of the floor that the caller has named; None for all."""
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
                f"{show(name)} is no floor of {self.network}: name one of {known}, or add it there"
            ) from None

    def numbers(self, floors: Coded, symbols: Coded, rows: Rows) -> tuple[Ints, Ints]:
        """Publisher and instrument of each row; an error for the first one whose symbol its floor does not trade."""
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
            rows.fail(index, f"{text} is not among the symbols of floor {floor.name} in {self.network}: add it there")
        return number
