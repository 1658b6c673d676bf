"""The views of the dashboard, with real traffic."""

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay
from waypost.client import AgentCard, ClientOptions
from waypost.client.blocking import connect
from waypost.client.identity import Identity
from waypost.policy.breakers import Occasion


def test_the_overview_has_figures_and_charts_for_screen_readers(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish_many(["agent.overview"] * 5)
    page = open_page()
    tiles = page.locator("dl.tiles")
    expect(tiles.get_by_text(re.compile(r"^\d[\d.,k]*/s$")).first).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Throughput.*Stored: ")).first).to_be_visible()
    for name in ("Latency", "In the relay", "Pressure"):
        expect(page.get_by_role("img", name=re.compile(f"^{name}"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^rate limit"))).to_be_visible()
    expect(page.get_by_role("table").get_by_role("link").first).to_be_visible()
    page.get_by_text("Values as a table").first.click()
    expect(page.get_by_role("table", name="Throughput").get_by_role("row").nth(1)).to_be_visible()


def test_acknowledgements_show_as_latency(open_page: OpenPage, relay: DashboardRelay) -> None:
    page = open_page()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    relay.publish_many(["agent.quick"] * 5)
    assert relay.acknowledge("agent.quick") == 5
    tile = page.locator("dl.tiles > div").filter(has_text="Publish to ack")
    expect(tile).to_contain_text(re.compile(r"p95 [\d.]+ (ms|s)"))


def test_a_message_appears_in_its_inbox_without_a_reload(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish("agent.moving")
    page = open_page("#/inboxes?filter=agent.moving")
    cells = page.get_by_role("row", name=re.compile("^agent.moving")).get_by_role("cell")
    expect(cells.nth(1)).to_have_text("1")
    relay.publish_many(["agent.moving"] * 3)
    expect(cells.nth(1)).to_have_text("4")
    assert relay.acknowledge("agent.moving") == 4
    expect(cells.nth(1)).to_have_text("0")


def test_an_inbox_shows_its_usage_by_sender_and_tier(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish_many(["agent.full"] * 7)
    relay.client.post("/v1/messages", json={"subject": "agent.full", "payload": 1})
    page = open_page("#/inboxes/agent.full")
    expect(page.get_by_role("heading", name="agent.full", level=1)).to_be_visible()
    sender = page.get_by_role("row", name=re.compile("^_operator"))
    expect(sender).to_contain_text("1 unknown")
    expect(sender).to_contain_text("8")
    expect(sender).to_contain_text("40%")  # of the quota of 20 for unknown senders
    tier = page.get_by_role("row", name=re.compile("^1 unknown"))
    expect(tier).to_contain_text("20 messages, 256 KiB")


def test_an_unknown_inbox_is_reported(open_page: OpenPage) -> None:
    page = open_page("#/inboxes/agent.nobody-ever")
    expect(page.get_by_text("No inbox agent.nobody-ever")).to_be_visible()


def test_inboxes_are_sorted_by_the_chosen_column(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish_many(["agent.sort.a"] + ["agent.sort.b"] * 3 + ["agent.sort.c"] * 2)
    page = open_page("#/inboxes?filter=agent.sort")
    names = page.get_by_role("rowheader")
    expect(names).to_have_text(["agent.sort.b", "agent.sort.c", "agent.sort.a"])
    page.get_by_role("button", name="Inbox").click()
    expect(names).to_have_text(["agent.sort.a", "agent.sort.b", "agent.sort.c"])
    expect(page.get_by_role("columnheader", name="Inbox")).to_have_attribute(
        "aria-sort", "ascending"
    )


def test_an_agent_is_listed_while_it_is_connected(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page("#/agents")
    expect(page.get_by_text("No agent is connected")).to_be_visible()
    with connect(relay.url, Identity.new("agent.here")):
        listed = page.get_by_role("row", name=re.compile("^agent.here"))
        expect(listed).to_contain_text("127.0.0.1:")
        expect(listed).to_contain_text("push")
    expect(listed).to_have_count(0)


def test_each_worker_of_a_pool_is_listed(open_page: OpenPage, relay: DashboardRelay) -> None:
    page, identity = open_page("#/agents"), Identity.new("agent.pool")
    listed = page.get_by_role("row", name=re.compile("^agent.pool"))
    with connect(relay.url, identity, shared=True):
        with connect(relay.url, identity, shared=True):
            expect(listed).to_have_count(2)
            expect(listed.first).to_contain_text("push, shared")
        expect(listed).to_have_count(1)


def test_a_breaker_shows_its_state_and_its_state_changes(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page("#/breakers")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    relay.ask("PUT", "/v1/endpoints/service.flaky")
    for _ in range(2):
        relay.publish("service.flaky", "the ledger is away")
    now = page.get_by_role("table", name="Breakers that are not at rest")
    flaky = now.get_by_role("row", name=re.compile("^service.flaky"))
    expect(flaky).to_contain_text("open")
    expect(flaky).to_contain_text("rejects messages until probes succeed")
    moves = page.get_by_role("table", name="State changes")
    moved = moves.get_by_role("row", name=re.compile("service.flaky"))
    expect(moved).to_contain_text("failureThreshold consecutive failures")


def test_a_message_is_found_by_its_sender_and_shows_its_history(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    relay.publish("agent.found", message_id="to-be-found")
    relay.acknowledge("agent.found")
    page = open_page("#/messages")
    page.get_by_label("Sender").fill("_operator")
    page.get_by_label("Inbox").fill("agent.found")
    page.get_by_label("Outcome").select_option("acked")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="to-be-found").click()
    expect(page.get_by_role("heading", name="to-be-found")).to_be_visible()
    steps = page.get_by_role("listitem")
    expect(steps.filter(has_text="budget passed")).to_be_visible()
    expect(steps.filter(has_text="acknowledged via")).to_be_visible()
    expect(page.get_by_text(f"waypost explain to-be-found --url {relay.url}")).to_be_visible()


def test_a_message_links_to_its_whole_thread(open_page: OpenPage, relay: DashboardRelay) -> None:
    for number in range(2):
        body = {"subject": "agent.chat", "payload": number, "message_id": f"turn-{number}"}
        relay.ask("POST", "/v1/messages", json={**body, "thread": "chat-7"})
    page = open_page("#/messages/turn-0")
    page.get_by_role("link", name="chat-7").click()
    expect(page.get_by_label("Thread")).to_have_value("chat-7")
    for number in range(2):
        expect(page.get_by_role("link", name=f"turn-{number}")).to_be_visible()


def test_an_unknown_id_shows_what_to_do(open_page: OpenPage) -> None:
    page = open_page("#/messages")
    page.get_by_label("Message id").fill("no-such-message")
    page.get_by_label("Message id").press("Enter")
    expect(page.get_by_text("No message no-such-message in the journal.")).to_be_visible()
    expect(page.get_by_role("link", name="Search by sender")).to_be_visible()


def test_an_invalid_search_shows_the_error_of_the_relay(open_page: OpenPage) -> None:
    page = open_page("#/messages?sender=agent..web")
    expect(page.get_by_role("alert").filter(has_text="agent..web")).to_be_visible()


def test_without_a_lake_the_page_shows_how_to_create_a_report(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page("#/pipeline")
    expect(page.get_by_text("No report yet")).to_be_visible()
    expect(page.get_by_text(f"waypost pipeline run --journal {relay.data}")).to_be_visible()


@pytest.fixture
def lake(own_relay: DashboardRelay) -> DashboardRelay:
    own_relay.lake.mkdir()
    (own_relay.lake / "report.html").write_text(
        "<!doctype html><title>Report</title><style>h1 { color: rgb(1, 2, 3) }</style>"
        "<h1>Twelve days</h1><script>parent.document.title = 'taken over'</script>"
    )
    (own_relay.lake / "backtest.json").write_text(
        '{"messages": 5000, "differences": 12, "by_reason": {"accepted": {"rate_limited": 12}}}'
    )
    return own_relay


def test_the_report_is_shown_with_its_style_and_without_its_scripts(
    open_page: OpenPage, lake: DashboardRelay
) -> None:
    page = open_page("#/pipeline", at=lake)
    page.get_by_role("button", name="Show the report").click()
    heading = page.frame_locator("iframe").get_by_role("heading", name="Twelve days")
    expect(heading).to_have_css("color", "rgb(1, 2, 3)")
    expect(page).to_have_title("Pipeline · Waypost")


def test_the_last_backtest_is_shown_as_a_sentence_and_a_table(
    open_page: OpenPage, lake: DashboardRelay
) -> None:
    page = open_page("#/pipeline", at=lake)
    expect(page.get_by_text("of 5,000 messages, 12 would have been decided")).to_be_visible()
    expect(page.get_by_role("row", name="stored rate limit 12")).to_be_visible()


def test_a_first_visit_shows_the_first_steps(
    open_page: OpenPage, own_relay: DashboardRelay
) -> None:
    page = open_page(at=own_relay)
    expect(page.get_by_text("No message has been sent yet")).to_be_visible()
    expect(page.get_by_text(re.compile("waypost send agent.billing"))).to_be_visible()
    expect(page.get_by_text(re.compile("waypost listen agent.billing"))).to_be_visible()
    own_relay.publish("agent.billing")
    expect(page.get_by_text("No message has been sent yet")).to_be_hidden()
    expect(page.get_by_role("img", name=re.compile("^Throughput"))).to_be_visible()


def test_scheduled_messages_are_counted_and_found(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    for number in range(2):
        body = {"subject": "agent.later", "payload": number, "delay": 3600}
        relay.client.post("/v1/messages", json=body).raise_for_status()
    page = open_page("#/inboxes?filter=agent.later")
    cells = page.get_by_role("row", name=re.compile("^agent.later")).get_by_role("cell")
    expect(cells.nth(1)).to_have_text("0")
    expect(cells.nth(2)).to_have_text("2")
    page = open_page("#/inboxes/agent.later")
    expect(page.get_by_text("2 scheduled, ")).to_be_visible()
    expect(page.get_by_text("nothing pending")).to_be_visible()
    page = open_page("#/messages?endpoint=agent.later&outcome=scheduled")
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("scheduled")


def test_a_message_shows_its_payload_as_text(open_page: OpenPage, relay: DashboardRelay) -> None:
    message_id = relay.publish("agent.marked", {"note": "<img src=x onerror=alert(1)>"})
    page = open_page(f"#/messages/{message_id}")
    shown = page.get_by_label("Payload")
    expect(shown).to_contain_text('"note": "<img src=x onerror=alert(1)>"')
    expect(shown.locator("img")).to_have_count(0)


def test_the_inbox_of_an_agent_shows_its_card_and_its_key(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    identity = Identity.new("agent.carded")
    card = AgentCard(description="Adds <b>numbers</b>.", skills=["sum", "mean"], version="1.0")
    with connect(relay.url, identity, options=ClientOptions(card=card)):
        page = open_page("#/inboxes/agent.carded")
        section = page.locator("section").filter(has=page.get_by_role("heading", name="Agent"))
        expect(section).to_contain_text("Adds <b>numbers</b>.")
        expect(section).to_contain_text("sum, mean")
        expect(section).to_contain_text(identity.public_key)
    relay.publish("agent.uncarded")
    page = open_page("#/inboxes/agent.uncarded")
    expect(page.get_by_role("heading", name="By sender")).to_be_visible()
    expect(page.get_by_role("heading", name="Agent", exact=True)).to_be_hidden()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"message_id": "said-later", "delay": 3600}, "scheduled"),
        ({"message_id": "said-nowhere", "subject": "service.unknown"}, "no endpoint matched"),
    ],
)
def test_a_message_says_what_has_become_of_it(
    open_page: OpenPage, relay: DashboardRelay, fields: dict[str, object], status: str
) -> None:
    relay.ask("POST", "/v1/messages", json={"subject": "agent.said", "payload": 1, **fields})
    page = open_page(f"#/messages/{fields['message_id']}")
    expect(page.locator(".lead .badge")).to_have_text(status)


def test_a_dead_letter_says_so_on_its_own_page(open_page: OpenPage, relay: DashboardRelay) -> None:
    relay.dead_letter("agent.said", "said-dead")
    page = open_page("#/messages/said-dead")
    expect(page.locator(".lead .badge")).to_have_text("rejected, and kept as a dead letter")


def test_the_cause_of_a_state_change_names_a_setting_that_exists(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page()
    words = page.evaluate("import('./dashboard/views/breakers.js').then((one) => one.OCCASIONS)")
    assert set(words) == {str(one) for one in Occasion if "_" in one}
    keys = relay.ask("GET", "/v1/config")["settings"]["reliability"]["circuitBreaker"]
    assert {text.split()[0] for text in words.values()} <= set(keys)
