"""[timing] and [stripes]: the inputs of each ring's timing, checked for consistency (rules 4, 5, 6 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from levelcast.network.fields import Fields, did_you_mean, is_int, known, show
from levelcast.network.hold_input import rule_6_because
from levelcast.network.keys import FileKey, FileTable
from levelcast.network.model import Nack, Network, Stripe, TimingRules, Witness
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.network.toml_lines import KeyPath
from levelcast.timing.copies import MAX_REDUNDANCY, MOST_PARITY, MOST_TOKENS, Copies
from levelcast.timing.derive import contradictions
from levelcast.timing.nack_sets import MOST_SETS
from levelcast.timing.rules import LOSS_LIMIT
from levelcast.units import show_ns

DEFAULT_STRIPE = "main"
LEAST_WINDOW_NS = 2_000_000_000


_DEFAULTS = TimingRules()
_KEYS = (
    FileKey(
        "mode",
        "an owner with gaps sends its token on time (pipelined) or waits for repair (rule 4)",
        f'`"{_DEFAULTS.mode}"`',
    ),
    FileKey("slot", "τ, time between two tokens", "required if pipelined; R in lockstep"),
    FileKey("witness", "number of receivers that witness a slot (rule 8)", f'`"{_DEFAULTS.witness}"`'),
    FileKey("late", "δ_N, time after which a token counts as missing", "from the links and the clock error"),
    FileKey("request", "τ_r, time between two requests", "2δ_N + X + P"),
    FileKey("attempts", "k_r, requests before a fault", "from the loss"),
    FileKey(
        "hold",
        "Δ_A, from timestamp to release; `levelcast timing --write` stores it. "
        '`"auto"`: it [follows](hold-time.md#automatic-hold-time) what receivers measure',
        "a bound from the links; rule 6 in lockstep or with NACK sets",
        'duration, or `"auto"`',
    ),
    FileKey(
        "late_target", "share of the releases that may be late at the worst receiver", f"{_DEFAULTS.late_target:g}"
    ),
    FileKey(
        "redundancy",
        "limit of the bytes that each node sends, over those without additional copies (rule W11)",
        f"{_DEFAULTS.redundancy:g}: no additional copies",
    ),
    FileKey(
        "copies",
        "by receiver, further copies of each token, and packets of which the XOR is sent too; "
        "`levelcast timing --write` stores them. `second_path = true`: without multicast, all over a detour, too",
        "none",
    ),
    FileKey(
        "lengthen_after",
        'with hold = "auto", the time above the late target before a longer hold time',
        show_ns(_DEFAULTS.lengthen_after_ns),
    ),
    FileKey(
        "shorten_after",
        'with hold = "auto", the time with unused hold time before a shorter one',
        show_ns(_DEFAULTS.shorten_after_ns),
    ),
    FileKey(
        "scheduling",
        "part of the hold time for processes that run late",
        show_ns(_DEFAULTS.scheduling_ns),
    ),
    FileKey("clock_error", "maximum error of any clock against UTC", show_ns(_DEFAULTS.clock_error_ns)),
    FileKey(
        "asymmetry",
        "error of clock offsets between receivers, from paths that differ by direction (C2)",
        show_ns(_DEFAULTS.asymmetry_ns),
    ),
    FileKey(
        "leap",
        'before a leap second receivers `"stop"`; with `"smear"` all time sources smear it (C4)',
        f'`"{_DEFAULTS.leap}"`',
    ),
    FileKey("transmit", "X, transmission time of a request and its reply", f"{_DEFAULTS.transmit_ns}"),
    FileKey(
        "process",
        "P, processing time of a request and its reply, including the journal ([cost of `durable`](tape.md#cost))",
        show_ns(_DEFAULTS.process_ns),
    ),
    FileKey(
        "nack_sets",
        "receivers send requests in sets, in turn (MS §5.2). With sizes, all remaining receivers are in the last set; "
        '`"tree"` is one receiver of each region first. Increases the hold time',
        f"{_DEFAULTS.nack_sets}: all together",
    ),
)
TABLES = (
    FileTable("[timing]", _KEYS),
    FileTable(
        "[stripes.NAME]",
        (
            FileKey(
                "any key of `[timing]`",
                "one ring over the same receivers, with its own order",
                "that of `[timing]`",
                " ",
            ),
        ),
        f"without it there is one stripe, `{DEFAULT_STRIPE}`",
    ),
)


def read(root: Fields, draft: Draft) -> None:
    """Read the rules of [timing], and the differences of each stripe."""
    timing = root.table("timing")
    rules = _read_rules(timing, TimingRules())
    named: list[tuple[str, Fields | None]] = list(root.table("stripes").subtables())
    stripes = []
    for index, (name, fields) in enumerate(named or [(DEFAULT_STRIPE, None)]):
        stripe = Stripe(name, index, rules if fields is None else _read_rules(fields, _without_hold(fields, rules)))
        stripes.append(stripe)
        draft.check_later(partial(_check_timing, draft, stripe, fields, timing))
    draft.add(stripes=tuple(stripes))


def _without_hold(fields: Fields, rules: TimingRules) -> TimingRules:
    """Return the rules that a stripe inherits: with other rules of its own it needs another hold time."""
    return replace(rules, hold_ns=None) if any(key.name in fields for key in _KEYS) else rules


def _read_rules(fields: Fields, base: TimingRules) -> TimingRules:
    """Read the keys of [timing], or of a stripe, which can override any of them."""
    auto = "hold" in fields and fields.raw("hold") == "auto"
    durations = {
        f"{key}_ns": fields.duration(key) for key in ("slot", "late", "request", "lengthen_after", "shorten_after")
    }
    if not auto:
        durations["hold_ns"] = fields.duration("hold", word="auto")
        if "hold" in fields:
            base = replace(base, hold_auto=False)
    durations |= {
        f"{key}_ns": fields.duration(key, zero=True)
        for key in ("clock_error", "asymmetry", "transmit", "process", "scheduling")
    }
    for key in ("lengthen_after", "shorten_after"):
        if (found := durations[f"{key}_ns"]) is not None and found < LEAST_WINDOW_NS:
            fields.problem(key, f"has {key} = {show_ns(found)}: the minimum is {show_ns(LEAST_WINDOW_NS)}")
    if auto:
        base = replace(base, hold_ns=None, hold_auto=True)
    values = known(
        mode=fields.choice("mode", "pipelined", "lockstep"),
        witness=_read_witness(fields),
        leap=fields.choice("leap", "stop", "smear"),
        attempts=fields.whole("attempts", 1, 1000),
        nack_sets=_read_nack_sets(fields),
        late_target=_read_late_target(fields),
        redundancy=_read_redundancy(fields),
        copies=_read_copies(fields),
        **durations,
    )
    return replace(base, **values)


def _read_late_target(fields: Fields) -> float | None:
    def accept(value: Any) -> float | None:
        return float(value) if isinstance(value, int | float) and 1e-7 <= value <= 0.1 else None

    return fields.read("late_target", accept, "a share from 1e-7 to 0.1, such as 1e-5")


def _read_redundancy(fields: Fields) -> float | None:
    def accept(value: Any) -> float | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 1.0 <= value <= MAX_REDUNDANCY else None

    return fields.read("redundancy", accept, f"a factor from 1 to {MAX_REDUNDANCY:g}, such as 1.4")


def _read_copies(fields: Fields) -> tuple[tuple[str, Copies], ...] | None:
    limits = {"tokens": MOST_TOKENS, "parity": MOST_PARITY}

    def is_entry(entry: Any) -> bool:
        return isinstance(entry, dict) and all(
            isinstance(value, bool)
            if key == "second_path"
            else key in limits and is_int(value) and 0 <= value <= limits[key]
            for key, value in entry.items()
        )

    def accept(value: Any) -> tuple[tuple[str, Copies], ...] | None:
        if not (isinstance(value, dict) and all(map(is_entry, value.values()))):
            return None
        return tuple((name, Copies(**entry)) for name, entry in value.items())

    expected = (
        f"receivers with tokens from 0 to {MOST_TOKENS}, parity from 0 to {MOST_PARITY} and second_path, "
        "such as { sydney-1 = { tokens = 1, parity = 3 } }"
    )
    return fields.read("copies", accept, expected)


def _read_nack_sets(fields: Fields) -> Nack | None:
    def accept(value: Any) -> Nack | None:
        sizes = value if isinstance(value, list) else [value]
        if value == "tree" or (is_int(value) and 1 <= value <= MOST_SETS):
            return cast(Nack, value)
        fits = isinstance(value, list) and 1 <= len(value) <= MOST_SETS
        return tuple(sizes) if fits and all(is_int(size) and size >= 1 for size in sizes) else None

    expected = f"a number of sets from 1 to {MOST_SETS}, the sizes of the sets such as [1, 2, 4], or "
    return fields.read(
        "nack_sets",
        accept,
        f'{expected}"tree"',
        partial(did_you_mean, options=("tree",)),
        lambda value: str(value) if isinstance(value, list) and len(str(value)) <= 60 else show(value),
    )


def _read_witness(fields: Fields) -> Witness | None:
    words = ("majority", "all")

    def accept(value: Any) -> Witness | None:
        return value if value in words or (is_int(value) and 1 <= value <= ID_LIMIT) else None

    expected = '"majority", "all" or a number of receivers'
    return fields.read("witness", accept, expected, partial(did_you_mean, options=words))


def _check_timing(draft: Draft, stripe: Stripe, stripe_fields: Fields | None, timing_fields: Fields) -> None:
    """Check rules 4, 5, 6 and 8: that a timing can be derived, and that the values in the file are consistent."""
    network, report = draft.network, draft.report
    if not network.receivers or not network.reformation:
        return
    prefix = "" if stripe_fields is None else f'stripe "{stripe.name}": '

    def problem(key: str, message: str) -> None:
        where: KeyPath = ("timing", key)
        if key == "hold" and key in timing_fields and (stripe_fields is None or key not in stripe_fields):
            if stripe.name == next(each.name for each in network.stripes if each.rules == stripe.rules):
                report.add(where, message)  # once for all stripes that inherit it
            return
        if stripe_fields is not None and (key in stripe_fields or not timing_fields.given):
            where = stripe_fields.at(key)
        report.add(where, prefix + message)

    def given(key: str) -> bool:
        """Return whether a key is present, even if its value is invalid."""
        return key in timing_fields or (stripe_fields is not None and key in stripe_fields)

    rules = stripe.rules
    sound = True
    if rules.mode == "pipelined" and rules.slot_ns is None:
        if not given("slot"):
            problem("slot", '[timing] has no slot; a pipelined ring needs one, such as slot = "50ms"')
        sound = False
    missing = [key for key, value in (("late", rules.late_ns), ("attempts", rules.attempts)) if value is None]
    if network.links is None and missing:
        if not given("late") and not given("attempts"):
            nothing = "the timing cannot be derived; set late and attempts in [timing], or add [links]"
            problem("late", nothing)
        elif absent := [key for key in missing if not given(key)]:
            problem(absent[0], f"[timing] has no {absent[0]}, and [links], from which it could be derived, is missing")
        sound = False
    path = network.path(stripe.name)
    if rules.attempts is None and path.loss_ratio > LOSS_LIMIT:
        report.add(
            draft.loss_at.get(path.loss_between, ("links", "loss")),
            f"{prefix}a loss of {path.loss_ratio:g} between {path.loss_between} is more than "
            f"{LOSS_LIMIT:g}, so attempts (k_r) cannot be derived; set attempts in [timing]",
        )
        sound = False
    if not sound:
        return
    if rules.hold_auto and (because := rule_6_because(network, stripe.name)) is not None:
        problem("hold", f'hold = "auto" is not supported {because}: the hold time follows from rule 6; remove it')
    _check_copies(network, rules, problem)
    sets = rules.nack_sets
    receivers = len(network.receivers)
    if sets != "tree" and (asked := sets if isinstance(sets, int) else sum(sets)) > receivers:
        what = f"{asked} sets" if isinstance(sets, int) else f"sets of {asked} receivers"
        count = "one receiver" if receivers == 1 else f"{receivers} receivers"
        problem("nack_sets", f"nack_sets has {what}, but the network has {count}; each set needs one (MS §5.2)")
    derived = network.derived(stripe.name, bound=False)
    if derived.timing.request_ns == 0:
        problem("process", "request (τ_r) is 0; set a delay in [links] or a process time in [timing]")
    for field, message in contradictions(derived, network.shape(stripe.name)):
        problem(field, message)


def _check_copies(network: Network, rules: TimingRules, problem: Callable[[str, str], None]) -> None:
    """Check that copies are for receivers of the network, and allowed by `redundancy`."""
    names = {receiver.name for receiver in network.releasing}
    for name, _ in rules.copies:
        if name not in names:
            known_names = ", ".join(sorted(names))
            problem("copies", f'copies has "{name}", which is no receiver; the file has {known_names}')
            return
    if rules.copies and rules.redundancy == 1.0:
        problem("copies", "copies needs redundancy above 1, such as redundancy = 1.4; set it, or remove copies")
        return
    second = [name for name, each in rules.copies if each.second_path]
    if second and network.transport == "multicast":
        problem("copies", f'second_path of "{second[0]}" needs transport = "unicast" or "sites" in [core]')
    needed = 1 + len(second) / max(1, len(network.releasing))
    if second and needed > rules.redundancy:
        problem("copies", f"copies with {len(second)} second paths need redundancy = {needed:.2g} or more; set it")
