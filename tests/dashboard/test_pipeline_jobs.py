"""The report refreshed and a backtest run from the dashboard, with the real pipeline."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.dashboard_relay import ServedRelay

JOB_MS = 240_000
TIGHTER = '{"reliability": {"rateLimit": {"maxPerWindow": 2}}}'


@pytest.fixture
def served_relay(tmp_path: Path) -> Iterator[ServedRelay]:
    served = ServedRelay(tmp_path / "data")
    yield served
    assert served.end() == 0


@pytest.mark.spark
@pytest.mark.slow
def test_a_report_is_created_and_a_change_of_settings_is_tried_on_history(
    open_page: OpenPage, served_relay: ServedRelay
) -> None:
    for _ in range(5):
        served_relay.publish("agent.billing")
    page = open_page("#/pipeline", at=served_relay)
    page.get_by_role("button", name="Create a report").click()
    expect(page.get_by_text(re.compile("^(Starting Spark|Writing the report)…"))).to_be_visible()
    expect(page.get_by_text(re.compile("^Done in"))).to_be_visible(timeout=JOB_MS)
    page.get_by_role("button", name="Show the report").click()
    expect(page.frame_locator("iframe").get_by_role("heading").first).to_be_visible()
    expect(page.get_by_role("button", name="Refresh the report")).to_be_enabled()

    page = open_page("#/settings", at=served_relay)
    replay = page.get_by_role("button", name="What would this change have done?")
    expect(replay).to_be_disabled()  # nothing has changed yet
    page.get_by_label("config.json").fill(TIGHTER)
    replay.click()
    outcome = "Under these settings, of 5 messages, 3 would have been decided differently."
    expect(page.get_by_text(outcome)).to_be_visible(timeout=JOB_MS)
    expect(page.get_by_role("row", name="stored rate limit 3")).to_be_visible()
    assert served_relay.ask("GET", "/v1/config")["config"] == {}  # nothing was saved


def test_without_the_pipeline_a_job_names_what_to_install(
    open_page: OpenPage, tmp_path: Path
) -> None:
    class WithoutSpark(ServedRelay):
        """A relay whose jobs find no pyspark."""

        def arguments(self, port: int) -> list[str]:
            arguments = super().arguments(port)
            hidden = tmp_path / "hidden"
            hidden.mkdir()
            hidden.joinpath("sitecustomize.py").write_text(
                "import sys\nsys.modules['pyspark'] = None\n"
            )
            self.environment = {**self.environment, "PYTHONPATH": str(hidden)}
            return arguments

    served = WithoutSpark(tmp_path / "data")
    page = open_page("#/pipeline", at=served)
    page.get_by_role("button", name="Create a report").click()
    expect(page.get_by_text("The job failed while writing the report.")).to_be_visible(
        timeout=60_000
    )
    expect(page.get_by_text("pip install 'waypost[spark]'")).to_be_visible()
    assert served.end() == 0
