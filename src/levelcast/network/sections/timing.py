"""[timing] and [stripes]: what the timing of each ring is made from, and whether it agrees (rules 4, 5, 6 and 8)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from levelcast.network.fields import Fields, did_you_mean, is_int, show
from levelcast.network.model import Nack, Stripe, TimingRules, Witness
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.network.toml_lines import KeyPath
from levelcast.timing.derive import contradictions
from levelcast.timing.nack_sets import MOST_SETS
from levelcast.timing.rules import LOSS_LIMIT, Mode

DEFAULT_STRIPE = "main"


def read(root: Fields, draft: Draft) -> None:
    """Read the rules of [timing], and of each stripe where it differs from them."""
    rules = TimingRules()
    timing = root.table("timing", "[timing]")
    if timing is not None:
        rules = _read_rules(timing, rules)
        timing.finish()
    table = root.table("stripes", "[stripes]")
    named: list[tuple[str, Fields | None]] = list(table.subtables()) if table is not None else []
    stripes = []
    for index, (name, fields) in enumerate(named or [(DEFAULT_STRIPE, None)]):
        stripe = Stripe(name, index, rules if fields is None else _read_rules(fields, rules))
        if fields is not None:
            fields.finish()
        stripes.append(stripe)
        draft.check_later(partial(_check_timing, draft, stripe, fields, timing))
    draft.add(stripes=tuple(stripes))


def _read_rules(fields: Fields, base: TimingRules) -> TimingRules:
    """The keys of [timing], or of a stripe, which has the same ones to differ from [timing] in."""

    def either(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    return replace(
        base,
        mode=cast(Mode, fields.choice("mode", ("pipelined", "lockstep"), base.mode)),
        slot_ns=fields.duration("slot") or base.slot_ns,
        witness=_read_witness(fields, base.witness),
        late_ns=fields.duration("late") or base.late_ns,
        request_ns=fields.duration("request") or base.request_ns,
        attempts=fields.whole("attempts", 1, 1000) or base.attempts,
        hold_ns=fields.duration("hold") or base.hold_ns,
        clock_error_ns=either(fields.duration("clock_error", zero=True), base.clock_error_ns),
        transmit_ns=either(fields.duration("transmit", zero=True), base.transmit_ns),
        process_ns=either(fields.duration("process", zero=True), base.process_ns),
        nack_sets=_read_nack_sets(fields, base.nack_sets),
    )


def _read_nack_sets(fields: Fields, default: Nack) -> Nack:
    value = fields.raw("nack_sets")
    if value is None:
        return default
    if value == "tree":
        return "tree"
    if is_int(value) and 1 <= value <= MOST_SETS:
        return value
    if isinstance(value, list) and 1 <= len(value) <= MOST_SETS and all(is_int(size) and size >= 1 for size in value):
        return tuple(value)
    shown = str(value) if isinstance(value, list) and len(str(value)) <= 60 else show(value)
    fields.problem(
        "nack_sets",
        f"has nack_sets = {shown}: it must be a number of sets from 1 to {MOST_SETS}, the sizes of so many sets "
        f'such as [1, 2, 4], or "tree"{did_you_mean(value, ("tree",))}',
    )
    return default


def _read_witness(fields: Fields, default: Witness) -> Witness:
    value = fields.raw("witness")
    if value is None:
        return default
    if value == "majority":
        return "majority"
    if value == "all":
        return "all"
    if is_int(value) and 1 <= value <= ID_LIMIT:
        return value
    hint = did_you_mean(value, ("majority", "all"))
    fields.problem(
        "witness", f'has witness = {show(value)}: it must be "majority", "all" or a number of receivers{hint}'
    )
    return default


def _check_timing(
    draft: Draft,
    stripe: Stripe,
    stripe_fields: Fields | None,
    timing_fields: Fields | None,
) -> None:
    """Rules 4, 5, 6 and 8: is there a timing, and does what was given agree with it?"""
    network, report = draft.network, draft.report
    if not network.receivers or not network.reformation:
        return
    prefix = "" if stripe_fields is None else f'stripe "{stripe.name}": '

    def problem(key: str, message: str) -> None:
        where: KeyPath = ("timing", key)
        if stripe_fields is not None and (key in stripe_fields or timing_fields is None):
            where = stripe_fields.at(key)
        report.add(where, prefix + message)

    rules = stripe.rules
    sound = True
    if rules.mode == "pipelined" and rules.slot_ns is None:
        if not _given(("slot",), stripe_fields, timing_fields):
            problem("slot", '[timing] has no slot: a pipelined ring needs one, such as slot = "50ms"')
        sound = False
    if network.links is None and (rules.late_ns is None or rules.attempts is None):
        if not _given(("late", "attempts"), stripe_fields, timing_fields):
            problem(
                "late",
                "there is nothing to derive the timing from: give late and attempts in [timing], or [links]",
            )
        elif rules.late_ns is None and not _given(("late",), stripe_fields, timing_fields):
            problem("late", "[timing] has no late, and there are no [links] to derive it from")
        elif rules.attempts is None and not _given(("attempts",), stripe_fields, timing_fields):
            problem("attempts", "[timing] has no attempts, and there are no [links] to derive it from")
        sound = False
    path = network.path(stripe.name)
    if rules.attempts is None and path.loss_ratio > LOSS_LIMIT:
        report.add(
            draft.loss_at.get(path.loss_between, ("links", "loss")),
            f"{prefix}a loss of {path.loss_ratio:g} between {path.loss_between} is more than "
            f"{LOSS_LIMIT:g}: attempts (k_r) cannot be derived from it; give attempts in [timing]",
        )
        sound = False
    if not sound:
        return
    sets = rules.nack_sets
    receivers = len(network.receivers)
    if sets != "tree" and (asked := sets if isinstance(sets, int) else sum(sets)) > receivers:
        what = f"{asked} sets" if isinstance(sets, int) else f"sets of {asked} receivers"
        count = "is one" if receivers == 1 else f"are {receivers}"
        problem("nack_sets", f"nack_sets asks for {what}, and there {count}: each set needs a receiver (MS §5.2)")
    derived = network.derived(stripe.name)
    if derived.timing.request_ns == 0:
        problem("process", "request (τ_r) comes out as nothing: give [links] a delay or [timing] a process time")
    for field, message in contradictions(derived, network.shape(stripe.name)):
        problem(field, message)


def _given(keys: tuple[str, ...], *tables: Fields | None) -> bool:
    """Whether one of the keys stands in one of the tables, even if its value was refused."""
    return any(key in table for table in tables if table is not None for key in keys)
