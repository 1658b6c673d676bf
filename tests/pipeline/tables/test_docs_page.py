"""docs/tables.md lists exactly the columns of every table, in order."""

import re
from pathlib import Path

import duckdb
import pytest

from tests.pipeline.tables.conftest import BuiltLake
from waypost.pipeline.tables import anomalies, senders
from waypost.pipeline.tables.comments import COMMENTS
from waypost.pipeline.tables.registry import TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()


def _section(title: str) -> str:
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n", 1)[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("table", TABLES)
def test_the_page_names_exactly_the_columns_of_a_table(table: str) -> None:
    columns = _section(table).split("| column | |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in columns.splitlines() if line.startswith("| ")]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == TABLES[table].names


@pytest.mark.parametrize("table", TABLES)
def test_the_page_describes_columns_as_their_comments_do(table: str) -> None:
    rows = _section(table).split("| column | |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    described: dict[str, str] = {}
    for row in rows.splitlines():
        _, names, text, _ = (cell.strip() for cell in row.split("|"))
        if text:
            without_links = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
            described[names.replace("`", "")] = without_links
    assert described == COMMENTS[table]


def test_the_page_names_exactly_the_tables() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]", PAGE, flags=re.MULTILINE)
    assert listed == list(TABLES)


def test_the_page_states_the_thresholds_of_anomalies() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", _section("anomalies"), re.MULTILINE))
    numbers = {kind: [int(number) for number in re.findall(r"\d+", rows[kind])] for kind in rows}
    assert numbers["flood"] == [anomalies.FLOOD_REJECTIONS_MIN]
    assert numbers["one_way"] == [
        anomalies.ONE_WAY_PUBLISHES_MIN,
        anomalies.ONE_WAY_RECIPIENTS_MIN,
        anomalies.ONE_WAY_SINGLE_MIN,
        anomalies.EARLIER_DAYS,
    ]
    assert numbers["burst"] == [
        anomalies.BURST_MINUTE_MIN,
        anomalies.BURST_FACTOR,
        anomalies.BURST_DAYS_MIN,
        anomalies.EARLIER_DAYS,
    ]


def test_the_files_found_as_on_the_page_make_up_the_table(by_hand: BuiltLake) -> None:
    (snippet,) = re.findall(r"```python\n(import json.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    files = names["files"]
    assert callable(files)
    found_files = files(by_hand.lake.path, senders.NAME)
    found = duckdb.sql(f"SELECT day, sender FROM read_parquet({found_files})").fetchall()
    wanted = by_hand.lake.read(senders.NAME, senders.SCHEMA).select("day", "sender").collect()
    assert sorted(found) == sorted(tuple(row) for row in wanted)
