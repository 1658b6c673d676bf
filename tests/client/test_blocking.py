"""The blocking client: the same agent, for programs without asyncio.

The relay runs on the test's event loop; the program under test on a thread of its own.
"""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.client.conftest import Dial
from tests.eventually import eventually, eventually_blocking
from tests.harness.listening_relay import ListeningRelay
from tests.relay.observing import events
from waypost import CircuitState, MessagingGuardConfig
from waypost.client import (
    Agent,
    AgentClosed,
    AlreadyConnected,
    ClientError,
    ClientOptions,
    Identity,
    ReceiveTimedOut,
    RequestTimedOut,
    SubjectTaken,
    WrongReceiveMode,
    blocking,
)
from waypost.wire.payloads import Signal, SignalType

ANN = Identity.new("agent.ann")
BOB = Identity.new("agent.bob")


async def test_messages_are_sent_received_and_answered(relay: ListeningRelay) -> None:
    def program() -> None:
        with blocking.connect(relay.url, ANN) as ann, blocking.connect(relay.url, BOB) as bob:
            sent = ann.send("agent.bob", {"n": 1})
            message = bob.receive(60)
            assert (message.id, message.payload) == (sent.message_id, {"n": 1})
            with message:
                message.reply("thanks")
            assert ann.delivered(sent.message_id, 5).recipient == "agent.bob"
            reply = ann.receive(60)
            assert (reply.parent, reply.payload) == (sent.message_id, "thanks")
            follow_up = ann.send("agent.carol", "by the way", parent=reply)
            assert follow_up.delivered_to == 1
            assert (ann.subject, ann.is_connected, ann.queue_status) == ("agent.ann", True, 0)

    await asyncio.to_thread(program)
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_the_guard_of_requests_can_be_read_and_reset(relay: ListeningRelay) -> None:
    def program() -> None:
        options = ClientOptions(guard=MessagingGuardConfig(failure_threshold=1))
        with blocking.connect(relay.url, ANN, options=options) as ann:
            with pytest.raises(RequestTimedOut):
                ann.request("agent.down", "?", timeout=0.02)
            assert ann.guard.get_circuit_states() == {"agent.down": CircuitState.OPEN}
            ann.guard.reset_circuit("agent.down")
            assert ann.guard.counters()["circuit_breaker_transitions"] == 2

    await asyncio.to_thread(program)


async def test_an_interrupted_loop_can_be_resumed(relay: ListeningRelay, ann: Agent) -> None:
    await ann.send_many({"subject": "agent.bob", "payload": number} for number in range(30))

    def program() -> list[object]:
        got: list[object] = []
        with blocking.connect(relay.url, BOB) as bob:
            for _ in range(3):
                for message in bob:
                    message.ack()
                    got.append(message.payload)
                    if len(got) % 10 == 0:
                        break
        return got

    assert await asyncio.to_thread(program) == list(range(30))
    await eventually(lambda: relay.waiting("agent.bob") == 0)


async def test_a_block_that_raises_nacks_the_message(relay: ListeningRelay, ann: Agent) -> None:
    await ann.send("agent.bob", "again")

    def program() -> None:
        with blocking.connect(relay.url, BOB) as bob:
            first = bob.receive(60)
            with pytest.raises(ZeroDivisionError), first:
                _ = 1 / 0
            again = bob.receive(60)
            assert again.id == first.id
            assert (first.attempt, again.attempt) == (1, 2)
            again.nack(60, error="not today")

    await asyncio.to_thread(program)
    await eventually(lambda: relay.context.relay.inspect().counts["returned"] == 2)
    found = events(relay.data_dir, "returned")
    assert [one["reason"] for one in found] == [
        "nack: ZeroDivisionError: division by zero",
        "nack: not today",
    ]


async def test_requests_and_their_timeouts(relay: ListeningRelay, bob: Agent) -> None:
    async def answer_once() -> None:
        async with await bob.receive(60) as question:
            await question.reply(question.payload * 2)

    def program() -> None:
        with blocking.connect(relay.url, ANN) as ann:
            assert ann.request("agent.bob", 21).payload == 42
            with pytest.raises(RequestTimedOut):
                ann.request("agent.bob", 21, timeout=0.05)
            with pytest.raises(ReceiveTimedOut):
                ann.receive(0.01)

    answering = asyncio.create_task(answer_once())
    await asyncio.to_thread(program)
    await answering


