"""Other engines read every table as a Delta table, with the same rows and columns."""

import re
from pathlib import Path

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from tests.pipeline.tables.conftest import BuiltLake
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE
from waypost.pipeline.tables import messages, senders
from waypost.pipeline.tables.registry import TABLES

ALL: dict[str, StructType] = {EVENTS_TABLE: EVENTS, **TABLES}

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "read-the-tables-from-other-engines.md"


def rows(table: pa.Table, schema: pa.Schema) -> list[str]:
    return sorted(str(row) for row in table.select(schema.names).cast(schema).to_pylist())


def test_polars_and_deltalake_read_every_table_as_the_lake_does(
    by_hand: BuiltLake, simulated: BuiltLake
) -> None:
    for lake in (by_hand.lake, simulated.lake):
        for table, schema in ALL.items():
            ours = lake.read(table, schema).toArrow()
            wanted = rows(ours, ours.schema)
            uri = f"{lake.path}/{table}"
            assert rows(polars.read_delta(uri).to_arrow(), ours.schema) == wanted, table
            assert rows(DeltaTable(uri).to_pyarrow_table(), ours.schema) == wanted, table


def test_a_filter_finds_the_same_rows_although_it_skips_files(by_hand: BuiltLake) -> None:
    ours = by_hand.lake.read(messages.NAME, messages.SCHEMA).toArrow()
    scan = polars.scan_delta(f"{by_hand.lake.path}/{messages.NAME}")
    everything = polars.from_arrow(ours)
    assert isinstance(everything, polars.DataFrame)
    for column in ("day", "endpoint", "sender", "state", "arrived_at", "finished_at", "seq"):
        for value in everything[column].unique():
            wanted = everything.filter(polars.col(column).eq_missing(value)).height
            found = scan.filter(polars.col(column).eq_missing(value)).collect().height
            assert found == wanted, (column, value)


def test_columns_have_the_comments_of_the_documentation(by_hand: BuiltLake) -> None:
    fields = {
        field.name: field.metadata.get("comment")
        for field in DeltaTable(f"{by_hand.lake.path}/{messages.NAME}").schema().fields
    }
    assert fields["tier"] == "1 unknown, 2 acknowledged, 3 active"
    assert fields["part"] == "part, parts: index of this mailbox, and number of mailboxes"


def test_a_commit_names_the_version_of_the_lake(by_hand: BuiltLake) -> None:
    [newest] = DeltaTable(f"{by_hand.lake.path}/{messages.NAME}").history(1)
    assert newest["waypostLakeVersion"] == by_hand.lake.manifest.version


def test_the_lines_on_the_page_read_a_table(
    by_hand: BuiltLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(by_hand.lake.path).parent)
    page = PAGE.read_text()
    wanted = {row.sender for row in by_hand.lake.read(senders.NAME, senders.SCHEMA).collect()}
    lines = re.findall(r"^\| [^|]* \| `((?:polars|deltalake|duckdb)\..+)` \|$", page, re.MULTILINE)
    [scan, frame, relation] = [
        eval(line, {"deltalake": deltalake, "duckdb": duckdb, "polars": polars}) for line in lines
    ]
    assert set(scan.collect()["sender"]) == wanted
    assert set(frame["sender"]) == wanted
    assert {sender for (sender,) in relation.select("sender").fetchall()} == wanted
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(program, {})
    assert "publishes" in capsys.readouterr().out
