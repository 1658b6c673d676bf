"""Group commit: many publishes, few syncs, and no result before its sync."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.faults import plain_journal
from tests.faults.syncs import Syncs
from waypost import BackpressureConfig, RateLimitConfig, Relay, Settings

LOOSE = {
    "watch_files": False,
    "rate_limit": RateLimitConfig(enabled=False),
    "backpressure": BackpressureConfig(enabled=False),
}
pytestmark = pytest.mark.parametrize("storage", ["journal", "maildir"])


def publish(relay: Relay, payload: object = None) -> asyncio.Task:
    return asyncio.create_task(relay.publish("agent.a", payload, sender="agent.x"))


async def opened(directory: Path, storage: str, **fields: object) -> Relay:
    relay = await Relay(directory, settings=Settings(storage=storage, **LOOSE, **fields)).open()
    relay.register_endpoint("agent.a")
    await relay.idle()
    return relay


async def test_five_hundred_publishes_at_once_share_a_few_syncs(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    before = syncs.done
    results = await asyncio.gather(*(publish(relay, n) for n in range(500)))
    assert all(result.delivered_to == 1 for result in results)
    assert 1 <= syncs.done - before <= 5
    await relay.close()


async def test_publish_many_is_one_commit(tmp_path: Path, storage: str, syncs: Syncs) -> None:
    relay = await opened(tmp_path, storage)
    before, commits = syncs.done, relay.metrics().commits
    drafts = [{"subject": "agent.a", "payload": n, "sender": "agent.x"} for n in range(1000)]
    assert len(await relay.publish_many(drafts)) == 1000
    assert (syncs.done - before, relay.metrics().commits - commits) == (1, 1)
    await relay.close()


async def test_no_publish_returns_before_its_sync(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    syncs.hold()
    begun = syncs.begun
    first = [publish(relay, n) for n in range(20)]
    await eventually(lambda: syncs.begun > begun, "the first sync")
    later = [publish(relay, n) for n in range(20)]
    await event_loop_turns(50)
    assert not any(task.done() for task in first + later)
    assert relay.metrics().by_status["pending"] == 40  # decided, and not yet promised
    syncs.release()
    await asyncio.gather(*first, *later)
    assert syncs.begun - begun == 2
    await relay.close()


async def test_a_message_is_not_delivered_before_it_is_durable(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    handled = []
    relay.register_endpoint("agent.h")
    relay.subscribe("agent.h", lambda envelope: handled.append(envelope.id))
    await relay.idle()
    syncs.hold()
    begun = syncs.begun
    waiting = asyncio.create_task(relay.lease("agent.a", wait=30))
    sent = [
        publish(relay),
        asyncio.create_task(relay.publish("agent.h", 1, sender="agent.x")),
    ]
    await eventually(lambda: syncs.begun > begun, "the sync")
    for _ in range(20):
        await event_loop_turns(1)
        assert not waiting.done()
        assert await relay.lease("agent.a") == []
        assert not handled
    if storage == "maildir":
        assert plain_journal.files(tmp_path) == {}
    syncs.release()
    await asyncio.gather(*sent)
    assert len(await waiting) == 1
    await relay.idle()
    assert len(handled) == 1
    await relay.close()


async def test_no_handler_runs_before_its_claim_is_durable(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    """Otherwise a crash would run it again."""
    relay = await opened(tmp_path, storage)
    await relay.publish("agent.a", 1, sender="agent.x")
    handled = []
    syncs.hold()
    begun = syncs.begun
    relay.subscribe("agent.a", lambda envelope: handled.append(envelope.id))
    await eventually(lambda: syncs.begun > begun, "the sync of the claim")
    await event_loop_turns()
    assert not handled
    syncs.release()
    await relay.idle()
    assert len(handled) == 1
    await relay.close()


@pytest.mark.parametrize("act", ["ack", "nack", "redrive", "purge"])
async def test_no_other_answer_comes_before_its_sync(
    tmp_path: Path, storage: str, syncs: Syncs, act: str
) -> None:
    relay = await opened(tmp_path, storage)
    await relay.publish("agent.a", 1, sender="agent.x", message_id="one")
    spent = {"call_budget_remaining": 0}
    await relay.publish("agent.a", 2, sender="agent.x", budget=spent, message_id="dead")
    await relay.lease("agent.a")
    await relay.idle()
    syncs.hold()
    begun = syncs.begun
    answer = asyncio.create_task(
        {
            "ack": lambda: relay.ack("agent.a", "one"),
            "nack": lambda: relay.nack("agent.a", "one"),
            "redrive": lambda: relay.redrive("dead"),
            "purge": relay.purge_dead_letters,
        }[act]()
    )
    await eventually(lambda: syncs.begun > begun, "the sync")
    await event_loop_turns()
    assert not answer.done()
    syncs.release()
    assert await answer == 1
    await relay.close()


async def test_a_cancelled_publish_does_not_cancel_others(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    syncs.hold()
    begun = syncs.begun
    impatient, patient = publish(relay, "impatient"), publish(relay, "patient")
    await eventually(lambda: syncs.begun > begun, "the sync")
    impatient.cancel()
    await asyncio.wait([impatient])
    syncs.release()
    async with asyncio.timeout(60):
        assert (await patient).delivered_to == 1
        assert (await publish(relay, "later")).delivered_to == 1
        await relay.close()


async def test_without_fsync_a_publish_waits_for_the_write_alone(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage, durability="async")
    syncs.hold()
    begun = syncs.begun
    async with asyncio.timeout(60):
        assert (await publish(relay)).delivered_to == 1
    assert syncs.begun == begun
    (journal,) = plain_journal.segments(tmp_path)
    assert b'"accepted"' in journal.read_bytes()
    syncs.release()
    await relay.close()
    assert syncs.begun > begun  # closing makes it durable all the same


async def test_a_large_payload_is_durable_before_the_line_that_refers_to_it(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    (journal,) = plain_journal.segments(tmp_path)
    size = journal.stat().st_size
    syncs.hold()
    begun = syncs.begun
    sent = publish(relay, "x" * 10_000)
    await eventually(lambda: syncs.begun > begun, "the sync of the payload")
    (bodies,) = (tmp_path / "journal").glob("*.bodies")
    assert bodies.stat().st_size == 10_002
    assert journal.stat().st_size == size
    syncs.release()
    await sent
    assert syncs.begun - begun == 2
    await relay.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let events that no one waits for wait for longer than a test."""
    monkeypatch.setattr("waypost.relay.journal.journal._UNAWAITED_MAX_S", 600)


