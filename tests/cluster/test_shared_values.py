"""Values and bindings that the nodes of a cluster share, on a real server."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig
from nats.js.kv import KeyValue

from tests.eventually import eventually
from tests.harness.nats_server import NatsServer
from waypost.cluster.shared_bindings import SharedBindings
from waypost.cluster.shared_values import SharedValues, bucket_name
from waypost.relay.errors import LogUnavailable
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.errors import IdentitiesNotSaved, KeyRevoked, SubjectTaken

pytestmark = pytest.mark.process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    one = NatsServer(tmp_path)
    one.start()
    yield one
    one.kill()


async def closed(client: nats.NATS) -> None:
    with suppress(OSError):  # its server may be gone
        await client.close()


@pytest.fixture
async def nodes(server: NatsServer) -> AsyncIterator[list[SharedValues]]:
    """The values as two nodes see them."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(2):
            client = await nats.connect(server.url)
            stack.push_async_callback(closed, client)
            await SharedValues.create(client.jetstream(), "test", replicas=1)
            values = await SharedValues.open(client.jetstream(), "test")
            stack.push_async_callback(values.close)
            opened.append(values)
        yield opened


async def test_a_value_reaches_the_other_node(nodes: list[SharedValues]) -> None:
    one, other = nodes
    seen: list[tuple[str, bytes | None]] = []
    other.on_change("config", lambda key, value: seen.append((key, value)))
    await one.put("config", b"{}")
    await one.put("rules", b"[]")
    await eventually(lambda: other.get("rules") is not None)
    assert seen == [("config", b"{}")]


async def test_values_are_complete_once_they_are_opened(
    server: NatsServer, nodes: list[SharedValues], monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(nodes[0].put(f"key{number}", b"{}") for number in range(20)))
    watch = KeyValue.watchall

    async def watch_with_an_early_end(bucket: KeyValue, **options: Any) -> Any:
        watcher: Any = await watch(bucket, **options)
        updates, watcher._updates = watcher._updates, asyncio.Queue()
        watcher._updates.put_nowait(None)  # as the library does if it is faster than its values
        while not updates.empty():
            watcher._updates.put_nowait(updates.get_nowait())
        return watcher

    monkeypatch.setattr(KeyValue, "watchall", watch_with_an_early_end)
    client = await nats.connect(server.url)
    values = await SharedValues.open(client.jetstream(), "test")
    assert len(values.under("key")) == 20
    await values.close()
    await closed(client)


async def test_of_two_that_replace_one_value_the_second_fails(nodes: list[SharedValues]) -> None:
    one, other = nodes
    assert await one.replace("config", b"1")
    assert not await other.replace("config", b"2")
    known = other.get("config")
    assert known is not None
    assert known.value == b"1"
    assert await other.replace("config", b"3", known.revision)


async def test_a_secret_is_made_once(nodes: list[SharedValues]) -> None:
    made = await asyncio.gather(
        *(one.create_once("secret", lambda at=at: b"%d" % at) for at, one in enumerate(nodes))
    )
    assert len(set(made)) == 1


async def test_a_secret_that_was_deleted_is_made_again(
    server: NatsServer, nodes: list[SharedValues]
) -> None:
    await nodes[0].create_once("secret", lambda: b"old")
    client = await nats.connect(server.url)
    await (await client.jetstream().key_value(bucket_name("test"))).delete("secret")
    await eventually(lambda: nodes[0].get("secret") is None)
    async with asyncio.timeout(30):
        assert await nodes[0].create_once("secret", lambda: b"new") == b"new"
    await closed(client)


