"""Access control: every operation with every kind of caller."""

from typing import Any

import pytest

from tests.server.http.http_relay import HttpRelay
from waypost.client.identity import Identity
from waypost.server.http.operations import OPERATIONS

KEY = Identity.new("agent.b").public_key
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/messages"): {"subject": "agent.b", "payload": 1},
    ("POST", "/v1/scheduled/cancel"): {"ids": ["m1"]},
    ("PUT", "/v1/agents/me"): {"skills": ["testing"]},
    ("POST", "/v1/inbox/batch"): {"inboxes": [{"subject": "agent.b"}]},
    ("POST", "/v1/inbox/{subject}/ack"): {"ids": ["m1"]},
    ("POST", "/v1/inbox/{subject}/nack"): {"ids": ["m1"]},
    ("POST", "/v1/inbox/{subject}/extend"): {"ids": ["m1"], "seconds": 1},
    ("POST", "/v1/dead-letters/redrive"): {"ids": ["m1"]},
    ("POST", "/v1/dead-letters/purge"): {},
    ("POST", "/v1/rules"): {"from": "a", "to": "b", "action": "allow"},
    ("PUT", "/v1/config"): {},
    ("POST", "/v1/pipeline/backtest"): {},
    ("PUT", "/v1/webhooks/{subject}"): {"url": "https://hooks.example.com/"},
    ("PUT", "/v1/names/{subject}"): {"public_key": KEY, "replace": True},
    ("POST", "/v1/auth/token"): {
        **{"subject": "agent.b", "public_key": "x", "signature": "x", "nonce": "x"},
    },
    ("POST", "/v1/auth/rotate"): {
        **{"subject": "agent.b", "public_key": "x", "signature": "x", "nonce": "x"},
        **{"new_public_key": "x", "new_signature": "x"},
    },
}

# The status of each operation: without a token, with a malformed one, with an expired one, for
# another agent, for the owner, and for the operator. "agent.b" is the owner.
OPEN = (200, 200, 200, 200, 200, 200)
OPERATOR = (401, 401, 401, 403, 403, 200)
OWN = (401, 401, 401, 403, 200, 200)

