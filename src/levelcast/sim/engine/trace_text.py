"""Format the trace of a history as text for debugging: one line per message or action of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from levelcast.protocol.effects import GROUP, SERVERS
from levelcast.protocol.event_text import generation_name, sentence
from levelcast.protocol.events import Event
from levelcast.sim.engine.world import START_NS, TraceLine
from levelcast.wire import messages as wire
from levelcast.wire.messages import FaultReason, Message, Run


def narrate(lines: Iterable[TraceLine], *, data: bool = True) -> Iterator[str]:
    """Yield each line of a trace as text; `data=False` omits the sources' packets."""
    for line in lines:
        if not data and line.what == "sends" and isinstance(line.about, tuple) and type(line.about[1]) is wire.Data:
            continue
        who = f"{line.node:>4}" if line.node >= 0 else "   ."
        yield f"{(line.at_ns - START_NS) / 1e6:10.3f} ms {who}  {line.what} {_about(line.about)}".rstrip()


def _about(about: object) -> str:
    if isinstance(about, Event):
        return sentence(about) + (f" (slot {about.slot})" if about.slot else "")
    if isinstance(about, tuple) and len(about) == 2 and isinstance(about[1], tuple) and not isinstance(about, Run):
        to = {GROUP: "all", SERVERS: "the servers"}.get(about[0], str(about[0]))
        return f"{describe(about[1])} to {to}"
    return str(about)


def describe(message: Message | tuple[object, ...]) -> str:
    """Return a short description of a message."""
    match message:
        case wire.Data():
            numbers = str(message.first) + (f"-{message.last}" if message.last > message.first else "")
            return f"data {message.source}.{message.incarnation}#{numbers}"
        case wire.Parity():
            return f"parity {message.source}.{message.incarnation}#{message.numbers}"
        case wire.Token():
            marks = ",".join(map(_place, message.witnessed))
            token = f"{generation_name(message.generation)}/{message.slot} have {message.have} [{_runs(message.runs)}]"
            return f"token {token}" + (f" witnessed {marks}" if marks else "")
        case wire.Beat():
            return (
                f"beat {generation_name(message.generation)}/{message.claims[-1].tick} have {message.claims[-1].have}"
            )
        case wire.Request():
            return f"request slots {list(message.slots)} packets [{_runs(message.packets)}] have {message.have}"
        case wire.Repair():
            return "repair " + "; ".join(describe(item) for item in message.items)
        case wire.CatchUp():
            return f"settled {message.after_slot + 1}..{message.upto_slot}"
        case wire.CatchUpPackets():
            return f"packets after slot {message.after_slot}: {' '.join(map(_place, message.packets))}"
        case wire.Fault():
            return (
                f"fault: {FaultReason.NAMES.get(message.reason)} at slot {message.slot}, suspect {message.suspect}, "
                f"entered {generation_name(message.generation)}, promised {generation_name(message.promised)}"
            )
        case wire.Invite():
            return f"INVITE {generation_name(message.generation)}"
        case wire.Join():
            return (
                f"JOIN {generation_name(message.generation)} life {message.life} caught up "
                f"{generation_name(message.caught_up)} have {message.have} settled {message.settled}"
                f" set {message.current.version}{'' if message.current_witnessed else ' in doubt'}"
            )
        case wire.Promised():
            return f"PROMISED {generation_name(message.generation)}"
        case wire.Ring():
            members = " ".join(f"{life.member}/{life.life}" for life in message.members)
            eras = " ".join(f"{generation_name(era.generation)}@{era.start_slot}" for era in message.lineage)
            return f"RING {generation_name(message.generation)} of {members}, lineage {eras}, helper {message.helper}"
        case wire.GroupToken():
            return f"group token {message.turn_ns} in {generation_name(message.generation)} have {message.have}"
        case wire.GroupRequest():
            suspect = f", suspect {message.suspect}" if message.suspect else ""
            return f"group request, has {generation_name(message.group)} of {message.primary}{suspect}"
        case wire.GroupInvite():
            return f"GROUP INVITE {generation_name(message.number)}"
        case wire.Group():
            members = " ".join(map(str, message.members))
            return f"GROUP {generation_name(message.number)} of {message.primary}: {members}"
        case wire.LineHolders():
            held = " ".join(f"{line}={node}" for node, line in message.holders)
            return f"LINES {generation_name(message.generation)}.{generation_name(message.number)}: {held}"
        case wire.LineRequest():
            return f"line request, has {generation_name(message.generation)}.{generation_name(message.number)}"
        case _:
            return str(message)


def _place(packet: wire.Packet | wire.Mark) -> str:
    return f"{packet.source}.{packet.incarnation}#{packet.number}"


def _runs(runs: Iterable[Run]) -> str:
    return " ".join(f"{run.source}.{run.incarnation}#{run.first}-{run.last}" for run in runs)
