"""NATS servers with TLS are verified and never spoken to in the clear; passwords stay secret."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cli.certificates import write_certificate
from tests.cli.conftest import CommandLine
from tests.cluster.cluster_processes import NodeProcess
from tests.eventually import eventually_blocking
from tests.harness.nats_server import NatsServer
from waypost.cluster.streams import connect
from waypost.relay.errors import LogUnavailable

pytestmark = pytest.mark.process
PASSWORD = "never-in-the-clear"
IN_THE_CLEAR = b'INFO {"server_id":"forged","version":"2.15.1","max_payload":1048576}\r\n'


def start_tls_server(directory: Path) -> tuple[NatsServer, Path]:
    """Start a server that requires TLS, a user and a password; return it and its certificate."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    write_certificate(certificate, key)
    server = NatsServer(
        directory / "n1",
        tls={"cert_file": str(certificate), "key_file": str(key)},
        authorization={"user": "waypost", "password": PASSWORD},
    )
    server.start()
    return server, certificate


@pytest.mark.slow
def test_a_cluster_on_servers_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, certificate = start_tls_server(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    address = f"tls://waypost:{PASSWORD}@127.0.0.1:{server.port}/tests"
    node, waypost = NodeProcess(tmp_path, "r0", address), CommandLine(tmp_path / "unused")
    try:
        created = waypost("cluster", "create", address, "--partitions", "1", "--replicas", "1")
        assert f"--cluster tls://127.0.0.1:{server.port}/tests " in created.stdout
        assert created.stderr == ""
        node.start()
        send = ["send", "agent.a", "{}", "--url", node.url]
        eventually_blocking(lambda: bool(waypost.try_(send)), "a message", timeout_s=60)
        assert waypost("cluster", "status", address).stderr == ""
    finally:
        node.kill(signal.SIGTERM)
        server.kill()
    assert PASSWORD not in (tmp_path / "r0.log").read_text()


def test_a_certificate_that_no_one_trusts_is_rejected(tmp_path: Path) -> None:
    server, _ = start_tls_server(tmp_path)
    try:
        with pytest.raises(LogUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(connect([f"tls://waypost:{PASSWORD}@127.0.0.1:{server.port}"]))
    finally:
        server.kill()


async def test_a_server_that_offers_no_tls_gets_no_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(IN_THE_CLEAR)
        until_closed = await reader.read()
        writer.close()
        await writer.wait_closed()
        received.set_result(until_closed)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as forged:
        port = forged.sockets[0].getsockname()[1]
        with pytest.raises(LogUnavailable, match="does not require TLS") as rejected:
            await connect([f"tls://waypost:{PASSWORD}@127.0.0.1:{port}"])
        assert await received == b""
    assert f"tls://127.0.0.1:{port}" in str(rejected.value)
    assert PASSWORD not in str(rejected.value)
    assert PASSWORD not in caplog.text
