"""TLS, for clients that speak https alone, by a certificate that is made here."""

from __future__ import annotations

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

_VALID_DAYS = 365
_NAMES = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
)


def server_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Give the server's side of TLS, and the file that clients trust."""
    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Give certificate and key for loopback, made if there are none that are valid for another day.

    The certificate signs itself, so clients trust it by its own file.
    """
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    now = datetime.now(UTC)
    if certificate.exists() and key.exists():
        known = x509.load_pem_x509_certificate(certificate.read_bytes())
        if known.not_valid_after_utc > now + timedelta(days=1):
            return certificate, key
    folder.mkdir(exist_ok=True)
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "emulator of Azure Data Lake")])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"),
        False,
    )
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **usage
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), critical=False)
        .sign(secret, hashes.SHA256())
    )
    pem = secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key.unlink(missing_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return certificate, key
