"""A browser per module and one relay. An error on the page fails its test."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.dashboard.dashboard_relay import DashboardRelay

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 60_000

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardRelay]:
    served = DashboardRelay(tmp_path_factory.mktemp("dashboard") / "data")
    yield served
    assert served.end() == 0


@pytest.fixture
def own_relay(tmp_path: Path) -> Iterator[DashboardRelay]:
    """A relay for one test alone."""
    served = DashboardRelay(tmp_path / "data")
    yield served
    served.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("these tests need a browser: apt install chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def open_page(context: BrowserContext, relay: DashboardRelay) -> Iterator[OpenPage]:
    """Return a function that opens the dashboard at a route, signed in by default."""
    problems: list[str] = []

    def opening(route: str = "#/", *, signed_in: bool = True, at: DashboardRelay = relay) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda said: _note(problems, said.type, said.text))
        if signed_in:
            script = f"sessionStorage.setItem('waypost.operator', '{at.token}')"
            page.add_init_script(script)
        page.goto(f"{at.url}/{route}")
        return page

    yield opening
    assert problems == []


def _note(problems: list[str], kind: str, text: str) -> None:
    """Record errors of the page; failed requests are not among them."""
    if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
        problems.append(text)
