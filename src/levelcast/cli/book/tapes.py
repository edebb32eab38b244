"""Order books of tapes: rebuild the engine up to a sequence, serve it over HTTP, write a tape of generated orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from levelcast.errors import NetError, UserError
from levelcast.market.book_service import BookService
from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.floor.machine import OPERATOR
from levelcast.market.replay import TOP
from levelcast.market.synthetic_orders import order_frames
from levelcast.protocol.history import MembershipChange, Tip, make_frame
from levelcast.records import RecordArray, count_records
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import CheckedReader, TapeReader
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire.messages import MemberLife, Membership, Packet
from levelcast.wire.packets import seal

CLIENT_S = 5
"""A client that sends no request for this long is dropped."""
MOST_LEVELS = 1_000
_SOURCE = 1


def open_tape(directory: Path, *, unsound: bool = False) -> TapeReader:
    tape = tape_directory(directory)
    return TapeReader(tape) if unsound else CheckedReader(tape)


def frames_after(reader: TapeReader, sequence: int) -> Iterator[BookFrame]:
    """Yield the frames of a tape after a sequence, those that a writer has added since included."""
    reader.refresh()
    for frame in reader.frames(from_sequence=sequence + 1):
        yield BookFrame(frame.line.next_sequence - 1, frame.line.timestamp_ns, frame.data())


def open_service(directory: Path, snapshot: Path | None, treasury: int, *, unsound: bool = False) -> BookService:
    """Rebuild the engine from a tape, or from a snapshot and the frames after it."""
    reader = open_tape(directory, unsound=unsound)
    first = MatchingEngine(treasury=treasury)
    if snapshot is not None:
        try:
            first = MatchingEngine.restore(snapshot.read_bytes())
        except UserError as error:
            raise UserError(f"{snapshot}: {error}") from None
    service = BookService(lambda sequence: frames_after(reader, sequence), first)
    service.follow()
    return service


def instruments_of(engine: MatchingEngine) -> list[int]:
    ids: list[int] = np.frombuffer(engine.kernel.instruments(), "<u4").tolist()
    return ids


def required_instruments(engine: MatchingEngine, wanted: list[int]) -> list[int]:
    """Return the wanted instruments, or all; UserError if one is not defined, or if none is."""
    defined = instruments_of(engine)
    if not defined:
        raise UserError(f"no instrument is defined up to sequence {engine.sequence:,}; use a tape with order records")
    if missing := [each for each in wanted if each not in defined]:
        some = ", ".join(map(str, defined[:10]))
        raise UserError(f"instrument {missing[0]} is not defined up to sequence {engine.sequence:,}; use one of {some}")
    return wanted or defined


def top_of(engine: MatchingEngine, instrument: int, levels: int) -> RecordArray:
    return np.frombuffer(engine.kernel.top(instrument, levels), TOP)


def as_json_of(engine: MatchingEngine, instruments: list[int], levels: int) -> dict[str, Any]:
    """Return the state at a sequence: counts, hash and books; prices in 1e-9."""
    books = []
    for instrument in instruments:
        top = top_of(engine, instrument, levels)
        sides = {
            side: [
                [px, sz] for px, sz in zip(top[f"{name}_px"].tolist(), top[f"{name}_sz"].tolist(), strict=True) if sz
            ]
            for side, name in (("asks", "ask"), ("bids", "bid"))
        }
        books.append({"instrument": instrument, **sides})
    kernel = engine.kernel
    return {
        "sequence": engine.sequence, "timestamp_ns": engine.timestamp_ns, "commands": kernel.count,
        "trades": kernel.trade_count, "live_orders": kernel.live, "state": engine.state_hash().hex(), "books": books,
    }  # fmt: skip


# -- service -------------------------------------------------------------------------------------------------


def book_server(service: BookService, host: str, port: int) -> HTTPServer:
    """Return a server of `/book` and `/snapshot`, both with `?sequence=N`; `/book` also with `instrument`, `levels`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            try:
                status, kind, body = answer(service, parts.path, parse_qs(parts.query))
            except (UserError, ValueError) as error:
                status, kind, body = HTTPStatus.BAD_REQUEST, "application/json", _error(str(error))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    try:
        return HTTPServer((host, port), Handler)
    except OSError as error:
        raise NetError(f"{host}:{port}: {error.strerror}; choose another --host or --port") from None


def serve_until(server: HTTPServer, ended: Callable[[], bool]) -> None:
    """Answer requests until `ended`, which is asked at least four times a second."""
    server.timeout = 0.25
    while not ended():
        server.handle_request()


def answer(service: BookService, path: str, query: dict[str, list[str]]) -> tuple[HTTPStatus, str, bytes]:
    """Return status, type and body for a path."""
    service.follow()
    sequence = _number(query, "sequence", service.engine.sequence)
    if path == "/snapshot":
        return HTTPStatus.OK, "application/octet-stream", service.snapshot_at(sequence)
    if path != "/book":
        return HTTPStatus.NOT_FOUND, "application/json", _error(f"{path}: not found; use /book or /snapshot")
    engine = service.at(sequence)
    chosen = _number(query, "instrument", 0)
    found = as_json_of(
        engine, [chosen] if chosen else instruments_of(engine), min(_number(query, "levels", 5), MOST_LEVELS)
    )
    return HTTPStatus.OK, "application/json", json.dumps(found).encode()


def _number(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[-1]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"{name}={text}: is not a number; pass a number from 0 on")
    return int(text)


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


# -- generated tapes -----------------------------------------------------------------------------------------


def write_tape(directory: Path, count: int, symbols: int, seed: int) -> int:
    """Write a tape of generated orders to a new directory; return its last sequence."""
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory}: is not empty; pass a new directory")
    first = Tip(records=[MembershipChange(0, Membership(0, (MemberLife(1, 1),)))])
    writer = TapeWriter.open(directory, first)
    try:
        for number, (at_ns, payload) in enumerate(order_frames(count, symbols, seed, treasury=OPERATOR), 1):
            packet = Packet(_SOURCE, 1, number, count_records(payload), payload)
            tip = writer.tip
            writer.append(make_frame(number, at_ns, tip.next_sequence, [seal(packet, 0)], tip.chain))
        return writer.tip.next_sequence - 1
    finally:
        writer.close()
