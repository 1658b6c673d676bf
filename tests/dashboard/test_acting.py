"""Actions on the dashboard: redrive, purge, breakers, rules, settings."""

import json
import re

from playwright.sync_api import Page, expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay
from waypost.client import Identity
from waypost.client.blocking import connect


def dead_ids(relay: DashboardRelay, subject: str) -> list[str]:
    found = relay.ask("GET", "/v1/dead-letters", params={"subject": subject})
    return [one["envelope"]["id"] for one in found["dead_letters"]]


def test_dead_letters_are_grouped_by_reason_and_redriven_after_confirmation(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.dead_letter("agent.back", "back-1")
    relay.dead_letter("agent.back", "back-2")
    page = open_page("#/dead-letters")
    group = page.get_by_role("table", name=re.compile("max hops|hop")).first
    expect(group.get_by_role("row", name=re.compile("^agent.back"))).to_contain_text("2")
    page.get_by_role("button", name="Redrive 2 dead letters of agent.back").click()
    asked = page.get_by_role("dialog", name="Redrive 2 dead letters?")
    expect(asked).to_contain_text("waypost dead-letters redrive back-1 back-2")
    assert dead_ids(relay, "agent.back") == ["back-1", "back-2"]
    asked.get_by_role("button", name="Redrive 2").click()
    expect(page.get_by_role("status").filter(has_text="2 dead letters redriven")).to_be_visible()
    assert dead_ids(relay, "agent.back") == []
    assert relay.acknowledge("agent.back") == 2


def test_one_dead_letter_of_a_group_can_be_redriven_alone(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.dead_letter("agent.single", "single-1", {"refund": 12})
    relay.dead_letter("agent.single", "single-2")
    page = open_page("#/dead-letters?endpoint=agent.single")
    page.get_by_role("row", name=re.compile("^agent.single")).get_by_role("link", name="2").click()
    expect(page.get_by_text('{"refund":12}')).to_be_visible()
    page.get_by_role("button", name="Redrive single-1").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive 1").click()
    expect(page.get_by_text("1 dead letter redriven.")).to_be_visible()
    assert dead_ids(relay, "agent.single") == ["single-2"]


def test_a_breaker_is_reset_after_confirmation(open_page: OpenPage, relay: DashboardRelay) -> None:
    relay.ask("PUT", "/v1/endpoints/service.shaky")
    for _ in range(2):
        relay.publish("service.shaky", "the ledger is away")
    page = open_page("#/breakers")
    page.get_by_role("button", name="Reset the breaker of service.shaky").click()
    asked = page.get_by_role("dialog", name="Reset this breaker?")
    expect(asked).to_contain_text("waypost breakers reset service.shaky --url")
    asked.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("status").filter(has_text="Breaker reset.")).to_be_visible()
    moves = page.get_by_role("table", name="State changes")
    reset = moves.get_by_role("row", name=re.compile("service.shaky")).first
    expect(reset).to_contain_text("reset by hand")
    assert "service.shaky" not in relay.ask("GET", "/v1/breakers")["breakers"]


def test_a_purge_asks_for_confirmation_and_can_be_cancelled(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.dead_letter("agent.kept", "kept-1")
    relay.dead_letter("agent.thrown", "thrown-1")
    page = open_page("#/dead-letters?endpoint=agent.thrown")
    page.get_by_role("button", name="Purge…").click()
    asked = page.get_by_role("dialog", name="Purge dead letters?")
    expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
    expect(asked).to_contain_text("1 dead letter will be deleted permanently")
    page.keyboard.press("Escape")
    expect(asked).to_be_hidden()
    expect(page.get_by_role("button", name="Purge…")).to_be_focused()
    assert dead_ids(relay, "agent.thrown") == ["thrown-1"]


def test_a_purge_deletes_only_the_chosen_dead_letters(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.dead_letter("agent.kept", "kept-1")
    relay.dead_letter("agent.thrown", "thrown-1")
    page = open_page("#/dead-letters?endpoint=agent.thrown")
    page.get_by_role("button", name="Purge…").click()
    asked = page.get_by_role("dialog", name="Purge dead letters?")
    expect(asked).to_contain_text("waypost dead-letters purge --subject agent.thrown --url")
    asked.get_by_label("Age").select_option("7d")
    expect(asked).to_contain_text("--older-than 7d")
    asked.get_by_label("Age").select_option("")
    asked.get_by_role("button", name="Purge").click()
    expect(page.get_by_text("1 dead letter purged.")).to_be_visible()
    assert dead_ids(relay, "agent.thrown") == []
    assert dead_ids(relay, "agent.kept") == ["kept-1"]


def test_a_purge_counts_all_that_it_would_delete_whatever_the_view_shows(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    own_relay.dead_letter("agent.other", "other-1")
    own_relay.dead_letter("agent.mixed", "mixed-1")
    own_relay.ask("PUT", "/v1/endpoints/service.mixed")
    own_relay.publish("service.mixed")
    groups = own_relay.ask("GET", "/v1/dead-letters", params={"group": True})["groups"]
    kind = next(one["reason"] for one in groups if one["endpoint"] == "agent.mixed")
    page = open_page(f"#/dead-letters?endpoint=agent.mixed&reason={kind}", at=own_relay)
    page.get_by_role("button", name="Purge…").click()
    asked = page.get_by_role("dialog", name="Purge dead letters?")
    expect(asked).to_contain_text("1 dead letter will be deleted permanently")
    asked.get_by_label("Of", exact=True).select_option("")
    expect(asked).to_contain_text("3 dead letters will be deleted permanently")
    asked.get_by_role("button", name="Purge").click()
    expect(page.get_by_text("3 dead letters purged.")).to_be_visible()


def write(page: Page, settings: object) -> None:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    page.get_by_label("config.json").fill(text)


def test_invalid_settings_cannot_be_saved_and_show_the_error(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page("#/settings")
    save = page.get_by_role("button", name="Save…")
    write(page, {"qos": {"tier1": {"maxEnvelopes": -1, "maxBytes": 1}}})
    expect(page.get_by_text("Expected `int` >= 0 - at `$.qos.tier1.maxEnvelopes`")).to_be_visible()
    expect(save).to_be_disabled()
    expect(page.get_by_label("config.json")).to_have_attribute("aria-invalid", "true")
    write(page, "{")
    expect(page.get_by_text(re.compile("not JSON"))).to_be_visible()
    expect(save).to_be_disabled()
    assert not (relay.data / "config.json").exists()


def test_settings_are_linted_compared_and_saved(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    page = open_page("#/settings", at=own_relay)
    write(page, {"maxHops": 7, "qos": {"tier1": {"maxEnvelopes": 5000, "maxBytes": 65536}}})
    expect(page.get_by_text("can never be reached")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^maxHops"))).to_have_text("maxHops57")
    page.get_by_role("button", name="Save…").click()
    asked = page.get_by_role("dialog", name="Save these settings?")
    expect(asked.get_by_role("listitem").filter(has_text="maxHops")).to_have_text("maxHops: 5 → 7")
    expect(asked).to_contain_text("waypost config save")
    asked.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings saved.")).to_be_visible()
    assert json.loads((own_relay.data / "config.json").read_bytes())["maxHops"] == 7
    assert own_relay.ask("GET", "/v1/config")["settings"]["maxHops"] == 7


def test_a_limit_that_is_switched_off_is_shown_as_no_limit(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    off = {"maxEnvelopes": 18446744073709551615, "maxBytes": 18446744073709551615}
    own_relay.publish("agent.wide")
    page = open_page("#/settings", at=own_relay)
    write(page, {"qos": {"tier1": off}})
    expect(page.get_by_text("Valid: 2 settings would change.")).to_be_visible()
    page.get_by_role("button", name="Save…").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings saved.")).to_be_visible()
    setting = page.get_by_role("row", name=re.compile("^qos.tier1.maxEnvelopes"))
    expect(setting).to_contain_text("no limit")
    page = open_page("#/inboxes/agent.wide", at=own_relay)
    tier = page.get_by_role("row", name=re.compile("^1 unknown"))
    expect(tier).to_contain_text("no limit, no limit")


def test_a_rule_is_checked_while_it_is_typed_then_added_and_removed(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page("#/rules")
    expect(page.get_by_text("No rules: every sender may write to every inbox.")).to_be_visible()
    page.get_by_label("From (sender pattern)").fill("agent..web")
    page.get_by_label("To (inbox pattern)").fill("agent.secret")
    expect(page.get_by_role("status").filter(has_text="agent..web")).to_be_visible()
    expect(page.get_by_role("button", name="Add rule")).to_be_disabled()
    page.get_by_label("From (sender pattern)").fill("_anonymous")
    expect(page.get_by_text("it would be rule 1 of 1")).to_be_visible()
    assert relay.ask("GET", "/v1/rules")["rules"] == []
    page.get_by_role("button", name="Add rule").click()
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    expect(page.get_by_role("row", name=re.compile("_anonymous"))).to_contain_text("deny")
    [rule] = relay.ask("GET", "/v1/rules")["rules"]
    assert (rule["from"], rule["to"], rule["action"]) == ("_anonymous", "agent.secret", "deny")
    page.get_by_role("button", name="Remove the rule from _anonymous to agent.secret").click()
    asked = page.get_by_role("dialog", name="Remove this rule?")
    expect(asked).to_contain_text("waypost rules remove")
    asked.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No rules: every sender may write to every inbox.")).to_be_visible()
    assert relay.ask("GET", "/v1/rules")["rules"] == []


def test_of_two_rules_of_one_pair_one_is_removed(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    pair = {"from": "agent.spy", "to": "agent.vault"}
    relay.ask("POST", "/v1/rules", json={**pair, "action": "deny", "priority": 1})
    page = open_page("#/rules")
    page.get_by_label("From (sender pattern)").fill("agent.spy")
    page.get_by_label("To (inbox pattern)").fill("agent.vault")
    expect(page.get_by_text("it would be rule 2 of 2")).to_be_visible()
    page.get_by_role("spinbutton", name="Priority").fill("2")
    expect(page.get_by_text("it would be rule 1 of 2")).to_be_visible()
    relay.ask("POST", "/v1/rules", json={**pair, "action": "allow", "priority": 2})
    page = open_page("#/rules")
    name = "Remove the rule from agent.spy to agent.vault with priority 2"
    page.get_by_role("button", name=name).click()
    asked = page.get_by_role("dialog", name="Remove this rule?")
    expect(asked).to_contain_text("--priority 2")
    asked.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Rule removed.")).to_be_visible()
    assert [one["priority"] for one in relay.ask("GET", "/v1/rules")["rules"]] == [1]
    relay.ask("DELETE", "/v1/rules", params=pair)


def test_the_leases_of_a_connected_agent_are_released_and_it_is_disconnected(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    with connect(relay.url, Identity.new("agent.hung")) as agent:
        relay.publish("agent.hung", "for a worker that hangs")
        message = agent.receive(60)
        page = open_page("#/agents")
        row = page.get_by_role("row", name=re.compile("^agent.hung"))
        expect(row).to_contain_text("alive")
        page.get_by_role("button", name="Release the leases of agent.hung").click()
        asked = page.get_by_role("dialog", name="Release its leases?")
        expect(asked).to_contain_text("waypost agents release agent.hung --url")
        asked.get_by_role("button", name="Release").click()
        expect(page.get_by_text("1 message released.")).to_be_visible()
        expect(row).to_contain_text("stuck")
        other = open_page("#/")
        stuck = other.locator(".tiles > div").filter(has_text="Stuck agents")
        expect(stuck.locator(".value")).to_have_text("1")
        oldest = other.locator(".tiles > div").filter(has_text="Oldest message")
        expect(oldest).to_contain_text("unacknowledged, agent.")
        inboxes = open_page("#/inboxes?filter=agent.hung")
        expect(inboxes.get_by_role("row", name=re.compile("^agent.hung"))).to_contain_text("stuck")
        page.get_by_role("button", name="Disconnect agent.hung").click()
        asked = page.get_by_role("dialog", name="Disconnect this agent?")
        expect(asked).to_contain_text("waypost agents disconnect agent.hung --url")
        asked.get_by_role("button", name="Disconnect").click()
        expect(page.get_by_text("Agent disconnected.")).to_be_visible()
        message.ack()


def test_to_disconnect_a_worker_is_to_disconnect_its_whole_pool_and_the_dialog_says_so(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page, identity = open_page("#/agents"), Identity.new("agent.crew")
    listed = page.get_by_role("row", name=re.compile("^agent.crew"))
    with connect(relay.url, identity, shared=True), connect(relay.url, identity, shared=True):
        expect(listed).to_have_count(2)
        page.get_by_role("button", name="Disconnect agent.crew").first.click()
        asked = page.get_by_role("dialog", name="Disconnect this agent?")
        expect(asked).to_contain_text("All connections of agent.crew end")
        asked.get_by_role("button", name="Cancel").click()


def test_the_inbox_of_a_stuck_agent_says_that_it_is_stuck(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    with connect(relay.url, Identity.new("agent.frozen")) as agent:
        relay.publish("agent.frozen")
        agent.receive(5)
        page = open_page("#/inboxes/agent.frozen")
        fact = page.locator(".tiles > div").filter(has_text="Agent")
        expect(fact).to_contain_text("connected")
        relay.ask("POST", "/v1/agents/agent.frozen/release")
        expect(fact).to_contain_text("stuck")
