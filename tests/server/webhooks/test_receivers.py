"""Receivers that must not be reached, misbehave or are slow: no one else waits for them."""

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.cli.certificates import write_certificate
from tests.eventually import eventually
from tests.server.webhooks.conftest import WebhookRelay
from tests.server.webhooks.receiver import Receiver, answer, receiving
from waypost.policy.webhooks import WebhooksConfig
from waypost.server.webhooks import sender
from waypost.server.webhooks.sender import Request, Sender


def write_nothing() -> Request:
    return Request({}, b"{}")


ANY_PORT_HERE = WebhooksConfig(allowed_hosts=["127.0.0.1:*", "localhost:*"])


async def test_by_default_no_host_is_allowed(relay: WebhookRelay) -> None:
    await relay.restart(WebhooksConfig())
    rejected = await relay.set("agent.a", "https://hooks.example.com/")
    assert rejected.status_code == 403
    assert rejected.json()["reason"] == "host_not_allowed"
    assert "webhooks.allowedHosts" in rejected.json()["error"]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "192.168.7.7", "169.254.169.254", "[::1]", "[fd00::1]"]
)
async def test_a_url_with_a_private_address_is_rejected_at_once(
    relay: WebhookRelay, address: str
) -> None:
    await relay.restart(WebhooksConfig(allowed_hosts=[address]))
    rejected = await relay.set("agent.a", f"https://{address}/")
    assert rejected.status_code == 403
    assert "address" in rejected.json()["error"]


async def test_a_name_with_a_private_address_gets_no_connection(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.restart(ANY_PORT_HERE)
    await relay.must_set("agent.a", f"https://localhost:{receiver.port}/")
    tested = await relay.test("agent.a")
    assert "private address" in tested["problem"]
    assert "webhooks.privateHosts" in tested["problem"]
    assert tested["final"] is True
    assert not receiver.posted


async def test_a_link_local_address_is_not_even_for_private_hosts(relay: WebhookRelay) -> None:
    await relay.restart(WebhooksConfig(private_hosts=["169.254.169.254"]))
    rejected = await relay.set("agent.a", "http://169.254.169.254/latest/meta-data")
    assert rejected.status_code == 403
    assert "which no webhook may have" in rejected.json()["error"]


async def test_a_name_is_resolved_once_and_the_checked_address_is_used(receiver: Receiver) -> None:
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    hosts = WebhooksConfig(private_hosts=["rebinding.example:*"])
    one = Sender(lambda: hosts, resolve)
    done = await one.post(f"http://rebinding.example:{receiver.port}/a", write_nothing)
    assert (done.status, asked) == (204, ["rebinding.example"])
    assert receiver.posted[0].headers["host"] == f"rebinding.example:{receiver.port}"
    again = await one.post(f"http://rebinding.example:{receiver.port}/a", write_nothing)
    assert "169.254.169.254" in again.problem
    assert len(receiver.posted) == 1


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "017700000001", "127.1", "0"])
async def test_an_address_in_an_odd_spelling_is_checked_as_what_it_means(host: str) -> None:
    hosts = WebhooksConfig(allowed_hosts=[host])
    done = await Sender(lambda: hosts).post(f"https://{host}/", write_nothing)
    assert done is not None
    assert "private address 127.0.0.1" in done.problem or "no webhook may have" in done.problem
    assert done.final


async def test_one_private_address_among_public_ones_is_enough_to_reject_a_host() -> None:
    async def resolve(host: str) -> list[str]:
        return ["93.184.215.14", "127.0.0.1"]

    hosts = WebhooksConfig(allowed_hosts=["mixed.example"])
    done = await Sender(lambda: hosts, resolve).post("https://mixed.example/", write_nothing)
    assert "private address 127.0.0.1" in done.problem
    assert done.final


