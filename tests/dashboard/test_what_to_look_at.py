"""A relay in trouble: the first screen and `waypost stats` name what is wrong and what to do."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.cli.serve_process import User
from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay
from tests.eventually import eventually_blocking
from waypost.client.blocking import connect
from waypost.client.http import HttpClient
from waypost.client.identity import Identity
from waypost.wire.http_bodies import PublishResults

SETTINGS = {"leaseTimeoutMs": 200, "reliability": {"backpressure": {"maxMailboxSize": 8}}}


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[DashboardRelay]:
    """A relay with a full inbox, a stuck agent, an open breaker and a flooding sender."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "config.json").write_text(json.dumps(SETTINGS))
    relay = DashboardRelay(data)
    relay.publish_many(["agent.full"] * 8)
    relay.ask("PUT", "/v1/endpoints/service.flaky")
    for _ in range(2):
        relay.publish("service.flaky", "the ledger is away")
    flood(relay)
    with connect(relay.url, Identity.new("agent.hung")) as agent:
        relay.publish("agent.hung")
        agent.receive(60)
        eventually_blocking(lambda: set(NAMED) <= named_in(relay), "all four to be named")
        yield relay
    relay.end()


def named_in(relay: DashboardRelay) -> set[str]:
    """Return whom the findings name."""
    return {one["subject"] for one in relay.ask("GET", "/v1/stats")["findings"]}


def flood(relay: DashboardRelay) -> None:
    api = HttpClient(relay.url)
    messages = [{"subject": "agent.victim", "payload": one} for one in range(60)]
    token = api.log_in(Identity.new("agent.flood"))
    api.post("/v1/messages", {"messages": messages}, PublishResults, token=token)
    api.close()


NAMED = ("agent.full", "service.flaky", "agent.hung", "agent.flood")


@pytest.mark.process
def test_stats_name_each_trouble_first_with_commands_that_run(
    troubled: DashboardRelay, tmp_path: Path
) -> None:
    token = str(troubled.data / "operator-token")
    operator = User(troubled.url, tmp_path, WAYPOST_OPERATOR_TOKEN_FILE=token)
    text = operator("stats").stdout
    top = text[: text.index("Endpoint")]
    for subject in NAMED:
        assert re.search(rf"\d\. .*{subject}\b", top), top
    found = operator.json("stats")["findings"]
    kinds = {one["subject"]: one["kind"] for one in found}
    assert kinds["agent.full"] == "inbox_full"
    assert kinds["service.flaky"] == "breaker_open"
    assert kinds["agent.hung"] == "agent_stuck"
    assert kinds["agent.flood"] == "sender_rejected"
    for one in found:
        assert one["text"] in top
        assert one["advice"] in top
        assert f"{troubled.url}/{one['link']}" in top
    commands = [line.strip() for line in top.splitlines() if line.strip().startswith("waypost ")]
    assert len(commands) == len(found)
    for command in commands:
        operator(*shlex.split(command)[1:])


def test_the_first_screen_names_each_trouble_with_a_link_that_works(
    troubled: DashboardRelay, open_page: OpenPage
) -> None:
    page = open_page(at=troubled)
    panel = page.get_by_role("region", name="What to look at")
    for subject in NAMED:
        entry = panel.get_by_role("listitem").filter(has_text=subject).first
        expect(entry).to_be_visible()
        expect(entry.get_by_text("waypost ")).to_be_visible()
    views = {
        "agent.full": page.get_by_role("heading", name="agent.full", level=1),
        "service.flaky": page.get_by_role("row", name=re.compile("^service.flaky")).first,
        "agent.hung": page.get_by_role("row", name=re.compile("^agent.hung")),
        "agent.flood": page.get_by_role("row").filter(has_text="backpressure").first,
    }
    links = [one.get_attribute("href") for one in panel.get_by_role("link").all()]
    for link in links:
        page.goto(f"{troubled.url}/{link}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("main .problem:visible")).to_have_count(0)
    page.goto(f"{troubled.url}/#/")
    for subject, shown in views.items():
        panel.get_by_role("listitem").filter(has_text=subject).first.get_by_role("link").click()
        expect(shown).to_be_visible()
        page.go_back()
    main = page.locator("main")
    assert main.inner_text().index("What to look at") < 80


def test_the_overview_lists_rejected_senders_and_the_health_of_the_node(
    troubled: DashboardRelay, open_page: OpenPage
) -> None:
    page = open_page(at=troubled)
    senders = page.get_by_role("table", name="Rejected senders")
    flooding = senders.get_by_role("row", name=re.compile("^agent.flood"))
    expect(flooding).to_contain_text("mailbox full 52")
    node = page.locator("section").filter(has=page.get_by_role("heading", name="Node"))
    expect(node).to_contain_text(f"Version{version('waypost')}")
    expect(node).to_contain_text(re.compile(r"Disk[\d.,]+ \w+ free of"))
    expect(node).to_contain_text(re.compile(r"Open files\d+ of"))
    flooding.get_by_role("link").click()
    expect(page.get_by_role("row").filter(has_text="backpressure").first).to_be_visible()


def test_stuck_agents_are_listed_first_and_say_for_how_long(
    troubled: DashboardRelay, open_page: OpenPage
) -> None:
    with connect(troubled.url, Identity.new("agent.alive")):
        page = open_page("#/agents", at=troubled)
        rows = page.get_by_role("table", name="Connected agents").get_by_role("rowheader")
        expect(rows).to_have_text(["agent.hung", "agent.alive"])
        hung = page.get_by_role("row", name=re.compile("^agent.hung"))
        expect(hung).to_contain_text(re.compile(r"stuck [\d.]+ (ms|s|min)"))


def test_scheduled_messages_count_in_the_fullest_inboxes(
    own_relay: DashboardRelay, open_page: OpenPage
) -> None:
    for _ in range(3):
        own_relay.publish("agent.later", delay=3600)
    page = open_page(at=own_relay)
    row = page.get_by_role("row", name=re.compile("^agent.later"))
    expect(row.get_by_role("cell").last).to_have_text("3")


def test_the_navigation_counts_what_there_is(troubled: DashboardRelay, open_page: OpenPage) -> None:
    page = open_page(at=troubled)
    views = page.get_by_role("navigation", name="Views")
    expect(views.get_by_role("link", name="Breakers")).to_have_text("Breakers1")
    expect(views.get_by_role("link", name="Agents")).to_have_text("Agents1")
    expect(views.get_by_role("link", name="Rules")).to_have_text("Rules")


def test_without_trouble_the_first_screen_says_so(
    own_relay: DashboardRelay, open_page: OpenPage
) -> None:
    own_relay.publish("agent.calm")
    page = open_page(at=own_relay)
    panel = page.get_by_role("region", name="What to look at")
    expect(panel).to_contain_text("Nothing needs attention.")
