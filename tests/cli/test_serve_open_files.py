"""A served relay with few file descriptors goes on, however many sockets strangers open."""

import os
import re
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.certificates import write_certificate
from tests.cli.conftest import UNSET
from tests.eventually import eventually_blocking
from tests.harness.relay_process import RelayProcess

pytestmark = pytest.mark.process

LIMITED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
runpy.run_module("waypost", run_name="__main__", alter_sys=True)
"""


@contextmanager
def serving(tmp_path: Path, soft: int, hard: int, *options: str) -> Iterator[RelayProcess]:
    arguments = ["-c", LIMITED.format(soft=soft, hard=hard), "serve", "--port", "0"]
    arguments += ["--data-dir", str(tmp_path / "data"), *options]
    relay = RelayProcess(
        arguments, tmp_path / "serve.log", ready="Stop with Ctrl-C", environment=UNSET
    )
    try:
        yield relay
    finally:
        assert relay.end() == 0, relay.log


def idle_sockets(relay: RelayProcess, count: int, stack: ExitStack) -> None:
    host, port = relay.url.partition("//")[2].split(":")
    for _ in range(count):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=60))


def publish(relay: RelayProcess) -> int:
    message = {"subject": "agent.a", "payload": "x" * 5000}
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.post(f"{relay.url}/v1/messages", json=message).status_code


def is_ready(relay: RelayProcess) -> bool:
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.get(f"{relay.url}/readyz").status_code == 200


def test_more_idle_sockets_than_descriptors_stop_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, 256, 256) as relay, ExitStack() as stack:
        idle_sockets(relay, 400, stack)
        assert publish(relay) == 200
        assert is_ready(relay)
        assert "the limit of 256 open files allows 128 connections, not 10000" in relay.log


def test_the_limit_of_open_files_is_raised_at_the_start(tmp_path: Path) -> None:
    with serving(tmp_path, 256, 1000, "--max-connections", "500") as relay:
        limits = Path(f"/proc/{relay.process.pid}/limits").read_text()
        assert re.search(r"Max open files\s+628\s+1000", limits)


def test_a_process_without_free_descriptors_recovers(tmp_path: Path) -> None:
    with serving(tmp_path, 256, 1024) as relay, ExitStack() as stack:
        pid = relay.process.pid
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 5, 1024))
        idle_sockets(relay, 50, stack)
        eventually_blocking(lambda: "cannot accept connections" in relay.log, "EMFILE")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 1024))
        assert publish(relay) == 200
        assert is_ready(relay)


def test_sockets_without_a_tls_handshake_are_limited_too(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    key.chmod(0o600)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--max-connections", "16")
    trust = ssl.create_default_context(cafile=str(certificate))
    with serving(tmp_path, 256, 256, *options) as relay, ExitStack() as stack:
        used = len(os.listdir(f"/proc/{relay.process.pid}/fd"))
        idle_sockets(relay, 100, stack)
        with httpx.Client(trust_env=False, timeout=60, verify=trust) as client:
            assert client.get(f"{relay.url}/readyz").status_code == 200
        files = Path(f"/proc/{relay.process.pid}/fd")
        eventually_blocking(lambda: len(os.listdir(files)) <= used + 16, "few open files")
