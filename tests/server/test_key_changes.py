"""Keys that are rotated by their agent and revoked by the operator, while the relay runs."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import ServeRelay, SocketRelay
from tests.server.test_names import Operator, connect, rejected
from waypost.client.identity import Identity
from waypost.policy.bounds import name_changes_per_minute_max
from waypost.wire import frames


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory that `serve_relay` serves."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700, exist_ok=True)
    return made


async def rotate(
    relay: SocketRelay, old: Identity, new: Identity, **changed: Any
) -> httpx.Response:
    """Rotate a key as an agent does; `changed` replaces fields of the proof."""
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as client:
        nonce = (await client.post("/v1/auth/challenge")).json()["nonce"]
        body = old.prove_rotation(nonce, relay.address, new) | changed
        return await client.post("/v1/auth/rotate", json=body)


async def is_kept_out(relay: SocketRelay, data: Path, identity: Identity) -> bool:
    """Return whether neither way in accepts these keys."""
    answer = await Operator(relay, data).log_in(identity)
    end = await rejected(relay, identity)
    return (answer.status_code, answer.json()["reason"], end.code) == (
        403,
        "key_revoked",
        frames.CLOSE_FORBIDDEN,
    )


async def test_an_agent_rotates_its_key_while_agents_talk(
    serve_relay: ServeRelay, data: Path
) -> None:
    relay = await serve_relay()
    operator, old, new = Operator(relay, data), Identity.new("agent.a"), Identity.new("agent.a")
    token = (await operator.log_in(old)).json()["token"]
    talking, other = await connect(relay, old), await relay.connect("agent.b")
    assert (await rotate(relay, old, new)).json() == {
        "subject": "agent.a",
        "public_key": new.public_key,
    }
    assert (await talking.end()).code == frames.CLOSE_FORBIDDEN
    await other.send("agent.a", "for the new key")
    assert (await operator.read_inbox("agent.a", token)).status_code == 401
    assert await is_kept_out(relay, data, old)
    assert (await (await connect(relay, new)).until(frames.Message)).envelope.sender == "agent.b"
    relay = await serve_relay()
    operator = Operator(relay, data)
    assert (await operator.read_inbox("agent.a", token)).status_code == 401
    assert await is_kept_out(relay, data, old)
    await connect(relay, new)


async def test_a_freed_key_is_kept_out_and_the_name_goes_to_the_next(
    serve_relay: ServeRelay, data: Path
) -> None:
    relay = await serve_relay()
    operator, lost = Operator(relay, data), Identity.new("agent.a")
    token = (await operator.log_in(lost)).json()["token"]
    agent = await connect(relay, lost)
    assert (await operator.unbind("agent.a")).status_code == 200
    assert (await agent.end()).code == frames.CLOSE_FORBIDDEN
    assert await is_kept_out(relay, data, lost)
    relay = await serve_relay()
    assert await is_kept_out(relay, data, lost)
    assert (await Operator(relay, data).read_inbox("agent.a", token)).status_code == 401
    await connect(relay, Identity.new("agent.a"))
    assert await is_kept_out(relay, data, lost)


async def test_the_operator_may_let_a_revoked_key_in_again(served: SocketRelay, data: Path) -> None:
    operator, key = Operator(served, data), Identity.new("agent.a")
    await operator.log_in(key)
    await operator.unbind("agent.a")
    assert (await operator.bind(key)).status_code == 200
    await connect(served, key)


async def test_every_earlier_key_of_a_name_is_kept_out(served: SocketRelay, data: Path) -> None:
    first, second, third = (Identity.new("agent.a") for _ in range(3))
    await connect(served, first)
    assert (await rotate(served, first, second)).status_code == 200
    assert (await Operator(served, data).bind(third, replace=True)).status_code == 200
    await Operator(served, data).unbind("agent.a")
    for one in (first, second, third):
        assert await is_kept_out(served, data, one)


async def test_a_rotation_whose_answer_was_lost_is_answered_again(served: SocketRelay) -> None:
    old, new = Identity.new("agent.a"), Identity.new("agent.a")
    await connect(served, old)
    first, again = await rotate(served, old, new), await rotate(served, old, new)
    assert first.json() == again.json()
    agent = await connect(served, new)
    await rotate(served, old, new)
    assert isinstance(await agent.send("agent.b", 1), frames.SendResult), "it stays connected"


async def test_only_the_owner_rotates_and_only_to_a_key_it_holds(
    served: SocketRelay, data: Path
) -> None:
    old, new, mallory = (Identity.new("agent.a") for _ in range(3))
    await connect(served, old)
    signature = mallory.prove_rotation("A" * 43, served.address, new)["signature"]
    for changed in (
        {"signature": signature},
        {"new_signature": signature},
        {"new_public_key": mallory.public_key},
        {"nonce": "A" * 43},
        {"subject": "agent.b"},
    ):
        answer = await rotate(served, old, new, **changed)
        assert answer.status_code == 401, changed
        assert "challenge" in answer.json()["error"]
    stolen = await rotate(served, mallory, new)
    assert (stolen.status_code, stolen.json()["reason"]) == (403, "subject_taken")
    assert (await rotate(served, old, old)).status_code == 400
    free = await rotate(served, Identity.new("agent.free"), Identity.new("agent.free"))
    assert (free.status_code, "waypost names list" in free.json()["error"]) == (404, False)
    assert await Operator(served, data).log_in(old)


async def test_a_name_does_not_return_to_a_key_it_was_rotated_from(served: SocketRelay) -> None:
    old, new = Identity.new("agent.a"), Identity.new("agent.a")
    await connect(served, old)
    await rotate(served, old, new)
    back = await rotate(served, new, old)
    assert (back.status_code, back.json()["reason"]) == (403, "key_revoked")


async def test_rotations_of_one_name_are_limited(served: SocketRelay) -> None:
    key = Identity.new("agent.a")
    await connect(served, key)
    for _ in range(name_changes_per_minute_max):
        old, key = key, Identity.new("agent.a")
        assert (await rotate(served, old, key)).status_code == 200
    answer = await rotate(served, key, Identity.new("agent.a"))
    assert (answer.status_code, answer.json()["reason"]) == (429, "rate_limited")
    assert 0 < answer.json()["retry_after_ms"] <= 60_000


async def test_a_rotated_name_keeps_what_the_operator_said_about_it(
    serve_relay: ServeRelay, data: Path
) -> None:
    (data / "config.json").write_text('{"names": {"policy": "closed"}}')
    relay = await serve_relay()
    old, new = Identity.new("agent.a"), Identity.new("agent.a")
    await Operator(relay, data).bind(old)
    assert (await rotate(relay, old, new)).status_code == 200
    await connect(relay, new)
