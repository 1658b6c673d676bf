"""Attacks with the name of a relay: relayed proofs, web pages, rebound host names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.server.conftest import ServeRelay, SocketRelay, dial
from tests.server.sessions.raw_agent import RawAgent
from waypost.client import CannotConnect, Identity, NotAuthenticated, connect
from waypost.client.http import HttpClient, RemoteError
from waypost.server.http.operations import OPERATIONS
from waypost.server.server import Listen
from waypost.wire import frames

EVIL = "evil.example:7171"
HEALTH = ("/healthz", "/readyz")
ROUTES = sorted({(one.method, one.path) for one in OPERATIONS})


@asynccontextmanager
async def http(relay: SocketRelay, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=relay.url, headers=headers, trust_env=False) as client:
        yield client


async def dial_as(host: str, relay: SocketRelay) -> RawAgent:
    """Open a WebSocket to the relay with the Host header `host`."""
    return await dial(host, host="127.0.0.1", port=relay.port)


async def token_request(client: httpx.AsyncClient, origin: str) -> httpx.Response:
    """Pass on a proof that an agent signed for `origin`."""
    nonce = (await client.post("/v1/auth/challenge")).json().get("nonce", "A" * 43)
    proof = Identity.new("agent.victim").prove(nonce, origin)
    body = {
        "subject": proof.subject,
        "public_key": proof.public_key,
        "signature": proof.signature,
        "nonce": nonce,
    }
    return await client.post("/v1/auth/token", json=body)


@asynccontextmanager
async def forwarder(relay: SocketRelay, rewrites_host: bool) -> AsyncIterator[str]:
    """Forward connections to the relay; give the address of the forwarder."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                if rewrites_host:
                    piece = piece.replace(address.encode(), relay.address.encode())
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", relay.port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(carry(reader, far_writer))
            tasks.create_task(carry(far_reader, writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield address


# Proofs


@pytest.mark.parametrize(("host", "status"), [(EVIL, 421), ("", 401)])
async def test_a_proof_for_another_relay_gives_no_token(
    served: SocketRelay, host: str, status: int
) -> None:
    async with http(served, Host=host or served.address) as client:
        rejected = await token_request(client, EVIL)
    assert rejected.status_code == status
    assert not served.context.authenticator.has_authenticated("agent.victim")


async def test_a_proof_for_another_relay_opens_no_websocket(served: SocketRelay) -> None:
    with pytest.raises(InvalidStatus) as rejected:
        await dial_as(EVIL, served)
    assert rejected.value.response.status_code == 421
    agent = await served.dial()
    nonce = (await agent.expect(frames.Challenge)).nonce
    await agent.send_frame(Identity.new("agent.victim").prove(nonce, EVIL))
    assert (await agent.end()).code == frames.CLOSE_NOT_AUTHENTICATED


async def test_a_proof_for_one_name_is_invalid_under_another(served: SocketRelay) -> None:
    async with http(served, Host=f"localhost:{served.port}") as client:
        assert (await token_request(client, served.address)).status_code == 401
        assert (await token_request(client, f"localhost:{served.port}")).status_code == 200


async def test_a_forwarder_in_front_of_the_client_gets_nothing(served: SocketRelay) -> None:
    async with forwarder(served, rewrites_host=False) as address:
        with pytest.raises(CannotConnect, match=f"start it with --origin {address}"):
            async with connect(f"ws://{address}", Identity.new("agent.victim")):
                pass
    assert not served.context.authenticator.has_authenticated("agent.victim")


async def test_a_forwarder_that_rewrites_the_host_gets_nothing(served: SocketRelay) -> None:
    async with forwarder(served, rewrites_host=True) as address:
        with pytest.raises(NotAuthenticated):
            async with connect(f"ws://{address}", Identity.new("agent.victim")):
                pass
    assert not served.context.authenticator.has_authenticated("agent.victim")


async def test_the_command_line_names_the_option(served: SocketRelay) -> None:
    async with forwarder(served, rewrites_host=False) as address:
        client = HttpClient(f"http://{address}")
        with pytest.raises(RemoteError, match=f"start it with --origin {address}"):
            await asyncio.to_thread(client.log_in, Identity.new("agent.victim"))
        client.close()


async def test_the_operator_names_the_relay(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(Listen(origins=("127.0.0.1", "https://relay.example")))
    for host, origin in (
        ("relay.example", "relay.example:443"),
        ("relay.example:443", "relay.example:443"),
        (f"127.0.0.1:{relay.port}", f"127.0.0.1:{relay.port}"),
    ):
        agent = await dial_as(host, relay)
        agent.transport.origin = origin
        await agent.authenticate(Identity.new("agent.a" + host.encode().hex()))
        await agent.disconnect()
    async with http(relay, Host=f"localhost:{relay.port}") as client:
        assert (await client.get("/metrics")).status_code == 421


# Hosts


@pytest.mark.parametrize("host", [EVIL, "127.0.0.1", "127.0.0.1:1", "localhost.evil.example"])
async def test_no_route_answers_to_the_name_of_another(served: SocketRelay, host: str) -> None:
    async with http(served, Host=host) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path)
            expected = 200 if path in HEALTH else 421
            assert answer.status_code == expected, (method, path, answer.text)
        assert answer.json()["reason"] == "misdirected"
        assert "--origin" in answer.json()["error"]
        assert (await client.get("/no/such/path")).status_code == 421


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /metrics HTTP/1.0\r\n",
        b"GET /metrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1\r\nHost:\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: OWN\r\nHost: OWN\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: OWN\r\nHost: evil.example\r\n",
        b"GET http://OWN/metrics HTTP/1.1\r\nHost: evil.example\r\n",
    ],
)
async def test_a_request_names_exactly_one_host(served: SocketRelay, lines: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    own = lines.replace(b"OWN", served.address.encode())
    writer.write(own + b"Connection: close\r\n\r\n")
    status = await reader.readline()
    assert status.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400")), status
    writer.close()


async def test_on_all_addresses_the_one_that_is_reached_is_a_name(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(Listen(host="0.0.0.0"))
    agent = await dial(f"127.0.0.2:{relay.port}")
    await agent.authenticate(Identity.new("agent.a"))
    await agent.disconnect()
    for host, reached, status in (
        ("127.0.0.1", "127.0.0.1", 200),
        ("localhost", "127.0.0.1", 200),
        ("127.0.0.2", "127.0.0.1", 421),
        ("127.0.0.1", "127.0.0.2", 421),
        ("localhost", "127.0.0.2", 421),
    ):
        url, named = f"http://{reached}:{relay.port}", {"Host": f"{host}:{relay.port}"}
        async with httpx.AsyncClient(base_url=url, headers=named, trust_env=False) as client:
            assert (await client.get("/metrics")).status_code == status, (host, reached)


# Web pages


@pytest.mark.parametrize(
    "page",
    ["https://evil.example", "http://localhost:3000", "null", "", "http://127.0.0.1.evil.example"],
)
async def test_a_foreign_page_can_call_no_route(served: SocketRelay, page: str) -> None:
    async with http(served, Origin=page) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path)
            assert answer.status_code == 403, (method, path, answer.text)
        assert "web pages of other origins" in answer.json()["error"]
        assert "access-control-allow-origin" not in answer.headers


async def test_a_foreign_page_can_open_no_websocket(
    served: SocketRelay, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus) as rejected:
        await dial(served.address, origin="https://evil.example")
    assert rejected.value.response.status_code == 403
    assert b"foreign origin" in (rejected.value.response.body or b"")
    await served.stop()
    assert [one for one in caplog.records if one.levelname in ("ERROR", "WARNING")] == []


async def test_a_page_whose_name_was_rebound_reaches_nothing(served: SocketRelay) -> None:
    """The page of evil.example, after its name resolves to this machine."""
    evil = f"evil.example:{served.port}"
    async with http(served, Host=evil) as client:
        assert (await client.get("/")).status_code == 421
        same = {"Origin": f"http://{evil}"}
        assert (await client.post("/v1/messages", headers=same)).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
async def test_a_foreign_page_can_load_nothing(served: SocketRelay, site: str) -> None:
    """Images and scripts have no Origin header; a page on another port is of the same site."""
    image = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    async with http(served) as client:
        for path in ("/", "/metrics", "/healthz"):
            assert (await client.get(path, headers=image)).status_code == 403
            assert (await client.get(path, headers=link)).status_code == 200


async def test_the_pages_of_the_relay_can_call_it(served: SocketRelay) -> None:
    for name in ("127.0.0.1", "localhost"):
        own = f"{name}:{served.port}"
        async with http(served, Host=own, Origin=f"http://{own}") as client:
            message = {"subject": "agent.a", "payload": 1}
            assert (await client.post("/v1/messages", json=message)).status_code == 200
            for site in ("same-origin", "none"):
                mode = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
                assert (await client.get("/", headers=mode)).status_code == 200
    agent = await dial(served.address, origin=served.url)
    await agent.disconnect()
