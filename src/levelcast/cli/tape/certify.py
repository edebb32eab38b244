"""`levelcast certify`: write a certificate of released tapes, or check a tape against one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from levelcast.cli.errors import replacing, require_new
from levelcast.cli.options import Force, option
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.certificate import NotCertified, certify, check_all, read_certificate, write_certificate

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="Directories of receivers or tapes, all of one stripe.")
]


def certify_command(
    directories: Directories,
    out: Annotated[
        Path | None, option("Write the certificate of these receivers to this file.", "--out", "-o", metavar="FILE")
    ] = None,
    against: Annotated[
        Path | None, option("Check the tapes against this certificate instead.", "--check", metavar="FILE")
    ] = None,
    force: Force = False,
) -> None:
    """Certify tapes, or check tapes against a certificate; works offline, with only the files.

    A certificate contains the roots of the hash chain, counts, release spread and lateness, the receivers, and fields
    for their signatures. --check compares every figure with the tapes and the release logs, and lists those that it
    cannot compare. Exit code 1 if the tapes differ, are not valid, or do not match the certificate.

    Examples:

    levelcast certify data/* -o day.certificate

    levelcast certify --check day.certificate a-copy-of-a-tape
    """
    if (out is None) == (against is None):
        raise typer.BadParameter("pass either -o FILE to write a certificate or --check FILE to check against one")
    require_new(out, force=force)
    try:
        if out is not None:
            _make(directories, out)
        elif against is not None:
            _check(directories, against)
    except NotCertified as why:
        typer.echo(f"levelcast: NOT CERTIFIED: {why}", err=True)
        raise typer.Exit(1) from None


def _make(directories: list[Path], out: Path) -> None:
    certificate = certify(directories)
    with replacing(out) as unfinished:
        unfinished.write_text(write_certificate(certificate), encoding="utf-8")
    statement = certificate["statement"]
    typer.echo(
        f"{len(directories)} tapes are valid and identical in {statement['frames']:,} frames, "
        f"sequences {statement['first']['sequence']:,} to {statement['last']['sequence']:,}."
    )
    typer.echo(_spread_line(statement))
    for each in statement["receivers"]:
        typer.echo(_receiver_line(each))
    typer.echo(f"The certificate is in {out}; its root is {statement['marks'][-1]['chain']}")


def _spread_line(statement: dict[str, Any]) -> str:
    spread = statement["spread"]
    late = f"{spread['late_slots']:,} of {spread['slots']:,} slots were late at one or more receivers"
    if spread["spread_ns"] is None:
        return f"{late}, so the spread is unknown."
    within = _times(spread["spread_ns"])
    return f"{late}; in the other slots {spread['receivers']} receivers released within {within} of each other."


def _times(quantiles: dict[str, int]) -> str:
    return ", ".join(f"{name} {ns / 1e3:,.0f} µs" for name, ns in quantiles.items())


def _receiver_line(each: dict[str, Any]) -> str:
    life = f", life {each['life']}" if each["life"] is not None else ""
    times = _times(each["lateness_ns"]) if each["lateness_ns"] else "no release"
    return f"{each['name']}{life}: {each['releases']:,} releases, {each['late']:,} late, lateness {times}"


def _check(directories: list[Path], against: Path) -> None:
    certificate = read_certificate(_text_of(against), against)
    found, missing = check_all(certificate, directories)
    for each in found:
        beyond = f"; {each.beyond:,} later frames are not certified" if each.beyond else ""
        typer.echo(
            f"{each.directory}: CERTIFIED in {each.frames:,} frames, sequences {each.from_sequence:,} to "
            f"{each.to_sequence:,}{beyond}"
        )
        if each.receiver is not None:
            typer.echo(f"  Its release log has the release figures of {each.receiver}.")
        for what in each.not_checked:
            typer.echo(f"  Not checked: {what}.")
    for what in missing:
        typer.echo(f"Not checked: {what}.")
    if certificate.get("hash") is None:
        typer.echo("The certificate is of version 1, which carries no hash of itself.")
    if not certificate.get("signatures"):
        typer.echo("The certificate has no signature; trust it only if you trust its source.")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TapeError(f"{path}: not a Levelcast certificate") from None
    except OSError as error:
        raise TapeError(f"{path}: cannot be read ({error.strerror})") from None
