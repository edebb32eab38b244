"""Sessions with TLS: orders trade, and each keeps the kernel's receive stamp (E1)."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from levelcast.client.trader import Trader
from levelcast.errors import NetError
from levelcast.records import RTYPE_ORDER, split
from levelcast.storage.tape.reader import TapeReader
from tests.floor_parts import PASSWORD, add_accounts, open_floor, prepare, running


def make_certificate(directory: Path) -> tuple[str, str]:
    """Write a certificate for localhost and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = directory / "cert.pem", directory / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return str(cert_path), str(key_path)


@pytest.mark.parametrize("tls", [False, True])
def test_an_order_keeps_the_receive_stamp_of_the_kernel(tmp_path: Path, tls: bool) -> None:
    add_accounts(tmp_path, "ann")
    cert, key = make_certificate(tmp_path) if tls else ("", "")
    floor = open_floor(tmp_path, certificate=cert, key=key)
    prepare(floor, "ann")
    sent: list[int] = []

    async def trade(port: int) -> None:
        context = ssl.create_default_context(cafile=cert) if tls else False
        async with Trader(f"localhost:{port}", "ANN", PASSWORD, tls=context) as ann:
            for _ in range(5):
                sent.append(time.time_ns())
                await ann.place("IBM", "buy", 100, "100.00")

    with running(floor) as address:
        asyncio.run(trade(int(address.rpartition(":")[2])))
    stamps, frames = [], []
    for found in TapeReader(tmp_path / "tape").frames():
        for batch in split(found.data()):
            if batch.kind.rtype == RTYPE_ORDER:
                orders = batch.records[batch.records["action"] == b"A"]
                stamps += orders["ts_event"].tolist()
                frames += [found.line.timestamp_ns] * len(orders)
    assert len(stamps) == 5
    assert all(before <= stamp <= after for before, stamp, after in zip(sent, stamps, frames, strict=True))


def test_a_peer_without_tls_is_closed(tmp_path: Path) -> None:
    add_accounts(tmp_path, "ann")
    cert, key = make_certificate(tmp_path)
    floor = open_floor(tmp_path, certificate=cert, key=key)

    async def trade(address: str) -> None:
        with pytest.raises(NetError):
            async with Trader(address, "ANN", PASSWORD):
                pass

    with running(floor) as address:
        asyncio.run(trade(address))


def test_a_wrong_certificate_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NetError, match="cannot load the certificate"):
        open_floor(tmp_path, certificate=str(tmp_path / "none.pem"), key=str(tmp_path / "none.key"))
