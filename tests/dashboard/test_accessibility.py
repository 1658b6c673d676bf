"""Each view by keyboard and in the accessibility tree: order, names, headings, focus."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay
from waypost.client.blocking import connect
from waypost.client.identity import Identity

HOPS = quote("max hops exceeded (5/5)")
VIEWS = {
    "sign-in": "#/",
    "overview": "#/",
    "inboxes": "#/inboxes",
    "inbox": "#/inboxes/agent.listed",
    "no inbox": "#/inboxes/agent.unknown",
    "agents": "#/agents",
    "breakers": "#/breakers",
    "dead letters": "#/dead-letters",
    "dead letters of an inbox": "#/dead-letters?endpoint=agent.listed",
    "dead letters one by one": f"#/dead-letters?endpoint=agent.listed&reason={HOPS}",
    "messages": "#/messages",
    "rejected messages": "#/messages?outcome=rejected",
    "message": "#/messages/listed-message",
    "no message": "#/messages/unknown",
    "rules": "#/rules",
    "settings": "#/settings",
    "pipeline": "#/pipeline",
}
NAMED = ["button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton"]
NAMED += ["table", "columnheader", "rowheader", "region", "image", "heading", "navigation"]

FOCUSED = """() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const shown = one.matches(".choice input") ? one.nextElementSibling : one;
  const style = getComputedStyle(shown);
  const isVisible = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  one.dataset.reached = "yes";
  return { words: one.outerHTML.slice(0, 120), isVisible };
}"""
NOT_REACHED = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility() && !one.disabled && !one.dataset.reached)
  .filter((one) => one.type !== "radio" || one.checked)
  .map((one) => one.outerHTML.slice(0, 120))"""
LEVELS = """() => [...document.querySelectorAll("h1, h2, h3, h4")]
  .filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"""
CHATTY = """() => [...document.querySelectorAll("[role=status], [role=alert], [aria-live]")]
  .map((one) => one.textContent).filter(Boolean)"""


@pytest.fixture(scope="module")
def busy(relay: DashboardRelay) -> Iterator[DashboardRelay]:
    """The relay with something to show, and to act on, in each view."""
    relay.publish("agent.listed", message_id="listed-message")
    for number in range(2):
        relay.dead_letter("agent.listed", f"listed-dead-{number}")
    relay.ask("PUT", "/v1/endpoints/service.tripped")
    for _ in range(2):
        relay.publish("service.tripped")
    rule = {"from": "agent.spy", "to": "agent.safe", "action": "deny"}
    relay.ask("POST", "/v1/rules", json=rule)
    with connect(relay.url, Identity.new("agent.present")):
        yield relay
    relay.ask("DELETE", "/v1/rules", params={"from": "agent.spy", "to": "agent.safe"})


def shown(open_page: OpenPage, relay: DashboardRelay, view: str) -> Page:
    """Open a view and wait until it is complete."""
    page = open_page(VIEWS[view], signed_in=view != "sign-in", at=relay)
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator("[aria-busy], .empty:has-text('Loading')")).to_have_count(0)
    if view == "overview":
        expect(page.get_by_role("row", name=re.compile("^agent"))).not_to_have_count(0)
    if view in ("inboxes", "agents"):
        expect(page.get_by_role("rowheader")).not_to_have_count(0)
    return page


