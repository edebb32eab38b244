"""`levelcast certify`: a certificate of what was released, and a check of a tape against one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from levelcast.storage.tape.certificate import (
    Checked,
    NotCertified,
    certify,
    check,
    read_certificate,
    write_certificate,
)

Directories = Annotated[list[Path], typer.Argument(help="Receivers' directories, or tapes', all of one stripe.")]


def certify_command(
    directories: Directories,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the certificate of these receivers to this file.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--check", help="Check these tapes against this certificate instead.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Certify tapes, or check them against a certificate: offline, with nothing but the files.

    A certificate has the roots of the hash chain, counts, the spread and lateness of the release, the receivers and
    room for their signatures. Exit code 1 if the tapes differ, are not sound, or are not what the certificate says.

    Examples:

    levelcast certify data/* -o day.certificate

    levelcast certify --check day.certificate a-copy-of-a-tape
    """
    if (output is None) == (against is None):
        raise typer.BadParameter("say either -o FILE, to make a certificate, or --check FILE, to check against one")
    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} exists; --force replaces it")
    try:
        if output is not None:
            _make(directories, output)
        elif against is not None:
            _check(directories, against)
    except NotCertified as why:
        typer.echo(f"levelcast: NOT CERTIFIED: {why}", err=True)
        raise typer.Exit(1) from None


def _make(directories: list[Path], output: Path) -> None:
    certificate = certify(directories)
    unfinished = output.with_name(output.name + ".new")
    try:
        unfinished.write_text(write_certificate(certificate), encoding="utf-8")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    statement = certificate["statement"]
    typer.echo(
        f"{len(directories)} tapes are sound and identical in {statement['frames']:,} frames, "
        f"sequences {statement['first']['sequence']:,} to {statement['last']['sequence']:,}."
    )
    typer.echo(_spread_line(statement))
    for each in statement["receivers"]:
        typer.echo(_receiver_line(each))
    typer.echo(f"The certificate is in {output}; its root is {statement['marks'][-1]['chain']}")


def _spread_line(statement: dict[str, Any]) -> str:
    spread = statement["spread"]
    late = f"{spread['late_slots']:,} of {spread['slots']:,} slots were late at one of them or more"
    if spread["spread_ns"] is None:
        return f"{late}, so nothing is said of the spread."
    times = ", ".join(f"{name} {ns / 1e3:,.0f} µs" for name, ns in spread["spread_ns"].items())
    return f"{late}; in the others {spread['receivers']} receivers released within {times} of each other."


def _receiver_line(each: dict[str, Any]) -> str:
    life = f", life {each['life']}" if each["life"] is not None else ""
    behind = each["lateness_ns"]
    times = ", ".join(f"{name} {ns / 1e3:,.0f} µs" for name, ns in behind.items()) if behind else "no release"
    return f"{each['name']}{life}: {each['releases']:,} releases, {each['late']:,} late, behind the instant {times}"


def _check(directories: list[Path], against: Path) -> None:
    certificate = read_certificate(against.read_text(encoding="utf-8"), against)
    for directory in directories:
        typer.echo(_checked_line(check(certificate, directory)))
    signatures = len(certificate.get("signatures", ()))
    if not signatures:
        typer.echo("The certificate carries no signature: trust it as far as you trust where it came from.")


def _checked_line(checked: Checked) -> str:
    beyond = f"; {checked.beyond:,} frames behind it are not certified" if checked.beyond else ""
    return (
        f"{checked.directory}: CERTIFIED in {checked.frames:,} frames, sequences {checked.from_sequence:,} to "
        f"{checked.to_sequence:,}{beyond}"
    )
