"""What a node checks before it uses a stream; each difference is an error that says what to do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from bench.peers.ports import free_port
from tests.harness.nats_server import NatsServer
from waypost.cluster.streams import (
    CLUSTER_KEY,
    check_sync,
    connect,
    create_stream,
    disconnect,
    open_log,
    stream_name,
)
from waypost.policy.errors import InvalidInput
from waypost.relay.errors import LogUnavailable, LogUnusable

pytestmark = pytest.mark.process


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect([nats_server.url])
    yield client
    await disconnect(client)


async def test_a_stream_as_created_can_be_opened(client: Client) -> None:
    await create_stream(client, "right", 0, replicas=1)
    log = await open_log(client, "right", 0, replicas=1)
    assert (await log.tail()).position == 0


async def test_three_replicas_need_three_servers(client: Client) -> None:
    with pytest.raises(LogUnusable, match="3 replicas need as many servers"):
        await create_stream(client, "alone", 0)
    with pytest.raises(LogUnusable, match="there is no stream waypost-alone-0"):
        await open_log(client, "alone", 0)


async def test_fewer_replicas_than_wanted_are_an_error(client: Client) -> None:
    await create_stream(client, "few", 0, replicas=1)
    with pytest.raises(LogUnusable, match="1 replicas, and should have 3"):
        await open_log(client, "few", 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"metadata": {CLUSTER_KEY: "theirs"}}, "belongs to the cluster 'theirs', not to"),
        ({"metadata": {}}, "belongs to no cluster of Waypost"),
        ({"storage": StorageType.MEMORY}, "must have file storage"),
        ({"deny_purge": False}, "needs deny_delete and deny_purge"),
        ({"discard": DiscardPolicy.OLD}, "needs 'discard: new'"),
        ({"max_age": 3600}, "must have no max_age"),
        ({"max_msgs": 10}, "no max_msgs"),
        ({"subjects": ["other.subject"]}, "its subjects are"),
    ],
)
async def test_a_stream_with_other_settings_is_not_used(
    client: Client, change: dict[str, Any], text: str
) -> None:
    cluster = f"other-{'-'.join(change)}-{len(text)}".replace("_", "-")
    right: dict[str, Any] = {
        "name": stream_name(cluster, 0),
        "subjects": [f"waypost.{cluster}.0.batch", f"waypost.{cluster}.0.piece"],
        "storage": StorageType.FILE,
        "discard": DiscardPolicy.NEW,
        "deny_delete": True,
        "deny_purge": True,
        "metadata": {CLUSTER_KEY: cluster},
    }
    await client.jetstream().add_stream(StreamConfig(**{**right, **change}))
    with pytest.raises(LogUnusable, match=text):
        await open_log(client, cluster, 0, replicas=1)
    await client.jetstream().delete_stream(stream_name(cluster, 0))


@pytest.mark.parametrize("cluster", ["", "a b", "a.b", "ü", "x" * 65])
def test_a_name_that_no_stream_can_have_is_rejected(cluster: str) -> None:
    with pytest.raises(InvalidInput, match="letters, digits and hyphens"):
        stream_name(cluster, 0)


async def test_a_server_below_the_version_is_rejected() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak as much of the protocol as a client needs to connect."""
        info = {"server_id": "OLD", "version": "2.11.4", "max_payload": 1024, "headers": True}
        writer.write(b"INFO " + msgspec.json.encode(info) + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    old = await asyncio.start_server(greet, "127.0.0.1", 0)
    host, port = old.sockets[0].getsockname()
    with pytest.raises(LogUnusable, match=r"version 2\.11\.4, and must be 2\.15\.1 or newer"):
        await connect([f"nats://{host}:{port}"])
    old.close()


async def test_no_server_at_all_is_reported_with_the_addresses() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(LogUnavailable, match=f"no NATS server can be reached at {url}"):
        await connect([url])


async def test_a_server_that_syncs_before_it_confirms_passes(nats_server: NatsServer) -> None:
    await check_sync(nats_server.monitoring_url)


async def test_a_server_that_confirms_before_it_syncs_is_rejected(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, sync="2m")
    server.start()
    try:
        with pytest.raises(LogUnusable, match="set 'sync_interval: always'"):
            await check_sync(server.monitoring_url)
    finally:
        server.kill()


async def test_an_address_that_is_no_monitoring_address_is_reported(
    nats_server: NatsServer,
) -> None:
    for url in (f"http://127.0.0.1:{free_port()}", "file:///etc/passwd"):
        with pytest.raises(LogUnavailable, match="must be the monitoring address"):
            await check_sync(url)
