"""The card of a connected agent: replaced while it is connected, and kept across connections."""

import asyncio

import pytest

from tests.client.conftest import Dial
from tests.client.tcp_proxy import TcpProxy
from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from waypost.client import Agent, AgentCard, Identity, OperationRejected, blocking
from waypost.policy.bounds import name_changes_per_minute_max
from waypost.policy.errors import InvalidInput

FIRST = AgentCard(description="Adds numbers.", skills=("sum",))
SECOND = AgentCard(description="Adds and divides.", skills=("sum", "mean"), version="2")


def card_of(relay: ListeningRelay, subject: str) -> AgentCard | None:
    binding = relay.context.authenticator.bindings.get(subject)
    assert binding is not None
    return binding.card


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_a_connected_agent_replaces_and_removes_its_card(
    relay: ListeningRelay, dial: Dial, encoding: str
) -> None:
    async with dial("agent.ann", encoding=encoding, card=FIRST) as ann:
        await ann.set_card(SECOND)
        assert card_of(relay, "agent.ann") == SECOND
        await ann.set_card(AgentCard())
        assert card_of(relay, "agent.ann") is None


async def test_a_reconnect_does_not_bring_the_earlier_card_back(
    relay: ListeningRelay, dial: Dial, proxy: TcpProxy
) -> None:
    async with dial("agent.ann", url=proxy.url, card=FIRST) as ann:
        await ann.set_card(SECOND)
        proxy.cut()
        await ann.send("agent.ann", "connected again")
        assert card_of(relay, "agent.ann") == SECOND


async def test_a_card_that_is_set_while_the_connection_is_lost_follows(
    relay: ListeningRelay, dial: Dial, proxy: TcpProxy
) -> None:
    async with dial("agent.ann", url=proxy.url) as ann:
        proxy.cut()
        await eventually(lambda: not ann.is_connected, "the loss")
        await ann.set_card(FIRST)
        assert card_of(relay, "agent.ann") == FIRST


async def test_changes_are_limited_and_a_rejected_card_is_not_kept(
    relay: ListeningRelay, ann: Agent
) -> None:
    for number in range(name_changes_per_minute_max):
        await ann.set_card(AgentCard(version=str(number)))
    await ann.set_card(AgentCard(version=str(number)))  # no change
    with pytest.raises(OperationRejected, match="card not kept") as rejected:
        await ann.set_card(SECOND)
    assert 0 < rejected.value.retry_after_ms <= 60_000
    assert card_of(relay, "agent.ann") == AgentCard(version=str(number))
    assert (await ann.send("agent.ann", "still connected")).delivered_to == 1


async def test_what_is_no_card_is_rejected_before_it_is_sent(ann: Agent) -> None:
    with pytest.raises(InvalidInput, match="AgentCard"):
        await ann.set_card({"skills": ["sum"]})  # type: ignore[arg-type]


async def test_the_blocking_client_sets_its_card(relay: ListeningRelay) -> None:
    def act() -> None:
        with blocking.connect(relay.url, Identity.new("agent.eve")) as eve:
            eve.set_card(FIRST)

    await asyncio.to_thread(act)
    assert card_of(relay, "agent.eve") == FIRST
