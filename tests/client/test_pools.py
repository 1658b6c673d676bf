"""Pools: workers that share one mailbox, each message to one of them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.client.conftest import Dial
from tests.client.tcp_proxy import TcpProxy
from tests.eventually import event_loop_turns, eventually
from tests.harness.listening_relay import ListeningRelay, listening
from waypost.client import Agent, AlreadyConnected, ClientOptions, Identity, blocking, connect
from waypost.client.http import HttpClient
from waypost.wire.http_bodies import LeasedInbox
from waypost.wire.payloads import Signal, SignalType

POOL = "agent.pool"
Join = Callable[..., Awaitable[Agent]]


class Worker:
    """Acknowledges messages as they arrive; `done` are their payloads."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.done: list[object] = []
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async for message in self.agent:
            await asyncio.sleep(0)
            self.done.append(message.payload)
            await message.ack()

    async def stop(self) -> None:
        """Stop working, and keep what was received."""
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def join(
    relay: ListeningRelay, identities: Callable[[str], Identity], stack: AsyncExitStack
) -> Join:
    """Connects one more worker of the pool; options by name."""

    async def call(url: str = "", **options: object) -> Agent:
        chosen = ClientOptions(**options)
        joined = connect(url or relay.url, identities(POOL), shared=True, options=chosen)
        return await stack.enter_async_context(joined)

    return call


@pytest.fixture
async def workers(join: Join) -> AsyncIterator[list[Worker]]:
    """Three workers of one pool."""
    opened = [Worker(await join()) for _ in range(3)]
    yield opened
    for worker in opened:
        await worker.stop()


def done(workers: list[Worker]) -> list[object]:
    return [one for worker in workers for one in worker.done]


async def test_three_workers_process_300_messages_once_each_and_in_equal_shares(
    ann: Agent, workers: list[Worker], relay: ListeningRelay
) -> None:
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(300)])
    await eventually(lambda: relay.waiting(POOL) == 0, "all messages to be acknowledged")
    assert Counter(done(workers)) == Counter(range(300))
    assert all(60 <= len(worker.done) <= 140 for worker in workers), Counter(
        len(worker.done) for worker in workers
    )


async def test_messages_that_arrive_together_go_to_different_workers(
    ann: Agent, join: Join
) -> None:
    agents = [await join(prefetch_max=10) for _ in range(3)]
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(3)])
    got = [await agent.receive(60) for agent in agents]
    assert {one.payload for one in got} == {0, 1, 2}


async def test_a_worker_that_does_not_acknowledge_holds_back_no_more_than_its_prefetch(
    ann: Agent, workers: list[Worker], join: Join
) -> None:
    idle = await join()
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(100)])
    held = await idle.receive(60)
    await eventually(lambda: len(done(workers)) == 99, "the others to do the rest")
    await held.ack()


async def test_the_messages_of_a_lost_worker_go_to_the_others(
    ann: Agent, workers: list[Worker], join: Join, proxy: TcpProxy, relay: ListeningRelay
) -> None:
    lost = await join(proxy.url, prefetch_max=10)
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(300)])
    held = await lost.receive_many(5, 5)
    assert held
    proxy.is_closed = True
    proxy.cut()
    await eventually(lambda: relay.waiting(POOL) == 0, "all messages to be acknowledged")
    assert Counter(done(workers)) == Counter(range(300))


async def test_a_shared_connection_beside_an_exclusive_one_is_rejected(
    dial: Dial, join: Join
) -> None:
    async with dial(POOL):
        with pytest.raises(AlreadyConnected, match=r"connect all of them with shared=True"):
            await join()


async def test_an_exclusive_connection_beside_shared_ones_is_rejected(
    dial: Dial, join: Join
) -> None:
    await join()
    with pytest.raises(AlreadyConnected, match=r"shared.*connect with shared=True"):
        async with dial(POOL):
            pass


async def test_an_answer_goes_to_the_worker_that_asked_while_it_works_on_a_message(
    ann: Agent, bob: Agent, join: Join
) -> None:
    agents = [await join() for _ in range(3)]
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(9)])
    for agent in agents:
        await agent.receive(60)  # its prefetch is used up

    async def answer() -> None:
        async for message in bob:
            await message.reply(f"re: {message.payload}")
            await message.ack()

    answering = asyncio.create_task(answer())
    for number, agent in enumerate(agents):
        reply = await agent.request("agent.bob", number, timeout=60)
        assert reply.payload == f"re: {number}"
    answering.cancel()


