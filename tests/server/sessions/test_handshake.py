"""Who gets in: those who can prove who they are, and answer with nothing else."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.server.sessions.agents import RawAgent, connect, payload_of, task_of
from tests.server.sessions.sessions_harness import Room
from waypost.client.identity import Identity
from waypost.policy.bounds import frame_max_operations, frame_overhead_max_bytes
from waypost.server import websocket
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

Ring = Callable[..., RawAgent]
Identities = Callable[[str], Identity]


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def assert_serves(room: Room, ring: Ring, identities: Identities) -> None:
    """Others get in and get their mail, and whoever was refused has left nothing behind."""
    assert len(room.context.hub) == 0
    one, two = ring(), ring()
    await one.log_in(identities("agent.one"))
    await two.log_in(identities("agent.two"))
    await one.send("agent.two", "still there?")
    assert payload_of(await two.until(frames.Message)) == "still there?"
    await one.leave()
    await two.leave()
    assert len(room.context.hub) == 0


async def rejected(agent: RawAgent) -> int:
    """An error that says it is the end, then the end; gives the code."""
    error = await agent.expect(frames.Error)
    assert error.fatal
    assert error.error
    end = await agent.end()
    await asyncio.wait_for(task_of(agent), 5)
    return end.code


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL, None])
async def test_the_handshake_in_every_encoding(
    room: Room, ring: Ring, identities: Identities, protocol: str | None
) -> None:
    agent = ring(protocol)
    welcome = await agent.log_in(identities("agent.a"))
    assert welcome.subject == "agent.a"
    assert room.context.authenticator.subject_of_token(welcome.token) == "agent.a"
    assert welcome.frame_max_bytes == room.relay.settings.max_payload_bytes + 64 * 1024
    assert (welcome.operations_max, welcome.unconfirmed_max) == (256, 256)
    assert await agent.expect(frames.QueueStatus) == frames.QueueStatus(pending=0)
    assert await agent.expect(frames.Live) == frames.Live()
    await agent.leave()


async def answer_with(agent: RawAgent, identity: Identity, **instead: object) -> None:
    """Prove who you are, with some fields replaced afterwards."""
    nonce = (await agent.expect(frames.Challenge)).nonce
    auth = identity.prove(nonce, agent.line.origin)
    await agent.say(msgspec.structs.replace(auth, **instead))


async def test_a_wrong_signature_is_rejected(
    room: Room, ring: Ring, identities: Identities
) -> None:
    agent, other = ring(), Identity.new("agent.a")
    await answer_with(agent, identities("agent.a"), signature=other.sign(b"something else"))
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(room, ring, identities)


async def test_a_replayed_challenge_is_rejected(
    room: Room, ring: Ring, identities: Identities
) -> None:
    first = ring()
    nonce = (await first.expect(frames.Challenge)).nonce
    proof = identities("agent.a").prove(nonce, first.line.origin)
    await first.say(proof)
    await first.expect(frames.Welcome)
    await first.leave()
    second = ring()
    await second.expect(frames.Challenge)
    await second.say(proof)
    assert await rejected(second) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(room, ring, identities)


async def test_a_proof_for_another_relay_is_rejected(ring: Ring, identities: Identities) -> None:
    agent = ring()
    nonce = (await agent.expect(frames.Challenge)).nonce
    await agent.say(identities("agent.a").prove(nonce, "elsewhere.test:7171"))
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_a_proof_as_somebody_else_is_rejected(ring: Ring, identities: Identities) -> None:
    agent = ring()
    await answer_with(agent, identities("agent.a"), subject="agent.b")
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_a_subject_that_belongs_to_another_key_is_rejected(
    room: Room, ring: Ring, identities: Identities
) -> None:
    await (await connect(ring().line, identities("agent.a"))).leave()
    agent = ring()
    await answer_with(agent, Identity.new("agent.a"))
    assert await rejected(agent) == frames.CLOSE_FORBIDDEN
    await assert_serves(room, ring, identities)


TRICKS = [
    "_relay",
    "_anonymous",
    "_x.agent.a",
    "agent.>",
    "agent.*",
    "agent..a",
    "",
    "agent.\u0430",  # looks like an a
    "agent.a\u200b",
    "\u202eagent.a",
    "agent.a\x00",
    "agent.a\n",
    "\U0001f4a9" * 100,
    "a" * 10_000,
]


@pytest.mark.parametrize("subject", TRICKS)
async def test_what_no_agent_may_be_called_is_rejected(
    room: Room, ring: Ring, identities: Identities, subject: str
) -> None:
    agent = ring()
    await answer_with(agent, identities("agent.a"), subject=subject)
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(room, ring, identities)


@pytest.mark.parametrize("field", ["public_key", "signature", "sealing_key", "sealing_signature"])
@pytest.mark.parametrize("value", ["", "x", "ü", "A" * 43, "=" * 86, "\x00", "A" * 50_000])
async def test_what_is_no_key_and_no_signature_is_rejected(
    ring: Ring, identities: Identities, field: str, value: str
) -> None:
    agent = ring()
    await answer_with(agent, identities("agent.a"), **{field: value})
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED


async def test_whoever_says_nothing_is_sent_away(
    room: Room, ring: Ring, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "AUTH_TIMEOUT_S", 0.01)
    agent = ring()
    await agent.expect(frames.Challenge)
    assert await rejected(agent) == frames.CLOSE_TOO_SLOW
    monkeypatch.undo()
    await assert_serves(room, ring, identities)


async def test_whoever_leaves_without_an_answer_leaves_nothing(
    room: Room, ring: Ring, identities: Identities
) -> None:
    agent = ring()
    await agent.expect(frames.Challenge)
    await agent.leave()
    await assert_serves(room, ring, identities)


async def test_whoever_leaves_at_once_is_no_error(
    room: Room, ring: Ring, identities: Identities
) -> None:
    agent = ring()
    await agent.leave()
    assert task_of(agent).exception() is None
    await assert_serves(room, ring, identities)


async def test_there_is_a_bound_on_those_who_have_not_said_who_they_are(
    room: Room, ring: Ring, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sessions.hub.connections_max", 2)
    silent = [ring(), ring()]
    for agent in silent:
        await agent.expect(frames.Challenge)
    assert await rejected(ring()) == websocket.CLOSE_TRY_LATER
    for agent in silent:
        await agent.leave()
    await assert_serves(room, ring, identities)


@pytest.mark.parametrize(
    "operation",
    [
        frames.Send(ref=1, subject="agent.b", payload=msgspec.Raw(b"1")),
        frames.Ack(ids=["x"]),
        frames.Fetch(ref=1),
    ],
)
async def test_operations_before_the_proof_are_rejected(
    room: Room, ring: Ring, operation: frames.FrameOperation
) -> None:
    agent = ring()
    await agent.expect(frames.Challenge)
    await agent.say(operation)
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    assert room.relay.list_endpoints() == []


async def test_operations_beside_the_proof_are_rejected(ring: Ring, identities: Identities) -> None:
    agent = ring()
    nonce = (await agent.expect(frames.Challenge)).nonce
    await agent.say(identities("agent.a").prove(nonce, agent.line.origin), frames.Ack(ids=[]))
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
async def test_garbage_instead_of_a_proof_is_the_end(
    room: Room, ring: Ring, identities: Identities, name: str, protocol: str
) -> None:
    agent = ring(protocol)
    await agent.expect(frames.Challenge)
    await agent.line.write(GARBAGE[name])
    assert await rejected(agent) == frames.CLOSE_NOT_AUTHENTICATED
    await assert_serves(room, ring, identities)


@pytest.mark.parametrize(
    "frame",
    ["x" * (frame_overhead_max_bytes + 1), "ü" * (frame_overhead_max_bytes // 2 + 1)],
    ids=["letters", "letters of two bytes"],
)
async def test_before_the_proof_frames_are_short(
    room: Room, ring: Ring, identities: Identities, frame: str
) -> None:
    agent = ring()
    await agent.expect(frames.Challenge)
    await agent.line.write(frame)
    assert await rejected(agent) == frames.CLOSE_TOO_LARGE
    await assert_serves(room, ring, identities)


async def test_a_second_connection_is_rejected_and_the_first_stays(
    ring: Ring, identities: Identities
) -> None:
    first = await connect(ring().line, identities("agent.a"))
    second = ring()
    await answer_with(second, identities("agent.a"))
    assert await rejected(second) == frames.CLOSE_ALREADY_CONNECTED
    answer = await first.send("agent.a", "to myself")
    assert isinstance(answer, frames.SendResult)
    assert answer.delivered_to == 1
    await first.leave()
    await (await connect(ring().line, identities("agent.a"))).leave()


async def test_the_bound_on_operations_is_the_one_that_is_told(
    ring: Ring, identities: Identities
) -> None:
    agent = await connect(ring().line, identities("agent.a"))
    await agent.expect(frames.Live)
    await agent.say(*[frames.Ack(ids=[])] * frame_max_operations)
    await agent.say(*[frames.Ack(ids=[])] * (frame_max_operations + 1))
    error = await agent.expect(frames.Error)
    assert "256" in error.error
    assert not error.fatal
    await agent.leave()
