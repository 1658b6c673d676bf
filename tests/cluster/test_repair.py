"""`waypost cluster verify` and `repair`: a stream that lost its end or was deleted, an empty NATS.

A server that is started with an older copy of its store has lost what came after the copy.
"""

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cluster.cluster_processes import NAME, ClusterProcesses
from tests.eventually import eventually_blocking
from waypost.cluster.streams import connect, disconnect, stream_name

pytestmark = [pytest.mark.process, pytest.mark.slow]
LARGE = json.dumps({"large": "x" * 200_000})


class Cluster:
    """One server, one partition and two nodes, of which the first one runs and has a message."""

    def __init__(self, directory: Path) -> None:
        self.processes = ClusterProcesses(directory, 1, 2)
        self.server, (self.first, self.second) = self.processes.servers[0], self.processes.nodes
        self.waypost = CommandLine(directory / "unused")
        self._store = directory / "n0" / "store"
        self._copy = directory / "copy"

    @property
    def address(self) -> str:
        return self.processes.address

    def start(self) -> None:
        self.server.start()
        self.waypost("cluster", "create", self.address, "--partitions", "1", "--replicas", "1")
        self.first.start()
        self.send(self.first.url, "before")

    def send(self, url: str, message_id: str, payload: str = "{}") -> None:
        def is_sent() -> bool:
            options = ["--url", url, "--id", message_id]
            return bool(self.waypost.try_(["send", "agent.a", payload, *options]))

        eventually_blocking(is_sent, "a message to be stored", timeout_s=60)

    def forget(self) -> None:
        """Give the server the store that `remember` copied; all nodes must be stopped."""
        self.server.kill()
        shutil.rmtree(self._store)
        shutil.copytree(self._copy, self._store)
        self.server.start()

    def lose_all_of_nats(self) -> None:
        """Give the server an empty store: streams, shared values and the cluster are gone."""
        self.server.kill()
        shutil.rmtree(self._store)
        self.server.start()

    def remember(self) -> None:
        self.server.kill()
        shutil.copytree(self._store, self._copy)
        self.server.start()

    def lose(self, *messages: tuple[str, str]) -> None:
        """Have the stream lose messages that it confirmed and the first node has."""
        self.first.kill(signal.SIGTERM)
        self.remember()
        self.first.start()
        for message_id, payload in messages:
            self.send(self.first.url, message_id, payload)
        self.first.kill(signal.SIGKILL)
        self.forget()

    def verify(self, *, exits: int) -> str:
        directory = ["--data-dir", str(self.first.directory)]
        return str(self.waypost("cluster", "verify", self.address, *directory, exits=exits).stdout)

    def repair(self, *options: str, exits: int = 0) -> str:
        directory = ["--data-dir", str(self.first.directory)]
        result = self.waypost("cluster", "repair", self.address, *directory, *options, exits=exits)
        return str(result.stdout + result.stderr)

    def inbox(self, url: str) -> list[str]:
        options = ["--url", f"{url}/p/0", "--operator-token-file", self._token(url)]
        found = self.waypost.json("inbox", "agent.a", *options)
        return [one["id"] for one in found["messages"]]

    def _token(self, url: str) -> str:
        node = self.first if url == self.first.url else self.second
        return str(node.directory / "operator-token")

    def delete_stream(self) -> None:
        async def delete() -> None:
            client = await connect([self.server.url])
            await client.jetstream().delete_stream(stream_name(NAME, 0))
            await disconnect(client)

        asyncio.run(delete())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.processes.stop()


def test_a_whole_cluster_has_no_findings_while_it_runs(cluster: Cluster) -> None:
    assert "All 1 partition whole" in cluster.verify(exits=0)
    assert "is in use: stop its node first" in cluster.repair(exits=1)


