"""`levelcast certify`: write a certificate of released tapes, sign it, or check a tape against one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from levelcast.cli.errors import replacing, require_new
from levelcast.cli.keys.places import load_identity, places_of
from levelcast.cli.options import NETWORK_FILE, Force, option
from levelcast.keys.certificates import find_signers, sign_certificate
from levelcast.keys.keyring import open_keyring
from levelcast.keys.process import protect_process
from levelcast.keys.secret import KeysError
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.certificate import (
    NotCertified,
    certify,
    check_all,
    read_certificate,
    signed_bytes,
    write_certificate,
)

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
    signed: Annotated[
        Path | None,
        option("Check the tape of a receiver against this certificate, and sign it.", "--sign", metavar="FILE"),
    ] = None,
    signers: Annotated[
        int | None, option("check: minimum number of receivers that have signed.", min=1, unset="not checked")
    ] = None,
    network_file: Annotated[
        Path | None,
        option("Network file with [keys], for signatures.", "--network", metavar="FILE", unset="network.toml to sign"),
    ] = None,
    force: Force = False,
) -> None:
    """Certify tapes, check tapes against a certificate, or sign one; works offline, with only the files.

    A certificate contains the roots of the hash chain, counts, release spread and lateness, the receivers, and their
    signatures. --check compares every figure with the tapes and the release logs, and lists those that it
    cannot compare. --sign does the same with the receiver's own tape, and adds its signature with the key of the
    directory name. Exit code 1 if the tapes differ, are not valid, or do not match the certificate.

    Examples:

    levelcast certify data/* -o day.certificate

    levelcast certify --sign day.certificate data/tokyo-1

    levelcast certify --check day.certificate --signers 2 a-copy-of-a-tape
    """
    if sum(each is not None for each in (out, against, signed)) != 1:
        raise typer.BadParameter("pass -o FILE to write a certificate, --check FILE to check it, or --sign FILE")
    if signers is not None and against is None:
        raise typer.BadParameter("--signers needs --check", param_hint="--signers")
    require_new(out, force=force)
    try:
        if out is not None:
            _make(directories, out)
        elif signed is not None:
            _sign(directories, signed, network_file or NETWORK_FILE)
        elif against is not None:
            network = network_file or (NETWORK_FILE if signers is not None else None)
            _check(directories, against, signers, network)
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


def _sign(directories: list[Path], path: Path, network_file: Path) -> None:
    """Add the signature of the receiver whose directory this is."""
    certificate = read_certificate(_text_of(path), path)
    if len(directories) != 1:
        raise typer.BadParameter("pass the directory of one receiver, whose key signs", param_hint="DIR")
    if certificate.get("hash") is None:
        raise NotCertified(f"{path} is of version 1, which is not signed; write a new one with `levelcast certify`")
    protect_process()
    (found,), _ = check_all(certificate, directories)
    name = directories[0].resolve().name
    if name not in {each["name"] for each in certificate["statement"]["receivers"]}:
        raise NotCertified(f"{name} is not a receiver of {path}; pass the directory of a receiver that it lists")
    where = places_of(network_file)
    identity = load_identity(where.directory, name)
    open_keyring(identity, where.read(time.time_ns()))
    signatures = sign_certificate(identity, signed_bytes(certificate), certificate["signatures"])
    with replacing(path) as unfinished:
        unfinished.write_text(write_certificate({**certificate, "signatures": signatures}), encoding="utf-8")
    typer.echo(f"{path}: signed by {name}, whose tape has {found.frames:,} of its frames")


def _check_signatures(certificate: dict[str, Any], path: Path, signers: int | None, network_file: Path | None) -> None:
    """Check the signatures, and that there are enough of receivers of the certificate and of the statement of keys."""
    statement = places_of(network_file).read(None) if network_file is not None else None
    listed = {each["name"] for each in certificate["statement"]["receivers"]}
    try:
        found = find_signers(signed_bytes(certificate), certificate.get("signatures", []), statement)
    except KeysError as error:
        raise NotCertified(f"{path}: {error}") from None
    placed = [name for name in found.placed if name in listed]
    if placed:
        typer.echo(f"Signed by {', '.join(placed)}.")
    if found.unplaced:
        typer.echo(f"Signed with unknown keys, in the names of {', '.join(found.unplaced)}.")
    if signers is not None and len(placed) < signers:
        raise NotCertified(f"{path} is signed by {len(placed)} of its receivers, but --signers is {signers}")


def _check(directories: list[Path], against: Path, signers: int | None, network_file: Path | None) -> None:
    certificate = read_certificate(_text_of(against), against)
    _check_signatures(certificate, against, signers, network_file)
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
