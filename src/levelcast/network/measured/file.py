"""Write the measured links and timing as a file that a network file includes."""

from __future__ import annotations

import math

from levelcast.network import Network
from levelcast.network.fields import LONGEST_NS
from levelcast.network.measured.matrix import HELPERS, Helper, Way
from levelcast.network.measured.timing import ALL, MatrixResult
from levelcast.units import show_ns


def measured_file(
    measured: MatrixResult,
    network: Network | None,
    lake: str,
    *,
    fix_timing: bool = False,
    hold_ns: int | None = None,
) -> str:
    """Return the text of the file for `include`: links, helpers, and the resulting timing, with the hold time."""
    hour, when = measured.hour, f"{measured.name}:00Z" if measured.name != ALL else "each pair in its worst hour"
    lines = [
        f"# Measured delay and loss between sites, from the probes of {lake} by `levelcast matrix`.",
        '# Use it in a network file with include = ["this file"]; values of the network file have priority.',
        "# delay: minimum one-way delay; delay + jitter: the quantile; loss: one way, its 95 % upper bound.",
        "",
        "[measured]",
    ]
    if network is not None and network.name:
        lines.append(f"network = {_text(network.name)}")
    lines += [f"at = {_text(when)}", f"quantile = {hour.quantile:g}", ""]
    lines += _timing_lines(measured, network, fix_timing=fix_timing, hold_ns=hold_ns)
    lines += ["[links]", "pairs = ["]
    for (a, b), way in sorted(hour.ways.items()):
        lines.append(f"    {{ {_pair(a, b, way, hour.loss_bound(way))} }},{_counted(way)}")
    lines += ["]", ""]
    if measured.helpers:
        lines += ["# Request order for missing data; comments show the expected repair times.", "[helpers]"]
        for site, ranked in measured.helpers.items():
            best = [each for rank, each in ranked if rank <= HELPERS]
            listed = ", ".join(_text(each.site) for each in best)
            lines.append(f"{_text(site)} = [{listed}]  # {', '.join(_expected(each) for each in best)}")
    return "\n".join(lines).rstrip() + "\n"


def _expected(helper: Helper) -> str:
    return show_ns(round(helper.expected_ns)) if helper.expected_ns < LONGEST_NS else "never"


def _timing_lines(
    measured: MatrixResult, network: Network | None, *, fix_timing: bool, hold_ns: int | None
) -> list[str]:
    lines = []
    for each in measured.timed:
        whose = f"stripe {each.stripe}" if network is not None else "a receiver at every site"
        lines.append(f"# Timing of {whose}, τ = {show_ns(each.slot_ns)}, w = {each.witnesses}:")
        if each.timing is None:
            lines.append(f"#   none: a loss of {each.loss_ratio:.2g} between {each.loss_between} is above one half")
            continue
        t = each.timing
        lines += [
            f"#   δ_N = {show_ns(t.late_ns)}: {show_ns(each.delay_ns)} between {each.delay_between}, and clock errors",
            f"#   k_r = {t.attempts}: a loss of {each.loss_ratio:.2g} between {each.loss_between}",
            f"#   τ_r = {show_ns(t.request_ns)}, R = {show_ns(t.recovery_ns)}, Δ_A = {show_ns(t.hold_ns)}",
        ]
    lines.append("")
    first = measured.timed[0].timing if fix_timing else None
    if first is not None:
        hold_ns = hold_ns or first.hold_ns
        lines += ["[timing]", f'late = "{first.late_ns}ns"', f'request = "{first.request_ns}ns"']
        lines += [f"attempts = {first.attempts}", f'hold = "{hold_ns}ns"', ""]
    elif hold_ns is not None:
        lines += ["[timing]", f'hold = "{hold_ns // 1_000_000}ms"', ""]
    return lines


def _pair(a: str, b: str, way: Way, loss: float) -> str:
    jitter = max(0, way.late_ns - way.min_ns)
    # Rounded up: the written value must not be below the bound.
    return (
        f'between = [{_text(a)}, {_text(b)}], delay = "{_ms(way.min_ns)}", jitter = "{_ms(jitter)}", '
        f"loss = {math.ceil(loss * 1e6 - 1e-6) / 1e6:.6f}"
    )


def _counted(way: Way) -> str:
    return f"  # {way.lost:g} of {way.tried} lost" if way.tried else "  # loss assumed"


def _ms(ns: int) -> str:
    """Format milliseconds to the microsecond, rounded up."""
    return f"{-(-ns // 1_000) / 1_000:.3f}ms"


def _text(value: str) -> str:
    escaped = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value.replace("\\", "\\\\"))
    return '"' + escaped.replace('"', '\\"') + '"'
