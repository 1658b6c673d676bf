"""WebSockets: no frames occupy the relay, and it reads few bytes before a proof."""

import asyncio
import logging
from typing import Any

import pytest

from tests.eventually import eventually
from tests.server.conftest import SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.transports import SocketTransport
from tests.server.sockets.raw_connection import (
    EMPTY_FRAGMENT,
    PING,
    PONG,
    RawConnection,
    text_frame,
)
from waypost.server.sockets.websocket import EventQueue
from waypost.wire import frames

BEGIN = text_frame(b"", is_last=False)
SEND = b'{"op":"send","ref":9,"subject":"other.void","payload":1}'
KIB = 1024
FLOODS = {"pings": PING, "pongs": PONG, "empty fragments": EMPTY_FRAGMENT}


@pytest.fixture(autouse=True)
def _closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.server.sockets.websocket.CLOSE_DEADLINE_S", 0.2)


def write_raw(agent: RawAgent, content: bytes) -> None:
    assert isinstance(agent.transport, SocketTransport)
    agent.transport.socket.transport.write(content)


def reason_of(rest: bytes) -> str:
    """Return the code and reason of the close frame at the end."""
    at = rest.rfind(b"\x88")
    assert at >= 0, rest
    return f"{int.from_bytes(rest[at + 2 : at + 4], 'big')} {rest[at + 4 :].decode()}"


async def open_websocket(relay: SocketRelay) -> RawConnection:
    connection = await RawConnection.open(relay.address)
    assert (await connection.upgrade(relay.address)).status == 101
    await connection.reader.readuntil(b"}")  # the challenge
    return connection


async def assert_serves(relay: SocketRelay) -> None:
    agent = await relay.connect("agent.honest")
    assert isinstance(await agent.send("agent.void", 1), frames.SendResult)
    await agent.disconnect()


@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
async def test_tiny_frames_before_a_proof_end_the_connection(
    served: SocketRelay, frame: bytes
) -> None:
    connection = await open_websocket(served)
    await connection.send(BEGIN * (frame is EMPTY_FRAGMENT) + frame * 201)
    assert "1008 too many pings, pongs or short fragments" in reason_of(await connection.ended())
    await assert_serves(served)


@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
async def test_tiny_frames_of_an_agent_end_the_connection(
    served: SocketRelay, frame: bytes
) -> None:
    agent = await served.connect("agent.a", ping_interval=None)
    write_raw(agent, BEGIN * (frame is EMPTY_FRAGMENT) + frame * 50_000)
    assert (await agent.end()).code in (1008, 1006)
    await assert_serves(served)


async def test_some_pings_and_fragments_are_fine(served: SocketRelay) -> None:
    agent = await served.connect("agent.a", ping_interval=None)
    send = b'{"op":"send","ref":1,"subject":"agent.void","payload":%s}' % (b"7" * 300)
    parts = [text_frame(send[:1], is_last=False)]
    parts += [text_frame(send[at : at + 1], opcode=0, is_last=False) for at in range(1, 90)]
    parts += [text_frame(send[90:], opcode=0)]
    write_raw(agent, PING.join(parts))
    assert (await agent.until(frames.SendResult)).ref == 1
    await agent.disconnect()


async def test_a_long_message_may_come_in_fragments(served: SocketRelay) -> None:
    agent = await served.connect("agent.a")
    assert isinstance(agent.transport, SocketTransport)
    send = '{"op":"send","ref":1,"subject":"agent.void","payload":"' + "x" * 1_000_000 + '"}'
    await agent.transport.socket.send(send[at : at + 4096] for at in range(0, len(send), 4096))
    assert (await agent.until(frames.SendResult)).ref == 1
    await agent.disconnect()


