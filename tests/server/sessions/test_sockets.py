"""Real sockets: shutdown, lost connections and slow consumers."""

import asyncio
import json
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn
import uvloop

from tests.eventually import event_loop_turns, eventually
from tests.faults.plain_journal import committed
from tests.server.conftest import ServeRelay, SocketRelay, dial, serving
from tests.server.sessions.raw_agent import RawAgent, payload_of
from tests.server.sessions.transports import (
    ConnectionEnded,
    MemoryTransport,
    SocketTransport,
)
from waypost import BackpressureConfig, QosConfig, Signal
from waypost.client.identity import Identity
from waypost.policy.signal_limits import SignalsConfig
from waypost.server.gate import Gate
from waypost.server.origins import own_origins
from waypost.server.server import make_app, with_connections
from waypost.server.sockets import websocket as websocket_module
from waypost.server.sockets.websocket import BoundedWebSocket
from waypost.wire import frames
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL
from waypost.wire.payloads import SignalType

LIMITLESS = {
    "qos": QosConfig(enabled=False),
    "backpressure": BackpressureConfig(enabled=False),
    "signals": SignalsConfig(max_per_window=1 << 40, max_per_pair=1 << 40, max_bytes=1 << 40),
}
UPGRADE = b"GET /v1/connect HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
DEAF = {"max_queue": 1, "ping_interval": None}
"""Options of a peer that stops reading after a frame or two."""


@pytest.mark.parametrize("protocol", [JSON_PROTOCOL, MSGPACK_PROTOCOL])
async def test_two_agents_exchange_messages(served: SocketRelay, protocol: str) -> None:
    one = await served.connect("agent.one", protocol=protocol)
    two = await served.connect("agent.two")
    answer = await one.send("agent.two", {"hello": ["there", 1.5]})
    message = await two.until(frames.Message)
    assert payload_of(message) == {"hello": ["there", 1.5]}
    assert message.envelope.sender == "agent.one"
    await two.ack(message)
    confirm = await one.expect(frames.DeliveryConfirm)
    assert isinstance(answer, frames.SendResult)
    assert (confirm.message_id, confirm.was_stored) == (answer.message_id, message.was_stored)
    await one.disconnect()
    await two.disconnect()


async def test_frames_sent_just_before_a_disconnect_are_processed(served: SocketRelay) -> None:
    one = await served.connect("agent.one")
    for number in range(20):
        await one.send("agent.two", number)
    two = await served.connect("agent.two")
    messages = [await two.until(frames.Message) for _ in range(20)]
    for message in messages:
        await two.ack(message)
    await one.begin_send("agent.two", "what the relay has to say meets a closed connection")
    await two.disconnect()
    mailbox = served.context.relay._runtime.ledger.state.mailboxes["agent.two"]
    await eventually(lambda: len(mailbox.live) == 1, "all that was confirmed to be gone")
    await one.disconnect()


async def test_a_shutdown_disconnects_agents_and_keeps_unconfirmed_messages(
    serve_relay: ServeRelay, tmp_path: Path
) -> None:
    relay = await serve_relay()
    keys = Identity.new("agent.two")
    one, two = await relay.connect("agent.one"), await relay.dial()
    await two.authenticate(keys)
    for number in range(3):
        await one.send("agent.two", number)
    first = await two.until(frames.Message)
    await two.ack(first)
    await one.until(frames.DeliveryConfirm)
    await relay.stop()
    for agent in (one, two):
        error = await agent.until(frames.Error)
        assert error.fatal
        assert "shutting down" in error.error
        assert (await agent.end()).code == frames.CLOSE_GOING_AWAY
    acked = [event["id"] for event in committed(tmp_path / "data") if event["kind"] == "acked"]
    assert acked == [first.envelope.id]
    relay = await serve_relay()
    two = await relay.dial()
    await two.authenticate(keys)
    assert await two.expect(frames.QueueStatus) == frames.QueueStatus(pending=2)
    assert [payload_of(await two.expect(frames.Message)) for _ in range(2)] == [1, 2]
    await two.disconnect()


async def test_after_a_lost_connection_the_agent_gets_the_rest(served: SocketRelay) -> None:
    keys, sender = Identity.new("agent.two"), await served.connect("agent.one")
    for number in range(12):
        await sender.send("agent.two", number)
    agent = await served.dial()
    await agent.authenticate(keys)
    for _ in range(5):
        await agent.ack(await agent.until(frames.Message))
        await sender.until(frames.DeliveryConfirm)
    assert isinstance(agent.transport, SocketTransport)
    agent.transport.cut()
    await eventually(lambda: len(served.context.hub) == 1, "the relay to notice")
    agent = await served.dial()
    await agent.authenticate(keys)
    assert await agent.expect(frames.QueueStatus) == frames.QueueStatus(pending=7)
    assert [payload_of(await agent.expect(frames.Message)) for _ in range(7)] == list(range(5, 12))
    await agent.disconnect()
    await sender.disconnect()


async def test_a_disconnected_agent_may_reconnect_at_once(served: SocketRelay) -> None:
    keys = Identity.new("agent.a")
    for _ in range(20):
        agent = await served.dial()
        await agent.authenticate(keys)
        await agent.disconnect()


