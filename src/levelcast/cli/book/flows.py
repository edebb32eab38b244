"""Read files of order events as flows for the replay: LOBSTER, DBN, ITCH and Bitstamp."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelcast.errors import UserError
from levelcast.formats.bitstamp import SYMBOL, bitstamp_events
from levelcast.formats.dbn_events import dbn_events
from levelcast.formats.event_batches import Chunk, Events
from levelcast.formats.itch import itch_events
from levelcast.formats.lobster import lobster_events, lobster_files, lobster_levels
from levelcast.market.replay import FLOW, TOP
from levelcast.records import RTYPE_ORDER, RTYPE_TRADE, RecordArray, codes

FORMATS = ("lobster", "dbn", "itch", "bitstamp")
_AGAINST = {codes.SIDE_ASK: codes.SIDE_BID, codes.SIDE_BID: codes.SIDE_ASK}


class OrderFlow(NamedTuple):
    """The events of a file."""

    events: RecordArray
    symbols: list[str]


def read_flow(path: Path, form: str, day: date | None) -> OrderFlow:
    """Read all order events of a file; UserError for a file that is damaged or of another format."""
    if not path.exists():
        raise UserError(f"{path}: file not found; check the path")
    if form == "itch" and day is None:
        raise UserError("ITCH messages have no date; pass --date")
    if form == "lobster":
        ((messages, _),) = lobster_files([path])
        chunks: Iterable[Chunk] = lobster_events(messages)
    elif form == "dbn":
        chunks = dbn_events(path)
    elif form == "bitstamp":
        return OrderFlow(_bitstamp(path), [SYMBOL])
    else:
        assert day is not None
        chunks = itch_events(path, day)
    return _collected(path, form, chunks)


def _collected(path: Path, form: str, chunks: Iterable[Chunk]) -> OrderFlow:
    symbols: dict[str, int] = {}
    parts = []
    for chunk in chunks:
        if chunk.refused and form != "dbn":
            first = chunk.refused[0]
            raise UserError(f"{path}: row {first.position}: {first.reason}")
        parts += [_flow(events, form, symbols) for events in chunk.events if _is_order_event(events)]
    flow = np.concatenate([np.zeros(0, FLOW), *parts])
    if not len(flow):
        raise UserError(f"{path}: no order events found; check --format")
    return OrderFlow(flow[np.argsort(flow["place"], kind="stable")], list(symbols))


def _is_order_event(events: Events) -> bool:
    return bool(len(events.records)) and int(events.records["rtype"][0]) in (RTYPE_ORDER, RTYPE_TRADE)


def _flow(events: Events, form: str, symbols: dict[str, int]) -> RecordArray:
    records = events.records
    flow = np.zeros(len(records), FLOW)
    flow["place"] = events.place
    for name in ("ts_event", "price", "size", "side", "action"):
        flow[name] = records[name]
    flow["last"] = (records["flags"] & codes.FLAG_LAST) != 0 if form == "dbn" else True
    if events.symbols is not None:
        names = np.array([symbols.setdefault(name, len(symbols)) for name in events.symbols.names] or [0])
        flow["symbol"] = np.where(events.symbols.codes >= 0, names[events.symbols.codes], -1)
    if int(records["rtype"][0]) == RTYPE_ORDER:
        flow["order"] = records["order_id"]
        flow["old"] = records["original_client_order_id"]
        if form == "itch":
            flow["action"] = np.where(records["action"] == b"M", b"U", records["action"])
        return flow
    order = events.extra.get("order_id")
    if order is not None:
        flow["order"] = np.ma.filled(order, 0).view(np.uint64)
    if form != "dbn":
        executed = flow["order"] != 0
        flow["action"] = np.where(executed, b"E", b"T")
        resting = np.where(flow["side"] == b"A", b"B", np.where(flow["side"] == b"B", b"A", b"N"))
        flow["side"] = np.where(executed, resting, flow["side"])
    return flow


def read_levels(path: Path) -> RecordArray:
    """Read a published book: one row per event, with its levels."""
    if not path.exists():
        raise UserError(f"{path}: file not found; check the path")
    return lobster_levels(path).view(TOP)[:, :, 0]


def _bitstamp(path: Path) -> RecordArray:
    """Return the events of Bitstamp as a flow: a change of the volume is an execution."""
    rows = bitstamp_events(path)
    flow = np.zeros(len(rows), FLOW)
    flow["place"] = np.arange(1, len(rows) + 1)
    for name, other in (("ts_event", "ts_event"), ("order", "id"), ("price", "price"), ("side", "side")):
        flow[name] = rows[other]
    left: dict[int, int] = {}
    sizes, actions = [], []
    for name, volume, action in zip(rows["id"].tolist(), rows["volume"].tolist(), rows["action"].tolist(), strict=True):
        before = left.get(name, 0)
        left[name] = volume
        if action == b"created":
            sizes.append(volume)
            actions.append(b"A")
        elif action == b"changed" or not volume:
            sizes.append(max(0, before - volume))
            actions.append(b"E")
        else:
            sizes.append(volume)
            actions.append(b"C")
    flow["size"], flow["action"], flow["last"] = sizes, actions, True
    return flow
