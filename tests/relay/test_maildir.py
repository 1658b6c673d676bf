"""The Maildir: one file per message, in the folder of its state."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from tests.relay.observing import files, payloads, read, remove, send, write
from waypost import Endpoint, Envelope, Relay
from waypost.wire.envelopes import decode_envelope


@pytest.fixture
async def endpoint(relay: Relay) -> Endpoint:
    found = relay.get_endpoint("agent.a")
    assert found is not None
    return found


def path_of(endpoint: Endpoint, *parts: str) -> Path:
    assert endpoint.maildir_path is not None
    return endpoint.maildir_path.joinpath(*parts)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_stored_message_lies_in_new_and_nothing_is_left_in_tmp(
    relay: Relay, endpoint: Endpoint
) -> None:
    result = await send(relay, {"hello": "there"})
    assert files(endpoint) == {"cur": [], "failed": [], "new": [result.message_id], "tmp": []}


async def test_a_file_has_the_envelope_that_a_consumer_gets(
    relay: Relay, endpoint: Endpoint
) -> None:
    result = await send(relay, {"hello": "there"}, reply_to="agent.b")
    content = read(path_of(endpoint, "new", result.message_id))
    assert [decode_envelope(content)] == await relay.lease("agent.a")
    assert json.loads(content)["payload"] == {"hello": "there"}


async def test_a_file_is_readable_by_its_owner_only(relay: Relay, endpoint: Endpoint) -> None:
    first = await send(relay)
    await relay.ack("agent.a", first.message_id)
    second = await send(relay)
    await relay.idle()
    assert mode_of(path_of(endpoint, "new", second.message_id)) == 0o600


async def test_a_leased_message_is_in_cur_until_it_is_acknowledged(
    relay: Relay, endpoint: Endpoint
) -> None:
    result = await send(relay)
    await relay.lease("agent.a")
    await relay.idle()
    assert files(endpoint) == {"cur": [result.message_id], "failed": [], "new": [], "tmp": []}
    await relay.ack("agent.a", result.message_id)
    assert files(endpoint) == {"cur": [], "failed": [], "new": [], "tmp": []}


async def test_a_returned_message_is_in_new_again(relay: Relay, endpoint: Endpoint) -> None:
    result = await send(relay)
    await relay.lease("agent.a")
    await relay.nack("agent.a", result.message_id)
    assert files(endpoint) == {"cur": [], "failed": [], "new": [result.message_id], "tmp": []}


async def test_a_failed_message_is_in_failed(relay: Relay, endpoint: Endpoint) -> None:
    def fail(envelope: Envelope) -> None:
        raise ValueError("no")

    relay.subscribe("agent.a", fail)
    result = await send(relay)
    await relay.idle()
    assert files(endpoint) == {"cur": [], "failed": [result.message_id], "new": [], "tmp": []}


async def test_the_names_of_files_sort_in_the_order_of_the_messages(
    relay: Relay, endpoint: Endpoint
) -> None:
    results = [await send(relay, number) for number in range(10)]
    assert files(endpoint)["new"] == [result.message_id for result in results]


async def test_a_fan_out_is_a_file_in_each_mailbox(relay: Relay, endpoint: Endpoint) -> None:
    other = relay.register_endpoint("agent.c")
    result = await send(relay, to="agent.*")
    assert files(endpoint)["new"] == files(other)["new"] == [result.message_id]


async def test_a_removed_mailbox_file_loses_no_message(relay: Relay, endpoint: Endpoint) -> None:
    result = await send(relay, "in the journal too")
    remove(path_of(endpoint, "new", result.message_id))
    assert payloads(await relay.lease("agent.a")) == ["in the journal too"]
    assert await relay.ack("agent.a", result.message_id) == 1
    assert relay.metrics().breakers == {}


@pytest.mark.parametrize("damage", ["removed", "emptied", "cut short", "in cur"])
async def test_a_damaged_file_is_restored_at_a_restart(
    relay: Relay, endpoint: Endpoint, start, damage: str
) -> None:
    result = await send(relay, "whole")
    await relay.close()
    path = path_of(endpoint, "new", result.message_id)
    content = read(path)
    if damage in ("removed", "in cur"):
        remove(path)
    if damage == "in cur":
        write(path_of(endpoint, "cur", result.message_id), content)
    if damage in ("emptied", "cut short"):
        write(path, content[:20] if damage == "cut short" else "")
    await start()
    assert read(path) == content
    assert files(endpoint)["cur"] == []


async def test_files_of_removed_messages_are_deleted_at_the_start(
    relay: Relay, endpoint: Endpoint, start
) -> None:
    result = await send(relay)
    path = path_of(endpoint, "new", result.message_id)
    content = read(path)
    await relay.ack("agent.a", result.message_id)
    await relay.close()
    write(path, content)
    again = await start()
    await again.idle()
    assert files(endpoint)["new"] == []
    assert again.metrics().total_messages == 0


async def test_removed_mailbox_directories_are_created_again_at_the_start(
    relay: Relay, endpoint: Endpoint, start, data: Path
) -> None:
    result = await send(relay)
    await relay.close()
    shutil.rmtree(data / "mailboxes")
    await start()
    assert files(endpoint)["new"] == [result.message_id]


async def test_deleting_the_file_pool_loses_nothing(
    relay: Relay, endpoint: Endpoint, data: Path
) -> None:
    for _ in range(5):
        result = await send(relay)
        await relay.ack("agent.a", result.message_id)
    await relay.idle()
    for spare in (data / "spares").glob("*"):
        remove(spare)
    results = [await send(relay, number) for number in range(5)]
    await relay.idle()
    assert files(endpoint)["new"] == [result.message_id for result in results]
    assert relay.metrics().breakers == {}


async def test_an_unknown_file_in_the_pool_does_not_prevent_the_start(
    relay: Relay, start, data: Path
) -> None:
    await relay.close()
    write(data / "spares" / "notes.txt", "not ours")
    write(data / "spares" / "7", "not ours either: anyone may read it")
    again = await start()
    result = await send(again, "private")
    found = again.get_endpoint("agent.a")
    assert found is not None
    assert mode_of(path_of(found, "new", result.message_id)) == 0o600