async def test_a_value_that_is_replaced_while_all_are_read_is_not_missed(
    server: NatsServer, nodes: list[SharedValues], monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes[0].put("rules", b"1")
    await nodes[0].put("config", b"1")
    watch = KeyValue.watchall

    async def watch_after_a_change(bucket: KeyValue, **options: Any) -> Any:
        await nodes[0].put("rules", b"2")
        return await watch(bucket, **options)

    monkeypatch.setattr(KeyValue, "watchall", watch_after_a_change)
    client = await nats.connect(server.url)
    values = await SharedValues.open(client.jetstream(), "test")
    found = values.get("rules")
    assert found is not None
    assert found.value == b"2"
    await values.close()
    await closed(client)


async def test_a_node_finds_what_changed_while_the_server_was_away(
    nodes: list[SharedValues], server: NatsServer
) -> None:
    one, other = nodes
    await one.put("config", b"before")
    server.kill()
    server.start()

    async def is_written() -> bool:
        try:
            await one.put("config", b"after")
        except (OSError, TimeoutError, nats.errors.Error):
            return False
        return True

    while not await is_written():
        pass
    await eventually(lambda: (known := other.get("config")) and known.value == b"after")


async def test_a_copy_that_is_closed_leaves_nothing_at_the_server(
    server: NatsServer, nodes: list[SharedValues]
) -> None:
    client = await nats.connect(server.url)
    stream = f"KV_{bucket_name('test')}"
    for _ in range(3):
        values = await SharedValues.open(client.jetstream(), "test")
        await values.close()
    assert (await client.jetstream().stream_info(stream)).state.consumer_count == len(nodes)
    await closed(client)


async def test_values_that_cannot_be_read_are_an_error_and_no_wait_without_an_end(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await nats.connect(server.url)
    jetstream, bucket = client.jetstream(), bucket_name("test")
    subjects = [f"$KV.{bucket}.>"]
    only_one = StreamConfig(
        name=f"KV_{bucket}", subjects=subjects, max_msgs_per_subject=1, max_consumers=1
    )
    await jetstream.add_stream(only_one)
    first = await SharedValues.open(jetstream, "test")
    with monkeypatch.context() as patched:
        patched.setattr("waypost.cluster.shared_values.OPEN_S", 5.0)
        with pytest.raises(LogUnavailable, match="maximum consumers limit reached"):
            await SharedValues.open(jetstream, "test")
    await first.close()
    await (await SharedValues.open(jetstream, "test")).close()
    await closed(client)


@pytest.fixture
async def stores(
    nodes: list[SharedValues], server: NatsServer
) -> AsyncIterator[list[SharedBindings]]:
    async with AsyncExitStack() as stack:
        opened = []
        for values in nodes:
            opened.append(await SharedBindings.open([server.url], "test", values))
            stack.push_async_callback(opened[-1].close_connection)
        yield opened


@pytest.fixture
def pair(stores: list[SharedBindings]) -> list[Bindings]:
    """The bindings as two nodes see them."""
    opened = [Bindings(store) for store in stores]
    for store, bindings in zip(stores, opened, strict=True):
        store.follow(bindings)
    return opened


async def test_a_subject_belongs_to_the_first_key_at_every_node(pair: list[Bindings]) -> None:
    one, other = pair
    await asyncio.to_thread(one.bind, "agent.ann", "key-1", 1)
    await eventually(lambda: other.get("agent.ann") is not None)
    with pytest.raises(SubjectTaken):
        await asyncio.to_thread(other.bind, "agent.ann", "key-2", 2)


async def test_two_keys_that_bind_one_subject_at_two_nodes_do_not_both_get_it(
    pair: list[Bindings],
) -> None:
    results = await asyncio.gather(
        *(
            asyncio.to_thread(bindings.bind, "agent.ann", f"key-{at}", at)
            for at, bindings in enumerate(pair)
        ),
        return_exceptions=True,
    )
    failed = [one for one in results if isinstance(one, IdentitiesNotSaved | SubjectTaken)]
    assert len(failed) == 1
    await eventually(lambda: pair[0].get("agent.ann") == pair[1].get("agent.ann") is not None)


async def test_a_binding_that_was_seen_but_not_applied_yet_is_not_replaced(
    pair: list[Bindings], stores: list[SharedBindings], nodes: list[SharedValues]
) -> None:
    one, other = pair
    goes_on = threading.Event()
    stores[1]._learner.submit(goes_on.wait)  # the other node is slow
    try:
        await asyncio.to_thread(one.bind, "agent.ann", "key-1", 1)
        await eventually(lambda: nodes[1].get("identity.agent.ann") is not None)
        with pytest.raises(IdentitiesNotSaved, match="changed at another node"):
            await asyncio.to_thread(other.bind, "agent.ann", "key-2", 2)
    finally:
        goes_on.set()
    await eventually(lambda: (bound := other.get("agent.ann")) and bound.public_key == "key-1")
    await asyncio.to_thread(other.unbind, "agent.ann")


async def test_a_freed_subject_stays_closed_to_its_old_key_at_every_node(
    pair: list[Bindings],
) -> None:
    one, other = pair
    await asyncio.to_thread(one.bind, "agent.ann", "key-1", 1)
    await asyncio.to_thread(one.unbind, "agent.ann")
    await eventually(lambda: other.is_known("agent.ann") and other.get("agent.ann") is None)
    with pytest.raises(KeyRevoked):
        await asyncio.to_thread(other.bind, "agent.ann", "key-1", 3)
    await asyncio.to_thread(other.bind, "agent.ann", "key-2", 3)
    await eventually(lambda: (bound := one.get("agent.ann")) and bound.public_key == "key-2")


async def test_changes_that_no_server_confirms_are_not_applied(
    pair: list[Bindings], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.cluster.shared_bindings.SAVE_TIMEOUT_S", 0.5)
    bindings = pair[0]
    server.kill()
    with pytest.raises(IdentitiesNotSaved, match="did not answer"):
        await asyncio.to_thread(bindings.bind, "agent.ann", "key-1", 1)
    assert bindings.get("agent.ann") is None
