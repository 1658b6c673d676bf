"""The front of a node: agents and callers find the owner of their partition through any node."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from tests.harness.listening_relay import served_settings, sigterm_ignored
from waypost.client import CannotConnect, ClientOptions, Identity, connect
from waypost.client.http import HttpClient, RemoteError
from waypost.cluster.front import Front
from waypost.server.context import ServerContext
from waypost.server.server import (
    Listen,
    ServedRelay,
    make_app,
    open_context,
    serve_app,
    with_connections,
)

PARTITIONS = 2


class FixedPlacement:
    """Each node owns the partition of its own number."""

    def __init__(self, own: int, app: ASGIApp, addresses: list[str]) -> None:
        self._own, self._app, self._addresses = own, app, addresses
        self.partitions = PARTITIONS

    def partition_of(self, subject: str) -> int:
        return len(subject) % PARTITIONS

    def app(self, partition: int) -> ASGIApp | None:
        return self._app if partition == self._own else None

    def address(self, partition: int) -> str:
        return self._addresses[partition]


class Nodes:
    """Two nodes; `urls` and `contexts` are by partition."""

    def __init__(self) -> None:
        self.urls = ["", ""]
        self.contexts: list[ServerContext] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, number: int, context: ServerContext) -> None:
        placement = FixedPlacement(number, with_connections(make_app(context), context), self.urls)
        front = Front(placement, PlainTextResponse("the node itself"), frozenset({"/healthz"}))
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        served = ServedRelay(context)
        serving = serve_app(front, served, Listen(port=0), ready.set_result)
        self._tasks.append(asyncio.create_task(serving))
        self.urls[number] = await ready
        self.contexts.append(context)

    async def stop(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def two_nodes(directory: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes()
    with sigterm_ignored():
        async with AsyncExitStack() as stack:
            for number in range(PARTITIONS):
                opening = open_context(directory / str(number), settings=served_settings())
                await nodes.start(number, await stack.enter_async_context(opening))
            try:
                yield nodes
            finally:
                await nodes.stop()


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with two_nodes(tmp_path) as running:
        yield running


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("subject", ["agent.even", "agent.odd"])
async def test_an_agent_reaches_its_partition_through_any_node(
    nodes: Nodes, asked: int, encoding: str, subject: str
) -> None:
    options = ClientOptions(encoding=encoding)  # type: ignore[arg-type]
    async with connect(nodes.urls[asked], Identity.new(subject), options=options) as agent:
        owner = nodes.contexts[len(subject) % PARTITIONS]
        assert owner.hub.is_connected(subject)
        assert (await agent.send(subject, {"to": "itself"})).delivered_to == 1


async def test_a_token_is_got_from_the_partition_of_its_agent(nodes: Nodes) -> None:
    for url in nodes.urls:
        client = HttpClient(url)
        try:
            token = await asyncio.to_thread(client.log_in, Identity.new("agent.x" + url[-3:]))
            assert token.text
        finally:
            client.close()


async def test_a_request_names_the_node_that_has_its_partition(nodes: Nodes) -> None:
    async with httpx.AsyncClient() as http:
        elsewhere = await http.get(f"{nodes.urls[0]}/p/1/healthz")
        here = await http.get(f"{nodes.urls[1]}/p/1/healthz")
        own = await http.get(f"{nodes.urls[0]}/healthz")
    assert elsewhere.status_code == 307
    assert elsewhere.headers["location"] == f"{nodes.urls[1]}/p/1/healthz"
    assert elsewhere.json()["reason"] == "moved"
    assert elsewhere.json()["url"] == f"{nodes.urls[1]}/p/1"
    assert here.json()["status"] == "up"
    assert own.text == "the node itself"


async def test_a_partition_that_nobody_owns_is_asked_for_again_later(nodes: Nodes) -> None:
    nodes.urls[1], owner = "", nodes.urls[1]
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{nodes.urls[0]}/p/1/v1/stats")
    assert answer.status_code == 503
    assert answer.json()["retry_after_ms"] > 0
    waiting = asyncio.create_task(_connected(nodes.urls[0], "agent.odd"))
    await asyncio.sleep(0)
    nodes.urls[1] = owner
    await waiting


async def _connected(url: str, subject: str) -> None:
    async with connect(url, Identity.new(subject)):
        pass


async def test_there_are_no_other_partitions(nodes: Nodes) -> None:
    odd = ("2/", "9999/", "0x1/", "-1/", "", "01/", "+1/", "%D9%A1/", "1%00/", "99999999999/")
    async with httpx.AsyncClient() as http:
        for path in odd:
            answer = await http.get(f"{nodes.urls[0]}/p/{path}")
            assert answer.status_code == 404, path
            assert answer.json()["error"]


async def test_an_operator_has_to_name_a_partition(nodes: Nodes) -> None:
    headers = {"Authorization": "Bearer of-an-operator"}
    async with httpx.AsyncClient(headers=headers) as http:
        answer = await http.get(f"{nodes.urls[0]}/v1/stats")
    assert answer.status_code == 421
    assert "name one in the URL" in answer.json()["error"]


async def test_what_an_operator_asks_about_a_subject_is_sent_to_its_partition(
    nodes: Nodes,
) -> None:
    headers = {"Authorization": "Bearer of-an-operator"}
    async with httpx.AsyncClient(headers=headers) as http:
        answer = await http.get(f"{nodes.urls[0]}/v1/inbox/agent.odd/peek?limit=1")
        shared = await http.get(f"{nodes.urls[1]}/v1/rules")
        posted = await http.post(f"{nodes.urls[0]}/v1/inbox/agent.odd/ack", json={})
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{nodes.urls[1]}/p/1/v1/inbox/agent.odd/peek?limit=1"
    assert shared.headers["location"] == f"{nodes.urls[0]}/p/0/v1/rules"
    assert posted.status_code == 421
    assert posted.json()["url"] == f"{nodes.urls[1]}/p/1"


async def test_a_redirect_stays_on_the_address_of_the_owner(nodes: Nodes) -> None:
    async with httpx.AsyncClient() as http:
        for path in ("//evil.example/x", "/@evil.example", "/\\evil.example", "/%0d%0aX-Evil: 1"):
            answer = await http.get(f"{nodes.urls[0]}/p/1{path}")
            assert answer.status_code == 307
            assert answer.headers["location"].startswith(f"{nodes.urls[1]}/p/1/")
            assert "X-Evil" not in answer.headers


async def test_a_body_of_any_length_is_not_read(nodes: Nodes) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{nodes.urls[0]}/v1/auth/token", content=b"x" * 1_000_000)
    assert answer.status_code == 413


async def test_a_proof_without_a_subject_is_an_error(nodes: Nodes) -> None:
    async with httpx.AsyncClient() as http:
        for body in (b"{}", b"[]", b'{"subject": "agent.*"}', b'{"subject": 1}', b"\xff"):
            answer = await http.post(f"{nodes.urls[0]}/v1/auth/token", content=body)
            assert answer.status_code == 400


async def test_an_agent_that_knows_one_node_is_not_sent_to_an_unknown_host(nodes: Nodes) -> None:
    nodes.urls[1] = "http://relay.invalid:7171"
    with pytest.raises(CannotConnect, match=r"relay\.invalid.* was not given"):
        await _connected(nodes.urls[0], "agent.odd")
    client = HttpClient(nodes.urls[0])
    try:
        with pytest.raises((CannotConnect, RemoteError), match="was not given"):
            await asyncio.to_thread(client.log_in, Identity.new("agent.odd"))
    finally:
        client.close()
