"""`access-rules.json`: persisted, reloaded when it changes, and denying everything when broken."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.relay.observing import events, read, remove, send, write
from waypost import AccessDenied, AccessRule, InvalidRule, Relay, RulesFileBroken, Settings

DENY_B = AccessRule("agent.b", "agent.a", "deny")
BROKEN = [
    "not json",
    "{}",
    '[{"from": "agent.b", "to": "agent.a", "action": "deny"}, {"from": "x"}]',
    '[{"from": "a..b", "to": ">", "action": "deny", "priority": 1}]',
    '[{"from": ">", "to": ">", "action": "perhaps", "priority": 1}]',
    '[{"from": ">", "to": ">", "action": "allow", "priority": 1, "why": "typo"}]',
    "",
]


@pytest.fixture
def rules(data: Path) -> Path:
    return data / "access-rules.json"


async def is_denied(relay: Relay) -> bool:
    try:
        await send(relay)
    except AccessDenied:
        return True
    return False


async def test_without_a_file_everything_is_allowed(relay: Relay, rules: Path) -> None:
    assert read(rules) == ""
    assert not await is_denied(relay)


async def test_a_rule_is_on_disk_when_it_was_added(relay: Relay, rules: Path) -> None:
    relay.access.add_rule(DENY_B)
    assert json.loads(read(rules)) == [
        {"from": "agent.b", "to": "agent.a", "action": "deny", "priority": 0}
    ]


def test_the_rules_are_readable_by_their_owner_only(data: Path) -> None:
    async def add() -> None:
        async with Relay(data, settings=Settings(watch_files=False)) as relay:
            relay.access.add_rule(DENY_B)

    asyncio.run(add())
    assert stat.S_IMODE((data / "access-rules.json").stat().st_mode) == 0o600


async def test_rules_are_listed_in_the_order_they_are_tried(relay: Relay) -> None:
    allow = AccessRule("agent.b", ">", "allow", 5)
    relay.access.add_rule(DENY_B)
    relay.access.add_rule(allow)
    assert relay.access.list_rules() == [allow, DENY_B]
    assert relay.access.check_access("agent.b", "agent.a").matched_rule == allow


async def test_rules_hold_after_a_restart(relay: Relay, start) -> None:
    relay.access.add_rule(DENY_B)
    again = await start()
    assert again.access.list_rules() == [DENY_B]
    assert await is_denied(again)


async def test_a_removed_rule_is_also_removed_from_disk(relay: Relay, start) -> None:
    relay.access.add_rule(DENY_B)
    relay.access.remove_rule("agent.b", "agent.a")
    again = await start()
    assert again.access.list_rules() == []


async def test_removing_a_rule_that_is_not_there_is_harmless(relay: Relay) -> None:
    relay.access.add_rule(DENY_B)
    relay.access.remove_rule("agent.x", "agent.y")
    assert relay.access.list_rules() == [DENY_B]


async def test_rules_of_one_pair_are_kept_by_priority_and_removed_one_by_one(
    relay: Relay, start
) -> None:
    allow = AccessRule("agent.b", "agent.a", "allow", 5)
    deny_more = AccessRule("agent.b", "agent.a", "deny", 9)
    for rule in (DENY_B, deny_more, allow):
        relay.access.add_rule(rule)
    again = await start()
    assert again.access.list_rules() == [deny_more, allow, DENY_B]
    assert await is_denied(again)
    assert again.access.remove_rule("agent.b", "agent.a", priority=9)
    assert not await is_denied(again)
    assert not again.access.remove_rule("agent.b", "agent.a", priority=9)
    assert again.access.remove_rule("agent.b", "agent.a")
    assert again.access.list_rules() == []


async def test_a_rule_of_the_same_pair_and_priority_replaces_the_old_one(relay: Relay) -> None:
    relay.access.add_rule(DENY_B)
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "allow"))
    assert [rule.action for rule in relay.access.list_rules()] == ["allow"]


async def test_a_bad_rule_is_rejected_and_changes_nothing(relay: Relay, rules: Path) -> None:
    relay.access.add_rule(DENY_B)
    before = read(rules)
    with pytest.raises(InvalidRule):
        relay.access.add_rule(AccessRule("agent b", "agent.a", "deny"))
    assert read(rules) == before
    assert relay.access.list_rules() == [DENY_B]


@pytest.mark.parametrize("content", BROKEN)
async def test_a_broken_file_denies_everything(relay: Relay, rules: Path, content: str) -> None:
    write(rules, content)
    relay.access.reload()
    assert await is_denied(relay)
    (problem,) = relay.metrics().problems
    assert "repair or delete it" in problem


async def test_a_broken_file_denies_everything_from_the_start(start, rules: Path) -> None:
    write(rules, "not json")
    relay = await start()
    relay.register_endpoint("agent.a")
    assert await is_denied(relay)


async def test_a_broken_file_is_not_overwritten(relay: Relay, rules: Path) -> None:
    write(rules, "not json")
    relay.access.reload()
    with pytest.raises(RulesFileBroken, match="repair or delete it"):
        relay.access.add_rule(DENY_B)
    with pytest.raises(RulesFileBroken):
        relay.access.remove_rule("agent.b", "agent.a")
    assert read(rules) == "not json"


async def test_a_rules_file_that_is_a_directory_denies_everything(start, rules: Path) -> None:
    write(rules / "inside", "")
    relay = await start()
    relay.register_endpoint("agent.a")
    assert await is_denied(relay)


async def test_a_changed_file_takes_effect_while_the_relay_runs(start, rules: Path) -> None:
    relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    write(rules, [{"from": "agent.b", "to": "agent.a", "action": "deny", "priority": 0}])
    await eventually(relay.access.list_rules, "the new rules")
    assert await is_denied(relay)


async def test_a_file_broken_while_the_relay_runs_denies_everything_until_it_is_repaired(
    start, rules: Path
) -> None:
    relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    write(rules, "not json")
    await eventually(lambda: relay.metrics().problems, "the problem")
    assert await is_denied(relay)
    write(rules, "[]")
    await eventually(lambda: not relay.metrics().problems, "the repair")
    assert not await is_denied(relay)
    relay.access.add_rule(DENY_B)
    assert await is_denied(relay)


async def test_a_deleted_file_allows_everything_again(start, rules: Path) -> None:
    write(rules, "not json")
    relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    remove(rules)
    await eventually(lambda: not relay.metrics().problems, "the deletion")
    assert not await is_denied(relay)


async def test_the_rules_in_force_are_in_the_journal(relay: Relay, rules: Path, data: Path) -> None:
    relay.access.add_rule(DENY_B)
    write(rules, "not json")
    relay.access.reload()
    await relay.idle()
    found = [
        ([rule["action"] for rule in event["rules"]], bool(event.get("problem")))
        for event in events(data, "rules")
    ]
    assert found == [([], False), (["deny"], False), (["deny"], True)]


async def test_a_denial_is_in_the_journal(relay: Relay, data: Path) -> None:
    relay.access.add_rule(DENY_B)
    await is_denied(relay)
    await relay.idle()
    (event,) = events(data, "rejected")
    assert (event["reason"], event["sender"]) == ("access_denied", "agent.b")
    assert relay.metrics().rejected == {"access_denied": 1}
