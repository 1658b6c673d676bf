"""A mailbox that cannot be created ends no connection."""

import errno

from tests.faults.directories import no_new_directories
from tests.server.conftest import ServeRelay
from tests.server.sessions.raw_agent import rejected_with
from waypost.client.identity import Identity
from waypost.wire import frames

CLOSE_TRY_LATER = 1013


async def test_a_send_to_a_new_name_is_rejected_and_other_mail_goes_on(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(storage="maildir")
    agent = await relay.connect("agent.a")
    with no_new_directories(errno.ENOSPC):
        for _ in range(2):
            answer = await agent.send("agent.new", 1)
            assert rejected_with(answer) == "mailbox_unavailable"
        answer = await agent.send("agent.a", "still here")
        assert isinstance(answer, frames.SendResult)
        assert answer.delivered_to == 1


async def test_a_new_agent_is_asked_to_try_later(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(storage="maildir")
    agent = await relay.dial()
    challenge = await agent.expect(frames.Challenge)
    with no_new_directories(errno.ENOSPC):
        proof = Identity.new("agent.late").prove(challenge.nonce, agent.transport.origin)
        await agent.send_frame(proof)
        end = await agent.end()
    assert end.code == CLOSE_TRY_LATER
    assert "cannot be created" in end.reason
