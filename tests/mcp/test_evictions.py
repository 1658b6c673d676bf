"""A model learns that a message of its agent was evicted."""

from pathlib import Path

from tests.harness.listening_relay import listening
from tests.mcp.models import running_model
from waypost import QosConfig
from waypost.client import Identity


async def test_a_model_reads_which_message_was_evicted(tmp_path: Path) -> None:
    ann, small = Identity.new("agent.ann"), QosConfig(enabled=True, inbox_max_bytes=5000)
    async with (
        listening(tmp_path / "data", qos=small) as relay,
        running_model(relay.url, ann) as model,
    ):
        evicted = await model.send("agent.bob", "x" * 3000)
        await model.send("agent.bob", "y" * 3000)
        [(_, text)] = await model.read()
        assert f"your message {evicted} to agent.bob was evicted unread" in text
        assert "the relay itself" in await model.call_ok("relay_inbox", include_read=True)
