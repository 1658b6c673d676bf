"""Authentication of WebSocket connections."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.server.sessions.memory_server import MemoryServer
from tests.server.sessions.raw_agent import RawAgent, connect, payload_of, task_of
from waypost.client.identity import Identity
from waypost.policy.bounds import frame_max_operations, frame_overhead_max_bytes
from waypost.server import websocket
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

OpenAgent = Callable[..., RawAgent]
Identities = Callable[[str], Identity]


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def assert_serves(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    """Check that other agents can connect, and that the rejected one left nothing behind."""
    assert len(server.context.hub) == 0
    one, two = open_agent(), open_agent()
    await one.authenticate(identities("agent.one"))
    await two.authenticate(identities("agent.two"))
    await one.send("agent.two", "still there?")
    assert payload_of(await two.until(frames.Message)) == "still there?"
    await one.disconnect()
    await two.disconnect()
    assert len(server.context.hub) == 0


async def rejected(agent: RawAgent) -> int:
    """Expect a fatal error and the end of the connection; return the close code."""
    error = await agent.expect(frames.Error)
    assert error.fatal
    assert error.error
    end = await agent.end()
    await asyncio.wait_for(task_of(agent), 60)
    return end.code


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL, None])
async def test_the_handshake_in_every_encoding(
    server: MemoryServer,
    open_agent: OpenAgent,
    identities: Identities,
    protocol: str | None,
) -> None:
    agent = open_agent(protocol)
    welcome = await agent.authenticate(identities("agent.a"))
    assert welcome.subject == "agent.a"
    assert server.context.authenticator.subject_of_token(welcome.token) == "agent.a"
    assert welcome.frame_max_bytes == server.relay.settings.max_payload_bytes + 64 * 1024
    assert (welcome.operations_max, welcome.unconfirmed_max) == (256, 256)
    assert await agent.expect(frames.QueueStatus) == frames.QueueStatus(pending=0)
    assert await agent.expect(frames.Live) == frames.Live()
    await agent.disconnect()


async def answer_with(agent: RawAgent, identity: Identity, **instead: object) -> None:
    """Return a valid proof with some fields replaced."""
    nonce = (await agent.expect(frames.Challenge)).nonce
    auth = identity.prove(nonce, agent.transport.origin)
    await agent.send_frame(msgspec.structs.replace(auth, **instead))


async def test_a_wrong_signature_is_rejected(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    agent, other = open_agent(), Identity.new("agent.a")
    await answer_with(agent, identities("agent.a"), signature=other.sign(b"something else"))
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(server, open_agent, identities)


async def test_a_replayed_challenge_is_rejected(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    first = open_agent()
    nonce = (await first.expect(frames.Challenge)).nonce
    proof = identities("agent.a").prove(nonce, first.transport.origin)
    await first.send_frame(proof)
    await first.expect(frames.Welcome)
    await first.disconnect()
    second = open_agent()
    await second.expect(frames.Challenge)
    await second.send_frame(proof)
    assert await rejected(second) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(server, open_agent, identities)


async def test_a_proof_for_another_relay_is_rejected(
    open_agent: OpenAgent, identities: Identities
) -> None:
    agent = open_agent()
    nonce = (await agent.expect(frames.Challenge)).nonce
    await agent.send_frame(identities("agent.a").prove(nonce, "elsewhere.test:7171"))
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_a_proof_for_another_subject_is_rejected(
    open_agent: OpenAgent, identities: Identities
) -> None:
    agent = open_agent()
    await answer_with(agent, identities("agent.a"), subject="agent.b")
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_a_subject_that_belongs_to_another_key_is_rejected(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    await (await connect(open_agent().transport, identities("agent.a"))).disconnect()
    agent = open_agent()
    await answer_with(agent, Identity.new("agent.a"))
    assert await rejected(agent) == frames.CLOSE_FORBIDDEN
    await assert_serves(server, open_agent, identities)


TRICKS = [
    "_relay",
    "_anonymous",
    "_x.agent.a",
    "agent.>",
    "agent.*",
    "agent..a",
    "",
    "agent.\u0430",  # Cyrillic, looks like an a
    "agent.a\u200b",
    "\u202eagent.a",
    "agent.a\x00",
    "agent.a\n",
    "\U0001f4a9" * 100,
    "a" * 10_000,
]


@pytest.mark.parametrize("subject", TRICKS)
async def test_a_reserved_or_malformed_subject_is_rejected(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities, subject: str
) -> None:
    agent = open_agent()
    await answer_with(agent, identities("agent.a"), subject=subject)
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(server, open_agent, identities)


@pytest.mark.parametrize("field", ["public_key", "signature", "sealing_key", "sealing_signature"])
@pytest.mark.parametrize("value", ["", "x", "ü", "A" * 43, "=" * 86, "\x00", "A" * 50_000])
async def test_malformed_keys_and_signatures_are_rejected(
    open_agent: OpenAgent, identities: Identities, field: str, value: str
) -> None:
    agent = open_agent()
    await answer_with(agent, identities("agent.a"), **{field: value})
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_an_agent_that_does_not_authenticate_in_time_is_disconnected(
    server: MemoryServer,
    open_agent: OpenAgent,
    identities: Identities,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "AUTH_TIMEOUT_S", 0.01)
    agent = open_agent()
    await agent.expect(frames.Challenge)
    assert await rejected(agent) == frames.CLOSE_TOO_SLOW
    monkeypatch.undo()
    await assert_serves(server, open_agent, identities)


async def test_a_disconnect_during_the_handshake_leaves_nothing_behind(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    agent = open_agent()
    await agent.expect(frames.Challenge)
    await agent.disconnect()
    await assert_serves(server, open_agent, identities)


async def test_an_immediate_disconnect_is_no_error(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities
) -> None:
    agent = open_agent()
    await agent.disconnect()
    assert task_of(agent).exception() is None
    await assert_serves(server, open_agent, identities)


async def test_there_is_a_bound_on_unauthenticated_connections(
    server: MemoryServer,
    open_agent: OpenAgent,
    identities: Identities,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waypost.server.sessions.hub.connections_max", 2)
    silent = [open_agent(), open_agent()]
    for agent in silent:
        await agent.expect(frames.Challenge)
    assert await rejected(open_agent()) == websocket.CLOSE_TRY_LATER
    for agent in silent:
        await agent.disconnect()
    await assert_serves(server, open_agent, identities)


@pytest.mark.parametrize(
    "operation",
    [
        frames.Send(ref=1, subject="agent.b", payload=msgspec.Raw(b"1")),
        frames.Ack(ids=["x"]),
        frames.Fetch(ref=1),
    ],
)
async def test_operations_before_the_proof_are_rejected(
    server: MemoryServer, open_agent: OpenAgent, operation: frames.FrameOperation
) -> None:
    agent = open_agent()
    await agent.expect(frames.Challenge)
    await agent.send_frame(operation)
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    assert server.relay.list_endpoints() == []


async def test_operations_beside_the_proof_are_rejected(
    open_agent: OpenAgent, identities: Identities
) -> None:
    agent = open_agent()
    nonce = (await agent.expect(frames.Challenge)).nonce
    await agent.send_frame(
        identities("agent.a").prove(nonce, agent.transport.origin), frames.Ack(ids=[])
    )
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


GARBAGE = {
    "nothing": "",
    "no JSON": "hello",
    "no object": "17",
    "an empty list": "[]",
    "no operation": '{"op":"challenge","nonce":"x"}',
    "deep": "[" * 50_000,
    "deep in place": '{"op":"auth","subject":' + "[" * 20_000,
    "bytes": b"\x00\xff\xfe\x80",
    "NUL": "\x00",
    "surrogates": '{"op":"\\ud800"}',
    "a list of garbage": "[[[]],{},null]",
}


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_a_broken_frame_instead_of_a_proof_ends_the_connection(
    server: MemoryServer,
    open_agent: OpenAgent,
    identities: Identities,
    name: str,
    protocol: str,
) -> None:
    agent = open_agent(protocol)
    await agent.expect(frames.Challenge)
    await agent.transport.write(GARBAGE[name])
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(server, open_agent, identities)


@pytest.mark.parametrize(
    "frame",
    ["x" * (frame_overhead_max_bytes + 1), "ü" * (frame_overhead_max_bytes // 2 + 1)],
    ids=["letters", "letters of two bytes"],
)
async def test_before_the_proof_frames_are_short(
    server: MemoryServer, open_agent: OpenAgent, identities: Identities, frame: str
) -> None:
    agent = open_agent()
    await agent.expect(frames.Challenge)
    await agent.transport.write(frame)
    assert await rejected(agent) == frames.CLOSE_TOO_LARGE
    await assert_serves(server, open_agent, identities)


async def test_a_second_connection_is_rejected_and_the_first_stays(
    open_agent: OpenAgent, identities: Identities
) -> None:
    first = await connect(open_agent().transport, identities("agent.a"))
    second = open_agent()
    await answer_with(second, identities("agent.a"))
    assert await rejected(second) == frames.CLOSE_ALREADY_CONNECTED
    answer = await first.send("agent.a", "to myself")
    assert isinstance(answer, frames.SendResult)
    assert answer.delivered_to == 1
    await first.disconnect()
    await (await connect(open_agent().transport, identities("agent.a"))).disconnect()


async def test_the_announced_bound_on_operations_is_enforced(
    open_agent: OpenAgent, identities: Identities
) -> None:
    agent = await connect(open_agent().transport, identities("agent.a"))
    await agent.expect(frames.Live)
    await agent.send_frame(*[frames.Ack(ids=[])] * frame_max_operations)
    await agent.send_frame(*[frames.Ack(ids=[])] * (frame_max_operations + 1))
    error = await agent.expect(frames.Error)
    assert "256" in error.error
    assert not error.fatal
    await agent.disconnect()
