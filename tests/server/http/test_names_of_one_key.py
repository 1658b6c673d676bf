"""One key with several names: any of its tokens reads all of its inboxes."""

from typing import Any

import pytest

from tests.server.http.http_relay import HttpRelay


async def lease(served: HttpRelay, token: str, *subjects: str) -> Any:
    body = {"inboxes": [{"subject": subject} for subject in subjects]}
    return await served.call("POST", "/v1/inbox/batch", token=token, json=body)


async def test_one_request_leases_from_all_names_of_a_key(served: HttpRelay) -> None:
    token, _ = await served.tokens_of_one_key("agent.shop.a", "agent.shop.b")
    await served.publish("agent.shop.a", "to a")
    await served.publish("agent.shop.b", "to b")
    found = await lease(served, token, "agent.shop.a", "agent.shop.b")
    assert found.status_code == 200, found.text
    leased = {one["subject"]: one["messages"] for one in found.json()["inboxes"]}
    assert {name: [one["payload"] for one in some] for name, some in leased.items()} == {
        "agent.shop.a": ["to a"],
        "agent.shop.b": ["to b"],
    }
    for name, messages in leased.items():
        done = await served.ack(name, [messages[0]["id"]], token=token)
        assert done.json() == {"count": 1}


async def test_every_operation_on_an_inbox_is_open_to_its_key(served: HttpRelay) -> None:
    token, _ = await served.tokens_of_one_key("agent.shop.a", "agent.shop.b")
    await served.publish("agent.shop.b", "one")
    path = "/v1/inbox/agent.shop.b"
    assert len((await served.call("GET", f"{path}/peek", token=token)).json()["messages"]) == 1
    [got] = await served.read("agent.shop.b", token=token)
    back = await served.call("POST", f"{path}/nack", token=token, json={"ids": [got["id"]]})
    assert back.json() == {"count": 1}


async def test_the_names_of_another_key_stay_closed(served: HttpRelay) -> None:
    token, _ = await served.tokens_of_one_key("agent.shop.a", "agent.shop.b")
    await served.token("agent.other")
    await served.publish("agent.shop.b", "stays")
    found = await lease(served, token, "agent.shop.b", "agent.other")
    assert found.status_code == 403
    free = await lease(served, token, "agent.shop.a", "agent.free")
    assert free.status_code == 403, "a name that belongs to no key"
    pending = await served.call("GET", "/v1/inbox/agent.shop.b/peek", token=token)
    assert pending.json()["pending"] == 1, "if one is forbidden, none is read"


async def test_a_name_that_went_to_another_key_is_closed_at_once(served: HttpRelay) -> None:
    token, _ = await served.tokens_of_one_key("agent.shop.a", "agent.shop.b")
    assert (await lease(served, token, "agent.shop.b")).status_code == 200
    other = await served.tokens_of_one_key("agent.thief")
    assert other
    key = served.context.authenticator.key_of("agent.thief")
    assert key is not None
    served.context.authenticator.bindings.bind_by_operator("agent.shop.b", key, 0, replace=True)
    assert (await lease(served, token, "agent.shop.b")).status_code == 403
    assert (await lease(served, token, "agent.shop.a")).status_code == 200


@pytest.mark.parametrize("claimed", ["public_key", "key", "owner"])
async def test_what_a_request_says_about_keys_is_rejected(served: HttpRelay, claimed: str) -> None:
    token, _ = await served.tokens_of_one_key("agent.shop.a", "agent.shop.b")
    key = served.context.authenticator.key_of("agent.shop.a")
    body = {"inboxes": [{"subject": "agent.other", claimed: key}]}
    found = await served.call("POST", "/v1/inbox/batch", token=token, json=body)
    assert found.status_code == 400
