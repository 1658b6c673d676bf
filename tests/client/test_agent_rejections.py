"""The asyncio client against a misbehaving relay: rejections, silence, garbage, floods."""

import asyncio
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from bench.peers.ports import free_port
from tests.client.fake_relay import FakeConnection, not_found, run_fake_relay
from tests.client.session_harness import message
from tests.eventually import event_loop_turns, eventually, unchanged
from waypost.client import (
    AgentClosed,
    AlreadyConnected,
    CannotConnect,
    ClientOptions,
    Identity,
    NotAuthenticated,
    SendTimedOut,
    SubjectTaken,
    connect,
)
from waypost.wire import frames

ANN = Identity.new("agent.ann")


def quick(**options: Any) -> ClientOptions:
    return ClientOptions(**{"connect_timeout_s": 60.0, "close_timeout_s": 0.2, **options})


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (frames.CLOSE_NOT_AUTHENTICATED, NotAuthenticated),
        (frames.CLOSE_FORBIDDEN, SubjectTaken),
        (frames.CLOSE_ALREADY_CONNECTED, AlreadyConnected),
    ],
)
async def test_a_rejection_is_raised_with_the_text_of_the_relay(
    code: int, error: type[Exception]
) -> None:
    async def reject(connection: FakeConnection) -> None:
        await connection.reject(code, "not you")

    async with run_fake_relay(reject) as url:
        with pytest.raises(error, match="not you"):
            async with connect(url, ANN, options=quick()):
                pass


async def test_a_rejected_reconnect_is_raised_in_every_waiting_call() -> None:
    async def once(connection: FakeConnection) -> None:
        if connection.number == 1:
            await connection.accept()
            await connection.receive_frame()  # the send, which is never answered
            await connection.websocket.close(1001)
        else:
            await connection.reject(frames.CLOSE_FORBIDDEN, "not any more")

    async with run_fake_relay(once) as url, connect(url, ANN, options=quick()) as agent:
        waiting = [
            asyncio.create_task(agent.send("agent.bob", 1)),
            asyncio.create_task(agent.receive(60)),
            asyncio.create_task(agent.delivered("some-id", 5)),
        ]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in results] == [SubjectTaken] * 3
        with pytest.raises(SubjectTaken, match="not any more"):
            await agent.send("agent.bob", 2)
        with pytest.raises(SubjectTaken):
            async for _ in agent:
                pass


async def test_a_missing_relay_is_reported_within_the_timeout() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(CannotConnect, match=r"not connected within 0\.3 s.*[Cc]onnect"):
        async with connect(url, ANN, options=quick(connect_timeout_s=0.3)):
            pass


async def test_connecting_waits_for_a_relay_that_starts_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    caplog.set_level("INFO", "waypost.client")

    async def accept(connection: FakeConnection) -> None:
        await connection.accept()
        await connection.stay_open()

    async def start_late() -> None:
        await eventually(lambda: caplog.records, "a failed attempt to connect")
        async with run_fake_relay(accept, port):
            await stop.wait()

    stop = asyncio.Event()
    starting = asyncio.create_task(start_late())
    async with connect(f"http://127.0.0.1:{port}", ANN, options=quick()) as agent:
        assert agent.is_connected
    stop.set()
    await starting


async def test_a_server_that_is_not_a_relay_is_reported_at_once() -> None:
    async def never(connection: FakeConnection) -> None:
        raise AssertionError("unreachable")

    async with run_fake_relay(never, process_request=not_found) as url:
        with pytest.raises(CannotConnect, match=r"is not a relay.*404"):
            async with connect(url, ANN, options=quick(connect_timeout_s=60.0)):
                pass


async def test_an_unsupported_subprotocol_is_reported_at_once() -> None:
    async def listen(connection: FakeConnection) -> None:
        await connection.stay_open()

    async with run_fake_relay(listen, subprotocols=None) as url:
        with pytest.raises(CannotConnect, match=r"does not support the subprotocol waypost\.json"):
            async with connect(url, ANN, options=quick(connect_timeout_s=60.0)):
                pass


async def test_a_silent_relay_times_out() -> None:
    async def silent(connection: FakeConnection) -> None:
        await connection.stay_open()

    options = quick(connect_timeout_s=0.5, handshake_timeout_s=0.1)
    async with run_fake_relay(silent) as url:
        with pytest.raises(CannotConnect, match="handshake timed out"):
            async with connect(url, ANN, options=options):
                pass


async def test_a_malformed_frame_ends_the_connection_and_the_agent_reconnects() -> None:
    async def garbage_first(connection: FakeConnection) -> None:
        await connection.accept()
        if connection.number == 1:
            await connection.websocket.send("{not a frame")
        else:
            await connection.send_frame(message("m-1", "sense"))
        await connection.stay_open()

    async with run_fake_relay(garbage_first) as url, connect(url, ANN, options=quick()) as agent:
        assert (await agent.receive(60)).payload == "sense"


