"""The first view of a group: formed once, with the lives that requested it."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.founding import RECENT, Founding
from levelcast.overlay.wide.process import GroupProcess
from levelcast.protocol.effects import Effect, Send
from levelcast.wire.messages import Message
from levelcast.wire.wide_messages import WideConfirm, WideRequest, WideView
from tests.wide_parts import MS, equal_matrix, group

CONFIG: GroupConfig = group("M", equal_matrix(3), alive_ns=10 * MS)
EXCHANGE = CONFIG.exchange_ns


def request(process: int, incarnation: int = 1, *, view: int = 0, leaves: bool = False) -> WideRequest:
    return WideRequest(process, view, incarnation, leaves)


def ready(process: int = 1, incarnation: int = 5) -> Founding:
    """A process that has heard all others, just after its first exchange."""
    founding = Founding(CONFIG, process, incarnation, 0)
    for each in (1, 2, 3):
        if each != process:
            founding.hear(request(each, 10 + each), EXCHANGE)
    return founding


def test_the_founder_names_the_incarnations_of_all() -> None:
    content = ready().content(EXCHANGE)
    assert content is not None
    assert [(each.process, each.life, each.incarnation, each.number) for each in content.members] == [
        (1, 1, 5, 0),
        (2, 1, 12, 0),
        (3, 1, 13, 0),
    ]


def test_only_the_first_process_founds() -> None:
    assert ready(2).missing(EXCHANGE) == ()
    assert ready(2).content(EXCHANGE) is None


def test_requests_that_may_be_to_an_earlier_life_do_not_count() -> None:
    founding = Founding(CONFIG, 1, 5, 0)
    for each in (2, 3):
        founding.hear(request(each), EXCHANGE - 1)
    assert founding.missing(EXCHANGE) == (2, 3)
    assert founding.content(EXCHANGE) is None


def test_requests_of_members_and_of_those_that_leave_do_not_count() -> None:
    founding = ready()
    founding.hear(request(2, 50, view=4), EXCHANGE)
    founding.hear(request(3, 50, leaves=True), EXCHANGE)
    content = founding.content(EXCHANGE)
    assert content is not None
    assert [each.incarnation for each in content.members] == [5, 12, 13]


def test_a_request_is_recent_for_some_exchanges() -> None:
    founding = ready()
    founding.hear(request(2, 12), 3 * EXCHANGE)
    assert founding.missing((RECENT + 1) * EXCHANGE) == ()
    assert founding.missing((RECENT + 1) * EXCHANGE + 1) == (3,)


def test_the_last_incarnation_counts() -> None:
    founding = ready()
    founding.hear(request(2, 20), EXCHANGE)
    founding.hear(request(2, 12), EXCHANGE)  # late, of the life before
    content = founding.content(EXCHANGE)
    assert content is not None
    assert content.members[1].incarnation == 20


class Starting:
    """Three processes that start without a view; messages arrive at once, unless they are lost."""

    def __init__(self) -> None:
        self.now = 0
        self.lost: set[type[Message]] = set()
        self.processes = {each: self.start(each, 1) for each in (1, 2, 3)}

    def start(self, process: int, incarnation: int) -> GroupProcess:
        return GroupProcess(CONFIG, process, self.now, incarnation=incarnation, joins=True, founds=True)

    def run(self, until_ns: int) -> None:
        while self.now < until_ns:
            self.now += MS
            for process in list(self.processes):
                self._deliver(process, self.processes[process].step((), self.now))

    def _deliver(self, sender: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and type(effect.message) not in self.lost and effect.to in self.processes:
                self._deliver(effect.to, self.processes[effect.to].step((effect.message,), self.now))

    def views(self) -> dict[int, int]:
        return {each: machine.generation for each, machine in self.processes.items()}


def test_processes_that_start_form_one_group() -> None:
    starting = Starting()
    late = starting.processes.pop(3)
    starting.run(10 * EXCHANGE)
    assert starting.views() == {1: 0, 2: 0}
    assert starting.processes[1].missing(starting.now) == (3,)
    starting.processes[3] = late
    starting.run(14 * EXCHANGE)
    assert starting.views() == {1: 1, 2: 1, 3: 1}
    assert starting.processes[1].missing(starting.now) == ()


def test_a_lost_first_view_is_repeated_on_the_next_request() -> None:
    starting = Starting()
    starting.lost = {WideView}
    starting.run(2 * EXCHANGE)
    assert starting.views() == {1: 1, 2: 0, 3: 0}
    starting.lost = {WideConfirm}  # also without signs of life: the request itself is answered
    starting.run(3 * EXCHANGE + 10 * MS)
    assert starting.views() == {1: 1, 2: 1, 3: 1}


def test_a_founder_that_returns_joins_the_running_group() -> None:
    starting = Starting()
    starting.run(4 * EXCHANGE)
    assert starting.views() == {1: 1, 2: 1, 3: 1}
    starting.processes[1] = starting.start(1, 2)
    starting.run(40 * EXCHANGE)
    views = starting.views()
    assert len(set(views.values())) == 1
    assert views[1] > 1
    assert starting.processes[1].life > 1