def tree(page: Page) -> list[dict[str, Any]]:
    """Return the accessibility tree, as nodes with role and name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [
        {"role": one["role"]["value"], "name": one.get("name", {}).get("value", "")}
        for one in nodes
        if not one["ignored"]
    ]


def tab_to_the_end(page: Page) -> list[dict[str, Any]]:
    """Press Tab until the focus leaves the page; return what had it on the way."""
    reached: list[dict[str, Any]] = []
    while len(reached) < 500:
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            return reached
        reached.append(found)
    pytest.fail("the focus never leaves the page")


@pytest.mark.parametrize("view", VIEWS)
def test_everything_that_can_be_used_has_a_name(
    open_page: OpenPage, busy: DashboardRelay, view: str
) -> None:
    page = shown(open_page, busy, view)
    nodes = tree(page)
    assert sum(one["role"] in NAMED for one in nodes) > 3
    assert [one for one in nodes if one["role"] in NAMED and not one["name"].strip()] == []
    rows = page.locator("main table:not([hidden])")
    headless = "all => all.filter((one) => !one.tHead?.rows[0]?.cells.length).length"
    assert rows.evaluate_all(headless) == 0


@pytest.mark.parametrize("view", VIEWS)
def test_headings_are_in_order_and_a_quiet_view_announces_nothing(
    open_page: OpenPage, busy: DashboardRelay, view: str
) -> None:
    page = shown(open_page, busy, view)
    levels = page.evaluate(LEVELS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    before = page.evaluate(CHATTY)
    page.wait_for_timeout(2500)  # two samples of the relay
    assert page.evaluate(CHATTY) == before


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything_in_order_with_a_visible_focus(
    open_page: OpenPage, busy: DashboardRelay, view: str
) -> None:
    page = shown(open_page, busy, view)
    tab_to_the_end(page)  # a view may begin with the focus in its middle
    reached = tab_to_the_end(page)
    assert "skip" in reached[0]["words"]
    assert [one["words"] for one in reached if not one["isVisible"]] == []
    assert page.evaluate(NOT_REACHED) == []


@pytest.mark.parametrize(
    ("view", "button"),
    [
        ("agents", "Release the leases of agent.present"),
        ("agents", "Disconnect agent.present"),
        ("breakers", "Reset the breaker of service.tripped"),
        ("dead letters", "Redrive 2 dead letters of agent.listed"),
        ("dead letters", "Purge…"),
        ("rules", "Remove the rule from agent.spy to agent.safe with priority 0"),
    ],
)
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_dialog_opens_by_key_has_a_name_and_returns_the_focus(
    open_page: OpenPage, busy: DashboardRelay, view: str, button: str, key: str
) -> None:
    page = shown(open_page, busy, view)
    opener = page.get_by_role("button", name=button)
    opener.focus()
    page.keyboard.press(key)
    asked = page.get_by_role("dialog", name=re.compile("\\?$"))
    expect(asked).to_be_visible()
    assert [one for one in tree(page) if one["role"] in NAMED and not one["name"]] == []
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(asked).to_be_hidden()
    expect(opener).to_be_focused()


def test_after_an_action_the_focus_is_in_the_view_not_at_the_start_of_the_page(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    for number in range(3):
        own_relay.dead_letter("agent.again", f"again-{number}")
    kind = own_relay.ask("GET", "/v1/dead-letters", params={"group": True})["groups"][0]["reason"]
    page = open_page(f"#/dead-letters?endpoint=agent.again&reason={kind}", at=own_relay)
    page.get_by_role("button", name="Redrive again-0").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Redrive 1").press("Enter")
    expect(page.get_by_text("1 dead letter redriven.")).to_be_visible()
    expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_focused()


def test_the_focus_stays_on_a_button_while_its_list_changes(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    for name in ("service.one", "service.two"):
        own_relay.ask("PUT", f"/v1/endpoints/{name}")
    for _ in range(2):
        own_relay.publish("service.one")
    page = open_page("#/breakers", at=own_relay)
    reset = page.get_by_role("button", name="Reset the breaker of service.one")
    reset.focus()
    for _ in range(2):
        own_relay.publish("service.two")
    expect(page.get_by_role("button", name="Reset the breaker of service.two")).to_be_visible()
    expect(reset).to_be_focused()


def test_when_the_last_agent_leaves_the_focus_goes_to_the_heading(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    with connect(own_relay.url, Identity.new("agent.leaving")):
        page = open_page("#/agents", at=own_relay)
        page.get_by_role("button", name="Disconnect agent.leaving").focus()
    expect(page.get_by_text("No agent is connected")).to_be_visible()
    expect(page.get_by_role("heading", name="Agents", level=1)).to_be_focused()