async def test_a_confirmation_goes_to_the_worker_that_sent_the_message(
    bob: Agent, join: Join
) -> None:
    agents = [await join() for _ in range(3)]
    for agent in agents:
        sent = await agent.send("agent.bob", 1)
        await (await bob.receive(60)).ack()
        assert (await agent.delivered(sent.message_id, timeout=60)).recipient == "agent.bob"


async def test_a_signal_goes_to_every_worker(ann: Agent, join: Join) -> None:
    agents = [await join() for _ in range(3)]
    heard: list[int] = []
    for number, agent in enumerate(agents):
        agent.on_signal(lambda sender, signal, number=number: heard.append(number))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    stop = Signal(type=SignalType.PROGRESS, state="stop", endpoint_subject=POOL, timestamp=now)
    ann.signal(POOL, stop)
    await eventually(lambda: sorted(heard) == [0, 1, 2], "each worker to get the signal")


async def test_a_fetch_takes_a_share_of_the_messages(ann: Agent, join: Join) -> None:
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(30)])
    agents = [await join(receive="pull") for _ in range(3)]
    first = await agents[0].fetch(50)
    assert [one.payload for one in first] == list(range(10))
    rest = [await agent.fetch(50) for agent in agents[1:]]
    assert all(rest)


async def test_waiting_fetches_get_one_message_each(ann: Agent, join: Join) -> None:
    agents = [await join(receive="pull") for _ in range(3)]
    fetching = [asyncio.create_task(agent.fetch(50, wait=60)) for agent in agents]
    await event_loop_turns()
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(3)])
    got = [one.payload for fetched in await asyncio.gather(*fetching) for one in fetched]
    assert sorted(got) == [0, 1, 2]


async def test_a_fetch_of_answers_leaves_other_messages_to_the_others(
    ann: Agent, bob: Agent, join: Join
) -> None:
    asker, other = [await join(receive="pull") for _ in range(2)]
    await ann.send(POOL, "work")
    await asker.send("agent.bob", "?")
    question = await bob.receive(60)
    await question.reply("!")
    await question.ack()
    [answer] = await asker.fetch(wait=60, answers=True)
    assert answer.payload == "!"
    assert await asker.fetch(answers=True) == []
    [work] = await other.fetch()
    assert work.payload == "work"


async def test_leases_over_http_compete_with_a_pool(
    ann: Agent, join: Join, relay: ListeningRelay, identities: Callable[[str], Identity]
) -> None:
    busy = await join()
    await ann.send_many([{"subject": POOL, "payload": number} for number in range(2)])
    assert (await busy.receive(60)).payload == 0

    def lease() -> list[object]:
        with closing(HttpClient(relay.url)) as api:
            token = api.log_in(identities(POOL))
            found = api.get(f"/v1/inbox/{POOL}", LeasedInbox, token=token)
            return [one.payload for one in found.messages]

    assert await asyncio.to_thread(lease) == [1]


async def test_a_dropped_message_of_a_blocked_sender_does_not_keep_others_away(
    ann: Agent, bob: Agent, join: Join
) -> None:
    worker = await join()
    worker.block("agent.ann")
    await ann.send(POOL, "buy now")
    await bob.send(POOL, "please")
    assert (await worker.receive(60)).payload == "please"


async def test_blocking_workers_share_a_mailbox(relay: ListeningRelay) -> None:
    def program() -> None:
        identity = Identity.new(POOL)
        with (
            blocking.connect(relay.url, identity, shared=True) as first,
            blocking.connect(relay.url, identity, shared=True) as second,
        ):
            first.send_many([{"subject": POOL, "payload": number} for number in range(2)])
            got = [first.receive(60), second.receive(60)]
            assert {one.payload for one in got} == {0, 1}
            for message in got:
                message.ack()

    await asyncio.to_thread(program)


async def test_the_messages_of_a_stuck_worker_go_to_another_and_it_is_counted(
    tmp_path: Path, identities: Callable[[str], Identity]
) -> None:
    async with (
        listening(tmp_path / "stuck", lease_timeout_ms=1_000) as relay,
        connect(relay.url, identities(POOL), shared=True) as stuck,
        connect(relay.url, identities("agent.ann")) as ann,
    ):
        await ann.send(POOL, "work")
        assert (await stuck.receive(60)).payload == "work"
        async with connect(relay.url, identities(POOL), shared=True) as other:
            async with await other.receive(60) as message:
                assert message.payload == "work"
                assert message.attempt >= 2
            metrics = await asyncio.to_thread(httpx.get, f"{relay.url}/metrics")
            assert "waypost_stuck_connections 1.0" in metrics.text
