"""Requests of the asyncio client: replies, timeouts, and the guard."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import closing

import pytest

from tests.client.conftest import Dial
from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from waypost import (
    CircuitState,
    GuardRejectionReason,
    MessagingGuardConfig,
    load_messaging_guard_config,
)
from waypost.client import (
    Agent,
    ClientError,
    Identity,
    ReceiveTimedOut,
    RequestBlocked,
    RequestFailed,
    RequestRejected,
    RequestTimedOut,
    WrongReceiveMode,
)
from waypost.client.http import HttpClient
from waypost.wire.http_bodies import CountResponse, LeasedInbox


@pytest.fixture
async def echo(bob: Agent) -> AsyncIterator[Agent]:
    """An agent that answers every request."""

    async def answer() -> None:
        async for message in bob:
            async with message:
                await message.reply({"echo": message.payload})

    answering = asyncio.create_task(answer())
    yield bob
    answering.cancel()
    await asyncio.wait([answering])


@pytest.mark.usefixtures("echo")
async def test_every_request_gets_its_own_reply(ann: Agent, relay: ListeningRelay) -> None:
    replies = await asyncio.gather(*(ann.request("agent.bob", number) for number in range(8)))
    assert [reply.payload for reply in replies] == [{"echo": number} for number in range(8)]
    await eventually(lambda: relay.waiting("agent.ann") == 0)  # replies need no ack
    with pytest.raises(ReceiveTimedOut):
        await ann.receive(0.05)


async def test_a_request_without_a_reply_times_out_and_a_late_reply_is_a_message(
    ann: Agent, bob: Agent
) -> None:
    with pytest.raises(RequestTimedOut, match=r"no reply from agent\.bob"):
        await ann.request("agent.bob", "?", timeout=0.05)
    question = await bob.receive(60)
    await question.reply("sorry, I slept")
    late = await ann.receive(60)
    assert (late.parent, late.payload) == (question.id, "sorry, I slept")


async def test_a_request_to_an_unknown_endpoint_is_rejected(ann: Agent) -> None:
    with pytest.raises(RequestRejected, match="no such endpoint") as raised:
        await ann.request("nobody.here", "?")
    assert raised.value.result.delivered_to == 0


@pytest.mark.usefixtures("echo")
async def test_the_guard_limits_the_rate_of_requests(dial: Dial) -> None:
    guard = MessagingGuardConfig(rate_limit_per_window=2)
    async with dial("agent.ann", guard=guard) as ann:
        for _ in range(2):
            await ann.request("agent.bob", "?")
        with pytest.raises(RequestBlocked) as raised:
            await ann.request("agent.bob", "?")
    assert raised.value.reason is GuardRejectionReason.RATE_LIMITED
    assert 0 < raised.value.retry_after_ms <= guard.rate_limit_window_ms


@pytest.mark.usefixtures("echo")
async def test_the_error_states_the_default_limit_and_the_setting_that_changes_it(
    ann: Agent,
) -> None:
    for _ in range(10):
        await ann.request("agent.bob", "?")
    with pytest.raises(RequestBlocked, match=r"at most 10 requests of one agent in 60 s") as raised:
        await ann.request("agent.bob", "?")
    assert "rate_limit_per_window" in str(raised.value)
    assert "AGENT_RATE_LIMIT_PER_MIN" in str(raised.value)


async def test_the_error_of_an_open_circuit_states_its_settings(dial: Dial) -> None:
    async with dial("agent.ann", guard=MessagingGuardConfig(failure_threshold=1)) as ann:
        with pytest.raises(RequestTimedOut):
            await ann.request("agent.down", "?", timeout=0.02)
        with pytest.raises(RequestBlocked, match=r"after 1 failure in a row, for 30 s") as raised:
            await ann.request("agent.down", "?")
    assert "failure_threshold" in str(raised.value)
    assert "AGENT_CB_FAILURE_THRESHOLD" in str(raised.value)


async def test_the_guard_of_an_agent_can_be_read_and_reset(dial: Dial) -> None:
    async with dial("agent.ann", guard=MessagingGuardConfig(failure_threshold=1)) as ann:
        with pytest.raises(RequestTimedOut):
            await ann.request("agent.down", "?", timeout=0.02)
        with pytest.raises(RequestBlocked):
            await ann.request("agent.down", "?")
        assert ann.guard.get_circuit_states() == {"agent.down": CircuitState.OPEN}
        assert ann.guard.calls_in_window("agent.ann") == 1
        assert ann.guard.counters()["circuit_open_rejections"] == 1
        ann.guard.reset_circuit("agent.down")
        with pytest.raises(RequestTimedOut):
            await ann.request("agent.down", "?", timeout=0.02)
        ann.guard.reset_all()
        assert ann.guard.get_circuit_states() == {}
        assert ann.guard.calls_in_window("agent.ann") == 0


async def test_the_client_reads_the_variables_of_the_environment_when_asked(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_RATE_LIMIT_PER_MIN", "1")
    asked = load_messaging_guard_config(os.environ)
    async with dial("agent.ann", guard=asked) as limited, dial("agent.bob") as other:
        assert limited.guard.config.rate_limit_per_window == 1
        assert other.guard.config.rate_limit_per_window == 10
        with pytest.raises(RequestTimedOut):
            await limited.request("agent.down", "?", timeout=0.02)
        with pytest.raises(RequestBlocked, match="at most 1 request of one agent in 60 s"):
            await limited.request("agent.down", "?")


async def test_failing_requests_open_the_circuit_to_that_agent_only(
    dial: Dial, relay: ListeningRelay
) -> None:
    guard = MessagingGuardConfig(failure_threshold=2, rate_limit_per_window=100)
    async with dial("agent.ann", guard=guard) as ann:
        for _ in range(2):
            with pytest.raises(RequestTimedOut):
                await ann.request("agent.down", "?", timeout=0.02)
        stored = relay.waiting("agent.down")
        with pytest.raises(RequestBlocked) as raised:
            await ann.request("agent.down", "?", timeout=0.02)
        assert raised.value.reason is GuardRejectionReason.CIRCUIT_OPEN
        assert relay.waiting("agent.down") == stored  # no request was sent
        with pytest.raises(RequestTimedOut):
            await ann.request("agent.other", "?", timeout=0.02)


@pytest.mark.usefixtures("echo")
async def test_a_reply_counts_as_a_success(dial: Dial) -> None:
    guard = MessagingGuardConfig(failure_threshold=2, rate_limit_per_window=100)
    async with dial("agent.ann", guard=guard) as ann:
        for _ in range(4):  # one failure at a time never opens the circuit
            with pytest.raises(RequestTimedOut):
                await ann.request("agent.bob", "?", timeout=0)
            await ann.request("agent.bob", "?")


async def test_a_request_needs_push_mode(dial: Dial) -> None:
    async with dial("agent.ann", receive="pull") as ann:
        with pytest.raises(WrongReceiveMode):
            await ann.request("agent.bob", "?")


# --- Requests that fail --------------------------------------------------------------------------


async def test_a_request_that_its_recipient_fails_raises_the_error_at_once(
    ann: Agent, bob: Agent, relay: ListeningRelay
) -> None:
    asking = asyncio.create_task(ann.request("agent.bob", "?", timeout=3600))
    question = await bob.receive(60)
    with pytest.raises(KeyError):
        async with question:
            raise KeyError("user")
    with pytest.raises(RequestFailed, match=r"agent\.bob failed: KeyError: 'user'") as caught:
        async with asyncio.timeout(60):
            await asking
    assert isinstance(caught.value, ClientError)
    assert caught.value.error == "KeyError: 'user'"
    [dead] = await relay.context.relay.dead_letters("agent.bob")
    assert dead.reason == "request failed: KeyError: 'user'"


async def test_an_error_over_http_fails_the_request_too(
    ann: Agent, relay: ListeningRelay, identities: Callable[[str], Identity]
) -> None:
    relay.context.relay.register_endpoint("agent.poller")
    asking = asyncio.create_task(ann.request("agent.poller", "?", timeout=3600))

    def fail() -> None:
        with closing(HttpClient(relay.url)) as api:
            token = api.log_in(identities("agent.poller"))
            inbox = api.get("/v1/inbox/agent.poller", LeasedInbox, token=token, wait=5)
            body = {"ids": [inbox.messages[0].id], "error": "no"}
            path = "/v1/inbox/agent.poller/nack"
            api.post(path, body, CountResponse, token=token)

    await asyncio.to_thread(fail)
    with pytest.raises(RequestFailed, match=r"agent\.poller failed: no"):
        async with asyncio.timeout(60):
            await asking


async def test_a_message_that_nobody_waits_for_is_delivered_again(ann: Agent, bob: Agent) -> None:
    await ann.send("agent.bob", "work")
    first = await bob.receive(60)
    await first.nack(error="not yet")
    assert (await bob.receive(60)).id == first.id


async def test_an_agent_that_pulls_can_wait_for_failures(dial: Dial, bob: Agent) -> None:
    async with dial("agent.ann", receive="pull") as ann:
        failures = ann.failures()
        sent = await ann.send("agent.bob", "?", reply_within=3600)
        await (await bob.receive(60)).nack(error="cannot")
        async with asyncio.timeout(60):
            failure = await anext(failures)
        assert (failure.message_id, failure.error) == (sent.message_id, "cannot")


async def test_the_relay_forgets_what_an_agent_waits_for_when_it_leaves(
    dial: Dial, bob: Agent, relay: ListeningRelay
) -> None:
    async with dial("agent.ann", receive="pull") as ann:
        await ann.send("agent.bob", "?", reply_within=3600)
        first = await bob.receive(60)
    await eventually(lambda: not relay.context.hub.is_connected("agent.ann"))
    await first.nack(error="cannot")
    assert (await bob.receive(60)).id == first.id


async def test_an_agent_waits_for_the_newest_of_many_requests(dial: Dial, bob: Agent) -> None:
    async with dial("agent.ann", receive="pull") as ann:
        for number in range(257):
            await ann.send("agent.bob", number, reply_within=3600)
        first = await bob.receive(60)
        await first.nack(error="forgotten: it will come again")
        failures = ann.failures()
        second = await bob.receive(60)
        await second.nack(error="awaited")
        async with asyncio.timeout(60):
            failure = await anext(failures)
        assert (failure.message_id, failure.error) == (second.id, "awaited")
