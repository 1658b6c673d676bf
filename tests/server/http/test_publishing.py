"""Publishing over HTTP: sender, response and stored message."""

import json

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost import AccessRule
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.policy.rate_limits import RateLimitConfig
from waypost.server.context import ServeOptions


async def test_a_message_reaches_the_inbox_it_was_published_to(served: HttpRelay) -> None:
    payload = {"text": "grüße", "n": [1, 2.5, None, True]}
    sent = await served.publish("agent.b", payload, token=await served.token("agent.a"))
    [got] = await served.read("agent.b", token=await served.token("agent.b"))
    assert sent.json()["delivered_to"] == 1
    assert (got["id"], got["payload"]) == (sent.json()["message_id"], payload)


async def test_the_sender_is_the_authenticated_subject(served: HttpRelay) -> None:
    await served.publish("agent.b", token=await served.token("agent.a"))
    [got] = await served.read("agent.b", token=await served.token("agent.b"))
    assert got["sender"] == "agent.a"


async def test_a_sender_in_the_body_is_rejected(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    rejected = await served.publish("agent.b", token=token, sender="agent.boss")
    assert rejected.status_code == 400
    assert "sender" in rejected.json()["error"]


async def test_without_a_token_the_sender_is_anonymous(served: HttpRelay) -> None:
    await served.publish("agent.b")
    [got] = await served.read("agent.b", token=await served.token("agent.b"))
    assert got["sender"] == "_anonymous"


async def test_anonymous_publishing_can_be_switched_off(serve: Serve) -> None:
    served = await serve(ServeOptions(anonymous=False))
    rejected = await served.publish("agent.b")
    assert rejected.status_code == 401
    assert rejected.headers["www-authenticate"] == "Bearer"


async def test_an_invalid_token_is_not_treated_as_anonymous(served: HttpRelay) -> None:
    assert (await served.publish("agent.b", token="garbage")).status_code == 401


@pytest.mark.parametrize("subject", ["_relay", "_reply.1", "_anything.else", "_x.>"])
async def test_reserved_names_cannot_be_written_to(served: HttpRelay, subject: str) -> None:
    assert (await served.publish(subject)).status_code == 400


async def test_a_reserved_reply_to_is_rejected(served: HttpRelay) -> None:
    assert (await served.publish("agent.b", reply_to="_relay")).status_code == 400


async def test_many_messages_are_one_commit(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    await served.relay.idle()
    before = served.relay.metrics().commits
    body = {"messages": [{"subject": "agent.b", "payload": n} for n in range(20)]}
    answered = await served.call("POST", "/v1/messages", token=token, json=body)
    assert [one["delivered_to"] for one in answered.json()["results"]] == [1] * 20
    assert served.relay.metrics().commits == before + 1


async def test_each_of_many_has_its_own_result(served: HttpRelay) -> None:
    served.relay.access.add_rule(AccessRule("agent.a", "agent.secret", "deny"))
    body = {
        "messages": [
            {"subject": "agent.b", "payload": 1},
            {"subject": "agent.secret", "payload": 2},
        ]
    }
    token = await served.token("agent.a")
    answered = await served.call("POST", "/v1/messages", token=token, json=body)
    first, second = answered.json()["results"]
    assert answered.status_code == 200
    assert first["delivered_to"] == 1
    assert second["rejected"][0]["reason"] == "access_denied"


async def test_one_invalid_message_fails_them_all(served: HttpRelay) -> None:
    body = {"messages": [{"subject": "agent.b", "payload": 1}, {"subject": "a..b", "payload": 2}]}
    rejected = await served.call("POST", "/v1/messages", json=body)
    assert rejected.status_code == 400
    assert served.relay.metrics().total_messages == 0


async def test_the_same_id_again_is_stored_once(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    first = await served.publish("agent.b", 1, token=token, message_id="order-7")
    again = await served.publish("agent.b", 1, token=token, message_id="order-7")
    assert first.json() == again.json()
    assert served.relay.metrics().total_messages == 1


async def test_a_squatted_id_does_not_block_the_message_of_another_sender(
    served: HttpRelay,
) -> None:
    squatter, victim = await served.token("agent.x"), await served.token("agent.a")
    await served.publish("agent.x", "squat", token=squatter, message_id="order-7")
    sent = await served.publish("agent.b", "mine", token=victim, message_id="order-7")
    assert (sent.status_code, sent.json()["delivered_to"]) == (200, 1)
    [got] = await served.read("agent.b", token=await served.token("agent.b"))
    assert (got["id"], got["sender"], got["payload"]) == ("order-7", "agent.a", "mine")


async def test_an_id_squatted_in_the_same_inbox_is_rejected_and_not_deduplicated(
    served: HttpRelay,
) -> None:
    squatter, victim = await served.token("agent.x"), await served.token("agent.a")
    await served.publish("agent.b", "squat", token=squatter, message_id="order-7")
    rejected = await served.publish("agent.b", "mine", token=victim, message_id="order-7")
    assert rejected.status_code == 400
    assert rejected.json()["error"] == "message id order-7 is taken: choose another"


async def test_a_reply_carries_its_parent_and_what_is_left_of_the_budget(served: HttpRelay) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    await served.read("agent.a", token=token_a)
    await served.publish("agent.b", "ping", token=token_a)
    [ping] = await served.read("agent.b", token=token_b)
    parent = {"id": ping["id"], "budget": ping["budget"]}
    await served.publish("agent.a", "pong", token=token_b, parent=parent)
    [pong] = await served.read("agent.a", token=token_a)
    assert pong["parent"] == ping["id"]
    assert pong["budget"]["ancestor_chain"] == []
    assert (ping["answer"], pong["answer"]) == (False, True)
    calls = [one["budget"]["call_budget_remaining"] for one in (ping, pong)]
    assert calls == [9, 8]


async def test_over_the_rate_limit_is_429_with_retry_after(serve: Serve) -> None:
    served = await serve(rate_limit=RateLimitConfig(max_per_window=1, window_secs=60))
    token = await served.token("agent.a")
    await served.publish("agent.b", token=token)
    served.clock.advance_ms(500)
    rejected = await served.publish("agent.b", token=token)
    assert rejected.status_code == 429
    assert rejected.json()["reason"] == "rate_limited"
    assert rejected.json()["retry_after_ms"] == 59_500
    assert rejected.headers["retry-after"] == "60"


async def test_a_full_mailbox_is_429_without_its_depth(serve: Serve) -> None:
    served = await serve(backpressure=BackpressureConfig(max_mailbox_size=1))
    token = await served.token("agent.a")
    accepted = await served.publish("agent.b", token=token)
    rejected = await served.publish("agent.b", token=token)
    assert accepted.json()["mailbox_pressure"] == {}
    assert (rejected.status_code, rejected.json()["reason"]) == (429, "backpressure")
    assert not any(digit.isdigit() for digit in rejected.json()["error"])


async def test_an_operator_may_choose_to_show_pressure(serve: Serve) -> None:
    served = await serve(
        ServeOptions(show_pressure=True), backpressure=BackpressureConfig(max_mailbox_size=1)
    )
    accepted = await served.publish("agent.b")
    rejected = await served.publish("agent.b")
    assert list(accepted.json()["mailbox_pressure"].values()) == [0.0]
    assert "1/1" in rejected.json()["error"]


async def test_an_open_circuit_is_503(serve: Serve) -> None:
    served = await serve(circuit_breaker=CircuitBreakerConfig(failure_threshold=1))
    await served.publish("agent.b")
    served.relay._runtime.breaker_feedback.on_file_written("agent.b", ok=False)
    rejected = await served.publish("agent.b")
    assert (rejected.status_code, rejected.json()["reason"]) == (503, "circuit_open")
    assert rejected.headers["retry-after"] == "30"


async def test_an_overdrawn_budget_is_422_and_a_dead_letter(served: HttpRelay) -> None:
    rejected = await served.publish("agent.b", budget={"call_budget_remaining": 0})
    assert (rejected.status_code, rejected.json()["reason"]) == (422, "budget_exceeded")
    assert len(await served.relay.dead_letters("agent.b")) == 1


async def test_a_publish_forbidden_by_access_rules_is_403(served: HttpRelay) -> None:
    served.relay.access.add_rule(AccessRule("_anonymous", ">", "deny"))
    rejected = await served.publish("agent.b")
    assert (rejected.status_code, rejected.json()["reason"]) == (403, "access_denied")


async def test_a_full_disk_is_503(served: HttpRelay) -> None:
    served.relay._runtime.journal.full = True
    rejected = await served.publish("agent.b")
    assert (rejected.status_code, rejected.json()["reason"]) == (503, "storage_full")


async def test_a_partly_delivered_publish_is_200_with_its_rejections(serve: Serve) -> None:
    served = await serve(backpressure=BackpressureConfig(max_mailbox_size=1))
    for subject in ("agent.b", "agent.c"):
        served.relay.register_endpoint(subject)
    await served.publish("agent.b")
    answered = await served.publish("agent.*")
    assert answered.status_code == 200
    assert answered.json()["delivered_to"] == 1
    assert [one["reason"] for one in answered.json()["rejected"]] == ["backpressure"]


async def test_a_publish_without_recipients_is_not_an_error(served: HttpRelay) -> None:
    answered = await served.publish("elsewhere.x")
    assert (answered.status_code, answered.json()["delivered_to"]) == (200, 0)


async def test_numbers_in_payloads_keep_their_notation(served: HttpRelay) -> None:
    raw = b'{"subject":"agent.b","payload":{"big":123456789012345678901234567890,"f":1.10}}'
    sent = await served.call(
        "POST", "/v1/messages", content=raw, headers={"Content-Type": "application/json"}
    )
    assert sent.status_code == 200
    [stored] = served.relay._runtime.ledger.state.mailboxes["agent.b"].live.values()
    assert stored.content == b'{"big":123456789012345678901234567890,"f":1.10}'


async def test_the_operator_publishes_under_its_own_name(served: HttpRelay) -> None:
    await served.publish("agent.b", token=served.operator)
    [got] = await served.read("agent.b", token=served.operator)
    assert got["sender"] == "_operator"


async def test_a_response_is_json_that_must_not_be_cached(served: HttpRelay) -> None:
    answered = await served.publish("agent.b")
    assert answered.headers["content-type"] == "application/json"
    assert answered.headers["cache-control"] == "no-store"
    assert json.loads(answered.content)["delivered_to"] == 1


async def test_a_claimed_budget_of_a_parent_is_ignored(served: HttpRelay) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    await served.publish("agent.b", "ping", token=token_a)
    [ping] = await served.read("agent.b", token=token_b)
    await served.ack("agent.b", [ping["id"]], token=token_b)
    fresh = {"id": ping["id"], "budget": {"ttl": 1 << 52, "max_hops": 99}}
    rejected = await served.publish("agent.b", "loop", token=token_b, parent=fresh)
    assert rejected.json()["error"] == "cycle detected: agent.b already in chain"


async def test_claimed_ancestors_and_foreign_parents_are_ignored(served: HttpRelay) -> None:
    token_a, token_b = await served.token("agent.a"), await served.token("agent.b")
    chain = {"ttl": 1 << 52, "ancestor_chain": ["agent.helper"]}
    await served.publish("agent.b", token=token_a, budget={"ancestor_chain": ["agent.helper"]})
    await served.publish("agent.b", token=token_a, parent={"id": "other", "budget": chain})
    await served.publish("agent.b", parent={"id": "other", "budget": chain})
    got = await served.read("agent.b", token=token_b)
    assert [one["budget"]["ancestor_chain"] for one in got] == [["agent.b"]] * 3
    assert [one["parent"] for one in got] == [None] * 3


async def test_a_cut_budget_is_in_the_result(served: HttpRelay) -> None:
    sent = await served.publish("agent.b", budget={"max_hops": 99, "call_budget_remaining": 2})
    assert sent.json()["budget_cut"] == {"max_hops": 5}
    assert "budget_cut" not in (await served.publish("agent.b", budget={"max_hops": 5})).json()
    many = {"messages": [{"subject": "agent.b", "payload": 1, "budget": {"max_hops": 6}}]}
    answer = await served.call("POST", "/v1/messages", json=many)
    assert answer.json()["results"][0]["budget_cut"] == {"max_hops": 5}
