"""The common part of receivers of both layers: tape, release log, edge, retention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from levelcast.network import Network
from levelcast.network.addresses import core_addresses
from levelcast.network.line_assignment import LineAssignment
from levelcast.node.edge_service import EdgeService
from levelcast.node.metrics import Metric
from levelcast.node.retention import Retention
from levelcast.node.roles.base import NodeSetup, Role, Status
from levelcast.overlay.hold_feedback import FeedbackRules, HoldFeedback
from levelcast.protocol.event_text import generation_name
from levelcast.protocol.history import first_tip
from levelcast.ring.listener import Listener
from levelcast.ring.status import ListenerStatus, RingTimes
from levelcast.runtime.driver import Counters, Service
from levelcast.storage.receiver_store import ReceiverStore


class ReleasingRole(Role):
    """A receiver of either layer."""

    METRICS = (
        Metric("generation_number", "generation", "Generation of the ring that the receiver has entered."),
        Metric("slot", "slot", "Slot that is due now by the ring's schedule (rule 1)."),
        Metric("have", "slot_have", "Everything up to this slot is held."),
        Metric("witnessed", "slot_witnessed", "Everything up to this slot is witnessed (rule 8)."),
        Metric("released_slot", "slot_released", "Everything up to this slot is released."),
        Metric("timing.hold_ns", "hold_seconds", "Hold time in force.", 1e-9),
        Metric("timing.record.version", "timing_version", "Version of the last timing record."),
        Metric("timing.needed_p999_ns", "needed_seconds", "0.999 quantile of the needed hold time, last minute.", 1e-9),
        Metric("complete_upto_ns", "complete_seconds", "Everything stamped up to this time is released.", 1e-9),
        Metric("gaps", "gaps", "Slots with missing data that is being requested (rule 5)."),
        Metric("requests", "requests_total", "Requests for missing data."),
        Metric("frames", "releases_total", "Frames released."),
        Metric("records", "records_released_total", "Records in those frames."),
        Metric("late", "late_releases_total", "Frames that were late by protocol: not ready at timestamp + hold time."),
        Metric("delayed", "delayed_releases_total", "Frames with a scheduling delay of more than 1 ms."),
        Metric("tokens_sent", "tokens_sent_total", "Tokens that the receiver has sent."),
        Metric("tokens_delayed", "tokens_delayed_total", "Tokens sent more than 1 ms after they were due."),
        Metric("max_token_delay_ns", "max_token_delay_seconds", "Maximum delay of a token.", 1e-9),
        Metric("rings_entered", "reformations_total", "Rings that the receiver has entered."),
        Metric("membership.version", "membership_version", "Version of the configured set (rule 12)."),
        Metric("membership.stands", "membership_stands", "1 if the record of that set is witnessed."),
        Metric("tape_records", "tape_records", "Sequence of the last record on the tape."),
        Metric("tape_bytes", "tape_bytes", "Size of the tape."),
        Metric("tape_segments", "tape_segments", "Segments of the tape."),
        Metric("edge.packets", "edge_packets_total", "Packets sent to subscribers."),
        Metric("edge.bytes", "edge_bytes_total", "Bytes of those packets."),
        Metric("edge.requests", "edge_requests_total", "Retransmission requests of subscribers."),
        Metric("edge.retransmitted", "edge_retransmitted_total", "Packets retransmitted for those requests."),
        Metric("edge.from_tape", "edge_from_tape_total", "Retransmitted packets that were read from the tape."),
        Metric("edge.to_group", "edge_to_group_total", "Retransmitted packets sent to several subscribers."),
        Metric("edge.plan.number", "edge_plan", "Number of the active plan; 0: none, everything in one session."),
        Metric("edge.snapshots", "edge_snapshots_total", "Snapshots sent to subscribers."),
        Metric("edge.clients_dropped", "edge_clients_dropped_total", "Snapshot clients that exceeded the time limit."),
    )
    MACHINE: ClassVar[type[Listener]]
    machine: Listener
    store: ReceiverStore
    feedback: HoldFeedback
    edge: EdgeService | None = None

    def __init__(self, setup: NodeSetup) -> None:
        tape = setup.network.tape
        self.store = ReceiverStore.open(
            setup.directory, first_tip(setup.config), durable=tape.durable, records_per_segment=tape.segment_records
        )
        self._setup = setup
        tip = self.store.tape.tip
        self.machine = self.MACHINE(setup.config, setup.place.id, self.store.image, tip, setup.now, setup.security)
        if setup.security is not None:
            setup.security.ring = self._members
        timing = setup.config.timing
        self.feedback = HoldFeedback(
            setup.place.id,
            setup.config.domain,
            self.machine,
            setup.now,
            recovery_ns=timing.recovery_ns,
            resend_ns=timing.resend_ns,
            rules=hold_rules(setup.network, setup.place.stripe),
            seals=setup.security,
        )

    def _members(self) -> tuple[int, ...]:
        return self.machine.ring_members

    def services(self) -> Iterator[Service]:
        """Open the edge if the network file assigns groups to the receiver, and retention if the tape has limits."""
        setup, machine = self._setup, self.machine
        network, place = setup.network, setup.place
        if LineAssignment(network, place.name):
            self.edge = EdgeService(
                network,
                place.name,
                place.stripe,
                setup.directory,
                setup.options.interface,
                machine.complete_upto_ns,
                setup.now,
                lambda: machine.wake_ns,
                machine.lines,
                ring_hold_ns=machine.ring_hold_ns,
                address=core_addresses(network, place.stripe)[place.id] if network.edge.unicast else None,
            )
            yield self.edge
        if network.tape.keep_bytes is not None or network.tape.keep_age_ns is not None:
            yield Retention(self.store, network.tape, machine, setup.now, setup.report)

    def end_sessions(self) -> None:
        if self.edge is not None:
            self.edge.end_sessions()

    def _listener_line(self, state: str, said: ListenerStatus, counters: Counters) -> Status:
        line = {
            "state": state,
            "generation": generation_name(said.generation),
            "members": list(said.ring.members) if said.ring is not None else [],
            "ring": ring_as_json(said.ring),
            "have": said.have,
            "released_slot": said.released,
            "complete_upto_ns": said.complete_upto_ns,
            "tape_records": self.store.tape.tip.next_sequence - 1,
            "records": counters.records,
            "frames": counters.frames,
            "late": counters.late,
            "delayed": counters.delayed,
            "max_behind_ns": counters.max_behind_ns,
            "tokens_sent": counters.tokens,
            "tokens_delayed": counters.tokens_delayed,
            "max_token_delay_ns": counters.max_token_delay_ns,
            "requests": counters.requests,
            "rings_entered": counters.reports["entered"],
        }
        return line | {"edge": self.edge.status()} if self.edge is not None else line

    def details(self, known: Status, now: int) -> Status:
        said = self.machine.listener_status(now)
        return {
            "life": said.life,
            "generation_number": said.generation >> 32,
            "slot": said.slot,
            "witnessed": said.witnessed,
            "gaps": said.open_repairs,
            "late_share": known["late"] / known["frames"] if known["frames"] else 0.0,
            "membership": {
                "version": said.membership.version,
                "stands": said.membership_stands,
                "members": [{"id": life.member, "life": life.life} for life in said.membership.members],
            },
            "sources": {
                str(source): {"incarnation": position.incarnation, "ordered": position.next - 1}
                for source, position in sorted(said.sources.items())
            },
            "unlisted_sources": list(said.unlisted),
            "timing": timing_as_json(said) | self._needs(),
            "tape_bytes": self.store.tape.size_bytes,
            "tape_segments": self.store.tape.segments,
        }

    def _needs(self) -> Status:
        """Return whether the hold time is automatic, and the times that slots of the last minute needed."""
        auto, row = self._setup.network.stripe(self._setup.place.stripe).rules.hold_auto, self.feedback.last_row
        needs = {} if row is None else {"p50": row.p50_us, "p99": row.p99_us, "p999": row.p999_us}
        return {"auto": auto} | {f"needed_{name}_ns": us * 1_000 for name, us in needs.items()}


def hold_rules(network: Network, stripe: str) -> FeedbackRules | None:
    """Return the limits of an automatic hold time; None if it is that of the network file."""
    rules = network.stripe(stripe).rules
    if not rules.hold_auto:
        return None
    derived = network.derived(stripe, bound=False)
    return FeedbackRules(
        rules.late_target,
        rules.lengthen_after_ns,
        rules.shorten_after_ns,
        2 * derived.timing.slot_ns,
        derived.rule_6_ns,
    )


def timing_as_json(said: ListenerStatus) -> Status:
    """Return the hold time and the beat interval in use, and the last timing record (rule W9)."""
    last = said.timing_record
    record = {"version": last.version, "from_ns": last.from_ns, "hold_ns": last.pace.hold_ns} if last else None
    return {"hold_ns": said.hold_ns, "beat_ns": said.beat_ns, "record": record}


def ring_as_json(ring: RingTimes | None) -> Status | None:
    """Return a ring's schedule (rule 1), which determines the owner of every slot."""
    return None if ring is None else ring._asdict() | {"members": list(ring.members)}
