"""A stranger with a name whose hash collides with a victim's gets none of the victim's messages."""

from pathlib import Path

import httpx

from tests.harness.listening_relay import listening
from waypost.client import ClientOptions, Identity, connect

VICTIM, STRANGER = Identity.new("agent.c10672464"), Identity.new("agent.c11180642")


async def inbox(url: str, agent: Identity) -> list[object]:
    """Return the payloads that wait for an agent."""
    async with connect(url, agent, options=ClientOptions(receive="pull")) as connected:
        return [message.payload async for message in connected.sync()]


async def test_waiting_messages_stay_with_their_recipient_across_a_restart(tmp_path: Path) -> None:
    async with listening(tmp_path, storage="maildir") as relay:
        async with httpx.AsyncClient(base_url=relay.url) as http:
            message = {"subject": VICTIM.subject, "payload": "for the victim"}
            assert (await http.post("/v1/messages", json=message)).status_code == 200
        assert await inbox(relay.url, STRANGER) == []
        await relay.stop()
        await relay.start()
        await relay.context.relay.idle()
        assert await inbox(relay.url, STRANGER) == []
        assert await inbox(relay.url, VICTIM) == ["for the victim"]
