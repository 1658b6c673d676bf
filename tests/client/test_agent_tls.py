"""TLS: certificates are checked against the usual authorities or the given context."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

from tests.client.fake_relay import FakeConnection, run_fake_relay
from waypost.client import CannotConnect, ClientOptions, Identity, connect

ANN = Identity.new("agent.ann")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Create a file with a key and a self-signed certificate for 127.0.0.1."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "relay.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def accept(connection: FakeConnection) -> None:
    await connection.accept()
    await connection.stay_open()


async def test_a_certificate_in_the_tls_context_is_accepted(
    certificate: Path, server_side: ssl.SSLContext
) -> None:
    options = ClientOptions(tls=ssl.create_default_context(cafile=certificate))
    async with (
        run_fake_relay(accept, ssl=server_side) as url,
        connect(url.replace("http:", "https:"), ANN, options=options) as agent,
    ):
        assert agent.is_connected


async def test_an_untrusted_certificate_is_rejected(server_side: ssl.SSLContext) -> None:
    async with run_fake_relay(accept, ssl=server_side) as url:
        with pytest.raises(CannotConnect, match="certificate verify failed"):
            async with connect(
                url.replace("http:", "wss:"), ANN, options=ClientOptions(connect_timeout_s=2.0)
            ):
                pass
