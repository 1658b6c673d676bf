"""The files of the dashboard, and its own requests: usage of an inbox, pipeline results."""

import re
from importlib import resources

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.policy.tiers import QosConfig
from waypost.server.context import ServeOptions

ROOT = resources.files("waypost.server") / "dashboard"
FILES = sorted(
    f"{folder.name}/{file.name}"
    for folder in ROOT.iterdir()
    if folder.is_dir()
    for file in folder.iterdir()
)
SCRIPTS = [one for one in FILES if one.endswith(".js")]


def source(name: str) -> str:
    folder, file = name.split("/")
    return (ROOT / folder / file).read_text()


async def test_everything_the_page_refers_to_is_served(served: HttpRelay) -> None:
    page = await served.call("GET", "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert len(named) > 5
    for path in named:  # relative: a partition's page is below a path
        assert (await served.call("GET", f"/{path}")).status_code == 200, path


@pytest.mark.parametrize("name", SCRIPTS)
async def test_every_import_of_a_script_exists(name: str) -> None:
    folder = name.split("/", maxsplit=1)[0]
    for path in re.findall(r'from "(.+)"', source(name)):
        target = path.removeprefix("../") if path.startswith("../") else f"{folder}/{path[2:]}"
        assert target in FILES, path


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_parses_text_as_markup(name: str) -> None:
    makes = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source(name)
    )
    assert makes == (["outerHTML"] if name == "parts/report_frame.js" else [])


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_stay_small(name: str) -> None:
    assert len(source(name).splitlines()) <= 300


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("app/main.js", "text/javascript; charset=utf-8"),
        ("style/page.css", "text/css; charset=utf-8"),
        ("style/icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_is_sent_once_until_it_changes(
    served: HttpRelay, name: str, media_type: str
) -> None:
    first = await served.call("GET", f"/dashboard/{name}")
    assert first.headers["content-type"] == media_type
    assert first.headers["x-content-type-options"] == "nosniff"
    tag = first.headers["etag"]
    again = await served.call("GET", f"/dashboard/{name}", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    other = await served.call("GET", f"/dashboard/{name}", headers={"If-None-Match": '"old"'})
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize(
    "name", ["app/none.js", "app/..", "../page.html", "app/%2e%2e%2fpage.html"]
)
async def test_only_files_of_the_dashboard_are_served(served: HttpRelay, name: str) -> None:
    assert (await served.call("GET", f"/dashboard/{name}")).status_code in (400, 404)


async def test_an_inbox_lists_its_senders_with_tiers_and_quotas(
    served: HttpRelay,
) -> None:
    friend, owner = await served.token("agent.friend"), await served.token("agent.a")
    await served.publish("agent.friend", token=owner)
    for _ in range(2):
        await served.publish("agent.a", "x" * 100, token=friend)
    await served.publish("agent.a")
    response = await served.call("GET", "/v1/endpoints/agent.a/usage", token=served.operator)
    detail = response.json()
    senders = [(one["sender"], one["messages"], one["tier"]) for one in detail["senders"]]
    assert senders == [("agent.friend", 2, 3), ("_anonymous", 1, 1)]
    tiers = [(one["senders"], one["messages"], one["max_messages"]) for one in detail["tiers"]]
    assert tiers == [(1, 1, 20), (0, 0, 100), (1, 2, 500)]
    assert (detail["pending"], detail["messages_max"], detail["registered"]) == (3, 1000, True)


async def test_without_quotas_no_limits_are_reported(serve: Serve) -> None:
    served = await serve(qos=QosConfig(enabled=False))
    await served.publish("agent.a")
    response = await served.call("GET", "/v1/endpoints/agent.a/usage", token=served.operator)
    assert {one["max_messages"] for one in response.json()["tiers"]} == {None}


async def test_the_usage_of_an_unknown_inbox_is_404(served: HttpRelay) -> None:
    response = await served.call("GET", "/v1/endpoints/agent.nobody/usage", token=served.operator)
    assert response.status_code == 404


async def test_without_a_lake_there_is_no_report(served: HttpRelay) -> None:
    response = (await served.call("GET", "/v1/pipeline", token=served.operator)).json()
    assert (response["report"], response["backtest_file"], response["problem"]) == (None, None, "")
    missing = await served.call("GET", "/v1/pipeline/report", token=served.operator)
    assert missing.status_code == 404
    assert "waypost pipeline run" in missing.json()["error"]


async def test_a_report_is_served_with_a_policy_against_scripts(served: HttpRelay) -> None:
    served.context.lake.mkdir()
    (served.context.lake / "report.html").write_text("<h1>Twelve days</h1>")
    response = await served.call("GET", "/v1/pipeline/report", token=served.operator)
    assert response.text == "<h1>Twelve days</h1>"
    assert "sandbox" in response.headers["content-security-policy"]


async def test_a_lake_may_be_in_another_directory(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = tmp_path_factory.mktemp("lake")
    (lake / "backtest.json").write_text('{"messages": 7, "differences": 0}')
    served = await serve(ServeOptions(lake=lake))
    response = (await served.call("GET", "/v1/pipeline", token=served.operator)).json()
    assert (response["lake"], response["backtest"]["messages"]) == (str(lake), 7)


async def test_an_invalid_backtest_is_reported_as_a_problem(served: HttpRelay) -> None:
    served.context.lake.mkdir()
    (served.context.lake / "backtest.json").write_text("[1")
    response = (await served.call("GET", "/v1/pipeline", token=served.operator)).json()
    assert "backtest.json cannot be read" in response["problem"]
