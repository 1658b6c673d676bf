"""deploy/cluster works with the real nats-server and `waypost`, as far as can be seen here.

The same settings and command lines run on loopback; only addresses and directories are replaced.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.peers.nats_jetstream import find_server
from bench.peers.ports import free_port
from tests.eventually import eventually_blocking
from tests.harness.nats_server import is_open
from tests.packaging.distribution import ROOT

FILES = ROOT / "deploy" / "cluster"
SERVERS, RELAYS = ("n1", "n2", "n3"), ("relay-1", "relay-2")
VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")
PATIENCE_S = 120.0


def services() -> dict[str, Any]:
    """Return the services of the file, with the variables of example.env."""
    lines = (FILES / "example.env").read_text().splitlines()
    known = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    text = VARIABLE.sub(lambda found: known[found[1]], (FILES / "compose.yaml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


class Deployed:
    """The services of the file as processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._services = services()
        self._ports = {f"{one}:{port}": free_port() for one in SERVERS for port in (4222, 6222)}
        self._ports |= {port: free_port() for port in ("7171", "7172")}
        self._running: list[subprocess.Popen[bytes]] = []

    def local(self, text: str) -> str:
        """Replace the addresses of containers."""
        for address, port in self._ports.items():
            own = str(port) if address.isdigit() else f"127.0.0.1:{port}"
            text = text.replace(address, own)
        return text

    def environment(self, service: str) -> dict[str, str]:
        own = self._services[service]["environment"]
        return {**os.environ, **{name: self.local(value) for name, value in own.items()}}

    def start_server(self, name: str) -> None:
        (self._directory / name).mkdir()
        text = (FILES / "nats.conf").read_text()
        for port in (4222, 6222):
            text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{self._ports[f'{name}:{port}']}")
        text = text.replace("127.0.0.1:8222", f"127.0.0.1:{free_port()}")
        config = self._directory / f"{name}.conf"
        config.write_text(text.replace("/data", str(self._directory / name)))
        server = find_server()
        assert server is not None
        self._start(name, [server, "-c", str(config)], self.environment(name))
        eventually_blocking(lambda: is_open(self._ports[f"{name}:4222"]), name)

    def start_relay(self, name: str) -> None:
        command = [self.local(one) for one in self._services[name]["command"]]
        environment = {**self.environment(name), "WAYPOST_DATA_DIR": str(self._directory / name)}
        self._start(name, [sys.executable, "-m", "waypost", *command], environment)

    def waypost(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the environment of a relay, as `docker compose run` does."""
        return subprocess.run(
            [sys.executable, "-m", "waypost", *arguments],
            env=self.environment("relay-1"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def stop(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(PATIENCE_S)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._running.append(process)


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    found = Deployed(tmp_path)
    try:
        for name in SERVERS:
            found.start_server(name)
        yield found
    finally:
        found.stop()


@pytest.mark.process
@pytest.mark.slow
def test_the_servers_and_relays_of_the_file_form_a_cluster(deployed: Deployed) -> None:
    def is_created() -> bool:
        return deployed.waypost("cluster", "create", "--partitions", "4").returncode == 0

    eventually_blocking(is_created, "a cluster", timeout_s=PATIENCE_S)
    for name in RELAYS:
        deployed.start_relay(name)

    def is_well() -> bool:
        status = deployed.waypost("cluster", "status")
        return status.returncode == 0 and all(name in status.stdout for name in RELAYS)

    eventually_blocking(is_well, "both relays", timeout_s=PATIENCE_S)


@pytest.mark.process
def test_the_servers_of_the_file_reject_another_password(deployed: Deployed) -> None:
    address = deployed.environment("relay-1")["WAYPOST_CLUSTER"]
    wrong = re.sub(r"waypost:\w+@", "waypost:guessed@", address)
    asked = deployed.waypost("cluster", "status", wrong)
    assert asked.returncode != 0
    assert "no NATS server can be reached" in asked.stderr


def test_all_services_use_files_that_exist_and_servers_that_are_new_enough() -> None:
    found = services()
    assert set(found) == {*SERVERS, *RELAYS}
    for name in SERVERS:
        version = re.match(r"nats:(\d+)\.(\d+)\.(\d+)", found[name]["image"])
        assert version is not None
        assert tuple(map(int, version.groups())) >= (2, 15, 1)
        mounted = [one.split(":")[0] for one in found[name]["volumes"] if one.startswith("./")]
        assert mounted
        assert all((FILES / one).is_file() for one in mounted)
    for name in RELAYS:
        port = found[name]["command"][found[name]["command"].index("--port") + 1]
        assert found[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
