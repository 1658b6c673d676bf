"""Names of a served relay: reserved, closed, bound and freed by the operator. Through sockets."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.eventually import eventually
from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.sessions.raw_agent import RawAgent
from tests.server.sessions.transports import ConnectionEnded
from waypost.client.identity import Identity
from waypost.wire import frames
from waypost.wire.payloads import Signal, SignalType

RESERVED = {"names": {"policy": "reserved", "reserved": ["agent.ops.>"]}}
CLOSED = {"names": {"policy": "closed"}}
SIGNAL = Signal(
    type=SignalType.PROGRESS,
    state="working",
    endpoint_subject="agent.a",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory that `serve_relay` serves."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700, exist_ok=True)
    return made


class Operator:
    """Requests of the operator, and of agents over HTTP."""

    def __init__(self, relay: SocketRelay, data: Path) -> None:
        self.relay = relay
        self.token = (data / "operator-token").read_text().strip()

    async def call(self, method: str, path: str, token: str = "", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with httpx.AsyncClient(base_url=self.relay.url, trust_env=False) as client:
            return await client.request(method, path, headers=headers, **more)

    async def bind(self, identity: Identity, **more: Any) -> httpx.Response:
        body = {"public_key": identity.public_key, **more}
        return await self.call("PUT", f"/v1/names/{identity.subject}", json=body)

    async def unbind(self, subject: str) -> httpx.Response:
        return await self.call("DELETE", f"/v1/names/{subject}")

    async def log_in(self, identity: Identity) -> httpx.Response:
        """Ask for a token as an agent does."""
        async with httpx.AsyncClient(base_url=self.relay.url, trust_env=False) as client:
            nonce = (await client.post("/v1/auth/challenge")).json()["nonce"]
            proof = identity.prove(nonce, self.relay.address)
            body = {"subject": proof.subject, "public_key": proof.public_key, "nonce": nonce}
            return await client.post("/v1/auth/token", json=body | {"signature": proof.signature})

    async def read_inbox(self, subject: str, token: str, **query: Any) -> httpx.Response:
        return await self.call("GET", f"/v1/inbox/{subject}", token, params=query)


async def connect(relay: SocketRelay, identity: Identity) -> RawAgent:
    agent = await relay.dial()
    await agent.authenticate(identity)
    return agent


async def rejected(relay: SocketRelay, identity: Identity) -> ConnectionEnded:
    """Return how the relay ends the connection of an agent that it does not let in."""
    agent = await relay.dial()
    challenge = await agent.expect(frames.Challenge)
    await agent.send_frame(identity.prove(challenge.nonce, relay.address))
    answer = await agent.next()
    assert isinstance(answer, frames.Error), answer
    return await agent.end()


async def test_a_stranger_cannot_take_a_reserved_name(serve_relay: ServeRelay, data: Path) -> None:
    (data / "config.json").write_text(json.dumps(RESERVED))
    relay = await serve_relay()
    mallory = Identity.new("agent.ops.mallory")
    assert (await rejected(relay, mallory)).code == frames.CLOSE_FORBIDDEN
    answer = await Operator(relay, data).log_in(mallory)
    assert (answer.status_code, answer.json()["reason"]) == (403, "name_reserved")
    await connect(relay, Identity.new("agent.anyone"))


async def test_a_key_bound_by_the_operator_uses_its_reserved_name(
    serve_relay: ServeRelay, data: Path
) -> None:
    (data / "config.json").write_text(json.dumps(RESERVED))
    relay = await serve_relay()
    operator, deploy = Operator(relay, data), Identity.new("agent.ops.deploy")
    bound = await operator.bind(deploy)
    assert (bound.status_code, bound.json()["by_operator"]) == (200, True)
    await connect(relay, deploy)
    end = await rejected(relay, Identity.new("agent.ops.deploy"))
    assert end.code == frames.CLOSE_FORBIDDEN
    relay = await serve_relay()  # the binding survives a restart
    await connect(relay, deploy)


async def test_a_closed_relay_lets_only_names_of_the_operator_in(
    serve_relay: ServeRelay, data: Path
) -> None:
    (data / "config.json").write_text(json.dumps(CLOSED))
    relay = await serve_relay()
    web = Identity.new("agent.web")
    assert (await rejected(relay, web)).code == frames.CLOSE_FORBIDDEN
    assert (await Operator(relay, data).bind(web)).status_code == 200
    await connect(relay, web)


async def test_a_name_taken_before_it_was_reserved_is_no_longer_let_in(
    serve_relay: ServeRelay, data: Path
) -> None:
    relay = await serve_relay()
    operator, squatter = Operator(relay, data), Identity.new("agent.ops.web")
    token = (await operator.log_in(squatter)).json()["token"]
    agent = await connect(relay, squatter)
    assert (await operator.call("PUT", "/v1/config", json=RESERVED)).status_code == 200
    assert (await agent.end()).code == frames.CLOSE_FORBIDDEN
    assert (await operator.read_inbox("agent.ops.web", token)).status_code == 401
    assert (await rejected(relay, squatter)).code == frames.CLOSE_FORBIDDEN
    await operator.bind(squatter)  # the operator may confirm its key
    await connect(relay, squatter)


async def test_no_name_is_bound_while_the_settings_file_is_broken(
    serve_relay: ServeRelay, data: Path
) -> None:
    relay = await serve_relay()
    known = Identity.new("agent.known")
    await connect(relay, known)
    (data / "config.json").write_text('{"names": {"policy": "closde"}}')
    relay = await serve_relay()
    await connect(relay, known)
    assert (await rejected(relay, Identity.new("agent.new"))).code == 1013
    assert (await Operator(relay, data).log_in(Identity.new("agent.new"))).status_code == 503


async def test_a_freed_name_ends_its_connection_and_goes_to_the_next_key(
    served: SocketRelay, data: Path
) -> None:
    operator, old = Operator(served, data), Identity.new("agent.web")
    agent = await connect(served, old)
    assert (await operator.unbind("agent.web")).json()["public_key"] == old.public_key
    assert (await agent.end()).code == frames.CLOSE_FORBIDDEN
    await connect(served, Identity.new("agent.web"))
    assert (await operator.unbind("agent.unknown")).status_code == 404


async def test_a_name_is_replaced_in_one_step(served: SocketRelay, data: Path) -> None:
    operator, old, new = Operator(served, data), *(Identity.new("agent.web") for _ in range(2))
    agent = await connect(served, old)
    taken = await operator.bind(new)
    assert (taken.status_code, taken.json()["reason"]) == (403, "subject_taken")
    assert (await operator.bind(new, replace=True)).status_code == 200
    assert (await agent.end()).code == frames.CLOSE_FORBIDDEN
    assert (await rejected(served, old)).code == frames.CLOSE_FORBIDDEN
    await connect(served, new)


async def test_names_are_listed_in_pages(served: SocketRelay, data: Path) -> None:
    operator = Operator(served, data)
    for subject in ("agent.c", "agent.a", "agent.b"):
        await operator.bind(Identity.new(subject))
    first = (await operator.call("GET", "/v1/names", params={"limit": 2})).json()
    assert [one["subject"] for one in first["names"]] == ["agent.a", "agent.b"]
    rest = await operator.call("GET", "/v1/names", params={"after": first["next"]})
    assert [one["subject"] for one in rest.json()["names"]] == ["agent.c"]
    assert rest.json()["next"] is None


@pytest.mark.parametrize("subject", ["_relay", "agent.*", "agent..a"])
async def test_the_operator_cannot_bind_a_name_that_no_agent_may_use(
    served: SocketRelay, data: Path, subject: str
) -> None:
    body = {"public_key": Identity.new("agent.a").public_key}
    answer = await Operator(served, data).call("PUT", f"/v1/names/{subject}", json=body)
    assert answer.status_code == 400


# --- Access rules that name a key ----------------------------------------------------------------


async def test_a_rule_with_a_key_lets_no_other_key_through(served: SocketRelay, data: Path) -> None:
    operator, web = Operator(served, data), Identity.new("agent.web")
    allowed = {"from": ">", "to": "agent.billing", "action": "allow", "priority": 20}
    denied = {"from": ">", "to": "agent.billing", "action": "deny", "priority": 10}
    for rule in (allowed | {"fromKey": web.public_key}, denied):
        assert (await operator.call("POST", "/v1/rules", json=rule)).status_code == 200
    trusted = await connect(served, web)
    assert isinstance(await trusted.send("agent.billing", 1), frames.SendResult)
    # A name that goes to another key takes no right with it.
    await operator.unbind("agent.web")
    other = await connect(served, Identity.new("agent.web"))
    answer = await other.send("agent.billing", 1)
    assert isinstance(answer, frames.Error)
    assert answer.reason == "access_denied"
    async with httpx.AsyncClient(base_url=served.url, trust_env=False) as anonymous:
        message = {"subject": "agent.billing", "payload": 1}
        assert (await anonymous.post("/v1/messages", json=message)).status_code == 403


async def test_signals_follow_a_rule_with_a_key(served: SocketRelay, data: Path) -> None:
    operator, spy = Operator(served, data), Identity.new("agent.spy")
    rule = {"from": ">", "to": "agent.a", "action": "deny", "fromKey": spy.public_key}
    assert (await operator.call("POST", "/v1/rules", json=rule)).status_code == 200
    agent = await connect(served, spy)
    await agent.send_frame(frames.SendSignal(subject="agent.a", signal=SIGNAL))
    assert (await agent.until(frames.Error)).reason == "access_denied"


async def test_rules_of_several_keys_stand_side_by_side(served: SocketRelay, data: Path) -> None:
    operator = Operator(served, data)
    keys = [Identity.new("agent.web").public_key for _ in range(2)]
    for key in keys:
        rule = {"from": "agent.web", "to": ">", "action": "deny", "fromKey": key}
        await operator.call("POST", "/v1/rules", json=rule)
    query = {"from": "agent.web", "to": ">", "fromKey": keys[0]}
    rest = (await operator.call("DELETE", "/v1/rules", params=query)).json()["rules"]
    assert [one["fromKey"] for one in rest] == [keys[1]]
    malformed = {"from": ">", "to": ">", "action": "deny", "fromKey": "not a key"}
    assert (await operator.call("POST", "/v1/rules", json=malformed)).status_code == 400


# --- How many names ------------------------------------------------------------------------------


async def test_new_names_from_one_address_are_limited(serve_relay: ServeRelay, data: Path) -> None:
    (data / "config.json").write_text('{"names": {"newPerAddressMinute": 3}}')
    relay = await serve_relay()
    operator, known = Operator(relay, data), Identity.new("agent.known")
    for identity in (known, *(Identity.new(f"agent.{n}") for n in range(2))):
        assert (await operator.log_in(identity)).status_code == 200
    rejection = await operator.log_in(Identity.new("agent.one-more"))
    assert (rejection.status_code, rejection.json()["reason"]) == (429, "rate_limited")
    assert 0 < rejection.json()["retry_after_ms"] <= 60_000
    assert int(rejection.headers["retry-after"]) > 0
    assert (await rejected(relay, Identity.new("agent.one-more"))).code == 1013
    await connect(relay, known)  # known names are not affected
    assert (await operator.bind(Identity.new("agent.of-the-operator"))).status_code == 200


async def test_new_names_are_limited_in_total(serve_relay: ServeRelay, data: Path) -> None:
    (data / "config.json").write_text('{"names": {"newPerMinute": 2}}')
    operator = Operator(await serve_relay(), data)
    answers = [await operator.log_in(Identity.new(f"agent.{n}")) for n in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]


async def test_one_key_holds_a_limited_number_of_names(serve_relay: ServeRelay, data: Path) -> None:
    (data / "config.json").write_text('{"names": {"maxPerKey": 2}}')
    operator = Operator(await serve_relay(), data)
    keys = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
    answers = [await operator.log_in(Identity(f"agent.{n}", *keys)) for n in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 403]
    assert answers[2].json()["reason"] == "too_many_names"
    assert (await operator.unbind("agent.0")).status_code == 200
    assert (await operator.log_in(Identity("agent.2", *keys))).status_code == 200


async def test_a_name_is_in_use_once_its_agent_sends_a_frame(
    served: SocketRelay, data: Path
) -> None:
    operator = Operator(served, data)
    for subject in ("agent.silent", "agent.sending"):
        agent = await served.connect(subject)
        if subject == "agent.sending":
            await agent.send("agent.billing", 1)
        await agent.disconnect()

    async def is_written() -> bool:
        listed = (await operator.call("GET", "/v1/names")).json()["names"]
        return {one["subject"]: one["unused"] for one in listed} == {
            "agent.silent": True,
            "agent.sending": False,
        }

    await eventually(is_written, "the use of a name to be written")


# --- Tokens ---------------------------------------------------------------------------------------


async def test_a_token_ends_when_its_name_goes_to_another_key(
    serve_relay: ServeRelay, data: Path
) -> None:
    operator = Operator(await serve_relay(), data)
    token = (await operator.log_in(Identity.new("agent.web"))).json()["token"]
    assert (await operator.read_inbox("agent.web", token)).status_code == 200
    await operator.relay.stop()
    file = data / "identities.jsonl"  # a name can also be freed by hand
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(one for one in lines if b"agent.web" not in one))
    operator = Operator(await serve_relay(), data)
    assert (await operator.log_in(Identity.new("agent.web"))).status_code == 200
    assert (await operator.read_inbox("agent.web", token)).status_code == 401
    assert (await operator.call("POST", "/v1/messages", token, json={})).status_code == 401


async def test_a_token_ends_when_its_name_is_freed(served: SocketRelay, data: Path) -> None:
    operator = Operator(served, data)
    token = (await operator.log_in(Identity.new("agent.web"))).json()["token"]
    await operator.unbind("agent.web")
    assert (await operator.read_inbox("agent.web", token)).status_code == 401


async def test_a_waiting_read_gets_no_messages_of_the_next_owner(
    served: SocketRelay, data: Path
) -> None:
    operator = Operator(served, data)
    old, new = Identity.new("agent.web"), Identity.new("agent.web")
    token = (await operator.log_in(old)).json()["token"]
    waiting = asyncio.create_task(operator.read_inbox("agent.web", token, wait=20))
    leases = served.context.relay._runtime.leases
    await eventually(lambda: bool(leases._waiters))
    assert (await operator.bind(new, replace=True)).status_code == 200
    message = {"subject": "agent.web", "payload": "for the new owner"}
    assert (await operator.call("POST", "/v1/messages", json=message)).status_code == 200
    assert (await waiting).status_code == 401
    token = (await operator.log_in(new)).json()["token"]
    read = (await operator.read_inbox("agent.web", token)).json()["messages"]
    assert [one["payload"] for one in read] == ["for the new owner"]
