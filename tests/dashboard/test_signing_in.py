"""Sign-in, and the storage of the token."""

from playwright.sync_api import BrowserContext, Page, expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import DashboardRelay


def sign_in(page: Page, token: str, *, remember: bool = False) -> None:
    page.get_by_label("Token").fill(token)
    if remember:
        page.get_by_label("Remember on this device").check()
    page.get_by_role("button", name="Sign in").click()


def test_a_wrong_token_shows_the_path_of_the_right_one_and_is_not_retried(
    open_page: OpenPage,
) -> None:
    page = open_page(signed_in=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, "guess")
    expect(page.get_by_role("alert").filter(has_text="DATA_DIR/operator-token")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    page.wait_for_timeout(1500)  # a retry loop would show by then
    assert len([one for one in asked if "/v1/" in one]) == 1


def test_a_token_is_in_no_address_and_deleted_with_the_tab(
    open_page: OpenPage, relay: DashboardRelay, context: BrowserContext
) -> None:
    page = open_page(signed_in=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, relay.token)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    assert any("/v1/live" in one for one in asked)
    assert not any(relay.token in one for one in [*asked, page.url])
    assert page.evaluate("localStorage.length") == 0
    other = open_page(signed_in=False)
    expect(other.get_by_label("Token")).to_be_visible()


def test_a_remembered_token_is_not_asked_for_again_until_signed_out(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page(signed_in=False)
    sign_in(page, relay.token, remember=True)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    other = open_page("#/agents", signed_in=False)
    expect(other.get_by_role("heading", name="Agents")).to_be_visible()
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_label("Token")).to_be_visible()
    assert other.evaluate("localStorage.getItem('waypost.operator')") is None


def test_a_stored_token_that_became_invalid_is_asked_for_once(
    open_page: OpenPage, context: BrowserContext
) -> None:
    context.add_init_script("sessionStorage.setItem('waypost.operator', 'an old one')")
    page = open_page("#/inboxes", signed_in=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="DATA_DIR/operator-token")).to_be_visible()
    page.wait_for_timeout(1500)
    assert [one for one in asked if "/v1/" in one] == []


def test_the_page_loads_nothing_from_other_hosts_and_cannot_be_framed(
    open_page: OpenPage, relay: DashboardRelay
) -> None:
    page = open_page(signed_in=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.reload()
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert all(one.startswith(relay.url) for one in asked)
