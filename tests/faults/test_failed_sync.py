"""After a failed sync the relay stops and reports it; a sync is never retried."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.faults import plain_journal
from tests.faults.syncs import Syncs
from waypost import RateLimitConfig, Relay, RelayStopped, Settings

pytestmark = pytest.mark.parametrize("storage", ["journal", "maildir"])


def settings(storage: str) -> Settings:
    return Settings(
        storage=storage,  # type: ignore[arg-type]
        watch_files=False,
        rate_limit=RateLimitConfig(enabled=False),
    )


def publish(relay: Relay, payload: object = None) -> asyncio.Task:
    return asyncio.create_task(relay.publish("agent.a", payload, sender="agent.x"))


async def with_three_confirmed(directory: Path, storage: str) -> tuple[Relay, list[str]]:
    relay = await Relay(directory, settings=settings(storage)).open()
    relay.register_endpoint("agent.a")
    return relay, [(await publish(relay, n)).message_id for n in range(3)]


async def test_waiting_and_later_publishes_fail_and_the_sync_is_not_retried(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, _ = await with_three_confirmed(tmp_path, storage)
    syncs.hold()
    begun = syncs.begun
    first = [publish(relay, n) for n in range(3)]
    await eventually(lambda: syncs.begun > begun, "the sync")
    queued = [publish(relay, n) for n in range(3)]
    await asyncio.sleep(0)
    syncs.fail()
    syncs.release()
    results = await asyncio.gather(*first, *queued, return_exceptions=True)
    assert all(isinstance(one, RelayStopped) for one in results), results
    with pytest.raises(RelayStopped, match=os.strerror(errno.EIO)):
        await publish(relay)
    with pytest.raises(RelayStopped):
        await relay.publish_many([{"subject": "agent.a", "payload": 1, "sender": "agent.x"}])
    await relay.close()
    assert syncs.begun == begun + 1


async def test_reopening_keeps_exactly_the_confirmed_messages(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    syncs.fail()
    with pytest.raises(RelayStopped):
        await publish(relay, "unconfirmed")
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == confirmed
        assert await relay.dead_letters() == []
        if storage == "maildir":
            await relay.idle()
            (names,) = plain_journal.files(tmp_path).values()
            assert sorted(names) == sorted(confirmed)
        assert (await publish(relay)).delivered_to == 1


async def test_a_stopped_relay_reports_the_reason_and_still_answers_queries(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    await relay.lease("agent.a", limit=1)
    await relay.idle()
    syncs.fail()
    with pytest.raises(RelayStopped):
        await relay.ack("agent.a", confirmed[0])
    assert any(os.strerror(errno.EIO) in problem for problem in relay.metrics().problems)
    assert [one.subject for one in relay.list_endpoints()] == ["agent.a"]
    for rejected in (
        relay.ack("agent.a", confirmed[1]),
        relay.nack("agent.a", confirmed[0]),
        relay.lease("agent.a"),
        relay.idle(),
        relay.rebuild_index(),
    ):
        with pytest.raises(RelayStopped):
            await rejected
    with pytest.raises(RelayStopped):
        relay.register_endpoint("agent.b")
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == confirmed


async def test_a_failed_sync_of_a_large_payload_stops_it_too(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    syncs.fail()
    with pytest.raises(RelayStopped):
        await publish(relay, "x" * 10_000)
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        result = await publish(relay, "y" * 10_000)
        leased = await relay.lease("agent.a")
        assert [one.id for one in leased] == [*confirmed, result.message_id]
        assert leased[-1].payload == "y" * 10_000


async def test_no_handler_runs_on_a_claim_that_was_not_synced(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    handled: list[str] = []
    syncs.fail()
    relay.subscribe("agent.a", lambda envelope: handled.append(envelope.id))
    await eventually(lambda: relay.metrics().problems, "the failure")
    await relay.close()
    assert handled == []
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        relay.subscribe("agent.a", lambda envelope: handled.append(envelope.id))
        await relay.idle()
        assert handled == confirmed


async def test_a_sync_that_fails_for_want_of_room_is_a_full_disk(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    """Delayed allocation and quotas can report a full disk as late as the sync."""
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    syncs.fail(errno.ENOSPC)
    result = await publish(relay)
    assert (result.message_id, result.delivered_to) == ("", 0)
    assert [one.reason for one in result.rejected] == ["storage_full"]
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == confirmed


async def test_a_failed_seal_loses_nothing_that_was_confirmed(
    tmp_path: Path, storage: str, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    real = os.rename

    def reject(source: str, target: str, **more: object) -> None:
        if str(target).endswith(".jsonl"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    monkeypatch.setattr(os, "rename", reject)
    with pytest.raises(RelayStopped):
        await relay.seal_journal()
    await relay.close()
    monkeypatch.undo()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == confirmed


async def test_a_file_dropped_into_a_stopped_relay_is_published_at_the_next_start(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    syncs.fail()
    with pytest.raises(RelayStopped):
        await publish(relay)
    endpoint = relay.get_endpoint("agent.a")
    assert endpoint is not None
    if endpoint.maildir_path is None:  # there is nowhere to drop a file
        assert storage == "journal"
        await relay.close()
        return
    (endpoint.maildir_path / "tmp" / "dropped").write_text('{"sender": "agent.y", "payload": 1}')
    (endpoint.maildir_path / "tmp" / "dropped").rename(endpoint.maildir_path / "new" / "dropped")
    relay._runtime.drop_ins.scan_all()
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        await relay.idle()
        assert [one.id for one in await relay.lease("agent.a")] == [*confirmed, "dropped"]


async def test_housekeeping_of_a_stopped_relay_writes_nothing_down(
    tmp_path: Path, storage: str, syncs: Syncs
) -> None:
    """The state is ahead of the journal; the index must not be."""
    relay, confirmed = await with_three_confirmed(tmp_path, storage)
    await relay.idle()
    syncs.hold()
    begun = syncs.begun
    unconfirmed = [publish(relay), asyncio.create_task(relay.ack("agent.a", confirmed[0]))]
    await eventually(lambda: syncs.begun > begun, "the sync")
    syncs.fail()
    syncs.release()
    results = await asyncio.gather(*unconfirmed, return_exceptions=True)
    assert all(isinstance(one, RelayStopped) for one in results), results
    for _ in range(3):
        try:
            relay.sweep()
        except RelayStopped:
            pass
        await event_loop_turns()
    await relay.close()
    async with Relay(tmp_path, settings=settings(storage)) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == confirmed
    plain_journal.assert_index_is_right(tmp_path)
