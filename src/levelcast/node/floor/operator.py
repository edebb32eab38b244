"""The operator's commands as records in the sequence (S4, M9): what changes the engine is on the tape, with a name.

Each command is one packet: a system message that says who did what, then its definitions, statuses or commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from levelcast.errors import UserError
from levelcast.market.entry.listing import InstrumentList, Listed
from levelcast.market.entry.requests import command
from levelcast.market.entry.values import SCALE, reason_text
from levelcast.market.floor.machine import OPERATOR
from levelcast.market.match_rules import RULES, settings_of
from levelcast.native.book_codes import AccountSetting, BookPhase, BookReason, EventKind
from levelcast.records import RecordArray, encode_system, instruments, price_from_decimal, statuses

PHASES = {
    "preopen": BookPhase.PRE_OPEN, "open": BookPhase.TRADING, "halt": BookPhase.HALT, "resume": BookPhase.TRADING,
    "close": BookPhase.CLOSE,
}  # fmt: skip
LIMITS = {
    "largest_order": AccountSetting.LARGEST_ORDER, "largest_open": AccountSetting.LARGEST_OPEN,
    "orders_per_second": AccountSetting.ORDERS_PER_SECOND, "short": AccountSetting.SHORT_LIMIT,
}  # fmt: skip
MAX_NAME = 64


class OperatorError(UserError):
    """A command of the operator that is not possible."""


class OperatorPacket(NamedTuple):
    payload: bytes
    records: int


Numbers = Callable[[str], int]
"""Number of an account by its name; raises UserError."""


def operator_packet(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> OperatorPacket:
    """Return the packet of a command; OperatorError if it is not possible."""
    name = str(request.get("op", ""))
    make = _MAKERS.get(name) or (_phase if name in PHASES else None)
    if make is None:
        raise OperatorError(f'"{name}" is not a command of the floor')
    try:
        content, records, text = make(request, listing, account_of, now)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise OperatorError(f"{name}: {error}") from None
    who = str(request.get("by", "unknown"))[:MAX_NAME]
    said = f"operator {who}: {name} {text}".encode("ascii", "replace")[:300]
    return OperatorPacket(encode_system(said, b"", source=OPERATOR, ts_event=now) + content, records + 1)


def refusal(events: RecordArray) -> str:
    """Return why the engine refused a command, empty if it did not."""
    refused = events[events["kind"] == EventKind.REJECTED]
    return reason_text(int(refused["reason"][0])) if len(refused) else ""


def _listed(request: Mapping[str, Any], listing: InstrumentList) -> list[Listed]:
    symbols = request.get("symbols") or []
    for symbol in symbols:
        if symbol.encode() not in listing.by_symbol:
            raise OperatorError(f"unknown instrument {symbol}; define it with `levelcast floor instrument {symbol}`")
    return [listing.by_symbol[symbol.encode()] for symbol in symbols]


def _phase(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    found = _listed(request, listing)
    made = statuses(max(len(found), 1))
    made["publisher_id"], made["ts_event"] = OPERATOR, now
    made["action"] = int(PHASES[request["op"]])
    made["instrument_id"] = [each.id for each in found] or [0]
    return made.tobytes(), len(made), " ".join(request.get("symbols") or ["all"])


def _instrument(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    symbol = str(request["symbol"])
    if not 0 < len(symbol) < 64 or not symbol.isascii() or not symbol.isprintable() or " " in symbol:
        raise OperatorError(f'"{symbol}" is not allowed as symbol; use printable ASCII without spaces')
    known = listing.by_symbol.get(symbol.encode())
    made = instruments(1)
    number = known.id if known else int(request.get("id") or max(listing.by_id, default=0) + 1)
    made["publisher_id"], made["ts_event"], made["instrument_id"] = OPERATOR, now, number
    made["raw_symbol"], made["currency"] = symbol.encode(), str(request.get("currency", "USD")).encode()
    made["security_type"], made["instrument_class"] = b"CS", b"K"
    made["min_price_increment"] = _price(request.get("tick", "0.01"), "tick")
    made["min_lot_size_round_lot"] = int(request.get("lot") or 1)
    for key, name in (("high", "high_limit_price"), ("low", "low_limit_price"), ("collar", "max_price_variation")):
        if request.get(key):
            made[name] = _price(request[key], key)
    if request.get("largest"):
        made["max_trade_vol"] = int(request["largest"])
    rule = request.get("rule")
    content, records = made.tobytes(), 1
    if rule:
        if rule not in RULES:
            raise OperatorError(f"rule {rule} is not one of {', '.join(RULES)}")
        settings = settings_of(number, rule, OPERATOR, **{k: int(v) for k, v in (request.get("values") or {}).items()})
        content, records = content + settings.tobytes(), records + len(settings)
    return content, records, f"{symbol} tick {request.get('tick', '0.01')}"


def _payment(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    account, asset = account_of(str(request["account"])), str(request["asset"])
    kind = b"D" if request["op"] == "deposit" else b"W"
    listed = listing.by_symbol.get(asset.encode())
    text = f"{request['account']} {request['amount']} {asset}"
    if listed is not None:
        amount = price_from_decimal(str(request["amount"]))
        if amount <= 0 or amount % SCALE:
            raise OperatorError(f"the amount {request['amount']} of {asset} is not a whole number above 0")
        record = command(b"N", OPERATOR, listed.id, now, 0, account, price=amount // SCALE, kind=kind)
        return record, 1, text
    if len(asset) != 3 or not asset.isupper() or not asset.isascii():
        raise OperatorError(f"{asset} is neither an instrument of the floor nor a currency such as USD")
    currency = int.from_bytes(asset.encode().ljust(4, b"\0"), "little")
    amount = _price(request["amount"], "amount")
    return command(b"N", OPERATOR, 0, now, 0, account, price=amount, kind=kind, order_id=currency), 1, text


def _limits(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    account = account_of(str(request["account"]))
    instrument = {each.symbol.decode(): each.id for each in _listed(request, listing)}
    records = []
    for name, value in request["limits"].items():
        setting = LIMITS[name]
        amount = _price(value, name) if name == "largest_open" else int(value)
        wanted = list(instrument.values()) if setting == AccountSetting.SHORT_LIMIT else [0]
        if not wanted:
            raise OperatorError("a short limit is of one instrument; pass --symbol")
        records += [_setting(account, setting, amount, now, each) for each in wanted]
    text = " ".join(f"{name} {value}" for name, value in request["limits"].items())
    return b"".join(records), len(records), f"{request['account']} {text}"


def _lock(request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int) -> tuple[bytes, int, str]:
    """Lock an account, and cancel its orders: the kill switch of M9."""
    account, locked = account_of(str(request["account"])), bool(request.get("locked", True))
    records = [_setting(account, AccountSetting.LOCKED, int(locked), now)]
    return b"".join(records), len(records), f"{request['account']} {'locked' if locked else 'unlocked'}"


def _owner(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    account = account_of(str(request["account"]))
    return _setting(account, AccountSetting.OWNER, int(request["owner"]), now), 1, str(request["account"])


def _setting(account: int, setting: AccountSetting, value: int, now: int, instrument: int = 0) -> bytes:
    return command(b"N", OPERATOR, instrument, now, 0, account, price=value, order_id=int(setting), kind=b"L")


def _bust(request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int) -> tuple[bytes, int, str]:
    trade = int(request["trade"])
    return command(b"N", OPERATOR, 0, now, 0, 0, order_id=trade, kind=b"B"), 1, str(trade)


def _cancel(
    request: Mapping[str, Any], listing: InstrumentList, account_of: Numbers, now: int
) -> tuple[bytes, int, str]:
    """Cancel all orders of an account: a mass cancel with the operator's client order ids."""
    account = account_of(str(request["account"]))
    wanted = [each.id for each in _listed(request, listing)] or [0]
    records = [command(b"R", OPERATOR, each, now, 0, account) for each in wanted]
    return b"".join(records), len(records), str(request["account"])


