"""Tiers, quotas and fair eviction, over the HTTP of a relay on a port."""

from typing import Any

import pytest

from tests.specifications.served_relay import ServedRelay
from waypost import BackpressureConfig, QosConfig, TierLimits
from waypost.client import ClientOptions, Identity, connect
from waypost.testing import ManualClock

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS
KIB = 1024
ROOMY = BackpressureConfig(max_mailbox_size=10_000)
TEXT = b'{"error":"sender quota exceeded for this inbox"}'


@pytest.fixture
async def relay(served: ServedRelay) -> ServedRelay:
    """A relay on a port with the default quotas, and mailboxes larger than any of them."""
    return await served.start(backpressure=ROOMY)


def few(count: int, **more: Any) -> QosConfig:
    """Return the same quota of messages for every tier."""
    limits = TierLimits(count, 10_000_000)
    tiers = {f"tier{number}": limits for number in (1, 2, 3)}
    return QosConfig(**{"enabled": True, **tiers, **more})


async def accepted(
    relay: ServedRelay, count: int, *, payload: object = None, sender: str = "agent.s"
) -> int:
    """Send `count` messages to agent.r in one request; return how many are accepted."""
    body = {"messages": [{"subject": "agent.r", "payload": payload}] * count}
    answer = await relay.call("POST", "/v1/messages", token=await relay.token(sender), json=body)
    results = answer.json()["results"]
    reasons = {rejection["reason"] for one in results for rejection in one["rejected"]}
    assert reasons <= {"quota_exceeded"}
    return sum(one["delivered_to"] for one in results)


async def reply(relay: ServedRelay) -> None:
    """Let the recipient write to the sender."""
    answer = await relay.publish("agent.s", "a reply", token=await relay.token("agent.r"))
    assert answer.json()["delivered_to"] == 1


async def know_each_other(relay: ServedRelay, clock: ManualClock, tier: int) -> None:
    """Bring the sender into a tier of the recipient."""
    if tier > 1:
        await reply(relay)
    if tier == 2:
        clock.advance_ms(WEEK_MS + 1)


async def inbox(relay: ServedRelay) -> dict[str, Any]:
    """Return the statistics of the recipient's inbox."""
    stats = (await relay.call("GET", "/v1/stats", token=relay.operator)).json()
    found: dict[str, Any] = next(one for one in stats["inboxes"] if one["subject"] == "agent.r")
    return found


async def configure(relay: ServedRelay, **qos: Any) -> None:
    body = {"qos": qos}
    answer = await relay.call("PUT", "/v1/config", token=relay.operator, json=body)
    assert answer.status_code == 200, answer.text


# --- Tiers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "messages"), [(1, 20), (2, 100), (3, 500)])
async def test_each_tier_has_its_quota_of_messages(
    relay: ServedRelay, clock: ManualClock, tier: int, messages: int
) -> None:
    await know_each_other(relay, clock, tier)
    assert await accepted(relay, messages + 10) == messages
    assert (await inbox(relay))["senders"][0]["tier"] == tier


