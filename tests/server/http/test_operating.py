"""Operation over HTTP: endpoints, dead letters, rules, settings, statistics."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.policy.breakers import CircuitBreakerConfig
from waypost.policy.errors import InvalidSettings
from waypost.policy.tiers import QosConfig, TierLimits


async def ask(served: HttpRelay, method: str, path: str, **request: Any) -> Any:
    answered = await served.call(method, path, token=served.operator, **request)
    assert answered.status_code == 200, answered.text
    return answered.json()


async def rejection(served: HttpRelay, method: str, path: str, **request: Any) -> int:
    answered = await served.call(method, path, token=served.operator, **request)
    return answered.status_code


# Endpoints


async def test_an_endpoint_is_registered_listed_and_unregistered(served: HttpRelay) -> None:
    made = await ask(served, "PUT", "/v1/endpoints/team.x")
    again = await ask(served, "PUT", "/v1/endpoints/team.x")
    listed = await ask(served, "GET", "/v1/endpoints")
    gone = await ask(served, "DELETE", "/v1/endpoints/team.x")
    assert made == again == gone == listed["endpoints"][0]
    assert (await ask(served, "GET", "/v1/endpoints"))["endpoints"] == []
    assert await rejection(served, "DELETE", "/v1/endpoints/team.x") == 404


async def test_endpoints_are_listed_by_name_in_pages(served: HttpRelay) -> None:
    for name in ("c", "a", "d", "b"):
        served.relay.register_endpoint(f"agent.{name}")
    first = await ask(served, "GET", "/v1/endpoints?limit=3")
    rest = await ask(served, "GET", f"/v1/endpoints?limit=3&after={first['next']}")
    assert [one["subject"][-1] for one in first["endpoints"]] == ["a", "b", "c"]
    assert [one["subject"][-1] for one in rest["endpoints"]] == ["d"]
    assert rest["next"] is None


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_reserved_names_cannot_be_registered(served: HttpRelay, method: str) -> None:
    assert await rejection(served, method, "/v1/endpoints/_relay") == 400


# Circuit breakers


async def open_breaker(served: HttpRelay, subject: str) -> None:
    """Fail with as many messages as it takes."""
    for number in range(5):
        await served.publish(subject, number)
    ids = [one["id"] for one in await served.read(subject, token=served.operator)]
    await ask(served, "POST", f"/v1/inbox/{subject}/nack", json={"ids": ids})


async def test_breakers_are_listed_and_reset(served: HttpRelay) -> None:
    await open_breaker(served, "agent.b")
    [(name, breaker)] = (await ask(served, "GET", "/v1/breakers"))["breakers"].items()
    assert (name, breaker["state"], breaker["consecutive_failures"]) == ("agent.b", "OPEN", 5)
    assert (await served.publish("agent.b", "x")).json()["reason"] == "circuit_open"
    done = await ask(served, "POST", "/v1/breakers/agent.b/reset")
    assert done == {"endpoint": "agent.b", "before": "OPEN"}
    assert (await served.publish("agent.b", "x")).status_code == 200
    assert (await ask(served, "GET", "/v1/breakers"))["breakers"] == {}


async def test_only_the_operator_resets_breakers_and_only_of_endpoints(served: HttpRelay) -> None:
    agent = await served.token("agent.b")
    denied = await served.call("POST", "/v1/breakers/agent.b/reset", token=agent)
    assert denied.status_code == 403
    assert await rejection(served, "POST", "/v1/breakers/agent.nobody/reset") == 404
    assert await rejection(served, "POST", "/v1/breakers/agent.>/reset") == 400


async def test_statistics_show_breakers_and_the_quotas_in_force(serve: Serve) -> None:
    served = await serve(qos=QosConfig(enabled=True, tier1=TierLimits(7, 7000)))
    await open_breaker(served, "agent.b")
    stats = await ask(served, "GET", "/v1/stats")
    assert stats["breakers"]["agent.b"]["state"] == "OPEN"
    assert stats["qos"]["enabled"] is True
    assert stats["qos"]["tier1"] == {"maxEnvelopes": 7, "maxBytes": 7000}


# Dead letters


async def dead_letter(served: HttpRelay, subject: str, message_id: str) -> None:
    budget = {"call_budget_remaining": 0}
    await served.publish(subject, "x", message_id=message_id, budget=budget)


async def test_dead_letters_are_listed_with_their_reason(served: HttpRelay) -> None:
    await dead_letter(served, "agent.b", "m1")
    await dead_letter(served, "agent.c", "m2")
    listed = await ask(served, "GET", "/v1/dead-letters?subject=agent.b")
    [dead] = listed["dead_letters"]
    assert (dead["envelope"]["id"], dead["reason"]) == ("m1", "call budget exhausted")
    assert (await ask(served, "GET", "/v1/dead-letters"))["total"] == 2


async def test_a_list_of_dead_letters_has_a_limit(served: HttpRelay) -> None:
    for n in range(3):
        await dead_letter(served, "agent.b", f"m{n}")
    listed = await ask(served, "GET", "/v1/dead-letters?limit=2")
    assert [one["envelope"]["id"] for one in listed["dead_letters"]] == ["m0", "m1"]
    assert listed["total"] == 3


async def test_dead_letters_are_grouped_by_endpoint_and_reason(served: HttpRelay) -> None:
    for n in range(3):
        await dead_letter(served, "agent.b", f"m{n}")
    await dead_letter(served, "agent.c", "other")
    listed = await ask(served, "GET", "/v1/dead-letters?group=true")
    assert "dead_letters" not in listed
    found = [(one["endpoint"], one["count"]) for one in listed["groups"]]
    assert found == [("agent.b", 3), ("agent.c", 1)]


async def test_pages_of_dead_letters_hold_each_once(served: HttpRelay) -> None:
    for number in range(5):
        await served.publish("agent.b", "x", message_id=f"d{number}", budget={"ttl": 0})
    await served.publish("agent.c", "x", message_id="other", budget={"ttl": 0})
    [group] = (await ask(served, "GET", "/v1/dead-letters?group=true&subject=agent.b"))["groups"]
    found, after = list[str](), {}
    while True:
        chosen = {"subject": "agent.b", "reason": group["reason"], "limit": "2", **after}
        page = await ask(served, "GET", "/v1/dead-letters", params=chosen)
        assert page["total"] == 5
        found += [one["envelope"]["id"] for one in page["dead_letters"]]
        if not page["next"]:
            break
        after = {"after": page["next"]}
    assert found == [f"d{number}" for number in range(5)]


async def test_redriving_reports_what_was_redriven_and_what_not(served: HttpRelay) -> None:
    await dead_letter(served, "agent.b", "m1")
    body = {"ids": ["m1", "unknown"]}
    answer = await ask(served, "POST", "/v1/dead-letters/redrive", json=body)
    assert answer == {"redriven": 1, "not_redriven": ["unknown"]}
    [got] = await served.read("agent.b", token=served.operator)
    assert got["id"] == "m1"


async def test_redriving_may_be_for_one_endpoint(served: HttpRelay) -> None:
    await dead_letter(served, "agent.b", "m1")
    body = {"ids": ["m1"], "subject": "agent.c"}
    answer = await ask(served, "POST", "/v1/dead-letters/redrive", json=body)
    assert answer == {"redriven": 0, "not_redriven": ["m1"]}


async def test_purging_deletes_what_is_old_enough(served: HttpRelay) -> None:
    await dead_letter(served, "agent.b", "old")
    served.clock.advance_ms(60_000)
    await dead_letter(served, "agent.b", "new")
    body = {"older_than_ms": 30_000}
    assert await ask(served, "POST", "/v1/dead-letters/purge", json=body) == {"count": 1}
    listed = await ask(served, "GET", "/v1/dead-letters")
    assert [one["envelope"]["id"] for one in listed["dead_letters"]] == ["new"]


async def test_any_age_is_accepted_for_a_purge(served: HttpRelay) -> None:
    body = {"older_than_ms": 1 << 53}
    assert await ask(served, "POST", "/v1/dead-letters/purge", json=body) == {"count": 0}


# Rules


async def test_a_rule_is_in_force_once_it_is_confirmed(served: HttpRelay) -> None:
    rule = {"from": "_anonymous", "to": "agent.>", "action": "deny", "priority": 5}
    listed = await ask(served, "POST", "/v1/rules", json=rule)
    assert listed == {"rules": [rule], "problem": ""}
    assert (await served.publish("agent.b")).status_code == 403
    query = {"from": "_anonymous", "to": "agent.>"}
    assert (await ask(served, "DELETE", "/v1/rules", params=query))["rules"] == []
    assert (await served.publish("agent.b")).status_code == 200


async def test_rules_of_one_pair_are_kept_by_priority(served: HttpRelay) -> None:
    low = {"from": "_anonymous", "to": "agent.>", "action": "deny", "priority": -5}
    high = {**low, "action": "allow", "priority": 5}
    for rule in (high, low):
        listed = await ask(served, "POST", "/v1/rules", json=rule)
    assert listed["rules"] == [high, low]
    assert (await served.publish("agent.b")).status_code == 200
    pair = {"from": "_anonymous", "to": "agent.>"}
    left = await ask(served, "DELETE", "/v1/rules", params={**pair, "priority": 5})
    assert left["rules"] == [low]
    assert (await served.publish("agent.b")).status_code == 403
    assert await rejection(served, "DELETE", "/v1/rules", params={**pair, "priority": 5}) == 404
    assert await rejection(served, "DELETE", "/v1/rules", params={**pair, "priority": "x"}) == 400
    await ask(served, "POST", "/v1/rules", json=high)
    assert (await ask(served, "DELETE", "/v1/rules", params=pair))["rules"] == []


async def test_an_unknown_rule_cannot_be_removed(served: HttpRelay) -> None:
    query = {"from": "a", "to": "b"}
    assert await rejection(served, "DELETE", "/v1/rules", params=query) == 404


@pytest.mark.parametrize(
    "rule",
    [
        {"from": "a b", "to": "b", "action": "deny"},
        {"from": "a", "to": "b", "action": "maybe"},
        {"from": "a", "to": "b"},
        {"from": "a", "to": "b", "action": "deny", "priority": 1 << 60},
    ],
)
async def test_a_bad_rule_is_400(served: HttpRelay, rule: dict[str, Any]) -> None:
    assert await rejection(served, "POST", "/v1/rules", json=rule) == 400


async def test_an_invalid_rules_file_must_be_repaired_first(served: HttpRelay, data: Path) -> None:
    (data / "access-rules.json").write_text("[{]")
    served.relay.access.reload()
    rule = {"from": "a", "to": "b", "action": "deny"}
    listed = await ask(served, "GET", "/v1/rules")
    assert "is invalid" in listed["problem"]
    assert await rejection(served, "POST", "/v1/rules", json=rule) == 409
    assert await rejection(served, "DELETE", "/v1/rules", params={"from": ">", "to": ">"}) == 409
    assert (data / "access-rules.json").read_text() == "[{]"


# Settings


async def test_new_settings_are_written_and_in_force(served: HttpRelay, data: Path) -> None:
    config = {"reliability": {"rateLimit": {"maxPerWindow": 1}}}
    answer = await ask(served, "PUT", "/v1/config", json=config)
    assert answer["written"]
    assert answer["settings"]["reliability"]["rateLimit"]["maxPerWindow"] == 1
    assert json.loads((data / "config.json").read_text()) == config
    assert [(await served.publish("agent.b")).status_code for _ in range(2)] == [200, 429]
    assert (await ask(served, "GET", "/v1/config"))["config"] == config


async def test_a_dry_run_writes_nothing(served: HttpRelay, data: Path) -> None:
    config = {"maxHops": 3}
    answer = await ask(served, "PUT", "/v1/config?dry_run=true", json=config)
    assert (answer["written"], answer["settings"]["maxHops"]) == (False, 3)
    assert not (data / "config.json").exists()
    assert served.relay.settings.max_hops == 5


@pytest.mark.parametrize(
    "content",
    [
        b'{"maxHops": 0}',
        b'{"surprise": 1}',
        b'{"rateLimit": {}}',
        b'{"storage": "maildir"}',
        b"[]",
        b"{",
        b'{"\xff": 1}',
    ],
)
async def test_one_invalid_value_rejects_the_whole_file(
    served: HttpRelay, data: Path, content: bytes
) -> None:
    await ask(served, "PUT", "/v1/config", json={"maxHops": 3})
    headers = {"Content-Type": "application/json"}
    status = await rejection(served, "PUT", "/v1/config", content=content, headers=headers)
    assert status == 400
    assert served.relay.settings.max_hops == 3
    assert json.loads((data / "config.json").read_text()) == {"maxHops": 3}


async def test_an_unknown_key_is_named_with_the_key_that_was_probably_meant(
    served: HttpRelay,
) -> None:
    wrong = {"qos": {"teir1": {}}}
    answer = await served.call("PUT", "/v1/config", token=served.operator, json=wrong)
    assert answer.status_code == 400
    assert answer.json()["error"] == "unknown key 'qos.teir1'; did you mean 'qos.tier1'?"


async def test_an_invalid_file_never_replaces_a_valid_one(served: HttpRelay, data: Path) -> None:
    file = served.relay._runtime.settings
    file.replace(b'{"maxHops": 3}')
    with pytest.raises(InvalidSettings):
        file.replace(b'{"maxHops": 0}')
    assert (data / "config.json").read_bytes() == b'{"maxHops": 3}'


async def test_tiers_can_be_unlimited(served: HttpRelay) -> None:
    off = {"maxEnvelopes": 18446744073709551615, "maxBytes": 18446744073709551615}
    config = {"qos": {"tier1": off, "tier2": off, "tier3": off}}
    answer = await ask(served, "PUT", "/v1/config", json=config)
    assert answer["notes"] == []
    token = await served.token("agent.b")
    for _ in range(21):
        assert (await served.publish("agent.a", token=token)).status_code == 200
    usage = await ask(served, "GET", "/v1/endpoints/agent.a/usage")
    assert [(one["max_messages"], one["max_bytes"]) for one in usage["tiers"]] == [(2**53,) * 2] * 3


async def test_settings_that_cannot_work_as_intended_are_listed(served: HttpRelay) -> None:
    config = {"leaseTimeoutMs": 10_000, "defaultTtlMs": 1000}
    answer = await ask(served, "PUT", "/v1/config?dry_run=true", json=config)
    assert any("leaseTimeoutMs" in note for note in answer["notes"])


async def test_an_ignored_file_is_shown_with_its_problem(served: HttpRelay, data: Path) -> None:
    (data / "config.json").write_text('{"maxHops": 0}')
    served.relay._runtime.settings.reload()
    answer = await ask(served, "GET", "/v1/config")
    assert answer["config"] == {"maxHops": 0}
    assert answer["settings"]["maxHops"] == 5
    assert "ignored" in answer["problem"]


# Statistics


async def test_stats_show_inboxes_and_the_senders_that_fill_them(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    await served.publish("agent.a", token=await served.token("agent.b"))
    for _ in range(2):
        await served.publish("agent.b", "hello", token=token)
    await served.publish("agent.b", "hello")
    stats = await ask(served, "GET", "/v1/stats")
    fullest = stats["inboxes"][0]
    assert (fullest["subject"], fullest["pending"], fullest["leased"]) == ("agent.b", 3, 0)
    assert fullest["bytes"] == sum(one["bytes"] for one in fullest["senders"])
    senders = {one["sender"]: (one["messages"], one["tier"]) for one in fullest["senders"]}
    assert senders == {"agent.a": (2, 3), "_anonymous": (1, 1)}


async def test_stats_show_the_fullest_inboxes_and_their_total(served: HttpRelay) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(count):
            await served.publish(f"agent.{name}")
    stats = await ask(served, "GET", "/v1/stats?inboxes=2")
    assert [one["subject"] for one in stats["inboxes"]] == ["agent.b", "agent.c"]
    assert stats["inboxes_total"] == 3


async def test_stats_show_breakers_rejections_and_problems(serve: Serve, data: Path) -> None:
    served = await serve(circuit_breaker=CircuitBreakerConfig(failure_threshold=1))
    await served.publish("agent.b")
    served.relay._runtime.breaker_feedback.on_file_written("agent.b", ok=False)
    await served.publish("agent.b")
    (data / "config.json").write_text("{")
    served.relay._runtime.settings.reload()
    stats = await ask(served, "GET", "/v1/stats")
    assert stats["breakers"]["agent.b"]["state"] == "OPEN"
    assert stats["rejected"] == {"circuit_open": 1}
    assert "ignored" in stats["problems"][0]


async def test_a_rule_can_be_tried_without_taking_effect(served: HttpRelay) -> None:
    asked = {"from": "_anonymous", "to": "agent.b", "action": "deny", "priority": 5}
    dry = {"params": {"dry_run": "true"}, "token": served.operator, "json": asked}
    would_be = await served.call("POST", "/v1/rules", **dry)
    assert would_be.json()["rules"] == [asked]
    rules = await served.call("GET", "/v1/rules", token=served.operator)
    assert rules.json()["rules"] == []
    assert (await served.publish("agent.b")).status_code == 200
    dry["json"] = {**asked, "to": "agent..b"}
    assert (await served.call("POST", "/v1/rules", **dry)).status_code == 400
