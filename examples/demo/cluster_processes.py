"""The processes of the cluster demo: three NATS servers and three relays on loopback."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAME = "demo"
PARTITIONS = 6
SERVERS = 3
NODES = ("r1", "r2", "r3")
START_S = 60.0
END_S = 20.0


class DemoCluster:
    """All processes, with their files in one directory that is removed at the end."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="waypost-cluster-"))
        ports = _free_ports(2 * SERVERS + len(NODES))
        self._clients, self._routes = ports[:SERVERS], ports[SERVERS : 2 * SERVERS]
        self._ports = dict(zip(NODES, ports[2 * SERVERS :], strict=True))
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._clients)
        self.address = f"nats://{hosts}/{NAME}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> str:
        """The addresses of all nodes, for agents."""
        return ",".join(map(self.url, NODES))

    def url(self, node: str) -> str:
        """Return the address of a node."""
        return f"http://127.0.0.1:{self._ports[node]}"

    def start(self) -> None:
        """Start the servers, create the cluster, and start the nodes."""
        server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        server = server or shutil.which("nats-server")
        if server is None:
            raise SystemExit("nats-server was not found: run ./run demo --cluster")
        for number in range(SERVERS):
            file = self._directory / f"n{number}.json"
            file.write_text(json.dumps(self._server_settings(number)))
            self._start(f"n{number}", [server, "-c", str(file)])
        self._create()
        for node in NODES:
            self._start(node, [*_WAYPOST, "serve", *self._node_options(node)])

    def kill(self, node: str) -> None:
        """Kill a node with SIGKILL."""
        process = self._running.pop(node)
        process.kill()
        process.wait(END_S)

    def stop(self) -> None:
        """End all processes, and remove their files."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _create(self) -> None:
        """Create the cluster, once the servers have found each other."""
        until = time.monotonic() + START_S
        while True:
            made = self._waypost("create", self.address, "--partitions", str(PARTITIONS))
            if made.returncode == 0:
                break
            if time.monotonic() > until:
                raise SystemExit(f"the cluster cannot be created: {made.stderr.decode()}")
            time.sleep(0.2)

    def _waypost(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([*_WAYPOST, "cluster", *arguments], capture_output=True, check=False)

    def _start(self, name: str, command: list[str]) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _node_options(self, node: str) -> list[str]:
        data = self._directory / node
        data.mkdir(mode=0o700)
        place = ["--data-dir", str(data), "--port", str(self._ports[node])]
        return [*place, "--cluster", self.address, "--node", node, "--advertise", self.url(node)]

    def _server_settings(self, number: int) -> dict[str, Any]:
        return {
            "server_name": f"n{number}",
            "host": "127.0.0.1",
            "port": self._clients[number],
            "cluster": {
                "name": NAME,
                "host": "127.0.0.1",
                "port": self._routes[number],
                "routes": [f"nats://127.0.0.1:{port}" for port in self._routes],
            },
            "jetstream": {
                "store_dir": str(self._directory / f"n{number}"),
                "sync_interval": "always",
            },
        }


_WAYPOST = [sys.executable, "-P", "-m", "waypost"]


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(one.getsockname()[1]) for one in listeners]
    finally:
        for one in listeners:
            one.close()
