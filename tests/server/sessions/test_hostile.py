"""Faulty and hostile agents: they get errors or are disconnected, other agents are unaffected."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from tests.server.sessions.memory_server import MemoryServer
from tests.server.sessions.raw_agent import RawAgent, assert_works, connect, enter, payload_of
from tests.server.sessions.transports import MemoryTransport
from waypost import BackpressureConfig, QosConfig, Signal
from waypost.client.identity import Identity
from waypost.policy.bounds import frame_overhead_max_bytes
from waypost.server import websocket
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL
from waypost.wire.payloads import SignalType

OpenAgent = Callable[..., RawAgent]
Identities = Callable[[str], Identity]
LIMITLESS = {
    "qos": QosConfig(enabled=False),
    "backpressure": BackpressureConfig(enabled=False),
}


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


BROKEN = {
    "no JSON": "hello",
    "no operation": "17",
    "unknown op": '{"op":"fly"}',
    "an operation of the relay": '{"op":"live"}',
    "unknown field": '{"op":"ack","ids":[],"more":1}',
    "missing field": '{"op":"send","ref":1}',
    "wrong type": '{"op":"ack","ids":"all"}',
    "too many ids": '{"op":"ack","ids":[' + ",".join(['"x"'] * 1001) + "]}",
    "negative delay": '{"op":"nack","ids":[],"delay":-1}',
    "endless delay": '{"op":"nack","ids":[],"delay":1e308}',
    "no number": '{"op":"fetch","ref":1,"wait":NaN}',
    "limit of nought": '{"op":"fetch","ref":1,"limit":0}',
    "huge ref": '{"op":"fetch","ref":1e300}',
    "deep": '{"op":"send","ref":1,"subject":"agent.b","payload":' + "[" * 100_000,
    "deep and closed": "[" * 50_000 + "]" * 50_000,
    "bytes": b"\x80\x81\xff",
    "half a surrogate": '{"op":"\\ud800"}',
    "one bad in a list": '[{"op":"ack","ids":[]},{"op":"fly"}]',
    "very long op": '{"op":"' + "x" * 100_000 + '"}',
    "very long field": '{"op":"ack","ids":[],"' + "ü" * 50_000 + '":1}',
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_frame_is_answered_with_a_short_error(
    server: MemoryServer, name: str
) -> None:
    agent = await enter(server.context, "agent.a")
    await agent.transport.write(BROKEN[name])
    error = await agent.expect(frames.Error)
    assert (error.reason, error.fatal) == ("invalid", False)
    assert len(error.error) < 400
    await assert_works(agent)
    await agent.disconnect()


async def test_text_where_bytes_belong_is_a_broken_frame(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a", MSGPACK_PROTOCOL)
    await agent.transport.write("hello")
    assert "binary" in (await agent.expect(frames.Error)).error
    await assert_works(agent)
    await agent.disconnect()


async def test_too_many_broken_frames_end_the_connection(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a")
    for _ in range(websocket.BROKEN_FRAMES_MAX):
        await agent.transport.write("garbage")
    assert (await agent.end()).code == websocket.CLOSE_POLICY_VIOLATION
    await assert_works(await enter(server.context, "agent.b"))


async def test_an_oversized_frame_ends_the_connection(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a")
    await agent.transport.write("x" * (server.relay.settings.max_payload_bytes + 64 * 1024 + 1))
    assert (await agent.end()).code == frames.CLOSE_TOO_LARGE
    await assert_works(await enter(server.context, "agent.b"))


async def test_the_largest_payload_fits_and_one_byte_more_does_not(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a")
    largest = server.relay.settings.max_payload_bytes - 2  # without its quotes
    server.relay.register_endpoint("agent.echo")
    for size, reason in ((largest, "quota_exceeded"), (largest + 1, "invalid")):
        answer = await agent.send("agent.echo", "x" * size)
        if isinstance(answer, frames.Error):
            assert answer.reason == reason
        else:
            assert [str(one.reason) for one in answer.rejected] == [reason]
    assert largest + 1 < server.relay.settings.max_payload_bytes + frame_overhead_max_bytes
    await agent.disconnect()


SUBJECTS = ["_relay", "_x.y", "", "agent..b", "agent.\u0430", "agent.b\x00", ">.a", "a" * 300]


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_a_send_to_an_invalid_subject_is_an_error(server: MemoryServer, subject: str) -> None:
    agent = await enter(server.context, "agent.a")
    for more in ({"subject": subject}, {"subject": "agent.b", "reply_to": subject}):
        to = more.pop("subject")
        answer = await agent.send(to, 1, **more)
        assert isinstance(answer, frames.Error)
        assert answer.reason == "invalid"
    await assert_works(agent)
    await agent.disconnect()


BAD_SENDS = {
    "id": {"message_id": "../../etc/passwd"},
    "long id": {"message_id": "x" * 65},
    "empty id": {"message_id": ""},
    "budget": {"budget": {"ttl": "soon"}},
    "unknown budget": {"budget": {"more": 1}},
    "negative budget": {"budget": {"max_hops": -1}},
}


@pytest.mark.parametrize("name", BAD_SENDS)
async def test_a_send_with_a_bad_field_is_an_error_with_its_ref(
    server: MemoryServer, name: str
) -> None:
    agent = await enter(server.context, "agent.a")
    answer = await agent.send("agent.b", 1, **BAD_SENDS[name])
    assert isinstance(answer, frames.Error)
    assert answer.reason == "invalid"
    await assert_works(agent)
    await agent.disconnect()


async def test_a_larger_budget_is_not_granted(server: MemoryServer) -> None:
    agent, other = await enter(server.context, "agent.a"), await enter(server.context, "agent.b")
    await agent.send("agent.b", 1, budget={"max_hops": 1_000, "ttl": 1 << 52})
    budget = (await other.expect(frames.Message)).envelope.budget
    assert budget.max_hops <= server.relay.settings.max_hops
    assert budget.ttl <= server.relay._runtime.ledger.now_us() // 1000 + 7 * 24 * 3_600_000
    await agent.disconnect()
    await other.disconnect()


async def test_an_unreadable_number_is_no_valid_payload(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a")
    await agent.transport.write('{"op":"send","ref":9,"subject":"agent.b","payload":[1e999]}')
    answer = await agent.expect(frames.Error)
    assert (answer.ref, answer.reason) == (9, "invalid")
    await agent.disconnect()


MSGPACK_SEND = b"\x84\xa2op\xa4send\xa3ref\x09\xa7subject\xa7agent.b\xa7payload"
NO_PAYLOADS = {
    "broken text": b"\xa2\xff\xfe",
    "a key that is a map": b"\x81\x81\x01\x01\x01",
    "a key that is a list": b"\x81\x91\x01\x01",
    "a time out of range": b"\xd7\xff" + b"\xff" * 8,
    "an extension": b"\xd4\x05\x01",
    "deep": b"\x91" * 200 + b"\x01",
}


@pytest.mark.parametrize("name", NO_PAYLOADS)
async def test_messagepack_without_a_json_form_is_no_valid_payload(
    server: MemoryServer, name: str
) -> None:
    agent = await enter(server.context, "agent.a", MSGPACK_PROTOCOL)
    await agent.transport.write(MSGPACK_SEND + NO_PAYLOADS[name])
    answer = await agent.expect(frames.Error)
    assert (answer.ref, answer.reason) == (9, "invalid")
    await assert_works(agent)
    await agent.disconnect()


async def test_a_message_without_a_messagepack_form_does_not_block_the_queue(
    server: MemoryServer,
) -> None:
    sender = await enter(server.context, "agent.a")
    await sender.send("agent.b", 2**70)
    await sender.send("agent.b", "the next")
    recipient = await connect(
        MemoryTransport(server.context, MSGPACK_PROTOCOL),
        Identity.new("agent.b"),
        protocol=MSGPACK_PROTOCOL,
    )
    assert payload_of(await recipient.expect(frames.Message)) == "the next"
    (dead,) = await server.relay.dead_letters()
    assert "MessagePack" in dead.reason
    await sender.disconnect()
    await recipient.disconnect()


async def test_a_signal_cannot_end_the_connection_of_another(server: MemoryServer) -> None:
    sender = await enter(server.context, "agent.a")
    victim = await enter(server.context, "agent.b", MSGPACK_PROTOCOL)
    signal = Signal(
        type=SignalType.TYPING,
        state="x",
        endpoint_subject="agent.a",
        timestamp=datetime.now(UTC),
        data=2**70,
    )
    await sender.send_frame(frames.SendSignal(subject="agent.b", signal=signal))
    await sender.send("agent.b", "after it")
    assert payload_of(await victim.expect(frames.Message)) == "after it"
    await sender.disconnect()
    await victim.disconnect()


async def test_messages_of_another_mailbox_can_be_neither_acked_nor_nacked(
    server: MemoryServer, identities: Identities
) -> None:
    server.store(1, to="agent.b")
    await server.wait_until_idle()
    for _ in range(2):
        transport = MemoryTransport(server.context, JSON_PROTOCOL)
        victim = await connect(transport, identities("agent.b"))
        message = await victim.expect(frames.Message)
        thief = await enter(server.context, f"agent.thief-{id(transport)}")
        ids = [message.envelope.id, "../x", "", "\u0000", "x" * 1000]
        await thief.send_frame(frames.Ack(ids=ids), frames.Nack(ids=ids))
        await assert_works(thief)
        await thief.disconnect()
        await victim.disconnect()
    assert (
        server.relay.metrics().by_status["pending"] == 3
    )  # two of them in the mailbox of the echo agent


async def test_a_squatted_id_does_not_block_the_message_of_another_sender(
    server: MemoryServer,
) -> None:
    squatter, victim = (
        await enter(server.context, "agent.x"),
        await enter(server.context, "agent.a"),
    )
    reader = await enter(server.context, "agent.b")
    await squatter.send("agent.x", "squat", message_id="order-7")
    answer = await victim.send("agent.b", "mine", message_id="order-7")
    assert isinstance(answer, frames.SendResult)
    assert answer.delivered_to == 1
    got = await reader.expect(frames.Message)
    assert (got.envelope.sender, payload_of(got)) == ("agent.a", "mine")
    for agent in (squatter, victim, reader):
        await agent.disconnect()


async def test_an_id_squatted_in_the_same_inbox_is_an_error_and_not_deduplicated(
    server: MemoryServer,
) -> None:
    squatter, victim = (
        await enter(server.context, "agent.x"),
        await enter(server.context, "agent.a"),
    )
    await squatter.send("agent.b", "squat", message_id="order-7")
    answer = await victim.send("agent.b", "mine", message_id="order-7")
    assert isinstance(answer, frames.Error)
    assert (answer.reason, answer.fatal) == ("invalid", False)
    assert answer.error == "message id order-7 is taken: choose another"
    assert isinstance(await victim.send("agent.b", "mine", message_id="order-8"), frames.SendResult)
    await squatter.disconnect()
    await victim.disconnect()


async def test_authenticating_twice_is_an_error(
    server: MemoryServer, identities: Identities
) -> None:
    agent = await enter(server.context, "agent.a")
    await agent.send_frame(identities("agent.z").prove("A" * 43, agent.transport.origin))
    assert (await agent.expect(frames.Error)).reason == "invalid"
    await assert_works(agent)
    await agent.disconnect()


async def test_responses_keep_the_order_of_their_requests(server: MemoryServer) -> None:
    agent = await enter(server.context, "agent.a")
    sends = [
        frames.Send(
            ref=ref, subject="agent.b" if ref % 3 else "not valid", payload=msgspec.Raw(b"1")
        )
        for ref in range(1, 100)
    ]
    for begin in range(0, len(sends), 7):
        await agent.send_frame(*sends[begin : begin + 7])
    refs = [getattr(await agent.next(), "ref", None) for _ in sends]
    assert refs == list(range(1, 100))
    await agent.disconnect()
