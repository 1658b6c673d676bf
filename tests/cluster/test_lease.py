"""The lease of a partition, in a bucket of a real server."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.harness.nats_server import NatsServer
from waypost.cluster.lease import Lease, open_lease
from waypost.cluster.streams import connect, disconnect

pytestmark = pytest.mark.process
NUMBERS = itertools.count()
Open = Callable[[str], Awaitable[Lease]]


@pytest.fixture
async def opened(nats_server: NatsServer) -> AsyncIterator[Open]:
    """Opens one lease for a node; it lasts longer than the test."""
    client, cluster = await connect([nats_server.url]), f"lease-{next(NUMBERS)}"

    async def open_(node: str) -> Lease:
        return await open_lease(client, cluster, 0, node, lease_s=600.0, replicas=1)

    yield open_
    await disconnect(client)


async def test_one_node_holds_a_lease_until_it_releases_it(opened: Open) -> None:
    first, second = await opened("first"), await opened("second")
    assert [await first.hold(), await second.hold(), await first.hold()] == [True, False, True]
    await first.release()
    assert [await second.hold(), await first.hold()] == [True, False]


async def test_a_node_that_was_killed_holds_its_lease_when_it_is_started_again(
    opened: Open,
) -> None:
    assert await (await opened("first")).hold()
    restarted, other = await opened("first"), await opened("second")
    assert not await other.hold()
    assert [await restarted.hold(), await restarted.hold()] == [True, True]


async def test_a_renewal_without_an_answer_does_not_cost_the_lease(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = await opened("first"), await opened("second")
    assert await lease.hold()
    update = lease._bucket.update

    async def unanswered(*arguments: Any) -> int:
        await update(*arguments)
        raise TimeoutError

    monkeypatch.setattr(lease._bucket, "update", unanswered)
    assert not await lease.hold()
    monkeypatch.undo()
    assert [await lease.hold(), await other.hold()] == [True, False]
