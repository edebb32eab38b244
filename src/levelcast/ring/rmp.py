"""The original event-driven RMP (MS §2.1), for comparison with the timed token.

Only the simulator runs it; it is not part of the product. Receivers acknowledge in turn. One acknowledgement t does
three things: it assigns position t to source message (s, M_s), confirms the token to the previous site, and passes the
token to the next one. Only repetitions are driven by a clock: the next acknowledgement is sent when the next message
arrives.

| node      | condition                                       | action |
|-----------|-------------------------------------------------|------|
| source    | the previous message is acknowledged            | multicasts (s, M_s) until that is acknowledged |
| next site | has all up to t, and a message waits            | multicasts acknowledgement t + 1 |
| that site | every τ_r until it receives t + 2 or a confirm  | multicasts it again |
| next site | has all up to t, and no message waits           | confirms to the previous site that it has the token |
| next site | `idle_ns` later, if that is set                 | multicasts a null acknowledgement: passes the token |
| receiver  | acknowledgement above the expected one          | requests the missing ones, every τ_r |
| receiver  | acknowledged message not held                   | requests it, every τ_r |
| receiver  | M_s above the expected one                      | requests the next acknowledgement, every τ_r |
| server    | receives a request                              | sends a repair to the requester |
| server    | a source or a site repeats what is acknowledged | sends it the acknowledgement that it missed |

The server is the site that has the token; the previous one also remains a server until it knows that the token was
received. A request is multicast, as on the Ethernet for which the protocol was designed, and only servers answer.

- A source sends one message at a time, so M_s above the expected one indicates a missed acknowledgement. It repeats the
  message after a round of the token and τ_r: a message of each other source may be acknowledged before it.
- k_r attempts without an answer are a fault. The original then reforms the group by a three-phase commit; here the
  fault is reported and the attempts continue.
- Delivery is immediate, or `timing.hold_ns` after the acknowledgement's timestamp, which is the first change that MS §5
  makes. The timestamp is the site's clock when it sends; the original has none.

The messages are those of the ring's wire format: an acknowledgement is a Token of slot t with one run of one packet, or
with none; a confirm is a GroupToken with `have` = t; Request and Repair are themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Release, Send
from levelcast.protocol.events import Placed, RmpFault
from levelcast.protocol.history import History, first_tip
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.machine import Machine
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import Data, GroupToken, Message, Packet, Repair, Request, Run, Token
from levelcast.wire.packets import seal

GENERATION = 1
INCARNATION = 1
MAX_ASKED = 64
"""Maximum number of acknowledgements in one request."""


@dataclass(slots=True)
class Repeated:
    """A message that is sent every τ_r until it has its effect."""

    attempts: int
    next_ns: int


class RmpReceiver(Machine):
    """One receiver of the original protocol, sans I/O."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({Token, Data, Request, Repair, GroupToken})

    def __init__(self, config: StripeConfig, member: int, now: int, idle_ns: int | None = None) -> None:
        members = [life.member for life in config.membership.members]
        self.config = config
        self.timing = config.timing
        self.member = member
        self.wake_ns: int | None = None
        self.released = 0
        self.idle_ns = idle_ns
        """Time for which it keeps the token without a message to acknowledge; None: until one arrives."""
        self._confirm_ns = max(0, self.timing.request_ns - 2 * self.timing.late_ns)
        place = members.index(member)
        self._before = members[place - 1]
        self._history = History(first_tip(config))
        self._held = Holdings()
        self._acks: dict[int, Token] = {}
        self._waiting: deque[tuple[int, int]] = deque()
        """Source messages that were received and are not acknowledged, in order of arrival."""
        self._wanted: dict[int | Run, Repeated] = {}
        self._taken_ns: int | None = now if place == 0 else None
        """Time at which it received the token that it has; None without it."""
        self._confirmed = place == 0
        self._passed: Repeated | None = None
        """Repetition of the acknowledgement that passed the token on, until the next site confirms it."""
        self._last_own = 0
        self._effects: list[Effect] = []

    @property
    def have(self) -> int:
        """Every message up to this acknowledgement is ordered: t_r − 1."""
        return self._history.have

    @property
    def _serves(self) -> bool:
        return self._taken_ns is not None or self._passed is not None

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle `batch` at local time `now`; return the effects in order, and set `wake_ns`."""
        self._effects = []
        for message in batch:
            if isinstance(message, Repair):
                for item in message.items:
                    if isinstance(item, Token | Data):
                        self._take_in(item, now)
            elif isinstance(message, Request):
                self._serve(message)
            elif isinstance(message, GroupToken):
                self._taken_by_next(message.have)
            elif isinstance(message, (Token, Data)):
                self._answer_repeated(message)
                self._take_in(message, now)
        self._place()
        self._take_token(now)
        self._pass_token(now)
        self._release(now)
        self._repeat(now)
        self._set_wake(now)
        return self._effects

    # -- incoming messages --------------------------------------------------------------------------------

    def _take_in(self, item: Token | Data, now: int) -> None:
        if isinstance(item, Token):
            if item.slot > self.have:
                self._acks.setdefault(item.slot, item)
                for number in range(self.have + 1, min(item.slot, self.have + MAX_ASKED)):
                    if number not in self._acks:
                        self._want(number, now)
            self._taken_by_next(item.slot - 1)
            return
        expected = self._expected(item.source)
        if item.first < expected:
            return
        if self._held.add(item):
            self._waiting.append((item.source, item.first))
        if item.first > expected:
            self._want(self.have + 1, now)

    def _expected(self, source: int) -> int:
        """M_s,r."""
        place = self._history.tip.places.get(source)
        return place.next if place is not None else 1

    def _answer_repeated(self, message: Token | Data) -> None:
        """Answer implicit requests: a sender that repeats acknowledged messages missed an acknowledgement (MS §2.1)."""
        if not self._serves:
            return
        if isinstance(message, Data):
            if message.first < self._expected(message.source):
                acknowledged = self._acknowledgement_of(message.source, message.first)
                if acknowledged is not None:
                    self._pass_on(message.source, acknowledged)
        elif message.slot < self.have:
            self._pass_on(message.owner, self._acks[message.slot + 1])
        elif message.slot == self.have and self._taken_ns is not None and message.owner == self._before:
            self._confirm()

    def _pass_on(self, to: int, ack: Token) -> None:
        """Send an own acknowledgement again, or pass on another's."""
        self._effects.append(Send(to, ack if ack.owner == self.member else Repair(self.member, (ack,))))

    def _acknowledgement_of(self, source: int, number: int) -> Token | None:
        wanted = Run(source, INCARNATION, number, number)
        known = (ack for slot, ack in reversed(self._acks.items()) if slot <= self.have)
        return next((ack for ack in known if wanted in ack.runs), None)

    def _serve(self, request: Request) -> None:
        if not self._serves:
            return
        items: list[Token | Data] = [self._acks[slot] for slot in request.slots if slot in self._acks]
        for run in request.packets:
            shelf = self._held.packets.get((run.source, run.incarnation))
            items += shelf.take(run.first, run.last) if shelf is not None else ()
        if items:
            self._effects.append(Send(request.sender, Repair(self.member, tuple(items))))

    def _place(self) -> None:
        """Order acknowledged messages up to the first gap."""
        history = self._history
        while (ack := self._acks.get(history.have + 1)) is not None:
            if not self._held.is_complete(ack.runs, history):
                return
            history.extend(ack.slot, GENERATION, ack.timestamp_ns, ack.runs, self._held.packets)
            self._effects.append(Placed(ack.slot))

    # -- the token ----------------------------------------------------------------------------------------

    def _take_token(self, now: int) -> None:
        """Accept the token that the last acknowledgement passes here: only with everything up to it (MS §2.1)."""
        last = self._acks.get(self.have)
        if last is not None and last.owner == self._before and self._taken_ns is None and self._passed is None:
            self._taken_ns = now
            self._confirmed = False

    def _pass_token(self, now: int) -> None:
        if self._taken_ns is None:
            return
        run = self._next_message()
        if run is None and (self.idle_ns is None or now < self._taken_ns + self.idle_ns):
            if not self._confirmed and now >= self._taken_ns + self._confirm_ns:
                self._confirm()
            return
        slot = self.have + 1
        runs = (run,) if run is not None else ()
        ack = Token(GENERATION, slot, now, self.member, slot, self.config.credit, runs, ())
        ack = seal_message(ack, self.config.domain)
        self._acks[slot] = ack
        self._last_own = slot
        self._taken_ns = None
        self._passed = Repeated(0, now + self.timing.request_ns)
        self._effects.append(Send(GROUP, ack))
        self._place()

    def _next_message(self) -> Run | None:
        """Return the first received message that is not acknowledged yet."""
        while self._waiting:
            source, number = self._waiting[0]
            if number == self._expected(source):
                return Run(source, INCARNATION, number, number)
            self._waiting.popleft()
        return None

    def _confirm(self) -> None:
        """Confirm the token to the previous site, while no message has to be acknowledged (MS §2.1)."""
        self._confirmed = True
        self._effects.append(Send(self._before, GroupToken(self.member, GENERATION, 0, 0, self.have)))

    def _taken_by_next(self, slot: int) -> None:
        """Note that the next site has the token that acknowledgement `slot` passed."""
        if slot >= self._last_own:
            self._passed = None

    # -- requests and repetitions -------------------------------------------------------------------------

    def _want(self, what: int | Run, now: int) -> None:
        self._wanted.setdefault(what, Repeated(0, now))

    def _repeat(self, now: int) -> None:
        missing = self._acks.get(self.have + 1)
        if missing is not None:
            for run in self._held.missing(missing.runs, self._history):
                self._want(run, now)
        slots: list[int] = []
        runs: list[Run] = []
        for what in list(self._wanted):
            if self._is_here(what):
                del self._wanted[what]
            elif self._due(self._wanted[what], now, f"{what} is not repaired"):
                slots.extend((what,) if isinstance(what, int) else ())
                runs.extend((what,) if isinstance(what, Run) else ())
        if slots or runs:
            request = Request(self.member, GENERATION, self.have, tuple(slots[:MAX_ASKED]), tuple(runs[:MAX_ASKED]))
            self._effects.append(Send(GROUP, request))
        if self._passed is not None and self._due(self._passed, now, "the token is not taken"):
            self._effects.append(Send(GROUP, self._acks[self._last_own]))

    def _is_here(self, what: int | Run) -> bool:
        if isinstance(what, int):
            return what <= self.have or what in self._acks
        return what.last < self._expected(what.source) or not self._held.missing((what,), self._history)

    def _due(self, repeated: Repeated, now: int, fault: str) -> bool:
        if now < repeated.next_ns:
            return False
        if repeated.attempts and repeated.attempts % self.timing.attempts == 0:
            self._effects.append(RmpFault(self.have, fault))
        repeated.attempts += 1
        repeated.next_ns = now + self.timing.request_ns
        return True

    # -- delivery -----------------------------------------------------------------------------------------

    def _release(self, now: int) -> None:
        while self.released < self.have:
            ordered = self._history.at(self.released + 1)
            scheduled_ns = ordered.timestamp_ns + self.timing.hold_ns
            if self.timing.hold_ns and now < scheduled_ns:
                return
            self.released += 1
            if ordered.frame is not None:
                late = now > scheduled_ns + self.config.punctual_ns
                self._effects.append(Release(ordered.frame, scheduled_ns, late))

    def _set_wake(self, now: int) -> None:
        times = [repeated.next_ns for repeated in self._wanted.values()]
        if self._passed is not None:
            times.append(self._passed.next_ns)
        if self._taken_ns is not None and not self._confirmed:
            times.append(self._taken_ns + self._confirm_ns)
        if self._taken_ns is not None and self.idle_ns is not None:
            times.append(self._taken_ns + self.idle_ns)
        if self.released < self.have:
            times.append(self._history.at(self.released + 1).timestamp_ns + self.timing.hold_ns)
        self.wake_ns = max(min(times), now + 1) if times else None


