"""The page of a node: nodes, partitions, what needs attention; by keyboard, on a phone."""

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.cluster.cluster_processes import ClusterProcesses
from waypost.cluster.layout import Layout

TAKEN_OVER_MS = 60_000

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Two nodes with two partitions, on one server."""
    made = ClusterProcesses(tmp_path, servers=1, nodes=2)
    with ThreadPoolExecutor() as threads:  # the browser has an event loop in this thread
        try:
            threads.submit(asyncio.run, made.start(Layout(2, 1))).result()
            yield made
        finally:
            made.stop()


@pytest.fixture
def open_node(context: BrowserContext, cluster: ClusterProcesses) -> Callable[[], Page]:
    """Return a function that opens the page of the first node, signed in."""

    def opening() -> Page:
        node = cluster.nodes[0]
        token = (node.directory / "operator-token").read_text().strip()
        page = context.new_page()
        page.add_init_script(f"sessionStorage.setItem('waypost.operator', '{token}')")
        page.goto(node.url)
        return page

    return opening


def test_a_cluster_shows_its_nodes_and_partitions_and_what_needs_attention(
    cluster: ClusterProcesses, open_node: Callable[[], Page]
) -> None:
    page = open_node()
    expect(page.get_by_text("All 2 partitions are served.")).to_be_visible(timeout=TAKEN_OVER_MS)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    nodes = page.get_by_role("table", name="Nodes that are alive").get_by_role("rowheader")
    expect(nodes).to_have_text(["r0", "r1"])
    partitions = page.get_by_role("table", name="Partitions")
    expect(partitions.get_by_role("columnheader").first).to_have_text("Partition")
    link = partitions.get_by_role("link", name="Partition 0")
    link.focus()
    cluster.nodes[1].kill(signal.SIGKILL)
    expect(nodes).to_have_text(["r0"], timeout=TAKEN_OVER_MS)
    expect(partitions.get_by_role("row", name=re.compile("r0 serving"))).to_have_count(
        2, timeout=TAKEN_OVER_MS
    )
    expect(link).to_be_focused()  # though all was drawn anew meanwhile
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    link.press("Enter")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(page).to_have_url(re.compile("/p/0/"))
    page.go_back()
    expect(page.get_by_role("heading", name="Cluster tests")).to_be_visible()
    cluster.nodes[0].kill(signal.SIGKILL)
    gone = page.get_by_role("alert").filter(has_text="The cluster cannot be read")
    expect(gone).to_contain_text(re.compile(r"The data shown is from \d\d:\d\d:\d\d"))
    expect(page.get_by_text("Not connected")).to_be_visible()


def test_a_wrong_token_is_asked_for_again(
    cluster: ClusterProcesses, context: BrowserContext
) -> None:
    page = context.new_page()
    page.goto(cluster.nodes[0].url)
    page.get_by_label("Token").fill("guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="Wrong operator token")).to_be_visible()
