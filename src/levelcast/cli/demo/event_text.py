"""What happens in a running network, told in plain words: once, and by the names of the nodes."""

from __future__ import annotations

import re
from typing import NamedTuple

from levelcast.network import Network

_RED, _YELLOW, _GREEN, _CYAN = "bold red", "yellow", "green", "bold cyan"
_ALARMING = frozenset({"conflict", "diverged", "refused", "superseded", "clock-wrong", "retention"})


class Sentence(NamedTuple):
    """Something that happened, and the style it deserves."""

    at_s: float
    text: str
    style: str = ""


class EventText:
    """Makes sentences of the events of a cluster; what comes from every node, or again and again, is told once."""

    def __init__(self, network: Network) -> None:
        self.sentences: list[Sentence] = []
        self._names = {
            node.id: node.name for group in (network.receivers, network.reformation, network.floors) for node in group
        }
        self._receivers = {receiver.id for receiver in network.receivers}
        self._said: set[object] = set()
        self._ring = 0
        self._returning: set[str] = set()

    def hear(self, at_s: float, name: str, what: str) -> Sentence | None:
        """An event of a node: the sentence about it, if it is worth one."""
        kind, _, detail = what.partition(" ")
        told = self._tell(name, kind, detail)
        if told is None:
            return None
        sentence = Sentence(at_s, *told)
        self.sentences.append(sentence)
        return sentence

    def _once(self, *what: object) -> bool:
        """Whether this is told for the first time since the last ring was formed."""
        key = (self._ring, *what)
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def _tell(self, name: str, kind: str, detail: str) -> tuple[str, str] | None:
        if kind in _ALARMING:
            return (f"{name}: {kind}, {detail}", _RED) if self._once(name, kind, detail) else None
        teller = {
            "killed": self._killed,
            "started": self._started,
            "fault": self._fault,
            "invites": self._invites,
            "gives-up": self._gives_up,
            "forms": self._forms,
            "voided": self._voided,
            "caught-up": self._caught_up,
            "on-time": self._on_time,
            "open": self._open,
            "close": self._close,
        }.get(kind)
        return teller(name, detail) if teller is not None else None

    # -- one kind each ------------------------------------------------------------------------------------

    def _killed(self, name: str, detail: str) -> tuple[str, str]:
        return f"{name} is killed (kill -9)", _RED

    def _started(self, name: str, detail: str) -> tuple[str, str]:
        self._returning.add(name)
        return f"{name} is started again on its directory", _CYAN

    def _fault(self, name: str, detail: str) -> tuple[str, str] | None:
        reason, _, suspect = detail.partition(", suspect ")
        if name in self._returning:
            told = f"{name} finds that the ring went on without it, and asks to be let in"
            return (told, "") if self._once("let in", name) else None
        if reason == "outside the ring" and self._ring:
            return (f"{name} is outside the ring and asks to be let in", "") if self._once("let in", name) else None
        if reason == "outside the ring":
            return ("there is no ring yet: the receivers ask for one", "") if self._once("no ring") else None
        if reason in ("membership changed", "promised, no ring"):  # to vouch for others, or to say it again
            return None
        who = self._names.get(int(suspect)) if suspect.isdigit() else None
        why = f"{reason}, it suspects {who}" if who else reason
        return (f"{name} asks for a new ring: {why}", _YELLOW) if self._once("fault", reason) else None

    def _invites(self, name: str, detail: str) -> tuple[str, str] | None:
        number = detail.removeprefix("generation ")
        return (f"{name} invites everybody into ring {number}", "") if self._once("invites") else None

    def _gives_up(self, name: str, detail: str) -> tuple[str, str] | None:
        return (f"{name} gives up for now: {detail}", _YELLOW) if self._once("gives up", name) else None

    def _forms(self, name: str, detail: str) -> tuple[str, str] | None:
        found = re.fullmatch(r"generation (\d+) at slot (\d+): (.*)", detail)
        if found is None:
            return None
        members = {int(member) for member in found[3].split(", ")}
        self._ring += 1
        without = [self._names[member] for member in sorted(self._receivers - members)]
        rest = f", without {', '.join(without)}" if without else ""
        return f"ring {found[1]} is formed: {len(members)} members{rest}, from slot {found[2]} on", _GREEN

    def _voided(self, name: str, detail: str) -> tuple[str, str] | None:
        count = detail.split()[0]
        if not self._once("voided"):
            return None
        if count == "1":
            return "1 slot of the old ring is void: its trades come in later ones", ""
        return f"{count} slots of the old ring are void: their trades come in later ones", ""

    def _caught_up(self, name: str, detail: str) -> tuple[str, str] | None:
        helper = self._names.get(int(detail.split()[-1]), "?")
        if name not in self._returning or not self._once("caught up", name):
            return None
        return f"{name} catches up by frames from {helper}'s tape", _CYAN

    def _on_time(self, name: str, detail: str) -> tuple[str, str]:
        self._returning.discard(name)
        return f"{name} is back: it releases on time again, with the others", _CYAN

    def _open(self, name: str, detail: str) -> tuple[str, str]:
        return f"{detail} floors open", "bold"

    def _close(self, name: str, detail: str) -> tuple[str, str]:
        return f"the floors close after {int(detail):,} trades; what is held is released", "bold"
