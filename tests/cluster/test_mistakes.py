"""Mistakes of an operator: each ends in an error that says what to do, and changes nothing."""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import nats.errors
import pytest
from nats.js.api import StreamConfig

from bench.peers.ports import free_port
from tests.cli.conftest import CommandLine
from tests.cluster.cluster_processes import NodeProcess
from tests.eventually import eventually_blocking
from tests.harness.nats_server import NatsServer
from waypost.cluster.address import NODE_FILE
from waypost.cluster.streams import connect, disconnect, stream_name

pytestmark = [pytest.mark.process, pytest.mark.slow]
ENDS_WITHIN_S = 60
NUMBERS = itertools.count()


class Operator:
    """Somebody with a server, a cluster of one partition, and a command line."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        self.cluster = f"right-{next(NUMBERS)}"
        self.directory = directory
        self.server = server
        self.waypost = CommandLine(directory / "unused")

    def address(self, name: str = "") -> str:
        return f"{self.server.url}/{name or self.cluster}"

    def create(self, name: str) -> None:
        self.waypost(
            "cluster", "create", self.address(name), "--partitions", "1", "--replicas", "1"
        )

    def serve(self, *options: str, name: str = "", port: int = 0) -> str:
        """Serve a node that must end by itself; return what it says."""
        port = port or free_port()
        given = {
            "--cluster": self.address(name),
            "--node": "r0",
            "--advertise": f"http://127.0.0.1:{port}",
            "--data-dir": str(self.directory / "node"),
            "--port": str(port),
            **dict(zip(options[::2], options[1::2], strict=True)),
        }
        words = [word for option in given.items() for word in option]
        done = subprocess.run(
            [sys.executable, "-m", "waypost", "serve", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
        )
        assert done.returncode in (1, 4), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def node(self, name: str, directory: str = "") -> NodeProcess:
        made = NodeProcess(self.directory, name, self.address())
        made.directory = self.directory / (directory or name)
        return made


@pytest.fixture
def operator(tmp_path: Path, nats_server: NatsServer) -> Operator:
    made = Operator(tmp_path, nats_server)
    made.create(made.cluster)
    return made


def test_a_wrong_name_of_the_cluster(operator: Operator) -> None:
    assert "there is no cluster 'wrong' at these servers" in operator.serve(name="wrong")
    for command in ("status", "verify"):
        result = operator.waypost("cluster", command, operator.address("wrong"), exits=1)
        assert "check its name, or create it with 'waypost cluster create'" in result.stderr
    assert not (operator.directory / "node" / "node.json").exists()


def test_servers_that_cannot_be_reached(operator: Operator) -> None:
    nowhere = f"nats://127.0.0.1:{free_port()}/right"
    expected = "no NATS server can be reached at"
    assert expected in operator.serve("--cluster", nowhere)
    for command in ("create", "status", "verify"):
        assert expected in operator.waypost("cluster", command, nowhere, exits=4).stderr


def test_a_server_of_an_older_version(operator: Operator) -> None:
    with OldServer() as old:
        expected = "is version 2.11.4, and must be 2.15.1 or newer"
        assert expected in operator.serve("--cluster", f"{old.url}/right")
        result = operator.waypost("cluster", "create", f"{old.url}/right", exits=1)
    assert expected in result.stderr


def test_a_server_that_confirms_before_it_syncs(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats", sync="2m")
    server.start()
    try:
        careless = Operator(tmp_path, server)
        careless.create(careless.cluster)
        option = ("--nats-monitoring", server.monitoring_url)
        assert "set 'sync_interval: always'" in careless.serve(*option)
        for command in ("create", "status"):
            result = careless.waypost("cluster", command, careless.address(), *option, exits=1)
            assert "set 'sync_interval: always'" in result.stderr
    finally:
        server.kill()


def test_more_replicas_than_servers(operator: Operator) -> None:
    result = operator.waypost("cluster", "create", operator.address("three"), exits=1)
    assert "3 replicas need as many servers with JetStream" in result.stderr


def test_a_stream_with_other_settings(operator: Operator) -> None:
    operator.create("changed")
    name = stream_name("changed", 0)
    config = StreamConfig(
        name=name, subjects=["waypost.changed.0.batch", "waypost.changed.0.piece"], max_age=3600
    )
    asyncio.run(_replace_stream(operator.server.url, config))
    assert "must have no max_age" in operator.serve(name="changed")
    result = operator.waypost("cluster", "verify", operator.address("changed"), exits=1)
    assert "must have no max_age" in result.stdout


def test_a_stream_that_was_deleted(operator: Operator) -> None:
    operator.create("deleted")
    asyncio.run(_replace_stream(operator.server.url, StreamConfig(name=stream_name("deleted", 0))))
    text = operator.serve(name="deleted")
    assert f"there is no stream {stream_name('deleted', 0)}" in text
    assert "cluster repair --refill" in text


def test_an_advertised_address_of_something_else(operator: Operator) -> None:
    not_http = operator.server.url.replace("nats://", "http://")
    for wrong in (operator.server.monitoring_url, not_http):
        assert "reaches something else than this node" in operator.serve("--advertise", wrong)


def test_the_address_for_clients_as_a_monitoring_address(operator: Operator) -> None:
    option = ("--nats-monitoring", operator.server.url.replace("nats://", "http://"))
    expected = "it must be the monitoring address of nats-server"
    assert expected in operator.serve(*option)
    result = operator.waypost("cluster", "status", operator.address(), *option, exits=4)
    assert expected in result.stderr


def test_servers_that_end_while_a_command_asks(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(*_: object) -> None:
        raise nats.errors.ConnectionReconnectingError

    monkeypatch.setattr("waypost.cluster.announcements.announcements", no_answer)
    monkeypatch.setattr("waypost.cluster.overview.announcements", no_answer)
    for command in (["status"], ["move", "0", "any"]):
        name, *rest = command
        result = operator.waypost("cluster", name, operator.address(), *rest, exits=4)
        assert "the NATS servers did not answer" in result.stderr
        assert "check that a majority of them is running" in result.stderr


def test_an_advertised_name_that_the_node_rejects(operator: Operator) -> None:
    port = free_port()
    text = operator.serve(
        "--advertise", f"http://127.0.0.1:{port}", "--origin", "relay.example", port=port
    )
    assert f"start it with --origin http://127.0.0.1:{port}" in text


def test_a_second_node_of_the_same_name(operator: Operator) -> None:
    first = operator.node("r0")
    first.start()
    try:
        assert "a node 'r0' is alive already, at" in operator.serve()
        assert not (operator.directory / "node" / "node.json").exists()
    finally:
        first.kill(signal.SIGTERM)


def test_a_directory_that_another_process_has(operator: Operator) -> None:
    first = operator.node("r0", "node")
    first.start()
    try:
        assert "in use" in operator.serve("--node", "r1")
    finally:
        first.kill(signal.SIGTERM)


def test_a_directory_of_another_node_or_cluster(operator: Operator) -> None:
    first = operator.node("r0", "node")
    first.start()
    eventually_blocking((first.directory / NODE_FILE).exists, "the node to take its directory")
    first.kill(signal.SIGTERM)
    expected = f"belongs to the node 'r0' of the cluster '{operator.cluster}'"
    assert expected in operator.serve("--node", "r1")
    operator.create("second")
    assert "not to 'r0' of 'second'" in operator.serve(name="second")
    result = operator.waypost("serve", "--data-dir", str(operator.directory / "node"), exits=1)
    assert "belongs to a node of a cluster" in result.stderr


def test_a_directory_of_a_relay_on_one_machine(operator: Operator) -> None:
    directory = ["--data-dir", str(operator.directory / "node")]
    operator.waypost("send", "agent.a", "{}", "--sender", "agent.b", "--register", *directory)
    assert "is the data directory of a relay on one machine" in operator.serve()


def test_a_full_stream_stops_its_partition_and_is_reported(operator: Operator) -> None:
    node = operator.node("r9")
    node.start()
    try:
        asyncio.run(_limit_stream(operator, 40_000))
        payload = '{"text": "' + "x" * 10_000 + '"}'
        send = ["send", "agent.a", payload, "--url", node.url]

        def is_reported() -> bool:
            operator.waypost.try_(send)  # until the stream is full; before, there is no owner
            return "raise its max_bytes" in operator.waypost.output(
                ["cluster", "status", operator.address()]
            )

        eventually_blocking(is_reported, "the error", timeout_s=60)
        asyncio.run(_limit_stream(operator, -1))
        eventually_blocking(lambda: operator.waypost.try_(send), "to recover", timeout_s=60)
    finally:
        node.kill(signal.SIGTERM)


async def _replace_stream(url: str, config: StreamConfig) -> None:
    """Delete the stream of that name; create it again if it is given subjects."""
    client = await connect([url])
    try:
        await client.jetstream().delete_stream(config.name)
        if config.subjects:
            await client.jetstream().add_stream(config)
    finally:
        await disconnect(client)


async def _limit_stream(operator: Operator, max_bytes: int) -> None:
    client = await connect([operator.server.url])
    try:
        jetstream = client.jetstream()
        config = (await jetstream.stream_info(stream_name(operator.cluster, 0))).config
        config.max_bytes = max_bytes
        await jetstream.update_stream(config)
    finally:
        await disconnect(client)


class OldServer:
    """Speaks as much of the protocol as a client needs to connect, as an old server would."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "OldServer":
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(ENDS_WITHIN_S)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, client.makefile("rwb") as file:
                file.write(
                    b'INFO {"server_id":"OLD","version":"2.11.4","max_payload":1024,'
                    b'"headers":true}\r\n'
                )
                file.flush()
                for line in file:
                    if line.startswith(b"PING"):
                        file.write(b"PONG\r\n")
                        file.flush()
