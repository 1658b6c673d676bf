"""Setting, showing and removing webhooks: who may, what is kept, and when it ends."""

import stat

import pytest

from tests.eventually import event_loop_turns
from tests.server.http.http_relay import ORIGIN
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.transports import MemoryTransport
from tests.server.webhooks.conftest import WebhookRelay
from tests.server.webhooks.receiver import Receiver
from waypost.client.identity import Identity
from waypost.wire.frames import JSON_PROTOCOL

URL = "http://127.0.0.1:9/wake"


async def test_the_secret_is_shown_once_and_each_webhook_has_its_own(relay: WebhookRelay) -> None:
    first = await relay.must_set("agent.a", URL)
    assert first.startswith("whsec_")
    shown = await relay.show("agent.a")
    assert (shown["url"], shown["content"], shown["last"]) == (URL, "notice", None)
    assert "secret" not in shown
    assert await relay.must_set("agent.a", URL) != first
    assert await relay.must_set("agent.b", URL) != first


async def test_the_file_is_for_the_owner_only(relay: WebhookRelay) -> None:
    await relay.must_set("agent.a", URL)
    mode = (relay.data / "webhooks.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


async def test_an_agent_cannot_set_or_see_the_webhook_of_another(relay: WebhookRelay) -> None:
    await relay.must_set("agent.a", URL)
    other = await relay.http.token("agent.b")
    for method in ("GET", "PUT", "DELETE"):
        body = {"json": {"url": URL}} if method == "PUT" else {}
        denied = await relay.http.call(method, "/v1/webhooks/agent.a", token=other, **body)
        assert denied.status_code == 403


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"url": "127.0.0.1:9"}, "write https://HOST"),
        ({"url": "http://127.0.0.1:9/\r\nX: y"}, "write https://HOST"),
        ({"url": "https://example.com/"}, "ask the operator to add it"),
        ({"url": URL, "content": "all"}, "content"),
        ({"url": URL, "secret": "mine"}, "secret"),
        ({}, "url"),
    ],
)
async def test_bad_input_is_answered_with_what_to_do(
    relay: WebhookRelay, body: dict[str, str], text: str
) -> None:
    token = await relay.http.token("agent.a")
    rejected = await relay.http.call("PUT", "/v1/webhooks/agent.a", token=token, json=body)
    assert rejected.status_code in (400, 403)
    assert text in rejected.json()["error"]


async def test_a_removed_webhook_gets_no_notice(relay: WebhookRelay, receiver: Receiver) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    await relay.http.publish("agent.a", 1)
    token = await relay.http.token("agent.a")
    removed = await relay.http.call("DELETE", "/v1/webhooks/agent.a", token=token)
    assert removed.status_code == 200
    await time_passes(relay)
    assert not receiver.posted
    again = await relay.http.call("DELETE", "/v1/webhooks/agent.a", token=token)
    assert again.status_code == 404
    assert "waypost webhooks set" in again.json()["error"]


async def time_passes(relay: WebhookRelay) -> None:
    for _ in range(15):
        relay.clock.advance_ms(1000)
        await event_loop_turns()


async def test_a_freed_name_loses_its_webhook(relay: WebhookRelay, receiver: Receiver) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    freed = await relay.http.call("DELETE", "/v1/names/agent.a", token=relay.http.operator)
    assert freed.status_code == 200
    await relay.http.publish("agent.a", 1)
    await time_passes(relay)
    assert b"whsec_" not in (relay.data / "webhooks.json").read_bytes()
    relay.http._identities["agent.a"] = Identity.new("agent.a")
    assert "has no webhook" in (await relay.show("agent.a"))["error"]
    assert not receiver.posted


async def test_a_name_that_goes_to_another_key_loses_its_webhook_also_after_a_restart(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    other = Identity.new("agent.a")
    body = {"public_key": other.public_key, "replace": True}
    bound = await relay.http.call("PUT", "/v1/names/agent.a", token=relay.http.operator, json=body)
    assert bound.status_code == 200
    relay.http._identities["agent.a"] = other
    assert "has no webhook" in (await relay.show("agent.a"))["error"]
    await relay.restart()
    await relay.http.publish("agent.a", 1)
    await time_passes(relay)
    assert not receiver.posted


async def test_a_name_freed_while_the_relay_was_stopped_loses_its_webhook(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    await relay.stop()
    (relay.data / "identities.jsonl").unlink()
    await relay.start()
    relay.http._identities["agent.a"] = Identity.new("agent.a")
    assert "has no webhook" in (await relay.show("agent.a"))["error"]


async def test_an_owner_who_rotates_the_key_keeps_the_webhook(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    old, new = relay.http._identities["agent.a"], Identity.new("agent.a")
    nonce = (await relay.http.call("POST", "/v1/auth/challenge")).json()["nonce"]
    proof = old.prove_rotation(nonce, ORIGIN, new)
    rotated = await relay.http.call("POST", "/v1/auth/rotate", json=proof)
    assert rotated.status_code == 200, rotated.text
    relay.http._identities["agent.a"] = new
    assert (await relay.show("agent.a"))["content"] == "notice"
    await relay.restart()
    assert (await relay.show("agent.a"))["content"] == "notice"
    await relay.http.publish("agent.a", 1)
    await relay.passes_until(lambda: receiver.posted, "a notice")


async def test_a_connected_agent_gets_messages_and_no_notice_until_it_disconnects(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/")
    agent = RawAgent(MemoryTransport(relay.http.context, JSON_PROTOCOL), JSON_PROTOCOL)
    await agent.authenticate(relay.http._identities["agent.a"], receive="pull")
    await relay.http.publish("agent.a", 1)
    await time_passes(relay)
    assert not receiver.posted
    await agent.disconnect()
    await relay.passes_until(lambda: receiver.posted, "a notice")


async def test_webhooks_change_a_few_times_a_minute(relay: WebhookRelay) -> None:
    for _ in range(10):
        await relay.must_set("agent.a", URL)
    too_often = await relay.set("agent.a", URL)
    assert too_often.status_code == 429
    assert int(too_often.headers["retry-after"]) <= 60
    await relay.must_set("agent.b", URL)
    relay.clock.advance_ms(60_001)
    await relay.must_set("agent.a", URL)


async def test_a_damaged_file_is_kept_and_the_relay_starts_without_webhooks(
    relay: WebhookRelay, caplog: pytest.LogCaptureFixture
) -> None:
    await relay.must_set("agent.a", URL)
    await relay.stop()
    file = relay.data / "webhooks.json"
    file.write_bytes(file.read_bytes()[:-5])
    await relay.start()
    assert "has no webhook" in (await relay.show("agent.a"))["error"]
    assert (relay.data / "webhooks.json.damaged").exists()
    assert "set their webhooks again" in caplog.text
    await relay.must_set("agent.a", URL)


async def test_a_webhook_that_cannot_be_saved_is_not_valid(
    relay: WebhookRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await relay.must_set("agent.a", URL)
    (relay.data / ".webhooks.json.tmp").mkdir()  # the new file cannot be created
    rejected = await relay.set("agent.a", f"{URL}/other")
    assert rejected.status_code == 503
    assert (await relay.show("agent.a"))["url"] == URL


async def test_an_agent_that_is_not_let_in_any_more_gets_no_notice(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.a", f"http://127.0.0.1:{receiver.port}/", content="messages")
    closed = {"names": {"policy": "closed"}}
    put = await relay.http.call("PUT", "/v1/config", token=relay.http.operator, json=closed)
    assert put.status_code == 200
    await relay.http.publish("agent.a", "for the next owner")
    await time_passes(relay)
    assert not receiver.posted
