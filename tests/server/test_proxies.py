"""Addresses of callers: their own, or what a trusted proxy reports."""

import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from waypost.policy.errors import InvalidInput
from waypost.server.http.callers import client_address
from waypost.server.proxies import TrustedProxies
from waypost.server.server import Listen

FORGED = {"X-Forwarded-For": "203.0.113.9"}


async def address_of_agent(relay: SocketRelay, headers: dict[str, str]) -> str:
    agent = await relay.connect("agent.a", additional_headers=headers)
    [session] = relay.context.hub.connected()
    await agent.disconnect()
    return session.address


async def test_a_forwarded_address_counts_for_nothing_by_default(served: SocketRelay) -> None:
    address = await address_of_agent(served, FORGED)
    assert address.startswith("127.0.0.1:")


async def test_a_trusted_proxy_reports_the_address_of_the_caller(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(Listen(trusted_proxies=("127.0.0.0/8",)))
    assert await address_of_agent(relay, FORGED) == "203.0.113.9:0"


async def test_another_address_is_no_trusted_proxy(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(Listen(trusted_proxies=("10.0.0.1",)))
    address = await address_of_agent(relay, FORGED)
    assert address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("peer", "headers", "caller"),
    [
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:DB8::1"], "2001:db8::1"),
        ("10.0.0.1", ["203.0.113.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", [",".join(["10.0.0.2"] * 100_000)], "10.0.0.2"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("203.0.113.7", ["203.0.113.9"], "203.0.113.7"),
        ("", ["203.0.113.9"], ""),
    ],
)
def test_only_what_trusted_proxies_appended_counts(
    peer: str, headers: list[str], caller: str
) -> None:
    assert TrustedProxies(["10.0.0.0/8"]).caller_behind(peer, headers) == caller


@pytest.mark.parametrize("network", ["proxy.example", "10.0.0.0/33", "", "10.0.0.1:80"])
def test_a_proxy_is_named_by_its_address(network: str) -> None:
    with pytest.raises(InvalidInput, match="--trusted-proxy takes an address or a network"):
        Listen(trusted_proxies=(network,))


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("203.0.113.9", 1), "203.0.113.9"),
        (("::ffff:203.0.113.9", 1), "203.0.113.9"),
        (("2001:db8::1", 1), "2001:db8::1"),
        (None, ""),
    ],
)
def test_an_address_has_one_spelling(client: tuple[str, int] | None, address: str) -> None:
    assert client_address({"client": client}) == address
