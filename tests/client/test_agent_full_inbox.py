"""The relay's own messages reach an agent whose inbox is full."""

from pathlib import Path

from tests.client.conftest import WITHOUT_TIERS
from tests.eventually import eventually
from tests.harness.listening_relay import listening
from waypost import BackpressureConfig
from waypost.client import Identity, connect


async def test_an_absent_sender_with_a_full_inbox_gets_its_confirmations(tmp_path: Path) -> None:
    ann, bob = Identity.new("agent.ann"), Identity.new("agent.bob")
    small = BackpressureConfig(max_mailbox_size=3)
    async with listening(tmp_path / "data", backpressure=small, **WITHOUT_TIERS) as relay:
        async with connect(relay.url, ann) as agent:
            sent = [(await agent.send("agent.bob", number)).message_id for number in range(3)]
        await eventually(lambda: not relay.context.hub.is_connected("agent.ann"))
        async with connect(relay.url, bob) as agent:
            for _ in range(3):
                assert (await agent.send("agent.ann", "fills it")).delivered_to == 1
            assert (await agent.send("agent.ann", "too much")).rejected
            for _ in range(3):
                await (await agent.receive(60)).ack()
            await eventually(lambda: relay.waiting("agent.bob") == 0)
        async with connect(relay.url, ann) as agent:
            for _ in range(3):
                await (await agent.receive(60)).ack()
            for message_id in sent:
                assert (await agent.delivered(message_id, 5)).recipient == "agent.bob"
