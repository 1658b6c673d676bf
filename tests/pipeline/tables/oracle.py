"""Computes the tables a second time: plain SQL over the raw journal lines, in DuckDB."""

import math
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructType, TimestampType

_FOLDER = Path(__file__).parent / "queries"
ANSWERED = sorted(path.stem for path in _FOLDER.glob("*.sql") if path.stem != "line")
"""Tables with an oracle query."""

Rows = list[tuple[Any, ...]]


class Oracle:
    """The expected tables of one journal."""

    def __init__(self, journal: Path, relay: str) -> None:
        self._base = duckdb.connect()
        view = (_FOLDER / "line.sql").read_text()
        view = view.replace("$relay", f"'{relay}'").replace("$files", f"'{journal}/*.jsonl'")
        self._base.execute(view)
        self._base.execute(f"CREATE TABLE messages AS {_query('messages')}")

    def rows(self, table: str, schema: StructType) -> Rows:
        """Return a table's rows in any order, times in µs."""
        return self._base.execute(plain_query(schema, _query(table))).fetchall()


def plain_query(schema: StructType, query: str) -> str:
    """Return a query in DuckDB's SQL with the columns of `schema`, times in µs."""
    columns = (_plain_sql(field.name, field.dataType) for field in schema)
    return f"SELECT {', '.join(columns)} FROM ({query})"


def spark_rows(table: DataFrame) -> Rows:
    """Return the rows of a Spark table in the same form."""
    return [tuple(row) for row in table.select(*map(_plain, table.schema)).collect()]


def assert_same_rows(found: Rows, wanted: Rows) -> None:
    """Assert that rows are equal as sets, with a tolerance for floating point numbers."""
    found, wanted = _sorted(found), _sorted(wanted)
    assert len(found) == len(wanted)
    different = [pair for pair in zip(found, wanted, strict=True) if not _alike(*pair)]
    assert not different, f"{len(different)} of {len(found)} rows differ, first {different[0]}"


def _query(table: str) -> str:
    return (_FOLDER / f"{table}.sql").read_text()


def _plain_sql(name: str, kind: object) -> str:
    if isinstance(kind, TimestampType):
        return f'epoch_us("{name}")'
    return f'"{name}"::VARCHAR' if isinstance(kind, DateType) else f'"{name}"'


def _plain(field: Any) -> Column:
    column = F.col(field.name)
    if isinstance(field.dataType, TimestampType):
        return F.unix_micros(column)
    return column.cast("string") if isinstance(field.dataType, DateType) else column


def _sorted(rows: Rows) -> Rows:
    """Sort by all values except floating point numbers, which suffices to identify rows."""
    return sorted(
        rows, key=lambda row: [str(value) for value in row if not isinstance(value, float)]
    )


def _alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        math.isclose(left, right, rel_tol=1e-9)
        if isinstance(left, float) and right is not None
        else left == right
        for left, right in zip(one, other, strict=True)
    )