async def test_a_message_has_a_bounded_number_of_fragments(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.websocket.message_fragments_max", 100)
    agent = await served.connect("agent.a")
    write_raw(agent, BEGIN + text_frame(b"x" * KIB, opcode=0, is_last=False) * 101)
    assert (await agent.end()).code in (1008, 1006)
    await assert_serves(served)


async def test_frames_are_parsed_no_further_than_the_relay_has_handled_them(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    put = EventQueue.put_nowait

    def put_nowait(queue: EventQueue, event: Any) -> None:
        put(queue, event)
        if event.get("text") == SEND.decode():
            waiting.append(len(queue))

    monkeypatch.setattr(EventQueue, "put_nowait", put_nowait)
    agent = await served.connect("agent.a")
    write_raw(agent, text_frame(SEND) * 3000)
    answers = [await agent.until(frames.SendResult) for _ in range(3000)]
    assert {answer.ref for answer in answers} == {9}
    assert len(waiting) == 3000
    assert max(waiting) < 100
    await agent.disconnect()


@pytest.mark.parametrize(
    "content",
    [
        b"\x81\xff" + (1 << 20).to_bytes(8, "big") + b"\x00" * 4,
        BEGIN + text_frame(b"x" * 60 * KIB, opcode=0, is_last=False) * 2,
        text_frame(b"x" * 60 * KIB) * 2,
        (PING + text_frame(b"x" * 2 * KIB, opcode=0x9)) * 40,
    ],
    ids=["a long frame", "fragments", "frames", "long pings"],
)
async def test_no_more_than_64_kib_are_read_before_a_proof(
    served: SocketRelay, content: bytes
) -> None:
    connection = await open_websocket(served)
    await connection.send(content)
    rest = await connection.ended()
    assert b"\x88" not in rest or reason_of(rest)[:5] in ("1009 ", "1002 ", "4401 ")
    await assert_serves(served)


async def test_frames_before_the_handshake_end_the_connection(served: SocketRelay) -> None:
    connection = await RawConnection.open(served.address)
    await connection.send(b"GET /v1/connect HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket")
    await connection.send(b"\r\n\r\n" + PING * 100)
    assert b"400" in await connection.ended()
    await assert_serves(served)


@pytest.mark.parametrize(
    ("more", "status"),
    [("X: " + "x" * 9 * KIB + "\r\n", 431), ("X: x\r\n" * 140, 431)],
    ids=["a long header", "many headers"],
)
async def test_an_upgrade_with_too_many_headers_is_answered(
    served: SocketRelay, more: str, status: int
) -> None:
    connection = await RawConnection.open(served.address)
    assert (await connection.upgrade(served.address, more)).status == status
    await connection.ended()
    await assert_serves(served)


@pytest.mark.parametrize(
    "content",
    [text_frame(b"\xff\xfe"), b"\xf1\x80" + b"\x00" * 4, b"\x88\x81\x00\x00\x00\x00\x00"],
    ids=["not UTF-8", "reserved bits", "a bad close frame"],
)
async def test_a_bad_frame_is_one_line_in_the_log(
    served: SocketRelay, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    connection = await open_websocket(served)
    await connection.send(content)
    assert reason_of(await connection.ended())[:4] in ("1007", "1002")
    [record] = caplog.records
    assert record.getMessage().startswith("connection closed: ")
    assert record.exc_info is None
    await assert_serves(served)


async def test_frames_without_an_operation_end_the_connection(served: SocketRelay) -> None:
    agent = await served.connect("agent.a")
    write_raw(agent, text_frame(b"[]") * 20)
    error = await agent.until(frames.Error)
    assert error.error == "empty frame: send at least one operation"
    assert (await agent.end()).code == 1008
    await assert_serves(served)


async def test_a_peer_that_floods_is_not_read_from_until_it_is_disconnected(
    served: SocketRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.server.sockets.websocket.CLOSE_DEADLINE_S", 1.0)
    connection = await open_websocket(served)
    await connection.send(PING * 201)
    async with asyncio.timeout(60):
        await connection.reader.readuntil(b"short fragments")
    connection.writer.write(PING * (8 << 20))
    unsent = connection.writer.transport.get_write_buffer_size()
    assert unsent > 0
    await eventually(connection.writer.transport.is_closing, "the connection to be cut")
    connection.close()
