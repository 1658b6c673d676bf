"""Leasing messages over HTTP, long polling, ack and nack."""

import asyncio
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.server.context import ServeOptions


class Pushed:
    """A connected agent with the interface that the hub uses."""

    shared = False

    def __init__(self, subject: str, receive: str = "push") -> None:
        self.subject, self.receive, self.since_us = subject, receive, 0
        self.stuck_since_us = 0
        self.sent: list[Any] = []

    def send(self, operation: object) -> None:
        self.sent.append(operation)

    send_lossy = send

    def send_receipts(self, receipts: list[Any]) -> bool:
        self.sent += receipts
        return True

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


async def settle() -> None:
    """Run all callbacks that are due now."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_reading_creates_the_mailbox_of_the_caller(served: HttpRelay) -> None:
    token = await served.token("team.x")
    assert await served.read("team.x", token=token) == []
    sent = await served.publish("team.x", token=token)
    assert sent.json()["delivered_to"] == 1


async def test_messages_are_leased_oldest_first_up_to_the_limit(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    for n in range(5):
        await served.publish("agent.b", n)
    first = await served.read("agent.b", token=token, limit=2)
    rest = await served.read("agent.b", token=token)
    assert [one["payload"] for one in first] == [0, 1]
    assert [one["payload"] for one in rest] == [2, 3, 4]


async def test_without_a_limit_a_batch_is_leased(serve: Serve) -> None:
    served = await serve(ServeOptions(batch=3))
    for n in range(5):
        await served.publish("agent.b", n)
    assert len(await served.read("agent.b", token=await served.token("agent.b"))) == 3


async def test_one_response_stays_within_its_byte_limit(serve: Serve) -> None:
    served = await serve(ServeOptions(answer_max_bytes=3000))
    token = await served.token("agent.b")
    for n in range(4):
        await served.publish("agent.b", str(n) * 1000)
    first = await served.read("agent.b", token=token)
    rest = await served.read("agent.b", token=token)
    assert [one["payload"][0] for one in first] == ["0", "1"]
    assert [one["payload"][0] for one in rest] == ["2", "3"]


async def test_a_message_larger_than_the_byte_limit_is_leased_alone(serve: Serve) -> None:
    served = await serve(ServeOptions(answer_max_bytes=100))
    token = await served.token("agent.b")
    await served.publish("agent.b", "x" * 1000)
    await served.publish("agent.b", "y")
    assert len(await served.read("agent.b", token=token)) == 1


async def test_messages_over_the_size_limit_do_not_count_against_the_byte_limit(
    serve: Serve,
) -> None:
    served = await serve(ServeOptions(answer_max_bytes=3000))
    token = await served.token("agent.b")
    for payload in ("x" * 5000, "small 1", "small 2"):
        await served.publish("agent.b", payload)
    got = await served.read("agent.b", token=token, max_size_bytes=1000)
    assert [one["payload"] for one in got] == ["small 1", "small 2"]


async def test_reading_waits_for_the_first_message(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    reading = asyncio.create_task(served.read("agent.b", token=token, wait=30))
    await settle()
    assert not reading.done()
    await served.publish("agent.b", "at last")
    [got] = await reading
    assert got["payload"] == "at last"


async def test_messages_that_arrive_together_are_leased_together(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    reading = asyncio.create_task(served.read("agent.b", token=token, wait=30))
    await settle()
    body = {"messages": [{"subject": "agent.b", "payload": n} for n in range(3)]}
    await served.call("POST", "/v1/messages", json=body)
    assert [one["payload"] for one in await reading] == [0, 1, 2]


async def test_waiting_ends_without_messages_at_the_deadline(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    reading = asyncio.create_task(served.read("agent.b", token=token, wait=30))
    await settle()
    served.clock.advance_ms(29_999)
    await settle()
    assert not reading.done()
    served.clock.advance_ms(1)
    assert await reading == []


async def test_a_wait_is_at_most_a_minute(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    path = "/v1/inbox/agent.b"
    assert (await served.call("GET", f"{path}?wait=60.5", token=token)).status_code == 400


class Impatient:
    """A caller that long-polls and disconnects on demand."""

    def __init__(self, served: HttpRelay, token: str) -> None:
        self._gone = asyncio.Event()
        self.answered = b""
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/inbox/agent.b",
            "query_string": b"wait=30",
            "headers": [(b"authorization", f"Bearer {token}".encode())],
        }
        asking = served.app(scope, self._receive, self._send)  # type: ignore[arg-type]
        self.asking = asyncio.ensure_future(asking)

    def go(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.answered += message.get("body", b"")


async def test_a_caller_that_disconnects_while_waiting_leases_nothing(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    caller = Impatient(served, token)
    await settle()
    caller.go()
    await caller.asking
    await served.publish("agent.b", "for whoever is here")
    [got] = await served.read("agent.b", token=token)
    assert got["payload"] == "for whoever is here"


@pytest.mark.parametrize("steps", range(12))
async def test_a_caller_that_disconnects_on_arrival_got_the_message_or_left_it(
    served: HttpRelay, steps: int
) -> None:
    token = await served.token("agent.b")
    caller = Impatient(served, token)
    await settle()
    arrived = asyncio.Event()
    served.relay._runtime.ledger.listeners.on_visible(lambda endpoint: arrived.set())
    publishing = asyncio.create_task(served.publish("agent.b", "take me"))
    await arrived.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    caller.go()
    await caller.asking
    await publishing
    left = await served.read("agent.b", token=token)
    assert len(left) + (b"take me" in caller.answered) == 1


async def test_an_unacknowledged_lease_returns_to_the_queue(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b")
    [first] = await served.read("agent.b", token=token)
    assert await served.read("agent.b", token=token) == []
    served.clock.advance_ms(30_001)
    await served.relay.idle()
    [again] = await served.read("agent.b", token=token)
    assert again["id"] == first["id"]


async def test_acknowledged_messages_are_removed(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b")
    [got] = await served.read("agent.b", token=token)
    done = await served.ack("agent.b", [got["id"], "unknown"], token=token)
    again = await served.ack("agent.b", [got["id"]], token=token)
    assert (done.json(), again.json()) == ({"count": 1}, {"count": 0})
    assert served.relay.metrics().total_messages == 0


async def test_a_nacked_message_is_pending_again_after_the_delay(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b")
    [got] = await served.read("agent.b", token=token)
    body = {"ids": [got["id"]], "delay": 5}
    done = await served.call("POST", "/v1/inbox/agent.b/nack", token=token, json=body)
    await served.relay.idle()
    assert done.json() == {"count": 1}
    assert await served.read("agent.b", token=token) == []
    served.clock.advance_ms(5000)
    assert len(await served.read("agent.b", token=token)) == 1


async def test_a_connected_sender_gets_a_receipt_for_an_ack_over_http(served: HttpRelay) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    sender = Pushed("agent.a")
    served.context.hub.add(sender)
    sent = await served.publish("agent.b", token=token_a)
    [got] = await served.read("agent.b", token=token_b)
    await served.ack("agent.b", [got["id"]], token=token_b)
    await settle()
    [receipt] = sender.sent
    assert receipt.recipient == "agent.b"
    assert receipt.confirmed == [(sent.json()["message_id"], True)], "it was stored"


async def test_the_inbox_of_a_connected_agent_cannot_be_read(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    served.context.hub.add(Pushed("agent.b"))
    one = await served.call("GET", "/v1/inbox/agent.b", token=token)
    body = {"inboxes": [{"subject": "agent.b"}]}
    many = await served.call("POST", "/v1/inbox/batch", token=token, json=body)
    assert (one.status_code, many.status_code) == (409, 409)


async def test_an_agent_that_pulls_may_also_read_over_http(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    served.context.hub.add(Pushed("agent.b", receive="pull"))
    assert await served.read("agent.b", token=token) == []


async def test_the_inbox_of_another_agent_is_forbidden(served: HttpRelay) -> None:
    await served.publish("agent.b")
    token = await served.token("agent.a")
    paths = ("/v1/inbox/agent.b/ack", "/v1/inbox/agent.b/nack")
    statuses = [(await served.call("GET", "/v1/inbox/agent.b", token=token)).status_code]
    for path in paths:
        rejected = await served.call("POST", path, token=token, json={"ids": ["x"]})
        statuses.append(rejected.status_code)
    assert statuses == [403, 403, 403]


async def test_the_operator_reads_any_inbox_that_exists(served: HttpRelay) -> None:
    await served.publish("agent.b", "hello")
    [got] = await served.read("agent.b", token=served.operator)
    unknown = await served.call("GET", "/v1/inbox/agent.nobody", token=served.operator)
    assert got["payload"] == "hello"
    assert unknown.status_code == 404


async def test_several_inboxes_are_read_at_once(served: HttpRelay) -> None:
    for subject in ("agent.b", "agent.c", "agent.c"):
        await served.publish(subject, subject)
    body = {"inboxes": [{"subject": "agent.c", "limit": 1}, {"subject": "agent.b"}]}
    read = await served.call("POST", "/v1/inbox/batch", token=served.operator, json=body)
    found = [(one["subject"], len(one["messages"])) for one in read.json()["inboxes"]]
    assert found == [("agent.c", 1), ("agent.b", 1)]


async def test_several_inboxes_share_the_byte_limit_of_one_response(serve: Serve) -> None:
    served = await serve(ServeOptions(answer_max_bytes=1))
    for subject in ("agent.b", "agent.c"):
        await served.publish(subject, subject)
    body = {"inboxes": [{"subject": "agent.b"}, {"subject": "agent.c"}]}
    read = await served.call("POST", "/v1/inbox/batch", token=served.operator, json=body)
    assert [len(one["messages"]) for one in read.json()["inboxes"]] == [1, 0]


async def test_if_one_of_several_inboxes_is_forbidden_none_is_read(served: HttpRelay) -> None:
    await served.publish("agent.a")
    await served.publish("agent.b")
    body = {"inboxes": [{"subject": "agent.a"}, {"subject": "agent.b"}]}
    token = await served.token("agent.a")
    rejected = await served.call("POST", "/v1/inbox/batch", token=token, json=body)
    assert rejected.status_code == 403
    assert served.relay.metrics().by_status["leased"] == 0


async def test_an_inbox_may_be_called_batch(served: HttpRelay) -> None:
    assert await served.read("batch", token=await served.token("batch")) == []


async def nack(served: HttpRelay, ids: list[str], token: str, **more: Any) -> None:
    body = {"ids": ids, **more}
    answer = await served.call("POST", "/v1/inbox/agent.b/nack", token=token, json=body)
    assert answer.json() == {"count": len(ids)}


async def test_a_message_nacked_five_times_is_a_dead_letter(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "poison")
    for attempt in range(1, 6):
        [got] = await served.read("agent.b", token=token)
        assert got["attempt"] == attempt
        await nack(served, [got["id"]], token, error="no such row")
        served.clock.advance_ms(60_000)
    assert await served.read("agent.b", token=token) == []
    answer = await served.call("GET", "/v1/dead-letters", token=served.operator)
    [dead] = answer.json()["dead_letters"]
    assert dead["reason"] == "max deliveries exceeded (5/5): no such row"


async def test_a_message_nacked_repeatedly_is_not_delivered_at_once(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "poison")
    for _ in range(2):
        [got] = await served.read("agent.b", token=token)
        await nack(served, [got["id"]], token)
    assert await served.read("agent.b", token=token) == []
    served.clock.advance_ms(1_000)
    assert len(await served.read("agent.b", token=token)) == 1


async def test_releasing_a_message_does_not_count(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "shown")
    for _ in range(10):
        [got] = await served.read("agent.b", token=token)
        await nack(served, [got["id"]], token, release=True)


async def test_an_extended_lease_outlasts_the_timeout(served: HttpRelay) -> None:
    token = await served.token("agent.b")
    await served.publish("agent.b", "work")
    (leased,) = await served.read("agent.b", token=token)
    body = {"ids": [leased["id"], "never-existed"], "seconds": 90}
    done = await served.call("POST", "/v1/inbox/agent.b/extend", token=token, json=body)
    assert (done.status_code, done.json()) == (200, {"count": 1})
    served.clock.advance_ms(89_000)
    assert await served.read("agent.b", token=token) == []
    served.clock.advance_ms(1_000)
    assert [one["id"] for one in await served.read("agent.b", token=token)] == [leased["id"]]