async def test_a_send_without_an_answer_times_out_with_its_id() -> None:
    async def deaf(connection: FakeConnection) -> None:
        await connection.accept()
        await connection.stay_open()

    options = quick(send_timeout_s=0.05)
    async with run_fake_relay(deaf) as url, connect(url, ANN, options=options) as agent:
        with pytest.raises(SendTimedOut) as raised:
            await agent.send("agent.bob", 1, message_id="mine-1")
        assert raised.value.message_id == "mine-1"
        wanted = [{"subject": "agent.bob", "payload": 1, "message_id": f"m-{n}"} for n in "123"]
        with pytest.raises(SendTimedOut) as raised:
            await agent.send_many(wanted)
        assert raised.value.message_id == "m-1"


async def test_the_number_of_unanswered_sends_is_limited() -> None:
    operations: list[frames.FromAgent] = []

    async def slow(connection: FakeConnection) -> None:
        await connection.accept()
        while True:
            operations.extend(await connection.receive_frame())

    options = quick(unanswered_max=5, send_timeout_s=0.2)
    async with run_fake_relay(slow) as url, connect(url, ANN, options=options) as agent:
        with pytest.raises(SendTimedOut):
            await agent.send_many({"subject": "agent.bob", "payload": n} for n in range(20))
        await eventually(lambda: len(operations) >= 5, "the sends")
        assert len(operations) == 5


@pytest.mark.parametrize(
    "bound", [{"unread_max_messages": 10}, {"unread_max_bytes": 1_000_000}], ids=str
)
async def test_reading_pauses_while_too_many_messages_are_unread(bound: dict[str, int]) -> None:
    sent = 0

    async def flood(connection: FakeConnection) -> None:
        nonlocal sent
        await connection.accept()
        for number in range(400):  # 40 MB, more than any buffer on the way
            await connection.send_frame(message(f"m-{number}", "x" * 100_000))
            sent += 1
        await connection.stay_open()

    async with run_fake_relay(flood) as url, connect(url, ANN, options=quick(**bound)) as agent:
        await unchanged(lambda: sent, for_s=0.3)
        assert sent < 300
        for number in range(400):
            assert (await agent.receive(60)).id == f"m-{number}"
        await eventually(lambda: sent == 400)


async def test_an_answer_is_read_even_while_too_many_messages_are_unread() -> None:
    pushed = asyncio.Event()

    async def push_and_answer(connection: FakeConnection) -> None:
        await connection.accept()
        for number in range(20):
            await connection.send_frame(message(f"m-{number}"))
        pushed.set()
        while True:
            for asked in await connection.receive_frame():
                if isinstance(asked, frames.Send):
                    await connection.send_frame(
                        frames.SendResult(ref=asked.ref, message_id="s", delivered_to=1)
                    )

    options = quick(unread_max_messages=3, send_timeout_s=60.0)
    async with run_fake_relay(push_and_answer) as url, connect(url, ANN, options=options) as agent:
        await pushed.wait()
        await event_loop_turns()  # until reading has stopped
        assert (await agent.send("agent.bob", 1)).delivered_to == 1


async def test_closing_waits_for_queued_operations_on_a_slow_connection() -> None:
    operations: list[frames.FromAgent] = []
    connections: list[FakeConnection] = []
    closing = asyncio.Event()

    async def slow(connection: FakeConnection) -> None:
        connections.append(connection)
        await connection.accept(frame_max_bytes=2_000_000)
        await connection.send_frame(message("m-1"))
        await closing.wait()
        try:
            while True:
                operations.extend(await connection.receive_frame())
        except ConnectionClosed:
            pass

    async with run_fake_relay(slow, max_size=None) as url:
        async with connect(url, ANN, options=quick(close_timeout_s=60.0)) as agent:
            large = [{"subject": "agent.bob", "payload": "x" * 1_000_000} for _ in range(30)]
            sending = asyncio.create_task(agent.send_many(large))
            arrived = await agent.receive(60)
            transport = connections[0].websocket.transport
            await eventually(lambda: not transport.is_reading(), "a full connection")
            await arrived.ack()
            closing.set()  # read only from now on
        with pytest.raises(AgentClosed):
            await sending
        assert frames.Ack(ids=["m-1"]) in operations


async def test_closing_is_quick_while_many_frames_are_in_flight() -> None:
    async def talkative(connection: FakeConnection) -> None:
        await connection.accept()
        await connection.receive_frame()
        for number in range(200):
            await connection.send_frame(message(f"m-{number}"))
        await connection.stay_open()

    options = quick(close_timeout_s=600.0)
    async with run_fake_relay(talkative) as url, asyncio.timeout(60):
        async with connect(url, ANN, options=options) as agent:
            sending = asyncio.create_task(agent.send("agent.bob", 1))
            await agent.receive()
        with pytest.raises(AgentClosed):
            await sending