async def test_many_threads_may_use_one_agent(relay: ListeningRelay) -> None:
    def program() -> None:
        with blocking.connect(relay.url, ANN) as ann:
            threads = [
                threading.Thread(target=ann.send, args=("agent.bob", number)) for number in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await asyncio.to_thread(program)
    assert relay.waiting("agent.bob") == 8


async def test_fetch_sync_and_send_many(relay: ListeningRelay, dial: Dial, ann: Agent) -> None:
    def program() -> None:
        options = ClientOptions(receive="pull")
        with blocking.connect(relay.url, BOB, options=options) as bob:
            wanted = [{"subject": "agent.bob", "payload": "x" * size} for size in (9000, 1, 9000)]
            assert [one.delivered_to for one in bob.send_many(wanted)] == [1, 1, 1]
            sizes = []
            for message in bob.sync(small_max_bytes=8192):
                sizes.append(len(message.payload))
                message.ack()
            assert sizes == [1, 9000, 9000]
            bob.send("agent.bob", "more")
            [message] = bob.fetch(5, wait=60)
            message.nack()
            assert len(bob.fetch(wait=60)) == 1
            with pytest.raises(WrongReceiveMode):
                bob.receive(0.01)

    await asyncio.to_thread(program)


async def test_signals_blocks_and_confirmations(relay: ListeningRelay) -> None:
    signal = Signal(
        type=SignalType.TYPING,
        state="writing",
        endpoint_subject="agent.ann",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )

    def program() -> None:
        heard = threading.Event()
        problems: list[Exception] = []

        def handler(sender: str, _: Signal) -> None:
            try:
                bob.send("agent.ann", "from a handler")
            except ClientError as problem:
                problems.append(problem)
            heard.set()

        with blocking.connect(relay.url, ANN) as ann, blocking.connect(relay.url, BOB) as bob:
            stop = bob.on_signal(handler)
            assert ann.signal("agent.bob", signal)
            assert heard.wait(60)
            stop()
            assert "own thread" in str(problems[0])
            ann.send("agent.bob", "wanted")
            wanted = bob.receive(60)
            bob.block("agent.ann")
            confirmations = ann.confirmations()
            sent = ann.send("agent.bob", "unwanted")
            eventually_blocking(lambda: bob.blocked_count == 1, "the message to arrive")
            wanted.ack()
            next(confirmations)
            assert next(confirmations).message_id == sent.message_id
            bob.unblock("agent.ann")
            bob.trust(ANN.card)
            ann.send("agent.bob", "sealed", seal_to=BOB.card)
            assert bob.receive(60).payload == "sealed"

    await asyncio.to_thread(program)


async def test_closing_wakes_a_call_in_another_thread(relay: ListeningRelay) -> None:
    def program() -> None:
        seen: list[object] = []
        with blocking.connect(relay.url, ANN) as ann:
            reader = threading.Thread(target=lambda: seen.extend(ann))
            reader.start()
            ann.close()
            reader.join(60)
            assert not reader.is_alive()
            with pytest.raises(AgentClosed):
                ann.send("agent.bob", 1)
        with pytest.raises(AgentClosed):
            ann.send("agent.bob", 1)
        assert seen == []

    await asyncio.to_thread(program)


async def test_a_failed_connection_raises_and_leaves_no_thread(
    relay: ListeningRelay, identities: Callable[[str], Identity]
) -> None:
    def program() -> None:
        with blocking.connect(relay.url, ANN):
            with pytest.raises(AlreadyConnected), blocking.connect(relay.url, ANN):
                pass
            with (
                pytest.raises(SubjectTaken),
                blocking.connect(relay.url, Identity.new("agent.ann")),
            ):
                pass

    await asyncio.to_thread(program)
    assert not [one for one in threading.enumerate() if one.name == "waypost-agent"]
