"""Clauses of the protocols of wide-area groups, each a function, so that a simulation can remove one of them."""

from __future__ import annotations

from collections.abc import Mapping

from levelcast.overlay.wide.entries import Entry
from levelcast.wire.wide_messages import WideData


def destinations_of(data: WideData, lives: Mapping[int, int]) -> frozenset[int]:
    """Return the destinations that are still members, with the life to which the message was sent."""
    return frozenset(each for each in data.members if each in lives and is_for_life(lives[each], data.view))


def is_for_life(life: int, view: int) -> bool:
    """Return whether a message of a view is for a life: one that began later is another process."""
    return life <= view


def is_received_by_all(entry: Entry) -> bool:
    """Return whether all destinations are known to have received a message, so that it need not be kept."""
    return entry.plan.destinations <= entry.known


def group_is_complete(entry: Entry, process: int) -> bool:
    """Return whether all destinations in a coordinator's subgroup are known to have received a message."""
    return entry.plan.group_of(process) <= entry.known


def skips_lost() -> bool:
    """Return whether a message may be delivered without a predecessor that no member holds."""
    return True


def carried(members: frozenset[int]) -> frozenset[int]:
    """Return the causal constraints of others that a process passes on with its own messages."""
    return members


def freezes() -> bool:
    """Return whether a member receives and sends no new messages after its promise."""
    return True


def adopts() -> bool:
    """Return whether a promise reports the content that was accepted before."""
    return True


def waits_for_all() -> bool:
    """Return whether a proposal waits for the reports of all members that stay."""
    return True


def accepts(each_is_new: bool) -> bool:
    """Return whether a message is received: only if it is new."""
    return each_is_new


def waits_for_lost() -> bool:
    """Return whether a message after a lost one waits for what may have been before that."""
    return True


def may_leave(leaving: bool, entries: int) -> bool:
    """Return whether nobody needs this process any more: it keeps no message that others may lack."""
    return leaving and not entries


def closes(predecessors_closed: bool) -> bool:
    """Return whether a message that is received everywhere is closed: only if all before it are."""
    return predecessors_closed