@pytest.mark.parametrize(("tier", "limit"), [(1, 256 * KIB), (2, 2048 * KIB), (3, 10_240 * KIB)])
async def test_each_tier_has_its_quota_of_bytes(
    relay: ServedRelay, clock: ManualClock, tier: int, limit: int
) -> None:
    await know_each_other(relay, clock, tier)
    payload = "x" * (limit // 16)
    count = 0
    while (await relay.publish("agent.r", payload, token=await relay.token("agent.s"))).is_success:
        count += 1
    used = (await inbox(relay))["bytes"]
    assert count == 15, "sixteen payloads alone fill it, and their headers count"
    assert used <= limit < used + used // count


async def test_writing_often_does_not_make_a_sender_known(
    relay: ServedRelay, clock: ManualClock
) -> None:
    await accepted(relay, 20)
    await relay.ack("agent.r", await leased(relay), token=await relay.token("agent.r"))
    clock.advance_ms(DAY_MS)
    assert await accepted(relay, 30) == 20


async def test_a_reply_years_ago_still_counts_for_the_middle_tier(
    relay: ServedRelay, clock: ManualClock
) -> None:
    await reply(relay)
    await relay.stop()
    clock.advance_ms(3 * 365 * DAY_MS)
    await relay.start(backpressure=ROOMY)
    assert await accepted(relay, 110) == 100


@pytest.mark.parametrize(("late_ms", "messages"), [(0, 500), (1, 100)])
async def test_seven_days_after_the_reply_a_sender_is_no_longer_active(
    relay: ServedRelay, clock: ManualClock, late_ms: int, messages: int
) -> None:
    await reply(relay)
    clock.advance_ms(WEEK_MS + late_ms)
    assert await accepted(relay, messages + 10) == messages


async def test_who_wrote_to_whom_is_remembered_over_a_restart(
    relay: ServedRelay, clock: ManualClock
) -> None:
    await reply(relay)
    clock.advance_ms(30 * DAY_MS)
    await relay.start(backpressure=ROOMY)
    assert await accepted(relay, 110) == 100


async def test_a_rejected_message_counts_as_contact(served: ServedRelay) -> None:
    unknown, known = TierLimits(0, 0), TierLimits(5, 10_000_000)
    qos = QosConfig(enabled=True, tier1=unknown, tier2=known, tier3=known)
    relay = await served.start(qos=qos)
    rejected = await relay.publish("agent.s", token=await relay.token("agent.r"))
    assert rejected.status_code == 429
    assert await accepted(relay, 6) == 5


# --- Quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spare", "status"), [(0, 200), (-1, 429)])
async def test_the_last_byte_may_be_used(relay: ServedRelay, spare: int, status: int) -> None:
    token = await relay.token("agent.s")
    await relay.publish("agent.r", "x" * 100, token=token)
    size = (await inbox(relay))["bytes"]
    await configure(relay, tier1={"maxEnvelopes": 10, "maxBytes": 2 * size + spare})
    assert (await relay.publish("agent.r", "x" * 100, token=token)).status_code == status


async def leased(relay: ServedRelay, **query: Any) -> list[str]:
    """Lease messages of the recipient; return their ids."""
    found = await relay.read("agent.r", token=await relay.token("agent.r"), **query)
    return [one["id"] for one in found]


async def test_a_leased_message_counts_until_it_is_acknowledged(relay: ServedRelay) -> None:
    assert await accepted(relay, 21) == 20
    ids = await leased(relay, limit=3)
    assert await accepted(relay, 1) == 0
    await relay.ack("agent.r", ids, token=await relay.token("agent.r"))
    assert await accepted(relay, 5) == 3


async def test_expired_messages_free_the_quota(relay: ServedRelay, clock: ManualClock) -> None:
    assert await accepted(relay, 21) == 20
    clock.advance_ms(WEEK_MS + 1)
    assert await accepted(relay, 21) == 20


async def test_the_quota_of_one_sender_does_not_affect_another(relay: ServedRelay) -> None:
    assert await accepted(relay, 21) == 20
    assert await accepted(relay, 21, sender="agent.other") == 20
    sent = await relay.publish("agent.elsewhere", token=await relay.token("agent.s"))
    assert sent.status_code == 200, "the sender is not limited in other inboxes"


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_a_rejection_is_the_same_bytes_in_every_tier(
    served: ServedRelay, clock: ManualClock, tier: int
) -> None:
    relay = await served.start(qos=few(1))
    await know_each_other(relay, clock, tier)
    await accepted(relay, 1)
    rejected = await relay.publish("agent.r", token=await relay.token("agent.s"))
    assert (rejected.status_code, rejected.content) == (429, TEXT)
    assert "retry-after" not in rejected.headers


async def test_limits_and_window_are_settings(relay: ServedRelay, clock: ManualClock) -> None:
    limits = {f"tier{number}": {"maxEnvelopes": number} for number in (1, 2, 3)}
    await configure(relay, bidirectionalWindowMs=1_000, **limits)
    assert await accepted(relay, 5) == 1
    await reply(relay)
    assert await accepted(relay, 5) == 2, "three in all"
    clock.advance_ms(1_001)
    await relay.ack("agent.r", await leased(relay), token=await relay.token("agent.r"))
    assert await accepted(relay, 5) == 2


async def test_a_full_inbox_evicts_the_oldest_of_the_heaviest_sender(served: ServedRelay) -> None:
    relay = await served.start(qos=few(100, inbox_max_bytes=5_000))
    light, heavy = await relay.token("agent.light"), await relay.token("agent.heavy")
    await relay.publish("agent.r", "early", token=light)
    first = (await relay.publish("agent.r", "x" * 1500, token=heavy)).json()["message_id"]
    await relay.publish("agent.r", "y" * 1500, token=heavy)
    await relay.publish("agent.r", "z" * 1000, token=light)
    await relay.publish("agent.r", "late", token=light)
    read = await relay.read("agent.r", token=await relay.token("agent.r"))
    assert [one["payload"][:5] for one in read] == ["early", "yyyyy", "zzzzz", "late"]
    dead = (await relay.call("GET", "/v1/dead-letters", token=relay.operator)).json()
    assert [one["envelope"]["id"] for one in dead["dead_letters"]] == [first]


async def test_an_evicted_sender_that_is_connected_is_notified(served: ServedRelay) -> None:
    relay = await served.start(qos=few(100, inbox_max_bytes=5_000))
    heavy = await relay.connect("agent.heavy")
    (*_, first) = await heavy.send("agent.r", "x" * 2_500)
    await heavy.send("agent.r", "y" * 1_500)
    await relay.publish("agent.r", "z" * 1_500, token=await relay.token("agent.light"))
    notice = (await heavy.until("signal"))[-1]["signal"]
    assert (notice["state"], notice["endpoint_subject"]) == ("evicted", "agent.r")
    assert notice["data"]["message_id"] == first["message_id"]


async def test_an_evicted_sender_that_is_away_finds_a_notice(served: ServedRelay) -> None:
    relay = await served.start(qos=few(100, inbox_max_bytes=5_000))
    heavy = await relay.connect("agent.heavy")
    (*_, first) = await heavy.send("agent.r", "x" * 2_500)
    await heavy.send("agent.r", "y" * 1_500)
    await heavy.disconnect()
    await relay.publish("agent.r", "z" * 1_500, token=await relay.token("agent.light"))
    heavy = await relay.connect("agent.heavy")
    notice = (await heavy.until("message"))[-1]["envelope"]
    assert notice["sender"] == "_relay"
    assert first["message_id"] in notice["payload"]["text"]


@pytest.mark.parametrize("wish", ["maxPerWindow", "tier", "max_mailbox_size", "sender"])
async def test_a_sender_cannot_choose_its_limits(relay: ServedRelay, wish: str) -> None:
    answer = await relay.publish("agent.r", token=await relay.token("agent.s"), **{wish: 3})
    assert answer.status_code == 400
    sent = await relay.publish("agent.r", budget={"max_hops": 99, "call_budget_remaining": 99})
    assert sent.status_code == 200
    (read,) = await relay.read("agent.r", token=await relay.token("agent.r"))
    settings = (await relay.call("GET", "/v1/config", token=relay.operator)).json()["settings"]
    assert read["budget"]["max_hops"] == settings["maxHops"] == 5
    assert read["budget"]["call_budget_remaining"] == settings["defaultCallBudget"] - 1


# --- Reading by size -----------------------------------------------------------------------------


async def test_a_size_limit_leaves_larger_messages_in_their_places(relay: ServedRelay) -> None:
    token = await relay.token("agent.r")
    for payload in ("small 1", "large 1 " * 500, "small 2", "large 2 " * 500):
        await relay.publish("agent.r", payload)
    small = await relay.read("agent.r", token=token, max_size_bytes=2000)
    assert (await inbox(relay))["leased"] == 2, "the others do not count as delivered"
    rest = await relay.read("agent.r", token=token)
    assert [one["payload"] for one in small] == ["small 1", "small 2"]
    assert [one["payload"][:7] for one in rest] == ["large 1", "large 2"]


async def test_the_size_of_a_message_is_that_of_its_envelope(relay: ServedRelay) -> None:
    await relay.publish("agent.r", "x" * 50)
    size = (await inbox(relay))["bytes"]
    assert size > len('"' + "x" * 50 + '"')
    assert await leased(relay, max_size_bytes=size - 1) == []
    assert len(await leased(relay, max_size_bytes=size)) == 1


async def test_a_message_that_was_skipped_for_its_size_still_expires(
    relay: ServedRelay, clock: ManualClock
) -> None:
    await relay.publish("agent.r", "x" * 5_000)
    assert await leased(relay, max_size_bytes=1_000) == []
    clock.advance_ms(WEEK_MS + 1)
    assert await leased(relay) == []


async def test_several_inboxes_are_read_in_one_request_the_same_way(relay: ServedRelay) -> None:
    for subject in ("agent.b", "agent.c"):
        for payload in ("small", "x" * 5_000):
            await relay.publish(subject, payload)
    inboxes = [{"subject": one, "max_size_bytes": 1_000} for one in ("agent.c", "agent.b")]
    body = {"inboxes": inboxes}
    read = await relay.call("POST", "/v1/inbox/batch", token=relay.operator, json=body)
    found = {one["subject"]: one["messages"] for one in read.json()["inboxes"]}
    assert list(found) == ["agent.c", "agent.b"]
    assert [one["payload"] for some in found.values() for one in some] == ["small", "small"]


async def test_an_agent_fetches_small_messages_first_then_the_rest(relay: ServedRelay) -> None:
    for size in (10, 20_000, 11, 30_000, 12):
        await relay.publish("agent.r", "x" * size)
    options = ClientOptions(receive="pull")
    found = []
    async with connect(relay.url, relay.identity("agent.r"), options=options) as agent:
        async for message in agent.sync(small_max_bytes=8192):
            found.append(len(message.payload))
            await message.ack()
    assert found == [10, 11, 12, 20_000, 30_000]
    assert (await inbox(relay))["bytes"] == 0


# --- Privacy -------------------------------------------------------------------------------------


async def test_the_first_key_owns_a_name_without_registration(relay: ServedRelay) -> None:
    await relay.token("agent.s")
    async with connect(relay.url, Identity.new("agent.new")) as agent:
        assert agent.subject == "agent.new"
    thief = ServedRelay(relay.data_dir, ManualClock())
    nonce = (await relay.call("POST", "/v1/auth/challenge")).json()["nonce"]
    proof = thief.identity("agent.s").prove(nonce, relay.url.removeprefix("http://"))
    body = {"subject": "agent.s", "public_key": proof.public_key, "signature": proof.signature}
    answer = await relay.call("POST", "/v1/auth/token", json={**body, "nonce": nonce})
    assert (answer.status_code, answer.json()["reason"]) == (403, "subject_taken")
    await thief.close()


async def test_an_agent_discards_mail_of_those_it_blocks_and_the_relay_learns_nothing(
    relay: ServedRelay,
) -> None:
    async with connect(relay.url, relay.identity("agent.r")) as agent:
        agent.block("agent.s")
        sent = await relay.publish("agent.r", "from s", token=await relay.token("agent.s"))
        assert sent.json()["delivered_to"] == 1
        await relay.publish("agent.r", "from another")
        assert (await agent.receive(60)).payload == "from another"
        assert agent.blocked_count == 1


async def test_the_settings_in_force_can_be_read_by_the_operator_only(relay: ServedRelay) -> None:
    settings = (await relay.call("GET", "/v1/config", token=relay.operator)).json()["settings"]
    assert settings["qos"]["tier1"] == {"maxEnvelopes": 20, "maxBytes": 256 * KIB}
    assert settings["qos"]["tier2"] == {"maxEnvelopes": 100, "maxBytes": 2048 * KIB}
    assert settings["qos"]["tier3"] == {"maxEnvelopes": 500, "maxBytes": 10_240 * KIB}
    assert settings["qos"]["bidirectionalWindowMs"] == WEEK_MS
    for token in ("", await relay.token("agent.s")):
        assert (await relay.call("GET", "/v1/config", token=token)).status_code in (401, 403)
