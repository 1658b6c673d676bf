"""The asyncio client against what is no good relay: refusals, silence, garbage, floods."""

import asyncio
import socket
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.client.fake_relay import Line, not_found, pretend
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


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def quick(**options: Any) -> ClientOptions:
    return ClientOptions(**{"connect_timeout_s": 5.0, "close_timeout_s": 0.2, **options})


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (frames.CLOSE_NOT_AUTHENTICATED, NotAuthenticated),
        (frames.CLOSE_FORBIDDEN, SubjectTaken),
        (frames.CLOSE_ALREADY_CONNECTED, AlreadyConnected),
    ],
)
async def test_a_rejection_is_raised_with_the_words_of_the_relay(
    code: int, error: type[Exception]
) -> None:
    async def reject(line: Line) -> None:
        await line.reject(code, "not you")

    async with pretend(reject) as url:
        with pytest.raises(error, match="not you"):
            async with connect(url, ANN, options=quick()):
                pass


async def test_a_rejection_later_on_is_raised_by_everything_that_waits() -> None:
    async def once(line: Line) -> None:
        if line.number == 1:
            await line.let_in()
            await line.hear()  # the send, which is never answered
            await line.websocket.close(1001)
        else:
            await line.reject(frames.CLOSE_FORBIDDEN, "not any more")

    async with pretend(once) as url, connect(url, ANN, options=quick()) as agent:
        waiting = [
            asyncio.create_task(agent.send("agent.bob", 1)),
            asyncio.create_task(agent.receive(5)),
            asyncio.create_task(agent.delivered("some-id", 5)),
        ]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in results] == [SubjectTaken] * 3
        with pytest.raises(SubjectTaken, match="not any more"):
            await agent.send("agent.bob", 2)
        with pytest.raises(SubjectTaken):
            async for _ in agent:
                pass


async def test_nobody_there_is_told_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(CannotConnect, match=r"not connected within 0\.3 s.*[Cc]onnect"):
        async with connect(url, ANN, options=quick(connect_timeout_s=0.3)):
            pass


async def test_a_relay_that_starts_late_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    caplog.set_level("INFO", "waypost.client")

    async def let_in(line: Line) -> None:
        await line.let_in()
        await line.listen_on()

    async def start_late() -> None:
        await eventually(lambda: caplog.records, "a failed attempt to connect")
        async with pretend(let_in, port):
            await stop.wait()

    stop = asyncio.Event()
    starting = asyncio.create_task(start_late())
    async with connect(f"http://127.0.0.1:{port}", ANN, options=quick()) as agent:
        assert agent.is_connected
    stop.set()
    await starting


async def test_what_is_no_relay_is_told_at_once() -> None:
    async def never(line: Line) -> None:
        raise AssertionError("nobody gets here")

    async with pretend(never, process_request=not_found) as url:
        with pytest.raises(CannotConnect, match=r"is not a relay.*404"):
            async with connect(url, ANN, options=quick(connect_timeout_s=60.0)):
                pass


async def test_a_relay_that_speaks_another_language_is_told_at_once() -> None:
    async def listen(line: Line) -> None:
        await line.listen_on()

    async with pretend(listen, subprotocols=None) as url:
        with pytest.raises(CannotConnect, match=r"does not support the subprotocol waypost\.json"):
            async with connect(url, ANN, options=quick(connect_timeout_s=60.0)):
                pass


async def test_a_relay_that_says_nothing_is_given_up() -> None:
    async def silent(line: Line) -> None:
        await line.listen_on()

    options = quick(connect_timeout_s=0.5, handshake_timeout_s=0.1)
    async with pretend(silent) as url:
        with pytest.raises(CannotConnect, match="handshake timed out"):
            async with connect(url, ANN, options=options):
                pass


async def test_garbage_ends_the_connection_and_another_is_made() -> None:
    async def garbage_first(line: Line) -> None:
        await line.let_in()
        if line.number == 1:
            await line.websocket.send("{not a frame")
        else:
            await line.say(message("m-1", "sense"))
        await line.listen_on()

    async with pretend(garbage_first) as url, connect(url, ANN, options=quick()) as agent:
        assert (await agent.receive(5)).payload == "sense"


