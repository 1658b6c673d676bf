"""Requests typed wrongly: each is answered with what happened and what to do instead."""

from typing import Any

import pytest

from tests.server.http.http_relay import HttpRelay

AS_OPERATOR: dict[str, tuple[Any, str]] = {
    "GET /v1/mesages": (None, "/docs describes all of them"),
    "POST /v1/agents": (None, "only GET"),
    "GET /v1/agents?skil=python": (None, "did you mean `skill`?"),
    "GET /v1/agents?skill=two words!": (None, "one word of lower-case letters"),
    "GET /v1/agents?limit=0": (None, "`int` >= 1 - at `$.limit`"),
    "GET /v1/agents/agent.codr": (None, "'waypost names list' shows all names"),
    "GET /v1/agents/agent..codr": (None, "a dot too many"),
    "POST /v1/agents/agent.codr/disconnect": (None, "'waypost agents list' shows who is"),
    "POST /v1/agents/agent.codr/release": (None, "check the spelling"),
    "PUT /v1/agents/me": ({"description": "me"}, "with its own token"),
    "GET /v1/messages?outcome=done": (None, "; it is one of acked, cancelled,"),
    "GET /v1/messages/nope": (None, "no such message in the journal: check the id"),
    "GET /v1/threads/nope": (None, "no such thread in the journal: check the id"),
    "GET /v1/inbox/agent.codr": (None, "check the spelling"),
    "GET /v1/live?show=everything": (None, "; it is one of agents, inboxes,"),
    "POST /v1/messages": ({"subjct": "agent.b", "payload": 1}, "did you mean `subject`?"),
    "POST /v1/inbox/agent.b/ack": ({"message": "x"}, "; its fields are ids"),
    "PUT /v1/webhooks/agent.b": ({"url": "https://a.de/", "content": "all"}, "; it is one of "),
    "DELETE /v1/webhooks/agent.b": (None, "'waypost webhooks set' sets one"),
    "POST /v1/rules": ({"from": "a", "to": "b", "action": "block"}, "; it is one of allow, deny"),
    "DELETE /v1/rules?from=a&to=b": (None, "'waypost rules list' shows all"),
    "DELETE /v1/names/agent.codr": (None, "'waypost names list' shows all names"),
    "PUT /v1/names/agent.codr": ({"public_key": "x"}, "'waypost keys show' prints it"),
    "PUT /v1/config": ({"maxHop": 7}, "did you mean 'maxHops'?"),
    "POST /v1/pipeline/backtest": ({"maxHop": 7}, "did you mean 'maxHops'?"),
}
MESSAGES = {
    '{"subject": "agent.b"': "the body is not JSON: ",
    '{"subject": "agent.b", "payload": 1, "text": 1}': "; its fields are budget, ",
    f'{{"subject": "agent.b", "payload": 1, "{"subjec" * 20}": 1}}': "; its fields are budget, ",
    '{"subject": "agent.b", "payload": 1, "deliver_at": "soon"}': "write it as 2026-05-01T09:00",
    '{"subject": "agent.b", "payload": 1, "budget": {"tll": 1}}': "did you mean `ttl`?",
    '{"messages": [{"subject": "agent.b", "payloat": 1}]}': "did you mean `payload`?",
}


@pytest.mark.parametrize("typed", AS_OPERATOR)
async def test_a_mistake_is_answered_with_what_to_do(served: HttpRelay, typed: str) -> None:
    body, answer = AS_OPERATOR[typed]
    method, _, path = typed.partition(" ")
    answered = await served.call(method, path, token=served.operator, json=body)
    assert 400 <= answered.status_code < 500
    assert answer in answered.json()["error"]


@pytest.mark.parametrize("content", MESSAGES)
async def test_a_mistake_in_a_message_is_answered_with_what_to_do(
    served: HttpRelay, content: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answered = await served.call("POST", "/v1/messages", content=content, headers=headers)
    assert answered.status_code == 400
    assert MESSAGES[content] in answered.json()["error"]


async def test_without_the_operators_token_the_error_names_its_file(served: HttpRelay) -> None:
    token = await served.token("agent.web")
    answered = await served.call("GET", "/v1/rules", token=token)
    assert answered.status_code == 403
    assert "the file operator-token" in answered.json()["error"]
