"""The audit *entry*: wrong gateways are named, and fair ones are not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from levelcast.pipeline.audit.base import AuditOptions, Job, Result
from levelcast.pipeline.audit.entry import EntryTask, entry_of, run
from levelcast.pipeline.audit.inputs import gather
from levelcast.protocol.history import Frame
from levelcast.sim.entry_mutations import ENTRY_MUTATIONS
from levelcast.storage.append_file import TapeError
from levelcast.wire.entry_change import encode_entry_rules
from levelcast.wire.messages import CONTROL_SOURCE, Packet
from tests.audit_parts import record
from tests.fair_entry_parts import MS, RULES, START, Shown, order_records
from tests.tape_parts import FIRST, frame_of_packets, make_frames

SLOT_NS = 20 * MS


class Day:
    """A tape with orders and beats: each gateway sends one packet in a frame."""

    def __init__(self) -> None:
        self.tip, self.frames = FIRST.copy(), list[Frame]()
        self._numbers: dict[int, int] = {}

    def add(self, timestamp_ns: int, packets: dict[int, tuple[int, bytes]]) -> None:
        rows = []
        for source, (records, payload) in packets.items():
            self._numbers[source] = self._numbers.get(source, 0) + 1
            rows.append(Packet(source, 1, self._numbers[source], records, payload))
        frame = frame_of_packets(len(self.frames) + 1, timestamp_ns, self.tip.next_sequence, rows, self.tip.chain)
        self.tip.append(frame)
        self.frames.append(frame)

    def begin(self) -> None:
        self.add(START - RULES.hold_ns - MS, {CONTROL_SOURCE: (1, encode_entry_rules(RULES))})

    def slot(self, at_ns: int, shown: dict[int, list[Shown]]) -> None:
        self.add(at_ns + 2 * SLOT_NS, {each: (len(its), order_records(its).tobytes()) for each, its in shown.items()})


def day(slots: int, *, silent: range = range(0), error_ns: int = 0, advantage_ns: int = 0) -> Day:
    """Accounts at three gateways react to every slot; gateway 13 may be silent, or its clock wrong."""
    made, rng = Day(), Random(5)
    made.begin()
    for number in range(slots):
        at = START + (number + 1) * SLOT_NS
        shown = {}
        for gateway in RULES.gateways:
            if gateway == 13 and number in silent:
                continue
            stamp = at + rng.randrange(100_000) - (advantage_ns if gateway == 13 else 0)
            stamp += error_ns if gateway == 13 and number == slots // 2 else 0
            shown[gateway] = [Shown(gateway, stamp, gateway, number), Shown(gateway, stamp + 10 * MS)]
        made.slot(at + 10 * MS, shown)
    return made


def audit(tmp_path: Path, made: Day, **options: float) -> Result:
    record(tmp_path / "a", made.frames, records_per_segment=1_000)
    return run(Job(None, gather([tmp_path]), AuditOptions(**options)))  # type: ignore[arg-type]


def test_fair_entry_passes_with_figures_by_gateway(tmp_path: Path) -> None:
    result = audit(tmp_path, day(400))
    assert result.passed, result.findings
    assert result.looked_at["orders"] >= 3 * 398
    assert result.sentence.startswith("Order entry was fair")
    (figures,) = result.figures
    assert [row[0] for row in figures.rows] == ["gateway 11", "gateway 12", "gateway 13"]
    for row in figures.rows:
        waits = dict(zip(figures.columns, row, strict=True))
        assert 2 * SLOT_NS * 0.8 < waits["wait_p50_ns"] < 3.5 * SLOT_NS
        assert waits["contested"] > 300


def test_tapes_without_order_entry_pass(tmp_path: Path) -> None:
    record(tmp_path / "a", make_frames(20))
    result = run(Job(None, gather([tmp_path])))
    assert result.passed
    assert "no rules of order entry" in result.sentence


def test_a_stamp_from_the_future_is_named(tmp_path: Path) -> None:
    result = audit(tmp_path, day(60, error_ns=900 * MS))
    kinds = {(each.kind, each.subject) for each in result.findings}
    assert kinds == {("refused", "gateway 13")}
    assert any("after its token" in each.says for each in result.findings)


def test_a_gateway_that_holds_its_beats_back_is_named(tmp_path: Path) -> None:
    result = audit(tmp_path, day(120, silent=range(20, 60)))
    (found,) = result.findings
    assert (found.kind, found.subject) == ("held back", "gateway 13")
    assert "once" in found.says


def test_a_favoured_gateway_is_named_by_its_share_of_firsts(tmp_path: Path) -> None:
    """Without tickets the gateway that is 0.1 ms ahead is first in almost every bucket."""
    made = day(300, advantage_ns=100_000)
    assert audit(tmp_path / "fair", made).passed
    with ENTRY_MUTATIONS["no-tickets"].applied():
        result = audit(tmp_path / "unfair", made)
    assert {(each.kind, each.subject) for each in result.findings} >= {("share of firsts", "gateway 13")}


def test_late_orders_are_named_with_their_share(tmp_path: Path) -> None:
    made = Day()
    made.begin()
    for number in range(200):
        at = START + (number + 1) * SLOT_NS
        shown = {gateway: [Shown(gateway, at, gateway, number)] for gateway in (11, 12)}
        if number >= 60 and number % 2:  # gateway 13 sends old orders
            shown[13] = [Shown(13, START + number * MS, 13, number)]
        made.slot(at, shown)
    kinds = {(each.kind, each.subject) for each in audit(tmp_path, made).findings}
    assert ("late orders", "gateway 13") in kinds
    assert not any(subject != "gateway 13" for _, subject in kinds)


def test_stripes_are_merged(tmp_path: Path) -> None:
    made = day(50)
    record(tmp_path / "a", made.frames)
    (tape,) = gather([tmp_path]).stripes[0]
    part = entry_of(EntryTask(((0, tuple(tape.segments)),)))
    alone = Day()
    alone.add(START, {200: (1, order_records([Shown(99, 1)]).tobytes())})
    record(tmp_path / "b", alone.frames)
    (other,) = gather([tmp_path / "b"]).stripes[0]
    merged = entry_of(EntryTask(((0, tuple(tape.segments)), (1, tuple(other.segments)))))
    assert merged.frames == part.frames + 1
    assert sum(each.orders for each in merged.gateways.values()) == sum(each.orders for each in part.gateways.values())


def test_a_damaged_record_is_one_message(tmp_path: Path) -> None:
    record(tmp_path / "a", day(20).frames)
    inputs = gather([tmp_path])
    (tape,) = inputs.stripes[0]
    path = tape.segments[0].data_path
    content = bytearray(path.read_bytes())
    content[-96] = 0
    path.write_bytes(content)
    with pytest.raises(TapeError, match="run the audit order first"):
        run(Job(None, inputs))