def test_an_end_that_the_stream_lost_is_found_and_appended_again(cluster: Cluster) -> None:
    cluster.lose(("lost-1", "{}"), ("lost-2", LARGE))
    assert "which it had confirmed" in cluster.verify(exits=1)
    assert "Aborted" in cluster.repair(exits=1)
    assert "which it had confirmed" in cluster.verify(exits=1)
    assert "batches appended" in cluster.repair("--yes")
    assert "All 1 partition whole" in cluster.verify(exits=0)
    cluster.second.start()
    cluster.send(cluster.second.url, "after")
    assert cluster.inbox(cluster.second.url) == ["before", "lost-1", "lost-2", "after"]


@pytest.mark.parametrize("is_owned", [True, False])
def test_messages_in_whose_place_the_stream_has_others_are_published_again(
    cluster: Cluster, is_owned: bool
) -> None:
    cluster.lose(("lost-1", "{}"), ("lost-2", LARGE))
    cluster.second.start()
    cluster.send(cluster.second.url, "after")
    if not is_owned:
        cluster.second.kill(signal.SIGTERM)
    assert "other batches in the place of" in cluster.verify(exits=1)
    assert "2 messages published again, 2 files removed" in cluster.repair("--yes")
    assert "Nothing to repair" in cluster.repair()
    assert "All 1 partition whole" in cluster.verify(exits=0)
    if not is_owned:
        cluster.second.start()
        cluster.send(cluster.second.url, "last")
    found = cluster.inbox(cluster.second.url)
    assert [one for one in found if one != "last"] == ["before", "after", "lost-1", "lost-2"]


def test_lost_messages_may_be_given_up(cluster: Cluster) -> None:
    cluster.lose(("lost-1", "{}"))
    cluster.second.start()
    cluster.send(cluster.second.url, "after")
    assert "drop their messages" in cluster.repair("--give-up", "--yes")
    assert "All 1 partition whole" in cluster.verify(exits=0)
    assert cluster.inbox(cluster.second.url) == ["before", "after"]


def test_a_deleted_stream_is_filled_only_if_the_operator_asks(cluster: Cluster) -> None:
    cluster.first.kill(signal.SIGTERM)
    cluster.delete_stream()
    assert f"there is no stream {stream_name(NAME, 0)}" in cluster.verify(exits=1)
    assert "--refill fills it from this journal" in cluster.repair("--yes", exits=1)
    assert "batches appended" in cluster.repair("--yes", "--refill")
    assert "All 1 partition whole" in cluster.verify(exits=0)
    cluster.second.start()
    cluster.send(cluster.second.url, "after")
    assert cluster.inbox(cluster.second.url) == ["before", "after"]


def test_a_cluster_that_lost_all_of_nats_is_made_again_and_filled(cluster: Cluster) -> None:
    cluster.send(cluster.first.url, "large", LARGE)
    cluster.first.kill(signal.SIGKILL)
    cluster.lose_all_of_nats()
    create = ("cluster", "create", cluster.address, "--partitions", "1", "--replicas", "1")
    cluster.waypost(*create)
    assert "batches appended" in cluster.repair("--yes", "--refill")
    assert "All 1 partition whole" in cluster.verify(exits=0)
    for node in (cluster.first, cluster.second):  # one whose directory remembers, one without
        node.start()
        cluster.send(node.url, f"after-{node.name}")
    expected = ["before", "large", f"after-{cluster.first.name}", f"after-{cluster.second.name}"]
    assert cluster.inbox(cluster.first.url) == expected


def test_a_directory_of_another_cluster_is_not_compared(cluster: Cluster) -> None:
    cluster.first.kill(signal.SIGTERM)
    address = cluster.address.replace(f"/{NAME}", "/other")
    cluster.waypost("cluster", "create", address, "--partitions", "1", "--replicas", "1")
    directory = ["--data-dir", str(cluster.first.directory)]
    for command in (["verify"], ["repair", "--refill", "--yes"]):
        name, *options = command
        result = cluster.waypost("cluster", name, address, *directory, *options, exits=1)
        assert f"belongs to the cluster '{NAME}', not to 'other'" in result.stderr
