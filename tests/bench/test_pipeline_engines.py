"""The engines beside Spark: they build the same tables, from the same columns."""

from pathlib import Path
from types import ModuleType

import duckdb
import pytest

from bench.pipeline import columns, duckdb_engine, polars_engine
from bench.pipeline.journals import Journal, make_traffic
from tests.pipeline.tables.oracle import Oracle, assert_same_rows, plain_query
from waypost.pipeline.lake.events import DEFAULTS, LINE
from waypost.pipeline.tables.registry import TABLES

EVENTS = 8_000


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return make_traffic(tmp_path_factory.mktemp("traffic") / "data", EVENTS)


def test_they_read_the_columns_that_the_pipeline_reads() -> None:
    own = {field.name: field.dataType.simpleString() for field in LINE}
    for name in ("ids", "budget", "corrupt_line"):
        del own[name]
    assert own == columns.LINE
    defaults = {(name, one) for name, cases in columns.DEFAULTS.items() for one in cases}
    assert defaults == {(name, (kinds, value)) for name, kinds, value in DEFAULTS}


@pytest.mark.parametrize("engine", [duckdb_engine, polars_engine], ids=["DuckDB", "Polars"])
def test_their_tables_are_those_of_the_journal(
    engine: ModuleType, journal: Journal, tmp_path: Path
) -> None:
    lake, out = tmp_path / "lake", tmp_path / "tables"
    assert engine.ingest(str(journal.data), str(tmp_path / "own"), ["r0"]) == {
        "events": journal.events
    }
    duckdb_engine.ingest(str(journal.data), str(lake), ["r0"])
    rows = engine.build(str(lake), str(out))
    oracle = Oracle(journal.data / "journal", "r0")
    for table in engine.TABLES:
        wanted = oracle.rows(table, TABLES[table])
        files = f"FROM read_parquet('{out}/{table}/**/*.parquet', hive_partitioning = true)"
        assert_same_rows(duckdb.sql(plain_query(TABLES[table], files)).fetchall(), wanted)
        assert rows[table] == len(wanted)
