"""deploy/grafana and deploy/prometheus use existing metrics."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.serve_process import serving
from tests.cluster.cluster_processes import running_cluster
from tests.eventually import eventually_blocking
from tests.packaging.distribution import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "waypost.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SELECTOR = re.compile(r"\b((?:waypost_\w+|up))(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
OF_PROMETHEUS = {"up", "instance", "job"}
NOT_SHOWN = {"waypost_agent_rate_limit_rejections"}  # the same as the reason rate_limited


class Series(NamedTuple):
    """Return the metrics of a relay and of a node: names, and the labels of each sample."""

    families: set[str]
    samples: dict[str, list[dict[str, str]]]


def metrics_at(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


async def node_metrics(directory: Path) -> str:
    """Return the metrics of a node that owns a partition."""
    async with running_cluster(directory, servers=1, nodes=1, partitions=1) as cluster:
        text = ""

        def is_owner() -> bool:
            nonlocal text
            text = metrics_at(cluster.urls)
            return 'waypost_partition_owned{partition="0"} 1.0' in text

        await asyncio.to_thread(eventually_blocking, is_owner, "an owner", timeout_s=60.0)
    return text


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    with serving(tmp_path_factory.mktemp("watched")) as relay:
        urllib.request.urlopen(f"{relay.url}/healthz", timeout=60).close()
        text = metrics_at(relay.url)
    text += asyncio.run(node_metrics(tmp_path_factory.mktemp("node")))
    found = Series(set(), {})
    for family in text_string_to_metric_families(text):
        if not family.name.endswith("_created"):  # the start of a counter
            found.families.add(family.name)
        for sample in family.samples:
            found.samples.setdefault(sample.name, []).append(sample.labels)
    return found


def panels() -> list[dict[str, Any]]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [one for one in board["panels"] if one["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def queries() -> Iterator[Any]:
    for panel in panels():
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"panel: {panel['title']} {target['refId']}")
    for rule in rules():
        yield pytest.param(rule["expr"], id=f"alert: {rule['alert']}")


@pytest.mark.process
@pytest.mark.parametrize("query", list(queries()))
def test_every_query_uses_existing_metrics(series: Series, query: str) -> None:
    selectors = SELECTOR.findall(query)
    assert selectors
    for name, matchers in selectors:
        if name in OF_PROMETHEUS:
            continue
        assert name in series.samples
        labels = series.samples[name]
        for label, operator, value in MATCHER.findall(matchers):
            if label in OF_PROMETHEUS:
                continue
            assert all(label in one for one in labels), f"{name} has no {label}"
            if operator == "=" and label != "status":  # a status exists after its first response
                assert value in {one[label] for one in labels}, f"{name} is never {label}={value}"


@pytest.mark.process
def test_the_dashboard_shows_every_metric(series: Series) -> None:
    asked = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    shown = {re.sub(r"_(total|bucket)$", "", name) for name, _ in SELECTOR.findall(asked)}
    assert series.families - shown - NOT_SHOWN == set()


def test_every_panel_has_a_title_and_its_own_position() -> None:
    assert [one["title"] for one in panels() if not one["description"]] == []
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_has_a_description_and_a_section_in_the_docs() -> None:
    page = Path(ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} <= set(rule["annotations"])
        assert f"`{rule['alert']}`" in page
