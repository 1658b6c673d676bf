"""`config.json`: overrides the caller's settings and the defaults; reloaded when it changes."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.relay.observing import drafts, events, remove, send, write
from waypost import (
    InvalidSettings,
    QosConfig,
    RateLimitConfig,
    Relay,
    Settings,
    TierLimits,
)
from waypost.testing import ManualClock

LIMIT_OF_TWO = {"reliability": {"rateLimit": {"maxPerWindow": 2}}}


@pytest.fixture
def config(data: Path) -> Path:
    return data / "config.json"


async def test_without_a_file_and_settings_the_defaults_hold(data: Path) -> None:
    async with Relay(data, clock=ManualClock()) as relay:
        assert relay.settings == Settings()


async def test_the_file_overrides_the_caller_who_overrides_the_defaults(
    start, config: Path
) -> None:
    write(config, {"maxHops": 7, "reliability": {"rateLimit": {"windowSecs": 7}}})
    relay = await start(max_hops=3, rate_limit=RateLimitConfig(window_secs=3, max_per_window=3))
    assert relay.settings.max_hops == 7
    assert relay.settings.rate_limit.window_secs == 7
    assert relay.settings.rate_limit.max_per_window == 3
    assert relay.settings.default_call_budget == 10


@pytest.mark.parametrize(
    "content",
    [
        {"maxHops": 0},
        {"maxHops": 7, "reliability": {"backpressure": {"pressureWarningAt": 1.5}}},
        {"maxHops": 7, "colour": "red"},
        {"rateLimit": {"enabled": False}},
        {"storage": "paper"},
        '{"maxHops": 7',
        "[]",
        "",
    ],
)
async def test_a_file_with_one_bad_value_is_ignored_completely(
    start, config: Path, content: object
) -> None:
    write(config, content)
    relay = await start(max_hops=3)
    assert relay.settings.max_hops == 3
    (problem,) = relay.metrics().problems
    assert str(config) in problem
    assert "is ignored" in problem


async def test_a_problem_in_the_file_names_the_field(start, config: Path) -> None:
    write(config, {"reliability": {"circuitBreaker": {"cooldownMs": 5}}})
    relay = await start()
    assert "cooldownMs" in relay.metrics().problems[0]


UNKNOWN_KEYS = [
    ({"colour": "red"}, "unknown key 'colour'"),
    ({"maxHop": 3}, "unknown key 'maxHop'; did you mean 'maxHops'?"),
    ({"max_hops": 3}, "unknown key 'max_hops'; did you mean 'maxHops'?"),
    ({"rateLimit": {}}, "unknown key 'rateLimit'; did you mean 'reliability.rateLimit'?"),
    (
        {"maxPerWindow": 3},
        "unknown key 'maxPerWindow';"
        " did you mean 'reliability.rateLimit.maxPerWindow' or 'signals.maxPerWindow'?",
    ),
    (
        {"reliability": {"ratelimit": {}}},
        "unknown key 'reliability.ratelimit'; did you mean 'reliability.rateLimit'?",
    ),
    (
        {"reliability": {"rateLimit": {"maxPerWindw": 1}}},
        "unknown key 'reliability.rateLimit.maxPerWindw';"
        " did you mean 'reliability.rateLimit.maxPerWindow'?",
    ),
    (
        {"qos": {"strangers": {"maxEnvelope": 1}}},
        "unknown key 'qos.strangers.maxEnvelope'; did you mean 'qos.strangers.maxEnvelopes'?",
    ),
    (
        {"qos": {"tier1": {"maxEnvelopes": 1, "maxBytes": 1, "tier": {"maxBytes": 1}}}},
        "unknown key 'qos.tier1.tier'",
    ),
    ({"x" * 100_000: 1}, "unknown key '" + "x" * 100 + "…'"),
]


@pytest.mark.parametrize(("content", "problem"), UNKNOWN_KEYS, ids=lambda one: str(one)[:40])
async def test_an_unknown_key_is_named_with_the_key_that_was_probably_meant(
    start, config: Path, content: object, problem: str
) -> None:
    write(config, content)
    relay = await start()
    assert relay.settings == Settings(watch_files=False, durability="async")
    assert relay.metrics().problems == [f"{config} is ignored: {problem}"]
    with pytest.raises(InvalidSettings) as raised:
        relay.settings_file.replace(json.dumps(content).encode())
    assert str(raised.value) == problem


async def test_keys_of_senders_are_not_settings(start, config: Path) -> None:
    write(config, {"reliability": {"rateLimit": {"perSenderOverrides": {"agent.any": 5}}}})
    relay = await start()
    assert relay.metrics().problems == []


async def test_an_unknown_key_from_the_caller_is_named_in_the_same_words(data: Path) -> None:
    wrong: Any = {"maxPerWindw": 1}
    with pytest.raises(InvalidSettings, match=r"rateLimit\.maxPerWindw'; did you mean"):
        await Relay(data, settings=Settings(rate_limit=wrong)).open()


async def test_bad_settings_from_the_caller_are_an_error(data: Path) -> None:
    with pytest.raises(InvalidSettings, match="maxHops"):
        await Relay(data, settings=Settings(max_hops=0)).open()


async def test_a_relay_that_failed_to_open_has_unlocked_the_directory(data: Path) -> None:
    with pytest.raises(InvalidSettings):
        await Relay(data, settings=Settings(max_hops=0)).open()
    async with Relay(data, clock=ManualClock()) as relay:
        assert relay.settings.max_hops == 5


async def test_a_changed_file_takes_effect_while_the_relay_runs(start, config: Path) -> None:
    relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    write(config, LIMIT_OF_TWO)
    await eventually(lambda: relay.settings.rate_limit.max_per_window == 2, "the new settings")
    results = await relay.publish_many(drafts(3))
    assert [result.delivered_to for result in results] == [1, 1, 0]


async def test_a_file_that_becomes_bad_leaves_the_last_good_settings(start, config: Path) -> None:
    write(config, {"maxHops": 7})
    relay = await start(watch_files=True)
    write(config, {"maxHops": "many"})
    await eventually(lambda: relay.metrics().problems, "the problem")
    assert relay.settings.max_hops == 7


async def test_a_repaired_file_clears_the_problem(start, config: Path) -> None:
    write(config, {"maxHops": "many"})
    relay = await start(watch_files=True)
    write(config, {"maxHops": 7})
    await eventually(lambda: relay.settings.max_hops == 7, "the new settings")
    assert relay.metrics().problems == []


async def test_after_deleting_the_file_the_callers_settings_apply(start, config: Path) -> None:
    write(config, {"maxHops": 7})
    relay = await start(watch_files=True, max_hops=3)
    remove(config)
    await eventually(lambda: relay.settings.max_hops == 3, "the caller's settings")


async def test_a_file_replaced_by_a_rename_is_noticed(start, config: Path) -> None:
    relay = await start(watch_files=True)
    beside = config.with_name("config.json.new")
    write(beside, {"maxHops": 7})
    beside.rename(config)
    await eventually(lambda: relay.settings.max_hops == 7, "the new settings")


async def test_storage_cannot_change_while_the_relay_runs(start, config: Path) -> None:
    relay = await start(watch_files=True, storage="maildir")
    write(config, {"storage": "journal", "maxHops": 7})
    await eventually(lambda: relay.metrics().problems, "the problem")
    assert (
        "'storage' can only be changed while the relay is stopped" in (relay.metrics().problems[0])
    )
    assert (relay.settings.storage, relay.settings.max_hops) == ("maildir", 5)


async def test_storage_may_change_between_two_runs(start, config: Path) -> None:
    relay = await start(storage="maildir")
    relay.register_endpoint("agent.a")
    await send(relay, "moved")
    await relay.close()
    write(config, {"storage": "journal"})
    relay = await start(storage="maildir")
    assert relay.metrics().storage == "journal"
    assert [one.payload for one in await relay.lease("agent.a")] == ["moved"]


async def test_the_settings_in_force_are_in_the_journal(start, config: Path, data: Path) -> None:
    relay = await start(max_hops=3)
    write(config, {"maxHops": 7})
    relay._runtime.settings.reload()
    write(config, {"maxHops": 0})
    relay._runtime.settings.reload()
    await relay.idle()
    found = [
        (event["cause"], event["settings"]["maxHops"], bool(event.get("problem")))
        for event in events(data, "settings")
    ]
    assert found == [("start", 3, False), ("reload", 7, False), ("reload", 7, True)]


async def test_an_unchanged_file_causes_no_change(start, config: Path, data: Path) -> None:
    write(config, {"maxHops": 7})
    relay = await start()
    assert relay._runtime.settings.reload() is False
    await relay.idle()
    assert len(events(data, "settings")) == 1


async def test_settings_that_cannot_work_as_intended_cause_a_warning(
    start, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "waypost.relay"):
        await start(qos=QosConfig(enabled=True, tier1=TierLimits(5_000, 1)))
    assert "tier1.maxEnvelopes is above backpressure.maxMailboxSize" in caplog.text
