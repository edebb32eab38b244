"""Compute the runs that a slot owner acknowledges in its token (rule 2).

For each source these are the packets that the slot owner holds, without a gap, from the first one that no known token
of a *lower* slot acknowledges. Tokens of later slots do not count, although a fast clock may already have sent them:
their packets follow later in the order, and skipping those packets here would reorder the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from levelcast.protocol.history import SourcePosition
from levelcast.protocol.holdings import Holdings
from levelcast.wire.messages import Run, Token
from levelcast.wire.parts import MAX_RUNS


def counts_as_known(token: Token, slot: int) -> bool:
    """Return whether `token` shows what is acknowledged before `slot`: only tokens of lower slots do (rule 2)."""
    return token.slot < slot


def runs_for(
    slot: int,
    have: int,
    places: Mapping[int, SourcePosition],
    held: Holdings,
    sources: Collection[int] | None = None,
) -> tuple[Run, ...]:
    """Return the runs for the token of `slot`, sent by a member that has ordered everything up to `have`.

    With `sources` only packets of these are acknowledged: those in the owner's network file.
    """
    known: dict[tuple[int, int], list[Run]] = {}
    for token in held.tokens.values():
        if token.slot > have and counts_as_known(token, slot):
            for run in token.runs:
                known.setdefault((run.source, run.incarnation), []).append(run)
    runs: list[Run] = []
    for (source, incarnation), shelf in held.packets.items():
        if sources is not None and source not in sources:
            continue
        place = places.get(source)
        if place is not None and incarnation < place.incarnation:
            continue
        cursor = place.next if place is not None and place.incarnation == incarnation else 1
        for run in sorted(known.get((source, incarnation), ())):
            if run.first <= cursor <= run.last:
                cursor = run.last + 1
        last = shelf.contiguous_from(cursor)
        if last >= cursor:
            runs.append(Run(source, incarnation, cursor, last))
    runs.sort()
    if len(runs) > MAX_RUNS:  # more sources than fit a token: they rotate, slot by slot
        first = slot * MAX_RUNS % len(runs)
        runs = sorted((runs[first:] + runs[:first])[:MAX_RUNS])
    return tuple(runs)