class RmpSource(Machine):
    """One source of the original protocol, sans I/O: one message at a time."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({Token, Repair})

    def __init__(self, config: StripeConfig, source: int) -> None:
        self.config = config
        self.timing = config.timing
        self.source = source
        self.wake_ns: int | None = None
        self.acknowledged = 0
        self._again_ns = len(config.membership.members) * self.timing.late_ns + self.timing.request_ns
        self._queue: deque[Data] = deque()
        self._next = 1
        self._sent: Repeated | None = None

    @property
    def waiting(self) -> int:
        """Messages that are not acknowledged, including the one in transit."""
        return len(self._queue)

    def submit(self, payload: bytes, records: int, now: int) -> list[Effect]:
        """Number a message and queue it; it is sent when those before it are acknowledged."""
        packet = Packet(self.source, INCARNATION, self._next, records, payload)
        self._queue.append(seal(packet, self.config.domain))
        self._next += 1
        return self._send(now)

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle acknowledgements, send the next message or the same again; set `wake_ns`."""
        for message in (item for each in batch for item in (each.items if isinstance(each, Repair) else (each,))):
            if isinstance(message, Token) and any(run.source == self.source for run in message.runs):
                number = next(run.last for run in message.runs if run.source == self.source)
                if self._queue and number == self._queue[0].first:
                    self._queue.popleft()
                    self.acknowledged = number
                    self._sent = None
        return self._send(now)

    def _send(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._queue:
            if self._sent is None:
                self._sent = Repeated(0, now)
            if now >= self._sent.next_ns:
                if self._sent.attempts and self._sent.attempts % self.timing.attempts == 0:
                    effects.append(RmpFault(0, f"message {self._queue[0].first} is not acknowledged"))
                self._sent.attempts += 1
                self._sent.next_ns = now + self._again_ns
                effects.append(Send(GROUP, self._queue[0]))
        self.wake_ns = self._sent.next_ns if self._sent is not None and self._queue else None
        return effects
