"""Two subjects whose hashes begin with the same twelve digits never share a mailbox directory."""

import os
from pathlib import Path

import pytest

from tests.relay.observing import DAY_MS, events, payloads, send
from waypost import HousekeepingConfig, Relay
from waypost.cli.results import send_report
from waypost.relay.data_dir import DataDir, endpoint_hash, long_endpoint_hash
from waypost.relay.verify.verify import verify
from waypost.testing import ManualClock
from waypost.wire.results import PublishResult, Rejection

VICTIM, STRANGER = "agent.c10672464", "agent.c11180642"
USUAL = "efc27250b907"


def names(data: Path) -> dict[str, list[str]]:
    """Return the files waiting in each mailbox directory."""
    found = (data / "mailboxes").iterdir()
    return {one.name: sorted(os.listdir(one / "new")) for one in found}


def test_the_two_names_really_collide() -> None:
    assert endpoint_hash(VICTIM) == endpoint_hash(STRANGER) == USUAL


async def with_both(start) -> tuple[Relay, str]:
    relay = await start()
    relay.register_endpoint(VICTIM)
    sent = await send(relay, "secret", to=VICTIM)
    relay.register_endpoint(STRANGER)
    await relay.idle()
    return relay, sent.message_id


async def test_the_second_gets_another_directory(start, data: Path) -> None:
    relay, sent = await with_both(start)
    first, second = relay.list_endpoints()
    assert (first.hash, len(second.hash)) == (USUAL, 64)
    assert first.maildir_path != second.maildir_path
    assert names(data) == {USUAL: [sent], second.hash: []}


@pytest.mark.parametrize("lost", [(), ("index.db", "index.db-wal", "index.db-shm")])
async def test_after_a_restart_neither_has_the_mail_of_the_other(start, data: Path, lost) -> None:
    relay, _ = await with_both(start)
    own = await send(relay, "own", to=STRANGER)
    before = {one.subject: one.hash for one in relay.list_endpoints()}
    for _ in range(2):
        await relay.close()
        for name in lost:
            (data / name).unlink(missing_ok=True)
        relay = await start()
        await relay.idle()
        assert {one.subject: one.hash for one in relay.list_endpoints()} == before
        assert names(data)[before[STRANGER]] == [own.message_id]
    assert payloads(await relay.lease(STRANGER)) == ["own"]
    assert payloads(await relay.lease(VICTIM)) == ["secret"]


async def test_the_directory_stays_when_the_first_is_unregistered(start, data: Path) -> None:
    relay, sent = await with_both(start)
    relay.unregister_endpoint(VICTIM)
    relay.unregister_endpoint(STRANGER)
    await relay.idle()
    relay.register_endpoint(STRANGER)
    relay = await start()
    await relay.idle()
    (stranger,) = relay.list_endpoints()
    assert len(stranger.hash) == 64
    assert names(data) == {USUAL: [sent], stranger.hash: []}
    assert await relay.lease(STRANGER) == []


async def test_the_directory_stays_when_old_segments_are_deleted(
    start, data: Path, clock: ManualClock
) -> None:
    relay = await start(housekeeping=HousekeepingConfig(journal_retention_ms=DAY_MS))
    relay.register_endpoint(VICTIM)
    relay.register_endpoint(STRANGER)
    before = [one.hash for one in relay.list_endpoints()]
    await relay.seal_journal()
    clock.advance_ms(3 * DAY_MS)
    await relay.rebuild_index()
    relay.sweep()
    await relay.sync()
    assert [one["directory"] for one in events(data, "endpoint") if "directory" in one] == [
        before[1]
    ]
    await relay.close()
    (data / "index.db").unlink()
    relay = await start()
    assert [one.hash for one in relay.list_endpoints()] == before


async def test_files_from_when_two_subjects_shared_a_directory_go_to_their_owner(
    start, data: Path
) -> None:
    """In journals of earlier versions, both registrations are without a directory."""
    relay, sent = await with_both(start)
    stranger = relay.list_endpoints()[1].hash
    for number in range(2):
        await send(relay, number, to=STRANGER)
    await relay.idle()
    await relay.close()
    shared, own = data / "mailboxes" / USUAL / "new", data / "mailboxes" / stranger / "new"
    for file in own.iterdir():
        file.rename(shared / file.name)
    relay = await start()
    await relay.idle()
    assert names(data)[USUAL] == [sent]
    assert payloads(await relay.lease(VICTIM)) == ["secret"]
    assert payloads(await relay.lease(STRANGER)) == [0, 1]


async def test_drop_ins_belong_to_the_owner_of_the_directory(start, data: Path) -> None:
    relay, _ = await with_both(start)
    stranger = relay.list_endpoints()[1]
    assert stranger.maildir_path is not None
    (stranger.maildir_path / "new" / "dropped").write_text('{"sender": "agent.b", "payload": 7}')
    relay = await start()
    await relay.idle()
    assert payloads(await relay.lease(STRANGER)) == [7]
    assert payloads(await relay.lease(VICTIM)) == ["secret"]


async def test_a_check_of_the_directory_finds_nothing_wrong(start, data: Path) -> None:
    relay, _ = await with_both(start)
    await send(relay, "x" * 5000, to=STRANGER)
    await relay.idle()
    await relay.close()
    assert verify(DataDir(data)).findings == []


def test_results_name_the_endpoint_whichever_directory_it_has() -> None:
    rejection = Rejection(long_endpoint_hash(STRANGER), "backpressure", "full")
    result = PublishResult(message_id="", delivered_to=0, rejected=[rejection])
    assert send_report(STRANGER, result, [STRANGER]).rejected[0].endpoint == STRANGER