async def test_a_send_without_an_answer_times_out_with_its_id() -> None:
    async def deaf(line: Line) -> None:
        await line.let_in()
        await line.listen_on()

    options = quick(send_timeout_s=0.05)
    async with pretend(deaf) as url, connect(url, ANN, options=options) as agent:
        with pytest.raises(SendTimedOut) as raised:
            await agent.send("agent.bob", 1, message_id="mine-1")
        assert raised.value.message_id == "mine-1"
        wanted = [{"subject": "agent.bob", "payload": 1, "message_id": f"m-{n}"} for n in "123"]
        with pytest.raises(SendTimedOut) as raised:
            await agent.send_many(wanted)
        assert raised.value.message_id == "m-1"


async def test_only_so_many_sends_run_ahead_of_their_answers() -> None:
    heard: list[frames.FromAgent] = []

    async def slow(line: Line) -> None:
        await line.let_in()
        while True:
            heard.extend(await line.hear())

    options = quick(unanswered_max=5, send_timeout_s=0.2)
    async with pretend(slow) as url, connect(url, ANN, options=options) as agent:
        with pytest.raises(SendTimedOut):
            await agent.send_many({"subject": "agent.bob", "payload": n} for n in range(20))
        assert len(heard) == 5


@pytest.mark.parametrize(
    "bound", [{"unread_max_messages": 10}, {"unread_max_bytes": 1_000_000}], ids=str
)
async def test_a_flood_that_nobody_reads_is_not_taken_in(bound: dict[str, int]) -> None:
    poured = 0

    async def flood(line: Line) -> None:
        nonlocal poured
        await line.let_in()
        for number in range(400):  # 40 MB, more than any buffer on the way
            await line.say(message(f"m-{number}", "x" * 100_000))
            poured += 1
        await line.listen_on()

    async with pretend(flood) as url, connect(url, ANN, options=quick(**bound)) as agent:
        await unchanged(lambda: poured, for_s=0.3)
        assert poured < 300
        for number in range(400):
            assert (await agent.receive(5)).id == f"m-{number}"
        await eventually(lambda: poured == 400)


async def test_an_answer_is_read_even_when_too_much_is_unread() -> None:
    pushed = asyncio.Event()

    async def push_and_answer(line: Line) -> None:
        await line.let_in()
        for number in range(20):
            await line.say(message(f"m-{number}"))
        pushed.set()
        while True:
            for asked in await line.hear():
                if isinstance(asked, frames.Send):
                    await line.say(frames.SendResult(ref=asked.ref, message_id="s", delivered_to=1))

    options = quick(unread_max_messages=3, send_timeout_s=5.0)
    async with pretend(push_and_answer) as url, connect(url, ANN, options=options) as agent:
        await pushed.wait()
        await event_loop_turns()  # until reading has stopped
        assert (await agent.send("agent.bob", 1)).delivered_to == 1


async def test_closing_waits_for_a_slow_line_to_take_what_was_said() -> None:
    heard: list[frames.FromAgent] = []
    lines: list[Line] = []
    closing = asyncio.Event()

    async def slow(line: Line) -> None:
        lines.append(line)
        await line.let_in(frame_max_bytes=2_000_000)
        await line.say(message("m-1"))
        await closing.wait()
        try:
            while True:
                heard.extend(await line.hear())
        except ConnectionClosed:
            pass

    async with pretend(slow, max_size=None) as url:
        async with connect(url, ANN, options=quick(close_timeout_s=5.0)) as agent:
            large = [{"subject": "agent.bob", "payload": "x" * 1_000_000} for _ in range(30)]
            sending = asyncio.create_task(agent.send_many(large))
            arrived = await agent.receive(5)
            transport = lines[0].websocket.transport
            await eventually(lambda: not transport.is_reading(), "a full line")
            await arrived.ack()
            closing.set()  # read only from now on
        with pytest.raises(AgentClosed):
            await sending
        assert frames.Ack(ids=["m-1"]) in heard


async def test_closing_is_quick_though_much_is_on_its_way() -> None:
    async def talkative(line: Line) -> None:
        await line.let_in()
        await line.hear()
        for number in range(200):
            await line.say(message(f"m-{number}"))
        await line.listen_on()

    options = quick(close_timeout_s=30.0)
    async with pretend(talkative) as url, asyncio.timeout(5):
        async with connect(url, ANN, options=options) as agent:
            sending = asyncio.create_task(agent.send("agent.bob", 1))
            await agent.receive()
        with pytest.raises(AgentClosed):
            await sending
