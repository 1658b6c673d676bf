"""Authentication over HTTP."""

import pytest

from tests.server.http.http_relay import HttpRelay
from waypost.client.identity import Identity


async def test_a_signed_challenge_is_exchanged_for_a_token(served: HttpRelay) -> None:
    identity = Identity.new("agent.a")
    challenge = await served.call("POST", "/v1/auth/challenge")
    given = await served.call("POST", "/v1/auth/token", json=served.proof(identity, challenge))
    assert given.status_code == 200
    assert given.json()["subject"] == "agent.a"
    assert given.json()["expires_at"] == served.clock() // 1000 + 15 * 60_000


async def test_a_replayed_challenge_is_rejected(served: HttpRelay) -> None:
    identity = Identity.new("agent.a")
    challenge = await served.call("POST", "/v1/auth/challenge")
    proof = served.proof(identity, challenge)
    await served.call("POST", "/v1/auth/token", json=proof)
    again = await served.call("POST", "/v1/auth/token", json=proof)
    assert (again.status_code, again.json()["reason"]) == (401, "not_authenticated")
    assert again.headers["www-authenticate"] == "Bearer"


async def test_a_proof_for_another_relay_is_rejected(served: HttpRelay) -> None:
    identity = Identity.new("agent.a")
    challenge = await served.call("POST", "/v1/auth/challenge")
    there = identity.prove(challenge.json()["nonce"], "elsewhere.test:8080")
    proof = {**served.proof(identity, challenge), "signature": there.signature}
    rejected = await served.call("POST", "/v1/auth/token", json=proof)
    assert rejected.status_code == 401


async def test_a_subject_belongs_to_its_first_key(served: HttpRelay) -> None:
    await served.token("agent.a")
    challenge = await served.call("POST", "/v1/auth/challenge")
    proof = served.proof(Identity.new("agent.a"), challenge)
    rejected = await served.call("POST", "/v1/auth/token", json=proof)
    assert (rejected.status_code, rejected.json()["reason"]) == (403, "subject_taken")


@pytest.mark.parametrize("subject", ["_relay", "_operator", "a..b"])
async def test_a_reserved_or_invalid_subject_is_rejected(served: HttpRelay, subject: str) -> None:
    challenge = await served.call("POST", "/v1/auth/challenge")
    proof = served.proof(Identity.new("agent.a"), challenge)
    rejected = await served.call("POST", "/v1/auth/token", json={**proof, "subject": subject})
    assert rejected.status_code == 400


async def test_a_token_expires_after_15_minutes(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    served.clock.advance_ms(15 * 60_000)
    last = await served.call("GET", "/v1/inbox/agent.a", token=token)
    served.clock.advance_ms(1)
    over = await served.call("GET", "/v1/inbox/agent.a", token=token)
    assert (last.status_code, over.status_code) == (200, 401)


async def test_a_card_shows_the_keys_an_agent_proved(served: HttpRelay) -> None:
    token = await served.token("agent.a")
    card = await served.call("GET", "/v1/endpoints/agent.a/card", token=token)
    unknown = await served.call("GET", "/v1/endpoints/agent.b/card", token=token)
    assert card.json()["subject"] == "agent.a"
    assert {"public_key", "sealing_key", "sealing_signature"} < set(card.json())
    assert unknown.status_code == 404
