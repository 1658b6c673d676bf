"""More ids than fit into memory: known ones are found on disk, new ones are not looked for."""

import pytest

from tests.relay.observing import UNLIMITED, send
from waypost.relay.state import known_senders as state
from waypost.relay.state import write_behind
from waypost.relay.state.index import Index
from waypost.relay.state.write_behind import KeyFilter


async def test_more_ids_than_fit_into_memory_are_still_known(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "duplicates_in_memory_max", 10)
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    for number in range(30):
        await send(relay, message_id=f"order-{number}")
        await relay.ack("agent.a", f"order-{number}")
    await relay.rebuild_index()
    for number in range(30):
        await send(relay, message_id=f"order-{number}")
    assert await relay.lease("agent.a") == []


async def test_more_ids_than_fit_into_memory_are_known_after_a_restart(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "duplicates_in_memory_max", 10)
    for numbers in (range(30), range(30, 60)):
        relay = await start(rate_limit=UNLIMITED)
        relay.register_endpoint("agent.a")
        for number in numbers:
            await send(relay, message_id=f"order-{number}")
            await relay.ack("agent.a", f"order-{number}")
        await relay.close()
    relay = await start(rate_limit=UNLIMITED)
    for number in range(60):
        await send(relay, message_id=f"order-{number}")
    assert await relay.lease("agent.a") == []


async def test_a_new_id_is_not_looked_up_on_disk(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "duplicates_in_memory_max", 10)
    looked_up: list[str] = []
    lookup = Index.duplicate
    monkeypatch.setattr(
        Index, "duplicate", lambda index, key: looked_up.append(key) or lookup(index, key)
    )
    relay = await start(rate_limit=UNLIMITED)
    relay.register_endpoint("agent.a")
    for number in range(100):
        await send(relay, message_id=f"order-{number}")
        if number % 10 == 0:
            await relay.rebuild_index()
    assert len(looked_up) <= 1, "the filter may take one key for another, but rarely"
    await send(relay, message_id="order-0")
    assert "agent.b order-0" in looked_up


def test_every_added_key_is_contained_and_few_others() -> None:
    keys = KeyFilter()
    for number in range(10_000):
        keys.add(f"key-{number}")
    assert all(f"key-{number}" in keys for number in range(10_000))
    assert sum(f"other-{number}" in keys for number in range(10_000)) < 100


def test_a_full_table_is_forgotten_once_all_its_keys_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_behind, "_KEYS_MAX", 2)
    keys = KeyFilter()
    for key in ("a", "b", "c"):
        keys.add(key)
    keys.forget(before_us=0, now_us=1_000)  # the first table is full: its keys are older than this
    keys.forget(before_us=1_000, now_us=2_000)
    assert all(key in keys for key in ("a", "b", "c"))
    keys.forget(before_us=1_001, now_us=2_000)
    assert ("a" in keys, "b" in keys, "c" in keys) == (False, False, True)
