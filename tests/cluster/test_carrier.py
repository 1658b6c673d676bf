"""Messages between partitions that are larger than the servers carry at once."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.harness.nats_server import MAX_PAYLOAD, NatsServer
from waypost.cluster.carrier import NatsCarrier
from waypost.cluster.streams import connect, disconnect
from waypost.policy.budgets import Budget
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

pytestmark = pytest.mark.process


class Deciding:
    """Stores every message it is asked about."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def decide_forwarded(
        self, origin: int, messages: Sequence[Forwarded]
    ) -> list[ForwardOutcome]:
        self.ids += [one.id for one in messages]
        return [ForwardOutcome(delivered_to=1) for _ in messages]


def message(message_id: str, size: int) -> Forwarded:
    return Forwarded(
        at_us=1,
        id=message_id,
        sender="agent.a",
        subject="agent.b",
        budget=Budget(ttl=1),
        partition=1,
        payload=msgspec.Raw(msgspec.json.encode("x" * size)),
    )


async def test_a_message_that_the_servers_do_not_carry_does_not_hold_up_others(
    nats_server: NatsServer,
) -> None:
    client = await connect([nats_server.url])
    carrier, deciding = NatsCarrier(client, "carried"), Deciding()
    half = MAX_PAYLOAD // 2
    batch = [message("a", half), message("large", MAX_PAYLOAD), message("b", half)]
    try:
        async with carrier.serving(1, deciding):  # type: ignore[arg-type]
            outcomes = await carrier.carry(0, 1, batch)
    finally:
        await disconnect(client)
    assert [one.delivered_to for one in outcomes] == [1, 0, 1]
    assert "raise their max_payload" in outcomes[1].error
    assert deciding.ids == ["a", "b"]
