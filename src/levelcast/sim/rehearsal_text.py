"""Log a simulated demo: print one-time events, count repeated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from levelcast.protocol.effects import Effect, Release, Send
from levelcast.protocol.event_text import sentence
from levelcast.protocol.events import CaughtUp, Conflict, Diverged, Event, InvitationEnded, RingRefused
from levelcast.ring.listener import Listener
from levelcast.sim.engine.world import SimNode
from levelcast.sim.rehearsal import Moment, Rehearsal
from levelcast.units import show_ns
from levelcast.wire.messages import Fault, FaultReason, Invite, Join, Message, Request, Ring, Token

_COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CHAPTERS = 5
"""Number of summary lines (tape and requests) while the floors are open."""
MOST_LINES = 40

Tell = Callable[[int, str, str], None]
"""Called with a virtual time, a message and its style (a colour, "bold", "dim")."""


class RehearsalText:
    """Watcher that reports important events of a run as messages, and counts frequent ones."""

    def __init__(self, rehearsal: Rehearsal, chapter_ns: int, tell: Tell) -> None:
        self._deployment = rehearsal.deployment
        self._ledger = rehearsal.ledger
        self._world = rehearsal.deployment.world
        self._names = {node.id: node.name for node in self._world.nodes.values()}
        self._chapter_ns = chapter_ns
        self._next_chapter_ns: int | None = None
        self._tell = tell
        self._lines = 0
        self._said: set[tuple[object, ...]] = set()
        self._joined: dict[int, dict[int, None]] = {}
        self._starts: dict[int, tuple[int, int]] = {}
        self._highest = 0
        self._generation = 0
        self._killed_ns = 0
        self._dead_slot = 0
        self._returned: dict[int, int] = {}
        """Restarted members -> the slot up to which they have released."""

    def _say(self, sentence: str, style: str = "", *, once: tuple[object, ...] = (), vital: bool = False) -> None:
        if once in self._said or (self._lines >= MOST_LINES - 8 and not vital) or self._lines >= MOST_LINES:
            return
        if once:
            self._said.add(once)
        self._lines += 1
        self._tell(self._world.now, sentence[:1].upper() + sentence[1:], style)

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._on_send(node, effect.to, effect.message)
        elif isinstance(effect, Event):
            self._on_report(node, effect)
        elif isinstance(effect, Release):
            self._on_release(node, effect)

    def _on_send(self, node: SimNode, to: int, message: Message) -> None:
        match message:
            case Token():
                self._on_token(message)
            case Request():
                self._on_request(node, to, message)
            case Fault():
                self._on_fault(node, message)
            case Invite():
                what = f"{node.name} invites all receivers to generation {message.generation >> 32}"
                self._say(what, once=("invite", message.generation))
            case Join():
                self._joined.setdefault(message.generation, {})[node.id] = None
            case Ring():
                self._on_ring(message)

    def _on_token(self, token: Token) -> None:
        if token.generation > self._generation:
            self._generation = token.generation
            if self._killed_ns:
                gap = show_ns(self._world.now - self._killed_ns)
                self._say(f"the token circulates again, {gap} after the failure", "green", once=("round",))
        self._highest = max(self._highest, token.slot)

    def _on_request(self, node: SimNode, to: int, request: Request) -> None:
        dead, whom = self._dead_slot, self._names[to]
        if dead and dead in request.slots:
            what = f"{node.name} misses the token of slot {dead}; its request to {whom} stays without a reply"
            self._say(what, once=("miss", dead))
        elif not self._killed_ns:
            what = f"the token of slot {request.slots[0]}" if request.slots else "a packet"
            self._say(f"{node.name} misses {what} and requests it from {whom} (from now on counted)", once=("miss",))

    def _on_fault(self, node: SimNode, fault: Fault) -> None:
        returned, slot, style = node.id in self._returned, fault.slot, ""
        if fault.generation == 0:
            what = "no ring yet: the receivers request one from the reformation servers"
        elif returned and fault.suspect == node.id:
            what = f"{node.name} detects that its slot {slot} has passed, and requests a ring"
        elif returned:
            what = f"{node.name} is not in the current ring; requesting to rejoin"
        elif fault.reason == FaultReason.TOKEN_MISSING:
            times, suspect = self._deployment.config.timing.attempts, self._names.get(fault.suspect, "?")
            what = f"{node.name} reports a fault after {times} requests for slot {slot}: it suspects {suspect}"
            style = "yellow"
        else:
            what, style = f"{node.name} reports a fault: {FaultReason.NAMES.get(fault.reason, '?')}", "yellow"
        self._say(what, style, once=("fault", fault.generation, node.id if returned else 0))

    def _on_ring(self, ring: Ring) -> None:
        if ("ring", ring.generation) in self._said:
            return
        start = ring.lineage[-1].start_slot
        members = [self._names[life.member] for life in ring.members]
        void = f"; {self._highest - start + 1} slots are void" if self._highest >= start else ""
        who, generation = f"{count_word(len(members))} join ({', '.join(members)})", ring.generation
        what = f"{who}: generation {generation >> 32} starts at slot {start}{void}"
        self._say(what, "green", once=("ring", generation), vital=True)

    def _on_report(self, node: SimNode, event: Event) -> None:
        if isinstance(event, CaughtUp) and node.id in self._returned:
            slots = event.slot - self._returned[node.id]
            self._returned[node.id] = event.slot
            helper = self._names.get(event.sender, "?")
            once = ("caught-up", node.id, min(sum(said[0] == "caught-up" for said in self._said), 3))
            self._say(f"{node.name} catches up {slots} slots by frames from {helper}'s tape", "cyan", once=once)
        elif isinstance(event, Conflict | Diverged | RingRefused | InvitationEnded):
            self._say(f"{node.name}: {event.KIND}, {sentence(event, self._names)}", "red", vital=True)

    def _on_release(self, node: SimNode, release: Release) -> None:
        slot = release.frame.slot
        released = self._ledger.on_time.get(slot, {})
        if len(released) == len(self._deployment.receivers) and ("release",) not in self._said:
            spread = f"everywhere within {(max(released.values()) - min(released.values())) / 1e6:.2f} ms"
            what = f"slot {slot} is the first to be released: {release.frame.records} trades, {spread}"
            self._say(what, "green", once=("release",))
        if node.id in self._returned and not release.late:
            what = f"{node.name} releases on time again, with the others: slot {slot}"
            self._say(what, "cyan", once=("again", node.id), vital=True)

    def on_event(self, event: Moment, nodes: Sequence[SimNode], slot: int) -> None:
        names = and_join(node.name for node in nodes)
        be, its = ("is", "its") if len(nodes) == 1 else ("are", "their")
        now = self._world.now
        if event == "opened":
            self._next_chapter_ns = now + self._chapter_ns
            self._say(f"the first token is sent; {count_word(len(self._deployment.feeds))} floors open", "bold")
        elif event == "killed":
            self._killed_ns, self._dead_slot = now, slot
            self._say(f"{names} {be} killed, just before slot {slot}, which is {its} own", "bold red", vital=True)
        elif event == "returned":
            self._dead_slot = 0
            at = min(node.disk.tape.tip.slot for node in nodes)
            for node in nodes:
                machine = node.machine
                self._returned[node.id] = machine.released if isinstance(machine, Listener) else at
            behind = max(node.disk.tape.tip.slot for node in self._deployment.receivers) - at
            what = f"{names} {be} restarted with {its} disk: the tape on it lags by {behind} slots"
            self._say(what, "bold cyan", vital=True)
        elif event == "closed":
            self._next_chapter_ns = None
            made = sum(feed.trading.made for feed in self._deployment.feeds)
            self._say(f"the floors close after {made:,} trades; held trades are released", "bold", vital=True)
        else:
            self._on_step(now)

    def _on_step(self, now: int) -> None:
        held_back = [feed for feed in self._deployment.feeds if feed.waiting]
        if held_back:
            have = f"{'has' if len(held_back) == 1 else 'have'} {self._deployment.config.credit} packets unwitnessed"
            floors = and_join(feed.node.name for feed in held_back)
            self._say(f"{floors} {have}, the credit limit: trades wait at the floor", once=("credit",))
        if self._next_chapter_ns is not None and now >= self._next_chapter_ns:
            self._next_chapter_ns += self._chapter_ns
            figures, network = self._ledger.of.values(), self._world.network
            released = f"{max(each.records for each in figures):,} trades released"
            lost = f"{network.lost:,} of {network.sent:,} packets lost"
            asked = f"{sum(each.requests for each in figures):,} requests"
            repaired = f"{sum(each.repaired for each in figures):,} repairs"
            self._say(f"slot {self._highest}: {released}; {lost}, {asked}, {repaired}", "dim")


def count_word(number: int) -> str:
    """Return a number as a word, up to ten."""
    return _COUNTS[number] if number < len(_COUNTS) else str(number)


def and_join(names: Iterable[str]) -> str:
    """Join names with commas and "and"."""
    *most, last = [*names] or [""]
    return f"{', '.join(most)} and {last}" if most else last
