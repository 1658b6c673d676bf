"""A relay with a key signs its journal: every minute with traffic, and when it is closed."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults import plain_journal
from tests.relay.observing import events, send
from waypost import Relay
from waypost.server.identity.challenges import is_signed_by
from waypost.server.identity.relay_key import RelayKey
from waypost.testing import ManualClock
from waypost.wire.handshake import checkpoint_text, from_text


@pytest.fixture
def key(tmp_path: Path) -> RelayKey:
    return RelayKey.open(tmp_path)


@pytest.fixture
async def signed(start, key: RelayKey) -> Relay:
    """A relay that signs its journal."""
    relay: Relay = await start()
    relay.sign_journal(key)
    relay.register_endpoint("agent.a")
    return relay


def checkpoints(data: Path) -> list[dict[str, Any]]:
    return events(data, "checkpoint")


async def a_minute_later(relay: Relay, clock: ManualClock) -> None:
    clock.advance_ms(60_000)
    await relay.idle()


async def test_a_checkpoint_signs_the_batch_before_it_with_the_relays_key(
    signed: Relay, key: RelayKey, clock: ManualClock, data: Path
) -> None:
    await send(signed, 1)
    await a_minute_later(signed, clock)
    (one,) = checkpoints(data)
    *_, (start, end, found) = plain_journal.batches(plain_journal.segments(data)[0].read_bytes())
    assert found == [one]
    assert one["key"] == key.public_key
    text = checkpoint_text(
        public_key=one["key"], seq=one["seq"], at_us=one["at_us"], head=one["head"]
    )
    assert is_signed_by(from_text(one["key"]), from_text(one["signature"]), text)
    batch = plain_journal.segments(data)[0].read_bytes()[start:end]
    assert f'"prev":"{one["head"]}"'.encode() in batch
    plain_journal.assert_chained(data)


async def test_a_relay_without_traffic_signs_nothing_more(
    signed: Relay, clock: ManualClock, data: Path
) -> None:
    for _ in range(3):
        await a_minute_later(signed, clock)
    assert len(checkpoints(data)) == 1


async def test_with_traffic_it_signs_once_a_minute(
    signed: Relay, clock: ManualClock, data: Path
) -> None:
    for _ in range(6):
        await send(signed, 1)
        clock.advance_ms(30_000)
        await signed.idle()
    assert len(checkpoints(data)) == 3


async def test_a_closed_relay_has_signed_everything(signed: Relay, data: Path) -> None:
    await send(signed, 1)
    await signed.close()
    (one,) = checkpoints(data)
    assert one == events(data)[-1]


async def test_a_relay_without_a_key_signs_nothing(start, clock: ManualClock, data: Path) -> None:
    relay = await start()
    await a_minute_later(relay, clock)
    await relay.close()
    assert checkpoints(data) == []


async def test_a_signed_journal_opens_again_with_its_messages(
    signed: Relay, start, clock: ManualClock, data: Path
) -> None:
    await send(signed, "kept")
    await a_minute_later(signed, clock)
    (data / "index.db").unlink(missing_ok=True)
    relay = await start()
    assert [one.payload for one in await relay.lease("agent.a")] == ["kept"]
    assert relay.metrics().problems == []
    plain_journal.assert_chained(data)