ANSWERS: dict[tuple[str, str], tuple[int, ...]] = {
    ("POST", "/v1/auth/challenge"): OPEN,
    ("POST", "/v1/auth/token"): (
        400,
        400,
        400,
        400,
        400,
        400,
    ),  # the keys are invalid for every caller
    ("POST", "/v1/auth/rotate"): (400, 400, 400, 400, 400, 400),  # so are these
    ("POST", "/v1/messages"): (200, 401, 401, 200, 200, 200),
    ("GET", "/v1/messages"): OPERATOR,
    ("GET", "/v1/messages/{id}"): (401, 401, 401, 404, 200, 200),
    ("GET", "/v1/threads/{id}"): (401, 401, 401, 404, 200, 200),
    ("GET", "/v1/scheduled"): (401, 401, 401, 200, 200, 200),  # each sees its own
    ("POST", "/v1/scheduled/cancel"): (401, 401, 401, 200, 200, 200),
    ("POST", "/v1/inbox/batch"): OWN,
    ("GET", "/v1/inbox/{subject}"): OWN,
    ("GET", "/v1/inbox/{subject}/peek"): OWN,
    ("POST", "/v1/inbox/{subject}/ack"): OWN,
    ("POST", "/v1/inbox/{subject}/nack"): OWN,
    ("POST", "/v1/inbox/{subject}/extend"): OWN,
    ("GET", "/v1/endpoints"): OPERATOR,
    ("PUT", "/v1/endpoints/{subject}"): OPERATOR,
    ("DELETE", "/v1/endpoints/{subject}"): OPERATOR,
    ("GET", "/v1/endpoints/{subject}/card"): (401, 401, 401, 200, 200, 200),
    ("GET", "/v1/endpoints/{subject}/usage"): OPERATOR,
    ("GET", "/v1/names"): OPERATOR,
    ("PUT", "/v1/names/{subject}"): OPERATOR,
    ("DELETE", "/v1/names/{subject}"): OPERATOR,
    ("PUT", "/v1/webhooks/{subject}"): (401, 401, 401, 403, 403, 403),  # no host is allowed
    ("GET", "/v1/webhooks/{subject}"): (401, 401, 401, 403, 404, 404),  # there is none
    ("POST", "/v1/webhooks/{subject}/test"): (401, 401, 401, 403, 404, 404),
    ("DELETE", "/v1/webhooks/{subject}"): (401, 401, 401, 403, 404, 404),
    ("GET", "/v1/agents"): (401, 401, 401, 200, 200, 200),  # each sees its contacts
    ("PUT", "/v1/agents/me"): (401, 401, 401, 200, 200, 403),  # the operator is no agent
    ("GET", "/v1/agents/{subject}"): (401, 401, 401, 404, 200, 200),
    ("POST", "/v1/agents/{subject}/disconnect"): (401, 401, 401, 403, 403, 404),
    ("POST", "/v1/agents/{subject}/release"): OPERATOR,
    ("GET", "/v1/breakers"): OPERATOR,
    ("POST", "/v1/breakers/{subject}/reset"): OPERATOR,
    ("GET", "/v1/dead-letters"): OPERATOR,
    ("POST", "/v1/dead-letters/redrive"): OPERATOR,
    ("POST", "/v1/dead-letters/purge"): OPERATOR,
    ("GET", "/v1/rules"): OPERATOR,
    ("POST", "/v1/rules"): OPERATOR,
    ("DELETE", "/v1/rules"): OPERATOR,
    ("GET", "/v1/config"): OPERATOR,
    ("PUT", "/v1/config"): OPERATOR,
    ("GET", "/v1/stats"): OPERATOR,
    ("GET", "/v1/live"): OPERATOR,
    ("GET", "/v1/pipeline"): OPERATOR,
    ("GET", "/v1/pipeline/report"): OPERATOR,
    ("POST", "/v1/pipeline/report"): (401, 401, 401, 403, 403, 409),  # this one starts no jobs
    ("POST", "/v1/pipeline/backtest"): (401, 401, 401, 403, 403, 409),
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/dashboard/{folder}/{file}"): OPEN,
}
QUERIES = {
    ("DELETE", "/v1/rules"): {"from": "a", "to": "b"},
    ("GET", "/v1/live"): {"once": "true"},  # otherwise the stream would not end
}
CALLERS = ("nobody", "garbage", "expired", "other", "owner", "operator")


async def token_of(served: HttpRelay, caller: str) -> str | None:
    if caller == "expired":
        token = await served.token("agent.b")
        served.clock.advance_ms(15 * 60_000 + 1)
        return token
    fixed = {"nobody": None, "garbage": "garbage", "operator": served.operator}
    if caller in fixed:
        return fixed[caller]
    return await served.token({"other": "agent.c", "owner": "agent.b"}[caller])


def test_every_operation_is_in_the_table() -> None:
    assert {(one.method, one.path) for one in OPERATIONS} == set(ANSWERS)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("method", "path"), ANSWERS)
async def test_each_response_matches_the_table(
    served: HttpRelay, method: str, path: str, caller: str
) -> None:
    await served.token("agent.b")  # the owner must be a known agent
    await served.publish("agent.b", message_id="m1")
    await served.call("POST", "/v1/rules", token=served.operator, json=BODIES["POST", "/v1/rules"])
    token = await token_of(served, caller)
    served.context.lake.mkdir()
    (served.context.lake / "report.html").write_text("<p>A report</p>")
    url = path.format(subject="agent.b", id="m1", folder="app", file="main.js")
    answered = await served.call(
        method,
        url,
        token=token,
        json=BODIES.get((method, path)),
        params=QUERIES.get((method, path)),
    )
    assert answered.status_code == ANSWERS[method, path][CALLERS.index(caller)], answered.text
    if answered.status_code == 401:
        assert answered.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer ", "garbage", ""])
async def test_only_bearer_tokens_are_accepted(served: HttpRelay, header: str) -> None:
    rejected = await served.call("GET", "/v1/stats", headers={"Authorization": header})
    assert rejected.status_code == 401


async def test_an_unauthorised_caller_learns_nothing_from_bad_input(served: HttpRelay) -> None:
    rejected = await served.call("PUT", "/v1/config", content=b"garbage")
    assert rejected.status_code == 401
