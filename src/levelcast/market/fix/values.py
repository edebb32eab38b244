"""Values of fields: checks by type, times as nanoseconds.

A check gets the bytes of a value that is not empty and reports whether it has the form of its type. Numbers have at
most 18 digits before the decimal point and 18 after it, so that no value takes long to convert.

Deviations from the specification:

- UTCTimestamp and UTCTimeOnly may have 3, 6 or 9 digits after the second (FIX 4.4: 3).
- Exchange is any text: floors are named by codes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

Check = Callable[[bytes], object]

SECOND = 1_000_000_000
_MAX_DIGITS = 18
_FRACTIONS = {4: 1_000_000, 7: 1_000, 10: 1}
"""Nanoseconds of the last digit, by the length of a fraction with its point."""


def is_count(value: bytes) -> bool:
    """Return whether the value has decimal digits only: Length, NumInGroup, SeqNum."""
    return value.isdigit() and len(value) <= _MAX_DIGITS


def is_int(value: bytes) -> bool:
    """Return whether the value is an integer, with at most a minus before its digits."""
    return is_count(value[1:] if value[:1] == b"-" else value)


def is_decimal(value: bytes) -> bool:
    """Return whether the value is a decimal number without an exponent: float, Qty, Price and others."""
    whole, _, fraction = (value[1:] if value[:1] == b"-" else value).partition(b".")
    return (whole + fraction).isdigit() and len(whole) <= _MAX_DIGITS and len(fraction) <= _MAX_DIGITS


def is_char(value: bytes) -> bool:
    return len(value) == 1


def is_boolean(value: bytes) -> bool:
    return value in (b"Y", b"N")


def is_words(value: bytes) -> bool:
    """Return whether the value consists of words with one space between: MultipleValueString."""
    return all(value.split(b" "))


def is_currency(value: bytes) -> bool:
    return len(value) == 3 and value.isalpha() and value.isupper()


def is_country(value: bytes) -> bool:
    return len(value) == 2 and value.isalpha() and value.isupper()


def is_date(value: bytes) -> bool:
    """Return whether the value is YYYYMMDD: UTCDateOnly, LocalMktDate."""
    return len(value) == 8 and second_of(value + b"-00:00:00") is not None


def is_month(value: bytes) -> bool:
    """Return whether the value is YYYYMM, YYYYMMDD or YYYYMMwN: MonthYear."""
    if len(value) == 8 and value[6:7] == b"w":
        return value[7:] in (b"1", b"2", b"3", b"4", b"5") and is_date(value[:6] + b"01")
    return is_date(value) if len(value) == 8 else len(value) == 6 and is_date(value + b"01")


def is_time(value: bytes) -> bool:
    """Return whether the value is HH:MM:SS with or without a fraction: UTCTimeOnly."""
    return time_ns(b"20000101-" + value) is not None


def any_text(value: bytes) -> bool:
    return True


@lru_cache(maxsize=4096)
def second_of(text: bytes) -> int | None:
    """Return the second since 1970 of YYYYMMDD-HH:MM:SS, None if it is not one. Second 60 is the next second."""
    digits = text.replace(b":", b"", 2).replace(b"-", b"", 1)
    separators = text[8:9] + text[11:12] + text[14:15]
    if len(text) != 17 or len(digits) != 14 or not digits.isdigit() or separators != b"-::":
        return None
    year, month, day, hour, minute, second = (text[:4], text[4:6], text[6:8], text[9:11], text[12:14], text[15:17])
    if hour > b"23" or minute > b"59" or second > b"60":
        return None
    try:
        days = int(np.datetime64(b"-".join((year, month, day)).decode(), "D").astype(np.int64))
    except ValueError:
        return None
    return days * 86_400 + int(hour) * 3_600 + int(minute) * 60 + int(second)


@lru_cache(maxsize=1024)
def time_ns(value: bytes) -> int | None:
    """Return the nanoseconds since 1970 of a UTCTimestamp, None if it is not one."""
    second = second_of(value[:17])
    if second is None:
        return None
    fraction = value[17:]
    if not fraction:
        return second * SECOND
    unit = _FRACTIONS.get(len(fraction))
    if unit is None or fraction[:1] != b"." or not fraction[1:].isdigit():
        return None
    return second * SECOND + int(fraction[1:]) * unit


def is_timestamp(value: bytes) -> bool:
    return time_ns(value) is not None


@lru_cache(maxsize=4096)
def _second_text(second: int) -> bytes:
    text = str(np.datetime64(second, "s"))
    return text.replace("-", "").replace("T", "-").encode()


@lru_cache(maxsize=64)
def time_text(now_ns: int) -> bytes:
    """Return the UTCTimestamp of a time, with milliseconds."""
    second, rest = divmod(now_ns, SECOND)
    return b"%b.%03d" % (_second_text(second), rest // 1_000_000)


CHECKS: dict[str, Check] = {
    "Amt": is_decimal,
    "Boolean": is_boolean,
    "char": is_char,
    "Country": is_country,
    "Currency": is_currency,
    "data": any_text,
    "Exchange": any_text,
    "float": is_decimal,
    "int": is_int,
    "Length": is_count,
    "LocalMktDate": is_date,
    "MonthYear": is_month,
    "MultipleValueString": is_words,
    "NumInGroup": is_count,
    "Percentage": is_decimal,
    "Price": is_decimal,
    "PriceOffset": is_decimal,
    "Qty": is_decimal,
    "SeqNum": is_count,
    "String": any_text,
    "UTCDateOnly": is_date,
    "UTCTimeOnly": is_time,
    "UTCTimestamp": is_timestamp,
}
