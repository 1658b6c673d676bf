"""Mailbox files are a mirror: when they cannot be written, messages are still delivered."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.faults import plain_journal
from waypost import CircuitBreakerConfig, RateLimitConfig, Relay, Settings

SETTINGS = Settings(
    watch_files=False,
    rate_limit=RateLimitConfig(enabled=False),
    circuit_breaker=CircuitBreakerConfig(failure_threshold=3),
)


def removed(mailbox: Path) -> None:
    shutil.rmtree(mailbox)


def replaced_by_a_file(mailbox: Path) -> None:
    shutil.rmtree(mailbox)
    mailbox.write_text("not a directory")


def folder_replaced_by_a_file(mailbox: Path) -> None:
    shutil.rmtree(mailbox / "new")
    (mailbox / "new").write_text("not a directory")


BREAK = pytest.mark.parametrize("break_", [removed, replaced_by_a_file, folder_replaced_by_a_file])


def failures(relay: Relay) -> int:
    breaker = relay.metrics().breakers.get("agent.a")
    return breaker.consecutive_failures if breaker else 0


async def broken(directory: Path, break_: Callable[[Path], None]) -> Relay:
    relay = await Relay(directory, settings=SETTINGS).open()
    endpoint = relay.register_endpoint("agent.a")
    await relay.idle()
    assert endpoint.maildir_path is not None
    break_(endpoint.maildir_path)
    return relay


@BREAK
async def test_a_message_for_a_broken_mailbox_is_delivered_and_counts_as_a_failure(
    tmp_path: Path, break_: Callable[[Path], None]
) -> None:
    relay = await broken(tmp_path, break_)
    result = await relay.publish("agent.a", {"n": 1}, sender="agent.x")
    assert result.delivered_to == 1
    await eventually(lambda: failures(relay) == 1, "the breaker")
    (leased,) = await relay.lease("agent.a")
    assert (leased.id, leased.payload) == (result.message_id, {"n": 1})
    assert await relay.ack("agent.a", leased.id) == 1
    await relay.close()


@BREAK
async def test_handlers_of_a_broken_mailbox_run(
    tmp_path: Path, break_: Callable[[Path], None]
) -> None:
    relay = await broken(tmp_path, break_)
    handled: list[str] = []
    relay.subscribe("agent.a", lambda envelope: handled.append(envelope.id))
    result = await relay.publish("agent.a", 1, sender="agent.x")
    await relay.idle()
    assert handled == [result.message_id]
    await relay.close()


async def test_a_mailbox_that_stays_broken_opens_its_breaker(tmp_path: Path) -> None:
    """Publish one by one; each succeeds before its file can fail."""
    relay = await broken(tmp_path, removed)
    for n in range(3):
        result = await relay.publish("agent.a", n, sender="agent.x")
        assert result.delivered_to == 1
        await eventually(lambda n=n: failures(relay) == n + 1, f"failure {n + 1}")
    rejected = await relay.publish("agent.a", 3, sender="agent.x")
    assert [one.reason for one in rejected.rejected] == ["circuit_open"]
    await relay.close()


@BREAK
async def test_a_broken_mailbox_is_restored_at_a_restart(
    tmp_path: Path, break_: Callable[[Path], None]
) -> None:
    relay = await broken(tmp_path, break_)
    sent = [(await relay.publish("agent.a", n, sender="agent.x")).message_id for n in range(2)]
    await relay.close()
    mailbox = tmp_path / "mailboxes" / plain_journal.hash_of("agent.a")
    for path in (mailbox, mailbox / "new"):
        if path.is_file():
            path.unlink()
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        assert sorted(path.name for path in (mailbox / "new").iterdir()) == sorted(sent)
        assert [one.id for one in await relay.lease("agent.a")] == sent


@BREAK
async def test_a_mailbox_still_broken_does_not_keep_the_relay_from_opening(
    tmp_path: Path, break_: Callable[[Path], None]
) -> None:
    relay = await broken(tmp_path, break_)
    relay.register_endpoint("agent.b")
    sent = (await relay.publish("agent.*", 1, sender="agent.x")).message_id
    await relay.close()
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        assert [one.id for one in await relay.lease("agent.a")] == [sent]
        assert [one.id for one in await relay.lease("agent.b")] == [sent]


async def test_a_file_with_the_content_of_another_is_written_again_after_a_power_cut(
    tmp_path: Path,
) -> None:
    """Files are reused without a sync, so a new name may survive with the old content."""
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        mailbox = relay.register_endpoint("agent.a").maildir_path
        sent = [(await relay.publish("agent.a", n, sender="agent.x")).message_id for n in range(3)]
    assert mailbox is not None
    first, second, _ = (mailbox / "new" / message_id for message_id in sent)
    first.write_bytes(second.read_bytes())
    (tmp_path / "spares" / "boot").write_text("another start of the machine")
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        contents = [json.loads((mailbox / "new" / one).read_bytes()) for one in sent]
        assert [(one["id"], one["payload"]) for one in contents] == list(
            zip(sent, range(3), strict=True)
        )


async def test_a_file_dropped_in_again_is_taken_once_and_removed_twice(tmp_path: Path) -> None:
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        mailbox = relay.register_endpoint("agent.a").maildir_path
        assert mailbox is not None
        dropped = mailbox / "new" / "1700000000.M1P2.host:2,S"  # no id, as other programs name them
        for _ in range(2):
            dropped.write_text('{"sender": "agent.y", "payload": 1}')
            relay._runtime.drop_ins.scan_all()
            await relay.idle()
            await eventually(lambda: not dropped.exists(), "the file to go")
        assert relay.metrics().by_status["pending"] == 1
