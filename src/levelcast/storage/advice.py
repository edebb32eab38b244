"""Name the command that makes damaged files of a node usable again; every refusal of a start ends with one."""

from __future__ import annotations

from pathlib import Path

MARKER = "network.json"
"""File in a data directory that lists its nodes (`levelcast.storage.disk`)."""


def repair_tape(tape: Path) -> str:
    """Return the sentence for a damaged tape: other receivers have the same bytes."""
    where = tape.parent if tape.name == "tape" else tape
    return f"restore it from the directory OTHER of another receiver: `levelcast tape repair {where} --from OTHER`"


def lost_disk(directory: Path) -> str:
    """Return the sentence for a damaged journal in a node's `directory`: no other node has it."""
    data, part = _data_and_part(directory)
    return (
        f"no other node has this journal, so start the node with an empty one: `levelcast disk lost --name {part} "
        f"--data {data}`; its promises and messages are lost by this, its tape and release log are moved aside, and a "
        "receiver counts in no majority until `levelcast disk replace`"
    )


def put_releases_aside(path: Path, aside: Path) -> str:
    """Return the sentence for a damaged file of a release log: no other receiver has it, and no node needs it."""
    return (
        f"no other receiver has it, so start the node without it: `mv {path} {aside}`; certificates and audits then "
        "lack the release times in it"
    )


def _data_and_part(directory: Path) -> tuple[Path, str]:
    """Return data directory and part of a node: its name, or STRIPE/NAME (`Placement.part`)."""
    above = directory.parent
    if not (above / MARKER).exists() and (above.parent / MARKER).exists():
        return above.parent, f"{above.name}/{directory.name}"
    return above, directory.name
