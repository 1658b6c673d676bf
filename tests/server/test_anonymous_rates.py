"""Rate limits of senders without a key, by network address, through a socket."""

from pathlib import Path

import httpx

from tests.server.conftest import ServeRelay, SocketRelay
from waypost import RateLimitConfig, Settings
from waypost.policy.admission import admit_sender
from waypost.policy.rate_limits import RateWindows, network_window
from waypost.server.identity.tokens import Tokens
from waypost.server.server import Listen

BEHIND_PROXY = Listen(trusted_proxies=("127.0.0.1",))
LIMITS = RateLimitConfig(window_secs=3600, max_per_window=3, anonymous_max_per_window=5)


async def publish(relay: SocketRelay, address: str, count: int) -> list[int]:
    """Publish without a key, from `address` behind a proxy; return the status of each answer."""
    headers = {"X-Forwarded-For": address}
    async with httpx.AsyncClient(base_url=relay.url, headers=headers, trust_env=False) as client:
        body = {"subject": "agent.b", "payload": 1}
        return [(await client.post("/v1/messages", json=body)).status_code for _ in range(count)]


async def test_one_address_cannot_use_up_the_rate_of_all_senders_without_a_key(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(BEHIND_PROXY, rate_limit=LIMITS)
    assert await publish(relay, "192.0.2.1", 5) == [200, 200, 200, 429, 429]
    assert await publish(relay, "192.0.2.2", 1) == [200]


async def test_all_senders_without_a_key_have_a_rate_together(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(BEHIND_PROXY, rate_limit=LIMITS)
    assert await publish(relay, "192.0.2.1", 3) == [200] * 3
    assert await publish(relay, "192.0.2.2", 3) == [200, 200, 429]
    assert await publish(relay, "192.0.2.3", 1) == [429]


async def test_the_rates_of_addresses_survive_a_restart(serve_relay: ServeRelay) -> None:
    relay = await serve_relay(BEHIND_PROXY, rate_limit=LIMITS)
    await publish(relay, "192.0.2.1", 3)
    relay = await serve_relay(BEHIND_PROXY, rate_limit=LIMITS)
    assert await publish(relay, "192.0.2.1", 1) == [429]
    assert await publish(relay, "192.0.2.2", 1) == [200]


async def test_the_journal_holds_no_address(serve_relay: ServeRelay, tmp_path: Path) -> None:
    relay = await serve_relay(BEHIND_PROXY, rate_limit=LIMITS)
    await publish(relay, "192.0.2.2", 4)
    await relay.context.relay.sync()
    written = b"".join(path.read_bytes() for path in (tmp_path / "data" / "journal").iterdir())
    key = relay.context.authenticator.network_key("192.0.2.2")
    assert written.count(key.encode()) == 4
    assert b"192.0.2" not in written


def test_a_network_is_an_ipv4_address_or_64_bits_of_an_ipv6_address() -> None:
    key = Tokens(b"secret").network_key
    assert key("192.0.2.1") == key("::ffff:192.0.2.1") != key("192.0.2.2")
    assert key("2001:db8:1:2::3") == key("2001:db8:1:2:ffff::9") != key("2001:db8:1:3::3")
    assert key("192.0.2.1") != Tokens(b"another secret").network_key("192.0.2.1")
    assert len(key("")) == 16


def test_the_limit_of_all_applies_after_that_of_the_network() -> None:
    windows, settings = RateWindows(), Settings(rate_limit=LIMITS)
    for network, count in (("n1", 3), ("n2", 2)):
        for at_ms in range(count):
            windows.record("_anonymous", at_ms)
            windows.record(network_window("_anonymous", network), at_ms)
    verdicts = [
        admit_sender("_anonymous", windows, settings, 10, network) for network in ("n1", "n3")
    ]
    assert [(one.count, one.limit) for one in verdicts] == [(3, 3), (5, 5)]
    assert "3/3 messages" in verdicts[0].detail
    assert verdicts[1].detail.endswith("too many messages from senders without a key")
    assert all(one.retry_after_ms == 3600 * 1000 - 10 for one in verdicts)
