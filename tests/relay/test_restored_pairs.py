"""Last-seen pairs can be imported, and then belong to the relay's state."""

from pathlib import Path

import pytest

from waypost import InvalidSubject, QosConfig, Relay, Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.journal.history import find_events
from waypost.relay.verify.verify import verify
from waypost.testing import ManualClock
from waypost.wire.events import Accepted

NOW_US = 1_767_225_600_000_000
NOW_MS = NOW_US // 1000
SETTINGS = Settings(qos=QosConfig(enabled=True), watch_files=False)


async def tier_of_a_message(relay: Relay, sender: str, recipient: str) -> int:
    relay.register_endpoint(recipient)
    sent = await relay.publish(recipient, "hi", sender=sender)
    journal = relay._runtime.data.journal
    (arrived,) = find_events(journal, sent.message_id)
    assert isinstance(arrived, Accepted)
    return arrived.tier


async def test_a_restored_pair_makes_its_sender_known(tmp_path: Path) -> None:
    async with Relay(tmp_path, settings=SETTINGS, clock=ManualClock(NOW_US)) as relay:
        assert await relay.remember_pairs([("agent.b", "agent.a", NOW_MS - 1000)]) == 1
        assert await tier_of_a_message(relay, "agent.a", "agent.b") == 3


async def test_restored_pairs_survive_a_restart_without_findings(tmp_path: Path) -> None:
    async with Relay(tmp_path, settings=SETTINGS, clock=ManualClock(NOW_US)) as relay:
        await relay.remember_pairs([("agent.b", "agent.a", NOW_MS - 1000)])
    assert not verify(DataDir(tmp_path)).findings
    (tmp_path / "index.db").unlink()
    async with Relay(tmp_path, settings=SETTINGS, clock=ManualClock(NOW_US)) as relay:
        assert await tier_of_a_message(relay, "agent.a", "agent.b") == 3


async def test_a_later_time_in_the_relay_is_not_overwritten(tmp_path: Path) -> None:
    async with Relay(tmp_path, settings=SETTINGS, clock=ManualClock(NOW_US)) as relay:
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", "hi", sender="agent.b")
        assert await relay.remember_pairs([("agent.b", "agent.a", NOW_MS - 1000)]) == 0
        assert await relay.remember_pairs([("agent.b", "agent.a", NOW_MS)]) == 0


async def test_a_pair_with_an_invalid_name_is_rejected(tmp_path: Path) -> None:
    async with Relay(tmp_path, settings=SETTINGS, clock=ManualClock(NOW_US)) as relay:
        with pytest.raises(InvalidSubject):
            await relay.remember_pairs([("agent..b", "agent.a", NOW_MS)])