async def test_the_next_address_is_tried_if_one_has_no_receiver(receiver: Receiver) -> None:
    async def resolve(host: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    hosts = WebhooksConfig(private_hosts=["two.example:*"])
    done = await Sender(lambda: hosts, resolve).post(
        f"http://two.example:{receiver.port}/", write_nothing
    )
    assert done is not None
    assert done.status == 204


async def test_redirects_are_not_followed(relay: WebhookRelay, receiver: Receiver) -> None:
    async with receiving() as other:
        receiver.answers = [answer(302, f"Location: http://127.0.0.1:{other.port}/\r\n")]
        await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
        tested = await relay.test("agent.a")
        assert tested["problem"] == "it answers 302: redirects are not followed"
        assert tested["final"] is True
        assert not other.posted


async def test_proxies_of_the_environment_are_not_used(
    relay: WebhookRelay, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
        assert (await relay.test("agent.a"))["status"] == 204
        assert not proxy.posted


def server_tls(folder: Path, names: tuple[str, ...] = ()) -> ssl.SSLContext:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    write_certificate(certificate, key, names=names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_certificate_that_is_not_trusted_gets_no_notice(
    relay: WebhookRelay, tmp_path: Path
) -> None:
    async with receiving(server_tls(tmp_path)) as receiver:
        await relay.must_set("agent.a", f"https://127.0.0.1:{receiver.port}/")
        tested = await relay.test("agent.a")
        assert tested["problem"].startswith("its certificate is not valid: ")
        assert not receiver.posted


async def test_a_certificate_of_another_name_gets_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str) -> list[str]:
        return ["127.0.0.1"]

    hosts = WebhooksConfig(private_hosts=["right.example:*", "wrong.example:*"])
    async with receiving(server_tls(tmp_path, ("right.example",))) as receiver:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        one = Sender(lambda: hosts, resolve)
        right = await one.post(f"https://right.example:{receiver.port}/", write_nothing)
        assert (right.status, right.problem) == (204, "")
        wrong = await one.post(f"https://wrong.example:{receiver.port}/", write_nothing)
        assert "certificate is not valid" in wrong.problem
        assert len(receiver.posted) == 1


async def test_of_an_answer_only_the_head_is_read_and_it_is_bounded(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    large_body = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 200_000
    large_head = b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000
    receiver.answers = [
        large_body,
        large_head,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 100 C\r\n\r\n" * 9,
    ]
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    assert (await relay.test("agent.a"))["status"] == 200
    assert "larger than 16,384 bytes" in (await relay.test("agent.a"))["problem"]
    for _ in range(2):
        assert "as an HTTP server" in (await relay.test("agent.a"))["problem"]
    await eventually(lambda: receiver.closed_by_peer == 4, "all connections to end")


async def test_a_slow_receiver_is_given_up_on_and_no_one_else_waits(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    async with receiving() as slow:
        slow.answers = [None] * 100
        hosts = [f"127.0.0.1:{slow.port}", f"127.0.0.1:{receiver.port}"]
        await relay.restart(WebhooksConfig(private_hosts=hosts))
        for number in range(30):  # more than one entry may have at once
            await relay.must_set(f"agent.slow{number}", f"http://127.0.0.1:{slow.port}/")
            await relay.http.publish(f"agent.slow{number}", 1)
        await relay.passes_until(lambda: len(slow.posted) == 16, "all connections of the entry")
        await relay.must_set("agent.quick", f"http://127.0.0.1:{receiver.port}/")
        sent = await relay.http.publish("agent.quick", 1)
        assert sent.json()["delivered_to"] == 1
        assert (await relay.test("agent.quick"))["status"] == 204
        await relay.passes_until(lambda: len(receiver.posted) == 2, "the notice")
        assert len(slow.posted) == 16


async def test_a_receiver_without_an_answer_costs_seconds_not_more(
    relay: WebhookRelay, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "POST_TIMEOUT_S", 0.05)
    receiver.answers = [None]
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    tested = await relay.test("agent.a")
    assert tested["problem"].startswith("no answer in time")
    assert tested["final"] is False


async def test_a_name_server_without_an_answer_delays_no_other_notice(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "POST_TIMEOUT_S", 0.05)
    never = asyncio.Event()

    async def resolve(host: str) -> list[str]:
        if host == "slow.example":
            await never.wait()
        return ["127.0.0.1"]

    hosts = WebhooksConfig(private_hosts=["slow.example:*", "quick.example:*"])
    one = Sender(lambda: hosts, resolve)
    waiting = asyncio.gather(
        *(one.post("http://slow.example:1/", write_nothing) for _ in range(40))
    )
    quick = await one.post(f"http://quick.example:{receiver.port}/", write_nothing)
    assert quick.status == 204
    assert {result.problem[:17] for result in await waiting} == {"no answer in time"}


async def test_a_name_that_cannot_be_resolved_is_reported() -> None:
    hosts = WebhooksConfig(allowed_hosts=["nothing.invalid"])
    done = await Sender(lambda: hosts).post("https://nothing.invalid/", write_nothing)
    assert "cannot be resolved" in done.problem
    assert not done.final


async def test_the_settings_in_force_decide_also_about_webhooks_set_before(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    assert (await relay.test("agent.a"))["status"] == 204
    changed = {"webhooks": {"privateHosts": []}}
    put = await relay.http.call("PUT", "/v1/config", token=relay.http.operator, json=changed)
    assert put.status_code == 200, put.text
    assert "does not have 127.0.0.1" in (await relay.test("agent.a"))["problem"]


async def test_a_notice_that_waits_for_a_connection_is_written_when_it_has_one(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    receiver.answers = [None] * 16
    url = f"http://127.0.0.1:{receiver.port}/"
    for number in range(17):
        await relay.must_set(f"agent.busy{number}", url)
        await relay.http.publish(f"agent.busy{number}", 1)
    await relay.passes_until(lambda: len(receiver.posted) == 16, "all connections of the entry")
    said = {one.json["data"]["subject"] for one in receiver.posted}
    [last] = {f"agent.busy{number}" for number in range(17)} - said
    await relay.http.publish(last, 2)
    relay.clock.advance_ms(600_000)
    receiver.release()
    await eventually(lambda: len(receiver.posted) == 17, "the last notice")
    notice = receiver.posted[16]
    assert notice.json["data"] == {"subject": last, "waiting": 2}
    assert int(notice.headers["webhook-timestamp"]) == relay.clock() // 1_000_000