@pytest.mark.usefixtures("patient")
async def test_a_lease_shares_the_sync_of_its_ack(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    await publish(relay)
    begun, commits = syncs.begun, relay.metrics().commits
    (leased,) = await relay.lease("agent.a")
    await event_loop_turns()
    assert (syncs.begun, relay.metrics().commits) == (begun, commits)
    assert await relay.ack("agent.a", leased.id) == 1
    assert (syncs.begun - begun, relay.metrics().commits - commits) == (1, 1)
    kinds = [event["kind"] for event in plain_journal.committed(tmp_path)]
    assert kinds[-2:] == ["leased", "acked"]
    await relay.close()


@pytest.mark.usefixtures("patient")
async def test_a_lease_is_durable_at_once_for_a_caller_that_waits(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    await publish(relay)
    done = syncs.done
    await relay.lease("agent.a")
    async with asyncio.timeout(60):
        await relay.sync()
    assert syncs.done - done == 1
    await relay.close()


async def test_a_lease_that_no_one_waits_for_is_durable_soon(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay = await opened(tmp_path, storage)
    await publish(relay)
    done = syncs.done
    await relay.lease("agent.a")
    await eventually(lambda: syncs.done - done == 1, "the sync of the lease")
    await relay.close()


@pytest.mark.usefixtures("patient")
async def test_a_lease_that_a_crash_loses_does_not_count(tmp_path: Path, storage: str) -> None:
    relay = await opened(tmp_path / "first", storage)
    sent = await publish(relay)
    await relay.lease("agent.a")
    shutil.copytree(tmp_path / "first", tmp_path / "second")  # as a crash leaves it
    await relay.close()
    relay = await opened(tmp_path / "second", storage)
    (leased,) = await relay.lease("agent.a")
    assert (leased.id, leased.attempt) == (sent.message_id, 1)
    assert await relay.ack("agent.a", leased.id) == 1
    await relay.close()