async def test_an_agent_is_gone_before_what_follows_its_disconnect_is_read(
    served: SocketRelay,
) -> None:
    agent = RawAgent(MemoryTransport(served.context, JSON_PROTOCOL))
    await agent.authenticate(Identity.new("agent.a"))
    assert served.context.hub.is_connected("agent.a")
    disconnected = asyncio.create_task(agent.disconnect())
    await event_loop_turns(2)  # one to disconnect, one to notice: sockets are read after that
    assert not served.context.hub.is_connected("agent.a")
    await disconnected


async def test_a_frame_over_the_protocol_limit_ends_only_its_connection(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_module, "CLOSE_DEADLINE_S", 0.2)
    agent, other = await served.connect("agent.a"), await served.connect("agent.b")
    try:
        await agent.transport.write("x" * (17 * 1024 * 1024))
        end = await agent.end()
    except ConnectionEnded as cut:
        end = cut
    assert end.code in (1009, 1006)
    assert isinstance(await other.send("agent.c", 1), frames.SendResult)
    await other.disconnect()


async def test_bytes_that_are_no_websocket_end_only_their_connection(served: SocketRelay) -> None:
    host, port = served.address.split(":")
    for garbage in (b"\x00\xff" * 500, UPGRADE):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        async with asyncio.timeout(60):
            await reader.read()
        writer.close()
    agent = await served.connect("agent.a")
    assert isinstance(await agent.send("agent.b", 1), frames.SendResult)
    await agent.disconnect()


def typing(size: int) -> Signal:
    return Signal(
        type=SignalType.TYPING,
        state="x",
        endpoint_subject="agent.a",
        timestamp=datetime.now(UTC),
        data="x" * size,
    )


async def clog(speaker: RawAgent, victim: str, megabytes: int = 12) -> None:
    """Send more than all buffers on the way to `victim` can hold."""
    for _ in range(megabytes * 2):
        await speaker.send_frame(frames.SendSignal(subject=victim, signal=typing(500_000)))
        await speaker.send("agent.void", 1)


def small_socket(address: str) -> socket.socket:
    host, port = address.split(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    made.setblocking(False)
    return made


def watch_lost(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that collects lost connections of the relay."""
    gone: list[object] = []
    before = BoundedWebSocket.connection_lost

    def connection_lost(self: BoundedWebSocket, problem: Exception | None) -> None:
        gone.append(self)
        before(self, problem)

    monkeypatch.setattr(BoundedWebSocket, "connection_lost", connection_lost)
    return gone


async def test_a_slow_consumer_delays_no_other_and_loses_its_connection(
    serve_relay: ServeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_module, "CLOSE_DEADLINE_S", 0.1)
    monkeypatch.setattr("waypost.server.websocket.CLOSE_TIMEOUT_S", 0.1)
    lost = watch_lost(monkeypatch)
    relay = await serve_relay(**LIMITLESS)
    deaf = await relay.dial(sock=small_socket(relay.address), **DEAF)
    await deaf.authenticate(Identity.new("agent.deaf"))
    one, two = await relay.connect("agent.one"), await relay.connect("agent.two")
    await clog(one, "agent.deaf")
    frame = json.dumps(
        [{"op": "send", "ref": ref, "subject": "agent.void", "payload": 1} for ref in range(256)]
    )
    for _ in range(40):
        await deaf.transport.write(frame)
        assert isinstance(await one.send("agent.two", "go on"), frames.SendResult)
        await two.ack(await two.until(frames.Message))
    await eventually(lambda: len(relay.context.hub) == 2, "the agent to be sent away")
    await eventually(lambda: lost, "the connection to be cut, read or not")
    assert (await deaf.end()).code == 1006
    await one.disconnect()
    await two.disconnect()


async def test_an_agent_that_ignores_pings_is_disconnected_with_a_full_buffer(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(**LIMITLESS)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            Gate(
                with_connections(make_app(relay.context), relay.context),
                own_origins(listener.getsockname()),
            ),
            ws=BoundedWebSocket,
            ws_ping_interval=0.2,
            ws_ping_timeout=0.2,
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=2,
        )
    )
    task = asyncio.create_task(server._serve([listener]))
    try:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        deaf = await dial(address, sock=small_socket(address), **DEAF)
        await deaf.authenticate(Identity.new("agent.deaf"))
        speaker = await relay.connect("agent.one")
        await clog(speaker, "agent.deaf")
        await eventually(lambda: len(relay.context.hub) == 1, "the connection to be cut")
        await speaker.disconnect()
        assert (await deaf.end()).code == 1006
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("name", ["shutdown", "lost_connection", "slow_consumer", "ignored_pings"])
def test_the_same_on_uvloop(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data") as serve_relay:
            match name:
                case "shutdown":
                    await test_a_shutdown_disconnects_agents_and_keeps_unconfirmed_messages(
                        serve_relay, tmp_path
                    )
                case "lost_connection":
                    relay = await serve_relay()
                    await test_after_a_lost_connection_the_agent_gets_the_rest(relay)
                case "slow_consumer":
                    await test_a_slow_consumer_delays_no_other_and_loses_its_connection(
                        serve_relay, monkeypatch
                    )
                case _:
                    await test_an_agent_that_ignores_pings_is_disconnected_with_a_full_buffer(
                        serve_relay
                    )

    uvloop.run(main())