_Maker = Callable[[Mapping[str, Any], InstrumentList, Numbers, int], tuple[bytes, int, str]]
_MAKERS: dict[str, _Maker] = {
    "instrument": _instrument, "deposit": _payment, "withdraw": _payment, "limits": _limits, "lock": _lock,
    "owner": _owner, "bust": _bust, "cancel": _cancel,
}  # fmt: skip


def _price(value: object, name: str) -> int:
    try:
        found = price_from_decimal(str(value))
    except ValueError as error:
        raise OperatorError(f"{name}: {error}") from None
    if found <= 0:
        raise OperatorError(f"{name}: {value} is not above 0")
    return found


def owners_set(events: RecordArray) -> dict[int, int]:
    """Return the owners that the events of a frame set, by account."""
    if not len(events):
        return {}
    found = events[(events["kind"] == EventKind.LIMIT_SET) & (events["order_id"] == int(AccountSetting.OWNER))]
    return dict(zip(found["account"].tolist(), found["price"].tolist(), strict=True))


def cancelled(events: RecordArray) -> int:
    """Return the number of orders that the commands of a frame cancelled."""
    mine = (events["kind"] == EventKind.CANCELLED) & (events["reason"] == int(BookReason.BY_MASS_CANCEL))
    return int(np.count_nonzero(mine))
