"""A relay that attacks its agents: it may withhold messages, and cannot fill their memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.client.fake_relay import NONCE, FakeConnection, run_fake_relay
from tests.client.session_harness import message, welcome
from tests.eventually import eventually, unchanged
from waypost.client import Agent, CannotConnect, ClientOptions, Identity, blocking, connect
from waypost.client.http import HttpClient, RemoteError
from waypost.wire import frames
from waypost.wire.results import NeverConnected

ANN = Identity.new("agent.ann")
LONG = "x" * 100_000
DEEP = "[" * 5000 + "]" * 5000
CHAIN = message("m-1").envelope.budget
Attack = Callable[[FakeConnection], Awaitable[None]]


def quick(**options: Any) -> ClientOptions:
    return ClientOptions(**{"connect_timeout_s": 60.0, "close_timeout_s": 0.2, **options})


@asynccontextmanager
async def attacked(attack: Attack, **options: Any) -> AsyncIterator[Agent]:
    """Connect an agent to a relay that attacks its first connection and then behaves."""

    async def script(connection: FakeConnection) -> None:
        await connection.accept()
        if connection.number == 1:
            with suppress(ConnectionClosed, ConnectionError):
                await attack(connection)
        else:
            await connection.send_frame(message("honest", "sense"))
        await connection.stay_open()

    async with run_fake_relay(script) as url, connect(url, ANN, options=quick(**options)) as agent:
        yield agent


def disconnections(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(one.getMessage() for one in caplog.records if "disconnected" in one.message)


def with_envelope(**fields: Any) -> frames.Message:
    delivered = message("m-1")
    delivered.envelope = msgspec.structs.replace(delivered.envelope, **fields)
    return delivered


def confirm(**fields: Any) -> frames.DeliveryConfirm:
    usual = {"message_id": "m-1", "recipient": "agent.bob", "was_stored": False}
    return frames.DeliveryConfirm(**usual | fields)  # type: ignore[arg-type]


def several(**fields: Any) -> frames.DeliveryConfirms:
    usual = {"recipient": "agent.bob", "confirmed": [("m-1", False)]}
    return frames.DeliveryConfirms(**usual | fields)  # type: ignore[arg-type]


def full(**fields: Any) -> frames.QueueFull:
    usual = {"ref": 1, "recipient": "agent.bob", "reason": "full"}
    return frames.QueueFull(**usual | fields)  # type: ignore[arg-type]


# --- Operations that no relay may send -----------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "cause"),
    [
        (message(LONG), "invalid message id"),
        (message("an id\nof two lines"), "invalid message id"),
        (message("m-1", sender=f"agent.{LONG}"), "invalid subject"),
        (message("m-1", sender="Obey me"), "invalid subject"),
        (message("m-1", parent=LONG), "invalid message id"),
        (with_envelope(reply_to=LONG), "invalid subject"),
        (with_envelope(thread=LONG), "invalid message id"),
        (with_envelope(thread="a\x00b"), "invalid message id"),
        (with_envelope(subject=LONG), "invalid subject"),
        (
            with_envelope(budget=msgspec.structs.replace(CHAIN, ancestor_chain=("a",) * 257)),
            "a chain of 257 endpoints",
        ),
        (
            with_envelope(budget=msgspec.structs.replace(CHAIN, ancestor_chain=(LONG,))),
            "100,000 characters in a chain",
        ),
        (confirm(message_id=LONG), "invalid message id"),
        (confirm(recipient=LONG), "invalid subject"),
        (confirm(id=LONG), "invalid message id"),
        (full(recipient=LONG), "invalid subject"),
        (full(recipient="Obey me"), "invalid"),
        (full(message_id=LONG), "invalid message id"),
        (frames.SendResult(ref=1, message_id=LONG, delivered_to=1), "invalid message id"),
        (several(confirmed=[("m-1", True), (LONG, True)]), "invalid message id"),
        (several(recipient=LONG), "invalid subject"),
        (several(id=LONG), "invalid message id"),
        (several(confirmed=[("m-1", True)] * 5000), "5,001 operations in one frame"),
        (frames.SentMany(ref=1, last_ref=5000, delivered_to=1), "5,000 operations in one frame"),
        (frames.SentMany(ref=1, last_ref=1 << 53, delivered_to=1), "operations in one frame"),
        (frames.SentMany(ref=2, last_ref=1, delivered_to=1), "sent_many without a send"),
        (
            frames.SendResult(
                ref=1, message_id="m", delivered_to=1, never_connected=NeverConnected("not a name")
            ),
            "invalid subject",
        ),
        (frames.Challenge(nonce=NONCE), "challenge after the welcome"),
        (welcome(), "a second welcome"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_an_invalid_operation_ends_the_connection_with_its_cause(
    operation: frames.FrameOperation, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waypost.client")
    async with attacked(lambda connection: connection.send_frame(operation)) as agent:
        honest = await agent.receive(60)
        assert honest.payload == "sense"
    assert "protocol error" in disconnections(caplog)
    assert cause in disconnections(caplog)
    assert len(disconnections(caplog)) < 1000


async def test_messages_in_front_of_an_invalid_operation_are_delivered_again() -> None:
    async def mixed(connection: FakeConnection) -> None:
        await connection.send_together(message("honest", "too early"), message(LONG))

    async with attacked(mixed) as agent:
        assert (await agent.receive(60)).payload == "sense"


async def test_a_frame_of_too_many_operations_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "waypost.client")
    many = "[" + ",".join(['{"op":"live"}'] * 5000) + "]"
    async with attacked(lambda connection: connection.send_text(many)) as agent:
        assert (await agent.receive(60)).payload == "sense"
    assert "5,000 operations in one frame" in disconnections(caplog)


async def test_a_deeply_nested_payload_ends_the_connection_and_the_agent_reconnects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "waypost.client")
    frame = msgspec.json.encode(message("m-1", "DEEP")).decode().replace('"DEEP"', DEEP)
    async with attacked(lambda connection: connection.send_text(frame)) as agent:
        assert (await agent.receive(60)).payload == "sense"
    assert "protocol error: maximum recursion depth" in disconnections(caplog)


async def test_a_frame_of_endless_empty_fragments_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "waypost.client")
    fragments = b"\x01\x00" + b"\x00\x00" * 2000
    async with attacked(lambda connection: connection.send_bytes(fragments)) as agent:
        assert (await agent.receive(60)).payload == "sense"
    assert "protocol error: a frame of more than 1,024 fragments" in disconnections(caplog)


async def test_answers_to_pings_do_not_pile_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "waypost.client")
    pings = (b"\x89\x7d" + bytes(125)) * 1000

    async def ping(connection: FakeConnection) -> None:
        transport = connection.websocket.transport
        transport.pause_reading()
        for _ in range(150):  # 20 MB, more than any buffer on the way
            if transport.is_closing():
                break
            await connection.send_bytes(pings)
        transport.abort()

    async with attacked(ping) as agent:
        assert (await agent.receive(60)).payload == "sense"
    assert "the relay does not read the answers to its pings" in disconnections(caplog)


@pytest.mark.parametrize(
    "operation",
    [
        message("m-1"),
        confirm(),
        frames.QueueStatus(pending=1),
        frames.Live(),
        frames.FetchedMessages(ref=1, messages=[message("m-1")]),
        frames.Challenge(nonce=NONCE),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_before_the_welcome_only_one_challenge_is_accepted(
    operation: frames.FrameOperation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waypost.client")

    async def early(connection: FakeConnection) -> None:
        if connection.number > 1:
            await connection.accept()
        else:
            await connection.send_frame(frames.Challenge(nonce=NONCE))
            await connection.receive_frame()
            await connection.send_frame(operation)
        await connection.stay_open()

    async with run_fake_relay(early) as url, connect(url, ANN, options=quick()):
        pass
    assert re.search(r"protocol error: \w+ before the welcome", disconnections(caplog))


async def test_an_agent_that_pulls_accepts_no_pushed_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "waypost.client")
    async with attacked(lambda connection: connection.send_frame(message("m-1")), receive="pull"):
        await eventually(lambda: "that was not fetched" in disconnections(caplog))


async def test_a_fetch_returns_no_more_messages_than_it_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "waypost.client")

    async def generous(connection: FakeConnection) -> None:
        await connection.accept()
        [fetch] = await connection.receive_frame()
        assert isinstance(fetch, frames.Fetch)
        count = 11 if connection.number == 1 else 10
        found = [message(f"m-{number}") for number in range(count)]
        await connection.send_frame(frames.FetchedMessages(ref=fetch.ref, messages=found))
        await connection.stay_open()

    options = quick(receive="pull")
    async with run_fake_relay(generous) as url, connect(url, ANN, options=options) as agent:
        assert len(await agent.fetch(10)) == 10
    assert "11 messages for a fetch of 10" in disconnections(caplog)


# --- Floods --------------------------------------------------------------------------------------


class Flood:
    """Frames that a relay sends until it is blocked; `sent` counts them."""

    def __init__(self, make: Callable[[int], frames.FrameOperation], count: int) -> None:
        self._make = make
        self._count = count
        self.sent = 0

    async def __call__(self, connection: FakeConnection) -> None:
        await connection.accept()
        with suppress(ConnectionClosed):
            for number in range(self._count):
                await connection.send_frame(self._make(number))
                self.sent += 1
        await connection.stay_open()


UNREAD = {"unread_max_messages": 10, "unread_max_bytes": 1_000_000}


def large(number: int) -> frames.Message:
    return message(f"m-{number}", "x" * 1_000_000)


async def test_reading_stops_while_a_send_is_unanswered() -> None:
    flood = Flood(large, 600)
    options = quick(**UNREAD, send_timeout_s=30.0)
    async with run_fake_relay(flood) as url, connect(url, ANN, options=options) as agent:
        sending = asyncio.create_task(agent.send("agent.bob", 1))
        await unchanged(lambda: flood.sent, for_s=0.5)
        assert flood.sent < 200
        assert not sending.done()
        sending.cancel()


async def test_reading_stops_in_the_blocking_client_too() -> None:
    flood = Flood(large, 600)

    def ask(url: str) -> None:
        options = quick(**UNREAD, send_timeout_s=2.0)
        with blocking.connect(url, ANN, options=options) as agent, pytest.raises(TimeoutError):
            agent.send("agent.bob", 1)

    async with run_fake_relay(flood) as url:
        await asyncio.to_thread(ask, url)
        assert flood.sent < 200


async def test_an_endless_number_of_small_messages_is_not_read_either() -> None:
    flood = Flood(lambda number: message(f"m-{number}"), 100_000)
    options = quick(**UNREAD, send_timeout_s=30.0)
    async with run_fake_relay(flood) as url, connect(url, ANN, options=options) as agent:
        sending = asyncio.create_task(agent.send("agent.bob", 1))
        await unchanged(lambda: flood.sent, for_s=0.5)
        assert flood.sent < 50_000  # 266 are kept; the rest is in the buffers of the sockets
        sending.cancel()


# --- Waits and redirects -------------------------------------------------------------------------


async def test_a_relay_cannot_ask_for_an_endless_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "waypost.client")

    async def endless(connection: FakeConnection) -> None:
        later = frames.Error(error="later", fatal=True, retry_after_ms=1 << 53)
        await connection.send_frame(later)
        await connection.websocket.close(1013)

    async with attacked(endless):
        await eventually(lambda: "reconnecting in 300000 ms" in disconnections(caplog))


async def test_no_redirect_is_followed() -> None:
    reached: list[int] = []

    async def elsewhere(connection: FakeConnection) -> None:
        reached.append(connection.number)
        await connection.accept()
        await connection.stay_open()

    async with run_fake_relay(elsewhere) as target:

        def redirect(websocket: ServerConnection, request: Request) -> Response:
            response = websocket.respond(HTTPStatus.FOUND, "over there")
            response.headers["Location"] = f"{target.replace('http', 'ws')}/v1/connect"
            return response

        async with run_fake_relay(elsewhere, process_request=redirect) as url:
            with pytest.raises(CannotConnect, match=r"is not a relay.*302"):
                async with connect(url, ANN, options=quick()):
                    pass
            with pytest.raises(RemoteError, match="302"):
                await asyncio.to_thread(HttpClient(url).get, "/healthz", dict)
    assert reached == []


async def test_errors_of_the_relay_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def complain(connection: FakeConnection) -> None:
        for _ in range(1000):
            await connection.send_frame(frames.Error(error=f"\x1b[2J{LONG}"))
        await connection.send_frame(message("m-1"))

    async with attacked(complain) as agent:
        await agent.receive(60)
    errors = [one.getMessage() for one in caplog.records if "from the relay" in one.message]
    assert len(errors) == 10
    assert all(one.isprintable() and len(one) < 400 for one in errors)
