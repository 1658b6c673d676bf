"""Lists of the dashboard: how many are shown of how many, and more by keyboard or pointer."""

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay


def test_more_messages_are_listed_by_keyboard_and_the_focus_is_on_the_first_of_them(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish_many(["agent.long"] * 130)
    page = open_page("#/messages?endpoint=agent.long")
    rows = page.get_by_role("table", name="Messages found").locator("tbody").get_by_role("row")
    expect(page.get_by_text("100 messages shown; there are more")).to_be_visible()
    more = page.get_by_role("button", name="More messages")
    more.focus()
    page.keyboard.press("Enter")
    expect(rows).to_have_count(130)
    expect(rows.nth(100).get_by_role("link").first).to_be_focused()
    expect(more).to_be_hidden()
    expect(page.get_by_text("130 messages", exact=True)).to_be_visible()


def test_more_dead_letters_of_a_group_are_listed_with_their_number(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    own_relay.ask("PUT", "/v1/config", json={"qos": {"enabled": False}})  # one sender causes them
    for number in range(103):
        own_relay.dead_letter("agent.many", f"many-{number:03d}")
    page = open_page("#/dead-letters?endpoint=agent.many", at=own_relay)
    page.get_by_role("row", name=re.compile("^agent.many")).get_by_role("link", name="103").click()
    expect(page.get_by_text("100 of 103 dead letters shown")).to_be_visible()
    page.get_by_role("button", name="More dead letters").click()
    expect(page.get_by_role("link", name="many-102")).to_be_visible()
    expect(page.get_by_text("103 dead letters", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ("#/inboxes/%00", "No inbox"),
        ("#/inboxes/%", "No inbox %"),
        ("#/inboxes/%3Cscript%3Edocument.title%3D1%3C%2Fscript%3E", "No inbox <script>"),
        ("#/messages/%E0%A4%A", "No message %E0%A4%A in the journal."),
        ("#/messages?sender=%3Cscript%3E", "subject"),
        ("#/messages?thread=nonsense", "No message matches."),
        ("#/dead-letters?endpoint=..%2F..", "invalid"),
        ("#/nonsense/%zz", "What to look at"),
    ],
)
def test_a_hostile_address_gets_a_clear_answer(
    open_page: OpenPage, relay: DashboardRelay, route: str, text: str
) -> None:
    relay.publish("agent.any")
    page = open_page(route)
    expect(page.locator("main")).to_contain_text(re.compile(re.escape(text), re.IGNORECASE))
    assert page.locator("main script").count() == 0
