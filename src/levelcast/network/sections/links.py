"""[links] and [helpers]: delay, jitter and loss between sites, and the sites to which requests are sent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

from levelcast.network.fields import Fields, did_you_mean, known, show
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.model import LOCAL_DELAY_NS, Link, Links, name_of_pair
from levelcast.network.sections.draft import Draft
from levelcast.units import show_ns

_OF_LINKS = "that of `[links]`"
TABLES = (
    FileTable(
        "[links]",
        (
            FileKey("delay", "one-way delay between two sites that no pair lists", "each pair in use needs its own"),
            FileKey("jitter", "additional delay before a packet counts as late", f"{Link(0).jitter_ns}"),
            FileKey("loss", "fraction of packets lost", f"{Link(0).loss_ratio:g}"),
            FileKey("hops", "number of routers between two sites", "not measured"),
            FileKey("pairs", "links between two sites, with the keys of `[[links.pairs]]`", NONE, "array of tables"),
        ),
        "without it, `late` and `attempts` of `[timing]` are required",
    ),
    FileTable(
        "[[links.pairs]]",
        (
            FileKey("between", "the two sites; the same site twice for hops within it", type="array of two sites"),
            FileKey("delay", "one-way delay", _OF_LINKS),
            FileKey("jitter", "additional delay before a packet counts as late", _OF_LINKS),
            FileKey("loss", "fraction of packets lost", _OF_LINKS),
            FileKey("hops", "number of routers between the sites, for the scope of lines", _OF_LINKS),
        ),
        f"within one site a hop has a delay of {show_ns(LOCAL_DELAY_NS)} and no loss, unless a pair specifies it",
    ),
    FileTable(
        "[helpers]",
        (
            FileKey(
                "a site",
                "sites with the best helpers for repairs, best first. A receiver of this site sends requests to its "
                "own site, then to these, then to the others by delay. A secondary without `home` uses the same order",
                "by delay",
                "array of sites",
            ),
        ),
    ),
)


def read(root: Fields, draft: Draft) -> None:
    draft.add(links=_read_links(root, draft), helpers=_read_helpers(root, draft))
    draft.check_later(partial(_check_links, draft))


def _read_links(root: Fields, draft: Draft) -> Links | None:
    fields = root.table("links")
    if not fields.given:
        return None
    values = _read_link(fields)
    base = Link(**{"delay_ns": 0} | values)
    pairs: dict[tuple[str, str], Link] = {}
    for pair in fields.tables("pairs"):
        if "delay" not in pair and "delay" not in fields:
            pair.problem("delay", "has no delay, and [links] has no default delay")
        link = replace(base, **_read_link(pair), source=pair.report.file_of(pair.path))
        ends = _read_ends(pair, draft.site_names)
        if ends is not None and ends in pairs:
            pair.problem("between", f'joins "{ends[0]}" and "{ends[1]}", as another pair does')
        elif ends is not None:
            pairs[ends] = link
            if "loss" in pair:
                draft.loss_at[name_of_pair(*ends)] = pair.at("loss")
    return Links(pairs, base if "delay_ns" in values else None)


def _read_link(fields: Fields) -> dict[str, Any]:
    return known(
        delay_ns=fields.duration("delay", zero=True),
        jitter_ns=fields.duration("jitter", zero=True),
        loss_ratio=fields.ratio("loss"),
        hops=fields.whole("hops", 0, 254),
    )


def _read_ends(pair: Fields, site_names: set[str]) -> tuple[str, str] | None:
    value = pair.raw("between")
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, str) for end in value):
        pair.problem("between", 'must have between = ["one site", "another"]')
        return None
    unknown = [end for end in value if end not in site_names]
    for end in unknown:
        hint = did_you_mean(end, site_names)
        pair.problem("between", f"joins site {show(end)}, which is not defined in a [[site]]{hint}")
    return None if unknown else (min(value), max(value))


def _read_helpers(root: Fields, draft: Draft) -> dict[str, tuple[str, ...]]:
    """Return, per site, the sites to which requests are sent, best first."""
    fields = root.table("helpers")
    found: dict[str, tuple[str, ...]] = {}
    for site in fields.names_of_keys():
        if site not in draft.site_names:
            hint = did_you_mean(site, draft.site_names)
            fields.problem(site, f"is for site {show(site)}, which is not defined in a [[site]]{hint}")
        found[site] = fields.names(site, limit=64)
    draft.check_later(partial(_check_helpers, draft, fields))
    return found


def _check_helpers(draft: Draft, fields: Fields) -> None:
    with_receivers = {receiver.site for receiver in draft.network.receivers}
    for site, helpers in draft.network.helpers.items():
        for helper in helpers:
            if helper == site:
                fields.problem(site, f"has {show(site)} as its own helper; remove it, its own receivers are first")
            elif helper not in with_receivers:
                hint = did_you_mean(helper, with_receivers)
                fields.problem(site, f"has the helper {show(helper)} of {show(site)}, which has no receiver{hint}")


def _check_links(draft: Draft) -> None:
    """Check that every two sites with communicating nodes have a link: in the core, and from floors to it."""
    network, site_names = draft.network, draft.site_names
    if network.links is None or network.links.default is not None:
        return
    core = network.core_sites & site_names
    floors = {floor.site for floor in network.floors} & site_names
    wanted = set(combinations_with_replacement(sorted(core), 2))
    wanted |= {(min(a, b), max(a, b)) for a in floors for b in core}
    for a, b in sorted(wanted):
        if network.links.between(a, b) is None:
            what = f'the link between "{a}" and "{b}" is missing; add a pair to [links], or a default delay'
            draft.report.add(("links",), what)
