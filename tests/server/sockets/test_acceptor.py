"""The limit of connections: strangers cannot use it up, and reaching it stops nothing."""

import asyncio
import errno
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay, serving
from tests.server.sockets.raw_connection import RawConnection
from waypost.client.identity import Identity
from waypost.policy.names import network_of
from waypost.server.context import ServeOptions
from waypost.server.sockets.acceptor import Acceptor, most_expendable
from waypost.wire import frames

GET = b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n"


@dataclass(frozen=True)
class Idle:
    """A connection as the acceptor sees it."""

    client: tuple[str, int]
    since: float
    is_expendable: bool = True

    def expire(self, now: float) -> None: ...
    def abort(self) -> None: ...


async def served_with(serve_relay: ServeRelay, connections_max: int) -> SocketRelay:
    relay = await serve_relay()
    await relay.stop()
    relay.options = ServeOptions(connections_max=connections_max)
    await relay.start()
    return relay


async def assert_answers(relay: SocketRelay) -> None:
    connection = await RawConnection.open(relay.address)
    await connection.send(GET % relay.address.encode())
    assert (await connection.response()).status == 200
    connection.close()


async def test_idle_sockets_lock_out_neither_agents_nor_requests(serve_relay: ServeRelay) -> None:
    relay = await served_with(serve_relay, 16)
    agent = await relay.connect("agent.a")
    idle = [await RawConnection.open(relay.address) for _ in range(100)]
    other = await relay.connect("agent.b")
    await assert_answers(relay)
    for one in (agent, other):
        assert isinstance(await one.send("agent.void", 1), frames.SendResult)
        await one.disconnect()
    assert await idle[0].ended() == b""
    for one in idle:
        one.close()


async def test_unauthenticated_websockets_lock_out_no_agent(serve_relay: ServeRelay) -> None:
    relay = await served_with(serve_relay, 16)
    silent = [await RawConnection.open(relay.address) for _ in range(40)]
    for one in silent:
        await one.send(
            b"GET /v1/connect HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            % relay.address.encode()
        )
    agent = await relay.connect("agent.a")
    assert isinstance(await agent.send("agent.void", 1), frames.SendResult)
    await agent.disconnect()
    for one in silent:
        one.close()


async def test_half_sent_bodies_lock_out_no_request(serve_relay: ServeRelay) -> None:
    relay = await served_with(serve_relay, 16)
    slow = [await RawConnection.open(relay.address) for _ in range(40)]
    for one in slow:
        await one.send(
            b"POST /v1/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{" % relay.address.encode()
        )
    await assert_answers(relay)
    for one in slow:
        one.close()


async def test_if_all_connections_are_in_use_a_new_one_is_closed_at_once(
    serve_relay: ServeRelay,
) -> None:
    relay = await served_with(serve_relay, 2)
    agents = [await relay.connect(f"agent.{name}") for name in "ab"]
    third = await RawConnection.open(relay.address)
    assert await third.ended() == b""
    for agent in agents:
        assert isinstance(await agent.send("agent.void", 1), frames.SendResult)
        await agent.disconnect()
    await eventually(lambda: len(relay.context.hub) == 0, "the agents to be gone")
    await assert_answers(relay)


async def test_agents_leave_some_connections_to_other_callers(serve_relay: ServeRelay) -> None:
    relay = await served_with(serve_relay, 8)
    agents = [await relay.connect(f"agent.number-{number}") for number in range(7)]
    late = await relay.dial()
    challenge = await late.expect(frames.Challenge)
    proof = Identity.new("agent.late").prove(challenge.nonce, relay.address)
    await late.send_frame(proof)
    assert (await late.end()).code == 1013
    await assert_answers(relay)
    for agent in agents:
        await agent.disconnect()


class FailingListener(socket.socket):
    """A listening socket whose `accept` fails the first times."""

    failures = 3

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_running_out_of_descriptors_pauses_accepting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waypost.server.sockets.acceptor.PAUSE_S", 0.01)
    made = asyncio.Event()

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.set()
            transport.close()

    with FailingListener() as listener:
        listener.bind(("127.0.0.1", 0))
        acceptor = Acceptor(listener, Greeter, set(), connections_max=2)
        acceptor.start(5)
        connection = await RawConnection.open(f"127.0.0.1:{listener.getsockname()[1]}")
        async with asyncio.timeout(60):
            await made.wait()
        assert await connection.ended() == b""
        assert listener.failures == 0
        acceptor.close()


@pytest.mark.parametrize("name", ["idle", "in_use"])
def test_the_same_on_uvloop(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "data") as serve_relay:
            if name == "idle":
                await test_idle_sockets_lock_out_neither_agents_nor_requests(serve_relay)
            else:
                await test_if_all_connections_are_in_use_a_new_one_is_closed_at_once(serve_relay)

    uvloop.run(main())


def test_a_crowd_of_one_network_displaces_none_of_another() -> None:
    friend = Idle(("192.0.2.1", 1), since=0)
    crowd = [Idle(("192.0.2.9", port), since=port) for port in range(1, 100)]
    assert most_expendable([friend, *crowd], 3) == crowd[:3]


def test_of_equal_networks_the_oldest_is_displaced() -> None:
    idle = [Idle((f"192.0.2.{number}", 1), since=number) for number in range(9)]
    assert most_expendable(reversed(idle), 2) == idle[:2]


@given(
    st.lists(st.builds(Idle, st.tuples(st.sampled_from("abc"), st.just(1)), st.floats(0, 9))),
    st.integers(1, 5),
)
def test_only_candidates_are_displaced(idle: list[Idle], count: int) -> None:
    found = most_expendable(idle, count)
    assert len(found) == min(count, len(idle))
    assert all(one in idle for one in found)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_an_ipv6_network_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
