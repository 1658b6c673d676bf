"""Notices: when they are posted, what they say, how they are signed."""

import base64
import hashlib
import hmac
from datetime import datetime

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.server.webhooks.conftest import WebhookRelay
from tests.server.webhooks.receiver import Receiver, answer


def url(receiver: Receiver, path: str = "/wake") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


async def test_an_agent_that_is_not_connected_is_notified_of_its_messages(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.sleeper", url(receiver, "/wake?who=me"))
    await relay.http.publish("agent.sleeper", {"secret": "text"})
    await relay.http.publish("agent.sleeper", {"secret": "more"})
    await relay.passes_until(lambda: receiver.posted, "a notice")
    [notice] = receiver.posted
    assert notice.line == "POST /wake?who=me HTTP/1.1"
    assert notice.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert notice.headers["content-type"] == "application/json"
    said = notice.json
    assert said["type"] == "messages.waiting"
    assert datetime.fromisoformat(said["timestamp"])
    assert said["data"] == {"subject": "agent.sleeper", "waiting": 2}
    pending = await relay.http.call(
        "GET", "/v1/inbox/agent.sleeper/peek", token=relay.http.operator
    )
    assert pending.json()["pending"] == 2, "a notice is not a delivery"


async def test_a_notice_is_signed_with_the_secret_of_its_agent(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    secret = await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 1)
    await relay.passes_until(lambda: receiver.posted, "a notice")
    [notice] = receiver.posted
    kind, _, encoded = secret.partition("_")
    assert kind == "whsec"
    key = base64.b64decode(encoded)
    assert len(key) >= 24
    signed = f"{notice.headers['webhook-id']}.{notice.headers['webhook-timestamp']}.".encode()
    digest = hmac.new(key, signed + notice.body, hashlib.sha256).digest()
    assert notice.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert abs(int(notice.headers["webhook-timestamp"]) - relay.clock() // 1_000_000) < 60


async def test_with_messages_only_if_the_agent_asks_for_them(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.sleeper", url(receiver), content="messages")
    token = await relay.http.token("agent.web")
    await relay.http.publish("agent.sleeper", {"n": 1}, token=token, message_id="m1")
    await relay.http.publish("agent.sleeper", "x" * 300_000, token=token, message_id="m2")
    await relay.passes_until(lambda: receiver.posted, "a notice")
    data = receiver.posted[0].json["data"]
    assert data["waiting"] == 2
    [message] = data["messages"]
    assert (message["id"], message["sender"], message["payload"]) == ("m1", "agent.web", {"n": 1})


async def test_messages_that_arrive_meanwhile_share_the_next_notice(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 0)
    await relay.passes_until(lambda: receiver.posted, "the first notice")
    for number in range(5):
        await relay.http.publish("agent.sleeper", number)
    began_us = relay.clock()
    await relay.passes_until(lambda: len(receiver.posted) == 2, "the second notice")
    assert relay.clock() - began_us >= 9_000_000
    assert receiver.posted[1].json["data"]["waiting"] == 6
    first, second = (one.headers["webhook-id"] for one in receiver.posted)
    assert first != second


async def test_an_agent_that_has_read_its_messages_gets_no_notice(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 1)
    token = await relay.http.token("agent.sleeper")
    [got] = await relay.http.read("agent.sleeper", token=token)
    await relay.http.ack("agent.sleeper", [got["id"]], token=token)
    for _ in range(5):
        relay.clock.advance_ms(1000)
        await event_loop_turns()
    assert not receiver.posted


async def test_a_failed_notice_is_tried_again_later_and_later(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(503), answer(200, body=b"thanks")]
    await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 1)
    times: list[int] = []

    def count() -> bool:
        while len(times) < len(receiver.posted):
            times.append(relay.clock() // 1_000_000)
        return len(times) == 3

    await relay.passes_until(count, "three tries")
    assert times[1] - times[0] >= 5
    assert times[2] - times[1] >= 30
    ids = {one.headers["webhook-id"] for one in receiver.posted}
    assert len(ids) == 1, "the same notice has the same id"
    assert len({one.body for one in receiver.posted}) == 1
    stamps = [int(one.headers["webhook-timestamp"]) for one in receiver.posted]
    assert stamps == sorted(set(stamps)), "each try has its own time and signature"

    async def accepted() -> bool:
        return (await relay.show("agent.sleeper"))["last"]["status"] == 200

    await eventually(accepted, "the outcome")


async def test_a_notice_is_given_up_after_six_tries(
    relay: WebhookRelay, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [answer(500)] * 100
    await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 1)

    def given_up() -> bool:
        relay.clock.advance_ms(60_000)
        return "1 notices were given up" in caplog.text

    await eventually(given_up, "the end")
    assert len(receiver.posted) == 6
    shown = await relay.show("agent.sleeper")
    assert (shown["last"]["status"], shown["last"]["problem"]) == (500, "it answers 500")
    receiver.answers = []
    token = await relay.http.token("agent.sleeper")
    [found] = await relay.http.read("agent.sleeper", token=token)
    assert found["payload"] == 1, "a lost notice loses nothing"
    await relay.http.publish("agent.sleeper", 2)
    await relay.passes_until(lambda: len(receiver.posted) == 7, "a notice of the next message")


async def test_410_ends_a_notice_at_once(relay: WebhookRelay, receiver: Receiver) -> None:
    receiver.answers = [answer(410)]
    await relay.must_set("agent.sleeper", url(receiver))
    assert (await relay.test("agent.sleeper"))["final"] is True


async def test_after_a_restart_waiting_messages_are_noticed_again(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    secret = await relay.must_set("agent.sleeper", url(receiver))
    await relay.http.publish("agent.sleeper", 1)
    await relay.passes_until(lambda: receiver.posted, "a notice")
    await relay.restart()
    await relay.passes_until(lambda: len(receiver.posted) == 2, "a notice after the restart")
    again = receiver.posted[1]
    assert again.json["data"] == {"subject": "agent.sleeper", "waiting": 1}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{again.headers['webhook-id']}.{again.headers['webhook-timestamp']}.".encode()
    digest = hmac.new(key, signed + again.body, hashlib.sha256).digest()
    assert again.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


async def test_the_metrics_count_notices_by_outcome(
    relay: WebhookRelay, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), answer(200), answer(302)]
    await relay.must_set("agent.one", url(receiver))
    await relay.http.publish("agent.one", 1)
    await relay.passes_until(lambda: len(receiver.posted) == 2, "a second try")
    await relay.must_set("agent.two", url(receiver))
    await relay.http.publish("agent.two", 1)
    await relay.passes_until(lambda: len(receiver.posted) == 3, "a redirect")

    async def are_counted() -> bool:
        text = (await relay.http.call("GET", "/metrics")).text
        outcomes = ("accepted", "failed", "given_up")
        lines = [f'waypost_webhook_notices_total{{outcome="{one}"}} 1.0' for one in outcomes]
        return all(line in text for line in lines)

    await eventually(are_counted, "one of each")
